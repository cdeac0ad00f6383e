"""QUEUE edges: launches that wait for room."""

from __future__ import annotations

import numpy as np
import pytest

from htagraph.compiler.passes import compile_events
from htagraph.model.events import EventTable, LaneTable
from htagraph.model.kinds import EdgeKind, EventKind
from htagraph.model.symbols import SymbolTable


def _burst(n_launches: int, last_ns: int, n_others: int, others_ns: int) -> EventTable:
    """Launches of 0.9 us onto kernels of 100 us, one of which starts early in the last launch."""
    launch_ts = np.arange(n_launches) * 1_000
    launch_ts[-1] = 1_104_500
    kernel_ts = 5_000 + np.arange(n_launches) * 100_000
    launch_dur = np.full(n_launches, 900)
    launch_dur[:n_others], launch_dur[-1] = others_ns, last_ns
    kind = np.repeat([EventKind.RUNTIME, EventKind.KERNEL], n_launches).astype(np.int8)
    stream = np.repeat([-1, 7], n_launches)
    return EventTable(
        ts_ns=np.concatenate([launch_ts, kernel_ts]),
        dur_ns=np.concatenate([launch_dur, np.full(n_launches, 99_000)]),
        kind=kind,
        name=np.repeat([0, 1], n_launches).astype(np.int32),
        category=np.full(2 * n_launches, 2, dtype=np.int32),
        lane=np.repeat([0, 1], n_launches).astype(np.int32),
        device=np.repeat([-1, 0], n_launches).astype(np.int32),
        stream=stream,
        correlation=np.tile(np.arange(1, n_launches + 1), 2),
        external_id=np.full(2 * n_launches, -1),
        symbols=SymbolTable(("cudaLaunchKernel", "kernel", "x")),
        lanes=LaneTable((1, 0), (1, 7), ("", ""), ("", ""), (0, 0), (0, 0), ("", "")),
    )


def _queue_edges(
    n_launches: int, last_ns: int = 150_000, n_others: int = 0, others_ns: int = 0
) -> int:
    dag = compile_events(_burst(n_launches, last_ns, n_others, others_ns))
    return int((dag.edges.kind == EdgeKind.QUEUE).sum())


def test_a_launch_onto_a_full_queue_waits_for_a_kernel_to_start():
    """With a thousand launches outstanding, the next call returns only when some work starts."""
    assert _queue_edges(1_012) == 1


def test_a_long_launch_onto_a_short_queue_waits_for_nothing():
    """A launch may be slow for other reasons; a queue with room is not one."""
    assert _queue_edges(1_011) == 0


@pytest.mark.parametrize(("last_ns", "n_edges"), [(2_600, 0), (2_800, 1)])
def test_a_launch_that_takes_three_times_as_long_as_usual_was_blocked(last_ns, n_edges):
    """Others take 900 ns."""
    assert _queue_edges(1_050, last_ns) == n_edges


@pytest.mark.parametrize(
    ("n_others", "others_ns", "last_ns", "n_edges"), [(40, 100, 2_600, 0), (980, 990, 2_800, 1)]
)
def test_usual_is_what_the_shortest_twentieth_takes_at_most(n_others, others_ns, last_ns, n_edges):
    """Three times 900 ns, whether a few calls of 1,050 were shorter or nearly all longer."""
    assert _queue_edges(1_050, last_ns, n_others, others_ns) == n_edges


def test_room_may_be_made_as_the_call_returns():
    """All calls but the last take 100 ns, and that one ends as a kernel starts."""
    assert _queue_edges(1_012, 500, 1_011, 100) == 1
