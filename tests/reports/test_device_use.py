"""How full devices are, in words."""

from __future__ import annotations

import pandas as pd
import pytest

import htagraph as hg
from htagraph.model.dag import Dag
from htagraph.reports.markdown import losses_in_words, seems_busier, use_in_words
from tests.queries.gridded import gridded


def graph(dag: Dag) -> hg.TraceGraph:
    """The graph of a whole trace."""
    return hg.TraceGraph(dag, dag.span)


def test_full_utilisation_of_a_sixteenth_is_said_in_one_sentence() -> None:
    """One block of 4 warps on one of 4 SMs."""
    full = graph(gridded("stream 7 |[k     ]", k=(1, 128)))

    assert use_in_words(full.utilization()) == (
        "A kernel runs 100% of the time, on 25% of the SMs, and fills 25% of their warp slots: "
        "6.2% of all (estimated)."
    )
    assert losses_in_words(full.utilization_losses()) == (
        "Empty warp slots: 75% because grids have fewer blocks than the device has SMs, 19% "
        "because grids have fewer blocks than fit."
    )
    assert seems_busier(full.utilization())


def test_what_is_known_of_a_part_says_so() -> None:
    """8 of 12 us of kernels have a grid."""
    part = graph(gridded("stream 7 |[k     ][x ]", k=(4, 512)))

    assert use_in_words(part.utilization()).endswith("(estimated from 67% of the time of kernels).")


@pytest.mark.parametrize(
    ("drawing", "said"),
    [
        (
            "stream 7 |[x ]",
            (
                "A kernel runs 100% of the time; too few launch geometries are recorded to tell "
                "how full the device is then."
            ),
        ),
        ("stream 7 |[Memset]", "A kernel runs 0% of the time."),
        ("cpu 1 |[op ]", ""),
    ],
)
def test_nothing_is_said_of_what_is_not_known(drawing: str, said: str) -> None:
    found = graph(gridded(drawing)).utilization()

    assert use_in_words(found) == said
    assert not seems_busier(found)


def test_several_devices_are_told_by_their_means() -> None:
    """Of a job, or of a rank with two."""
    shares = {"gpu_utilization": [1.0, 0.5], "sm_activity": [0.5, 0.25]}
    used = pd.DataFrame(shares | {"sm_occupancy": [0.25, 0.125], "grid_coverage": [1.0, 1.0]})

    assert use_in_words(used).startswith(
        "On average of devices, a kernel runs 75% of the time, on 50% of the SMs"
    )
