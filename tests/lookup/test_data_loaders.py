"""Where most of the time of DataLoaders goes: more than half decides."""

from __future__ import annotations

import pytest

from htagraph.compiler.passes import compile_events
from htagraph.lookup.data_loaders import find_loading
from htagraph.synth import timeline

ALONE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


@pytest.mark.parametrize(
    ("first", "second", "loading"),
    [(WORKERS, ALONE, "by workers"), (ALONE, WORKERS, "in process")],
)
def test_of_two_loaders_the_one_that_takes_longer_counts(first, second, loading):
    """11 of 21 us."""
    events = timeline("cpu 1 |{first    }{second  }", names={"first": first, "second": second})

    assert find_loading(compile_events(events)) == loading


@pytest.mark.parametrize(
    ("drawing", "loading"),
    [
        ("cpu 1 |{load              }\ncpu 1 |   [collate  ]", "after workers"),
        ("cpu 1 |{load              }\ncpu 1 |   [collate]", "by workers"),
        ("cpu 1 |{load              }\ncpu 2 |   [pin      ]", "pinned by a thread"),
        ("cpu 1 |{load              }\ncpu 2 |   [pin    ]", "by workers"),
        ("cpu 1 |{load              }\ncpu 1 |                     [pin      ]", "by workers"),
    ],
)
def test_what_follows_the_workers_counts_if_it_takes_most_of_the_time(drawing, loading):
    """11 or 9 of 20 us: operators in the step, or a thread that pins."""
    names = {"load": WORKERS} | ({"pin": "aten::pin_memory"} if "pin" in drawing else {})

    assert find_loading(compile_events(timeline(drawing, names=names))) == loading
