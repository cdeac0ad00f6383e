"""How many of the candidates are replayed together, in pairs, and by every reading."""

from __future__ import annotations

import pandas as pd
import pytest

from htagraph.replay.candidates import Candidate
from htagraph.replay.changes import Change, Scale
from htagraph.replay.predictions import Trials
from htagraph.replay.rehearsal import Rehearsal
from tests.replay.drawn import drawn


def _predicted(drawing: str, *asked: tuple[Change, ...]) -> pd.DataFrame:
    """Predictions of changes made together, each with a target of its own."""
    graph = drawn(drawing)
    made = [Candidate("operator", str(number), changes) for number, changes in enumerate(asked)]
    return Trials(Rehearsal(graph.dag, graph.interval), tuple, lambda: made).opportunities


def test_the_next_bottleneck_of_ten_changes_is_found():
    names = [f"op{number}" for number in range(25)]
    drawing = "cpu 1 |" + "".join(f"[{name}    ]" for name in names)

    found = _predicted(drawing, *((Scale(name, 0.0),) for name in names))

    assert len(found) == len(names)
    assert (found["then_bound"] != "").sum() == 10


def test_six_changes_are_tried_in_pairs():
    """All shorten the same operator, so each shares with the first."""
    found = _predicted("cpu 1 |[a      ]", *((Scale("a", by / 100),) for by in range(15)))

    assert found["shares_with"].tolist() == [-1, *[0] * 5, *[-1] * 9]


@pytest.mark.parametrize(("by", "shares"), [(0.65, True), (0.9, False)])
def test_what_saves_less_than_nine_tenths_of_the_sum_is_shared(by, shares):
    """`a` and `b` take 100 us each: together 200, apart 100 and 100 plus what `a` is shorter."""
    drawing = f"cpu 1 |[a{' ' * 97}][b{' ' * 97}]"

    found = _predicted(drawing, (Scale("a", 0.0),), (Scale("a", by), Scale("b", 0.0)))

    assert bool(found["shares_with"].max() >= 0) is shares


@pytest.mark.parametrize(("share", "is_interval"), [(0.0015, False), (0.003, True)])
def test_small_savings_are_replayed_by_one_reading(share, is_interval):
    """The collective is 42 of 48 us. If other ranks do not change, it ends no earlier."""
    drawing = """
        cpu 1    |[launch >a]
        stream 7 |      [ncclAllReduce <a                        ]
    """

    found = _predicted(drawing, (Scale("ncclAllReduce", 1 - share * 48 / 42),)).iloc[0]

    assert bool(found["low_ns"] < found["saves_ns"]) is is_interval
