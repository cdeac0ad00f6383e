"""Sums of a path by its labels: by codes they are what pandas makes of the segments."""

from __future__ import annotations

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from htagraph.errors import QueryError
from htagraph.explain.breakdown import sum_by
from htagraph.explain.segments import LABELS
from htagraph.model.frames import BREAKDOWN
from htagraph.path import CriticalPath
from htagraph.trace import Trace
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
