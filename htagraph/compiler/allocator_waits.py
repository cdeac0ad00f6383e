"""HIDDEN_SYNC: PyTorch's caching allocator waits for the device before it gives memory back.

An allocation fails. The allocator then frees all memory that it keeps, and tries again. Memory that
another stream used is free once its work there has ended, so the allocator waits for that first.
Old profilers recorded no call for this wait::

    thread 1   [cudaMalloc]                         [cudaFree][cudaFree][cudaMalloc]
    stream 20       [ncclDevKernel_SendRecv     ]
                                                '-->

An operator that allocates, is silent, frees and allocates again has that allocator. What it waited
for is the work that ended right before. If work of several streams did, nothing tells which.
"""

from __future__ import annotations

import numpy as np

from htagraph.algorithms.gather import gather
from htagraph.compiler.late_starts import ended_before
from htagraph.compiler.stretches import Stretches, long_stretches
from htagraph.compiler.structure import Structure, end_node
from htagraph.model.api_calls import ALLOCATION, ALLOCATOR_WALK_NS, CallMeaning
from htagraph.model.arrays import I64
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EventKind
from htagraph.model.rules import Rule

_PART_OF_WAIT = 8
"""And within this part of its wait (chosen)."""


def _retries(structure: Structure) -> Stretches:
    """Long stretches from an allocation to a call that frees, in an operator that then allocates.

    All three calls are of one operator, and nothing is recorded in between.
    """
    events, parent = structure.events, structure.parent
    frees = structure.meanings == CallMeaning.FREE
    allocates = events.named(events.symbols.searched(ALLOCATION)) & ~frees
    calls = np.flatnonzero(allocates & (events.kind == EventKind.RUNTIME))
    calls = calls[np.lexsort((events.ts_ns[calls], events.lane[calls]))]
    again = np.full(len(events), -1, dtype=np.int64)
    again[calls[:-1]] = calls[1:]
    steps = long_stretches(structure)
    failed, freed = steps.since >> 1, steps.until >> 1
    fits = (steps.since & 1 == 1) & (steps.until & 1 == 0) & frees[freed] & (again[failed] >= 0)
    fits &= gather(events.kind, parent[failed], EventKind.ANNOTATION) == EventKind.OP
    for call in (freed, again[failed]):
        fits &= (parent[call] == parent[failed]) & (events.lane[call] == events.lane[failed])
    times = events.node_ts_ns
    return steps.take(fits & (times[steps.until] - times[steps.since] > ALLOCATOR_WALK_NS))


def _ended_last(structure: Structure, steps: Stretches) -> I64:
    """Work that ended right before the end of each stretch, -1 for none or on several streams."""
    events, times = structure.events, structure.events.node_ts_ns
    since_ns, until_ns = times[steps.since], times[steps.until]
    found = np.full(len(until_ns), -1, dtype=np.int64)
    n_streams = np.zeros(len(until_ns), dtype=np.int64)
    for queue in range(len(structure.enqueued_bounds) - 1):
        work, end_ns = ended_before(structure, queue, until_ns)
        ended = until_ns - end_ns <= ALLOCATOR_WALK_NS
        found[ended] = work[ended]
        n_streams += ended
    left_ns = until_ns - gather(events.end_ns, found)
    waited = (n_streams == 1) & (_PART_OF_WAIT * left_ns <= until_ns - since_ns)
    waited &= structure.launched_ns(found) <= since_ns
    return np.where(waited, found, -1)


def allocator_wait_edges(structure: Structure) -> EdgeTable:
    """Edges from the work that an allocator waited for to its first call that frees memory."""
    if not len(structure.queue) or not (structure.meanings == CallMeaning.FREE).any():
        return EdgeTable()
    steps = _retries(structure)
    work = _ended_last(structure, steps)
    rows = np.flatnonzero(work >= 0)
    until = steps.until[rows]
    return EdgeTable.of(Rule.ALLOCATOR_WAITS, end_node(work[rows]), until, event=until >> 1)
