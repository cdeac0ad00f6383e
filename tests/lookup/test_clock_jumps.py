"""A clock that was set during the capture shows: what was caused is recorded before its cause."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import htagraph as hg
from htagraph.model.kinds import DEVICE_CLOCK_KINDS, EventKind, among
from htagraph.synth import timeline
from tests.event_rows import taken
from tests.synth.simulator import simulate
from tests.synth.training import training_rank


@pytest.mark.parametrize(
    ("back_ns", "kinds"), [(0, []), (200_000, []), (2_000_000, ["lost times"])]
)
def test_a_clock_that_was_set_back_is_damage(back_ns, kinds):
    """By more than two clocks of one machine are apart: work begins before its launch."""
    events = simulate(training_rank(steps=2, layers=2)).events
    at_ns = int(np.median(events.ts_ns))
    moved = np.where(events.ts_ns > at_ns, events.ts_ns - back_ns, events.ts_ns)
    found = hg.Trace.from_events(replace(events, ts_ns=moved)).compile().damage()

    assert found["kind"].tolist() == kinds
    if kinds:
        assert "a clock was set during the capture" in found["consequence"][0]


@pytest.mark.parametrize(("early_us", "kinds"), [(0, []), (150, []), (250, ["lost times"])])
def test_waits_that_end_long_before_their_work_are_damage(early_us, kinds):
    """Work begins before its launch and ends with the wait: no shift of its clock mends both."""
    early = " " * early_us
    events = timeline(f"""
        cpu 1    |{early}   [L >a][streamsync @7 ]
        stream 7 |   [k <a {early}               ]
    """)
    found = hg.Trace.from_events(events).compile().damage()

    assert found["kind"].tolist() == kinds


@given(
    ahead_ns=st.integers(300_000, 5_000_000),
    since=st.sampled_from([0.0, 0.25, 0.5]),
    has_records=st.booleans(),
)
def test_a_device_clock_that_was_set_forward_is_moved_back_or_damage(ahead_ns, since, has_records):
    """Law: by any time, from any part of the run on, no bound changes silently."""
    events = simulate(training_rank(steps=4, layers=2, fault="sync_in_loop")).events
    events = taken(events, np.flatnonzero(has_records | (events.kind != EventKind.SYNC)))
    is_ahead = among(events.kind, DEVICE_CLOCK_KINDS)
    is_ahead &= events.ts_ns >= int(np.quantile(events.ts_ns, since))
    ahead = replace(events, ts_ns=events.ts_ns + np.where(is_ahead, ahead_ns, 0))
    was, now = (shares(hg.Trace.from_events(one).compile()) for one in (events, ahead))
    moved = [abs(was.get(bound, 0) - now.get(bound, 0)) for bound in was | now]

    assert len(hg.Trace.from_events(ahead).compile().damage()) or max(moved) < 0.05


def shares(graph):
    """Share of each bound of the path."""
    sums = graph.critical_path().sums()
    return dict(zip(sums["bound"], sums["dur_ns"] / sums["dur_ns"].sum(), strict=True))
