"""Times at the ends of what an integer holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from htagraph.model.events import EventTable
from htagraph.run.trace import Trace
from htagraph.synth import timeline
from tests.fuzzing.traces import asked
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

_LAST_NS = (1 << 62) - 1
"""The reader lets no time pass beyond."""


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

    graph = asked(Trace.from_events(_moved(events, is_far, _LAST_NS)))

    assert graph.window("trace").dur_ns == _LAST_NS - int(events.ts_ns.min())


@pytest.mark.parametrize("by_ns", [_LAST_NS, 10**18, -_LAST_NS])
@pytest.mark.parametrize("who", ["is_device", "is_host", "half", "last"])
def test_times_as_far_apart_as_integers_go_are_times(who: str, by_ns: int) -> None:
    """A launch that takes a century is unknown waits; no sum on the way to saying so overflows."""
    events = simulate(training_rank(steps=1, layers=2)).events
    number = np.arange(len(events))
    half, last = number % 2 == 0, number == number[-1]
    rows = {"half": half, "last": last}.get(who, getattr(events, who, half))

    graph = asked(Trace.from_events(_moved(events, rows, by_ns)))

    assert graph.dur_ns >= 0
