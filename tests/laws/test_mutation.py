"""Traces whose meaning was broken, and times at the ends of what an integer holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from htagraph.model.events import EventTable
from htagraph.synth import simulate, timeline, training_rank
from htagraph.trace import Trace
from tests.laws import job_mutation, mutation

_LAST_NS = (1 << 62) - 1
"""The reader lets no time pass beyond."""


@pytest.mark.parametrize("seed", [1, 2])
def test_a_trace_of_broken_meaning_is_answered_or_refused_by_us(tmp_path: Path, seed: int) -> None:
    """No foreign exception, no law of ours broken, from the bytes to the JSON of the report.

    ``python -m tests.laws.mutation --seconds 600`` looks for longer.
    """
    outcomes = mutation.run(inputs=12, seed=seed, folder=tmp_path)

    assert outcomes["valid"] > 0
    assert outcomes["repaired"] > 0


def test_a_job_of_broken_ranks_is_answered_or_refused_by_us(tmp_path: Path) -> None:
    """Ranks that vanish, are cut off, claim to be others, or make no sense.

    ``python -m tests.laws.job_mutation --seconds 600`` looks for longer.
    """
    outcomes = mutation.run(
        job_mutation.mutated_job, job_mutation.answered, inputs=4, seed=1, folder=tmp_path
    )

    assert outcomes["answered"] > 0


def _moved(events: EventTable, rows: np.ndarray, by_ns: int) -> EventTable:
    """Events of which some are at another time, at most at the last."""
    near = np.clip(events.ts_ns, -_LAST_NS - min(by_ns, 0), _LAST_NS - max(by_ns, 0))
    ts_ns = np.where(rows, near + by_ns, events.ts_ns)
    return replace(events, ts_ns=np.minimum(ts_ns, _LAST_NS - events.dur_ns))


def test_the_only_launch_on_an_idle_stream_may_take_a_century() -> None:
    """What is usual is a multiple of it, which no integer of 64 bits holds."""
    events = timeline(
        """
        cpu 1    |                [launch >b]
        stream 7 | [k    ]                       [far <b]
        """
    )
    is_far = events.names() == "far"

    graph = mutation.asked(Trace.from_events(_moved(events, is_far, _LAST_NS)))

    assert graph.dur_ns == _LAST_NS - int(events.ts_ns.min())


@pytest.mark.parametrize("by_ns", [_LAST_NS, 10**18, -_LAST_NS])
@pytest.mark.parametrize("who", ["is_device", "is_host", "half", "last"])
def test_times_as_far_apart_as_integers_go_are_times(who: str, by_ns: int) -> None:
    """A launch that takes a century is unexplained; no sum on the way to saying so overflows."""
    events = simulate(training_rank(steps=1, layers=2)).events
    number = np.arange(len(events))
    half, last = number % 2 == 0, number == number[-1]
    rows = {"half": half, "last": last}.get(who, getattr(events, who, half))

    graph = mutation.asked(Trace.from_events(_moved(events, rows, by_ns)))

    assert graph.dur_ns >= 0
