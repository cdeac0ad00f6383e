"""Which candidates are replayed by every reading."""

from __future__ import annotations

import pandas as pd
import pytest

from htagraph.replay.candidates import Candidate
from htagraph.replay.changes import Change, scale
from htagraph.replay.charges import Charges
from htagraph.replay.predictions import Trials
from htagraph.replay.rehearsal import Rehearsal
from tests.replay.drawn import drawn


def _predicted(drawing: str, *asked: tuple[Change, ...]) -> pd.DataFrame:
    """Predictions of changes made together, each with a target of its own."""
    graph = drawn(drawing)
    made = [Candidate("operator", str(number), changes) for number, changes in enumerate(asked)]
    rehearsal = Rehearsal(graph.dag, graph.interval)

    def charges() -> Charges:
        return Charges.of(graph.dag, rehearsal.replay)

    return Trials(rehearsal, charges, lambda _: (), lambda: made).opportunities


@pytest.mark.parametrize(("share", "is_interval"), [(0.0015, False), (0.003, True)])
def test_small_savings_are_replayed_by_one_reading(share, is_interval):
    """The collective is 42 of 48 us. If other ranks do not change, it ends no earlier."""
    drawing = """
        cpu 1    |[launch >a]
        stream 7 |      [ncclAllReduce <a                        ]
    """

    found = _predicted(drawing, (scale("ncclAllReduce", by=1 - share * 48 / 42),)).iloc[0]

    assert bool(found["low_ns"] < found["saves_ns"]) is is_interval
