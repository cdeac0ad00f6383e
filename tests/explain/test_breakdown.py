"""Sums of a path by its labels: by codes they are what pandas makes of the segments."""

from __future__ import annotations

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from htagraph.errors import QueryError
from htagraph.explain.breakdown import sum_by
from htagraph.explain.segments import LABELS
from htagraph.findings.path import CriticalPath
from htagraph.model.frames import BREAKDOWN
from htagraph.run.trace import Trace
from htagraph.synth import timeline
from tests.synth.simulator import simulate
from tests.synth.training import training_rank


@pytest.fixture(scope="module")
def path() -> CriticalPath:
    """The path of a simulated rank."""
    events = simulate(training_rank(steps=2, layers=2)).events
    return Trace.from_events(events).compile().critical_path()


@pytest.mark.parametrize("by", LABELS)
def test_a_breakdown_is_the_sum_of_the_segments_by_their_labels(path: CriticalPath, by: str):
    """The largest first, of two that are as long the one that comes first; labels are objects."""
    expected = sum_by(path.segments, by, path.dur_ns, BREAKDOWN)
    expected.index = pd.Index(expected.index.astype(object), name=by)

    assert_frame_equal(path.breakdown(by=by), expected)


def test_a_breakdown_by_what_is_no_label_says_which_there_are(path: CriticalPath):
    with pytest.raises(QueryError, match="by 'dur_ns'") as raised:
        path.breakdown(by="dur_ns")

    assert raised.value.hint == "by bound, kind, name, op, track, rule, step."


def test_of_parts_that_are_as_long_the_one_that_comes_first_is_first() -> None:
    """`relu` and `tanh` take 6 us each, `gemm` 9; in the file, `relu` comes first."""
    events = timeline("""
        stream 7 |      [relu]
        stream 7 |[tanh]      [gemm   ]
    """)
    path = Trace.from_events(events).compile().critical_path()

    assert path.breakdown(by="name").index.tolist() == ["gemm", "tanh", "relu"]


def test_segments_are_cut_where_a_step_is_done() -> None:
    """Each kernel is done 6 or 8 us after the host's range; the path stays on the host."""
    events = timeline("""
        us       |0         10        20        30
        cpu 1    |{ProfilerStep#0}{ProfilerStep#1  }[aten::mm]
        stream 7 |[k1                  ][k2                ]
    """)
    path = Trace.from_events(events).compile().window("trace").critical_path()
    by_step = path.breakdown(by="step").reset_index()

    assert by_step[["step", "dur_ns", "n_segments"]].to_numpy().tolist() == [
        ["ProfilerStep#0", 22_000, 2],
        ["ProfilerStep#1", 20_000, 2],
        ["(outside steps)", 2_000, 1],
    ]
