"""Meanwhile: what another thread was recorded to run while a thread ran code, or waited.

Nothing records that a thread waits for a lock, a queue or a future of another one. Where inference
does not find it, a gap is named after what is known of it: who worked meanwhile.
"""

from __future__ import annotations

import numpy as np

from htagraph.algorithms.codes import distinct
from htagraph.algorithms.gather import gather
from htagraph.algorithms.intervals import Cover, union
from htagraph.model.arrays import I64, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind

_MOST = 2
"""A thread ran meanwhile if its operators take more than one part in so many of the time
(chosen)."""


def meanwhile(dag: Dag, lane: I64, start_ns: I64, end_ns: I64) -> Texts:
    r"""What the busiest other thread ran for most of each stretch of a thread.

    Parameters
    ----------
    lane, start_ns, end_ns : ndarray of shape (n,), dtype=int64

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
    events = dag.events
    found = np.full(len(lane), "", dtype=object)
    if not len(lane):
        return found
    is_op = events.kind == EventKind.OP
    top = np.flatnonzero(is_op & ~gather(is_op, dag.parent, default=False))
    others = set(distinct(events.lane[top]).tolist())
    if (lane == lane[0]).all():
        others -= {int(lane[0])}
    most_ns = (end_ns - start_ns) // _MOST
    busiest = np.full(len(lane), -1)
    for other in sorted(others):
        own = top[events.lane[top] == other]
        busy = union(np.zeros(len(own), np.int64), events.ts_ns[own], events.end_ns[own])
        ends_ns = np.sort(events.end_ns[own])
        ended_ns = gather(ends_ns, np.searchsorted(ends_ns, end_ns, side="right") - 1, 0)
        within_ns = Cover(busy.start, busy.end).within(start_ns, np.maximum(start_ns, ended_ns))
        within_ns[lane == other] = 0
        busiest[within_ns > most_ns] = other
        most_ns = np.maximum(most_ns, within_ns)
    for other in distinct(busiest[busiest >= 0]).tolist():
        rows, own = np.flatnonzero(busiest == other), top[events.lane[top] == other]
        stretches = union(np.zeros(len(rows), np.int64), start_ns[rows], end_ns[rows])
        ran_ns = Cover(stretches.start, stretches.end).within(events.ts_ns[own], events.end_ns[own])
        most = int(np.bincount(events.name[own], ran_ns).argmax())
        found[rows] = f"thread {events.lanes.tid[other]} ran {events.symbols.texts[most]}"
    return found
