"""Where DataLoaders spend their time."""

from __future__ import annotations

import pytest

from htagraph.compiler.passes import compile_events
from htagraph.lookup.data_loaders import find_loading
from htagraph.synth import timeline

NAMES = {
    "one": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "many": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
    "pin": "aten::pin_memory",
}


@pytest.mark.parametrize(
    ("drawing", "loading"),
    [
        ("cpu 1 |{one     }{many    }", "in process"),
        ("cpu 1 |{one     }{many     }", "by workers"),
        ("cpu 1 |{many [op     ]  }", "by workers"),
        ("cpu 1 |{many [op      ] }", "after workers"),
        ("cpu 1 |{many    }\ncpu 2 |[pin]", "by workers"),
        ("cpu 1 |{many    }\ncpu 2 |[pin ]", "pinned by a thread"),
    ],
)
def test_time_of_loading_is_where_more_than_half_of_it_is(drawing: str, loading: str) -> None:
    """Each twice: where half of the time is, and where more is."""
    names = {short: name for short, name in NAMES.items() if short in drawing}

    assert find_loading(compile_events(timeline(drawing, names=names))) == loading
