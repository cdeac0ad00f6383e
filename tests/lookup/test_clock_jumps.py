"""A clock that was set during the capture shows: what was caused is recorded before its cause."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import htagraph as hg
from htagraph.synth import timeline
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
