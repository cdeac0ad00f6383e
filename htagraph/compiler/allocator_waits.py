"""HIDDEN_SYNC: an allocator waits for the device before it gives memory back.

An allocation that fails makes PyTorch's caching allocator free the memory that it keeps, and try
again. What other streams used is free once their work has ended, so the allocator waits for that
first. The profiler recorded no call for this wait (Kineto until 2.2)::

    thread 1   [cudaMalloc]                       [cudaFree][cudaFree][cudaMalloc]
    stream 20       [ncclDevKernel_SendRecv     ]
                                                '->

Nothing else does this: one operator allocates, is silent, frees, and allocates again.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.gather import gather
from htagraph.compiler.stretches import Stretches, explained_ends, long_stretches
from htagraph.compiler.structure import Structure, end_node
from htagraph.model.api_calls import ALLOCATION, CallMeaning
from htagraph.model.edges import EdgeTable
from htagraph.model.inference import Inferred
from htagraph.model.kinds import EventKind
from htagraph.model.rules import Rule

__all__ = ["allocator_wait_edges"]

I64 = npt.NDArray[np.int64]

_PROMPT_NS = 200_000
"""From the end of the work to the first call that frees (15 to 91 us in 11 retries on V100)."""
_PART_OF_WAIT = 8
"""And no more than this part of the wait (chosen)."""


def _retries(structure: Structure) -> Stretches:
    """Long stretches from an allocation to a call that frees, if its operator allocates again."""
    events, parent = structure.events, structure.parent
    frees = structure.meanings == CallMeaning.FREE
    allocates = events.named(events.symbols.searched(ALLOCATION)) & ~frees
    allocates &= events.kind == EventKind.RUNTIME
    calls = np.flatnonzero(allocates)
    calls = calls[np.lexsort((events.ts_ns[calls], events.lane[calls]))]
    again = np.full(len(events), -1, dtype=np.int64)
    again[calls[:-1]] = calls[1:]
    steps = long_stretches(structure)
    before, after = steps.since >> 1, steps.until >> 1
    tries = allocates[before] & (steps.since & 1 == 1) & frees[after] & (steps.until & 1 == 0)
    for then in (after, again[before]):
        tries &= (then >= 0) & (parent[before] == parent[then])
        tries &= events.lane[before] == events.lane[then]
    return steps.take(tries)


def allocator_wait_edges(structure: Structure, known: EdgeTable) -> Inferred:
    """Edges from the work that ended last to the first call that frees memory.

    Parameters
    ----------
    known : EdgeTable
        What ends with a SYNC, HIDDEN_SYNC or handoff edge is explained.
    """
    if not len(structure.host) or not len(structure.queue):
        return Inferred()
    steps = _retries(structure)
    steps = steps.take(~np.isin(steps.until, explained_ends(known)))
    times, events = structure.events.node_ts_ns, structure.events
    work = structure.queue[np.argsort(events.end_ns[structure.queue], kind="stable")]
    since_ns, until_ns = times[steps.since], times[steps.until]
    work = gather(work, np.searchsorted(events.end_ns[work], until_ns, side="right") - 1)
    left_ns = until_ns - gather(events.end_ns, work)
    prompt = (work >= 0) & (left_ns <= _PROMPT_NS) & (_PART_OF_WAIT * left_ns <= until_ns - since_ns)
    prompt &= gather(structure.launch_time_ns, work) <= since_ns
    return Inferred(
        EdgeTable.of(Rule.ALLOCATOR_WAITS, end_node(work[prompt]), steps.until[prompt])
    )
