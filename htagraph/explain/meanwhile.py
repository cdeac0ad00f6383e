"""Meanwhile: what another thread was recorded to run while a thread ran code, or waited.

Nothing records that a thread waits for a lock, a queue or a future of another one. Where inference
does not find it, a gap is named after what is known of it: who worked meanwhile.
"""

from __future__ import annotations

import numpy as np

from htagraph.algorithms.gather import gather
from htagraph.algorithms.intervals import sum_by_code, union
from htagraph.model.arrays import I64, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.symbols import alphabetical

_MOST = 2
"""A thread ran meanwhile if its operators take more than one part in so many of the time
(chosen)."""


def meanwhile(dag: Dag, lane: I64, start_ns: I64, end_ns: I64) -> Texts:
    r"""What the busiest other thread ran for most of each stretch of a thread.

    Parameters
    ----------
    lane, start_ns, end_ns : ndarray of shape (n,), dtype=int64
        Stretches that do not overlap, in order.

    Returns
    -------
    ndarray of shape (n,), dtype=object
        ``thread 7 ran aten::sort``: of all that it ran in the stretches, what took longest. Empty
        if no thread ran operators for most of it. What still runs when a stretch ends does not
        count, as nothing waited for it.

    Examples
    --------
    >>> from htagraph.compiler.passes import compile_events
    >>> from htagraph.synth import timeline
    >>> dag = compile_events(timeline("cpu 1 |[a]         [b]\ncpu 2 |    [work ]"))
    >>> meanwhile(dag, np.array([0]), np.array([3_000]), np.array([12_000])).tolist()
    ['thread 2 ran work']
    """
    events, n_lanes, n_names = dag.events, len(dag.events.lanes), len(dag.events.symbols)
    is_op = events.kind == EventKind.OP
    top = np.flatnonzero(is_op & ~gather(is_op, dag.parent, default=False))
    row = np.searchsorted(end_ns, events.end_ns[top])  # the stretch in which it ends
    top, row = top[row < len(lane)], row[row < len(lane)]
    inside = (start_ns[row] < events.end_ns[top]) & (lane[row] != events.lane[top])
    op, row = top[inside], row[inside]
    other, since_ns = events.lane[op].astype(np.int64), np.maximum(events.ts_ns[op], start_ns[row])
    busy = union(row * n_lanes + other, since_ns, events.end_ns[op])
    pairs, busy_ns = _summed(busy.group, busy.end - busy.start)
    stretch, thread = np.divmod(pairs, n_lanes)
    most = _largest_of(stretch, busy_ns, thread)
    most = most[busy_ns[most] > (end_ns - start_ns)[stretch[most]] // _MOST]
    busiest = np.full(len(lane), -1)
    busiest[stretch[most]] = thread[most]
    told = np.flatnonzero(busiest[row] == other)
    pairs, ran_ns = _summed(
        other[told] * n_names + events.name[op[told]], events.end_ns[op[told]] - since_ns[told]
    )
    thread, name = np.divmod(pairs, n_names)
    most = _largest_of(thread, ran_ns, alphabetical(events.symbols.array[name])[1])
    said = np.full(n_lanes + 1, "", dtype=object)
    said[thread[most]] = [
        f"thread {events.lanes.tid[thread]} ran {events.symbols.texts[name]}"
        for thread, name in zip(thread[most].tolist(), name[most].tolist(), strict=True)
    ]
    found: Texts = said[busiest]
    return found


def _summed(code: I64, value: I64) -> tuple[I64, I64]:
    """The codes that occur, and the sum of the values of each."""
    codes, place = np.unique(code, return_inverse=True)
    return codes, sum_by_code(place, value, len(codes))


def _largest_of(group: I64, value: I64, tie: I64) -> I64:
    """Row of the largest value of each group; of equal ones, that of the lowest tie."""
    order = np.lexsort((tie, -value, group))
    return order[np.diff(group[order], prepend=-1) > 0]
