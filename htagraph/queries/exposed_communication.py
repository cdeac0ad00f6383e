"""Exposed communication by kernel, and why no compute hid it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.intervals import Cover, union
from htagraph.algorithms.walks import walks_back
from htagraph.lookup.clipping import Clipped, device_work
from htagraph.lookup.naming import names_or_empty, op_names
from htagraph.model.answers import EXPOSED_COMMUNICATION
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind, KernelClass
from htagraph.model.schema import categorical
from htagraph.model.window import Window

_WHY = (
    "none",
    "same stream",
    "dependency",
    "GPU synchronization",
    "late launch",
    "nothing else to run",
    "unknown wait",
)
"""Why the next compute kernel did not run while communication was exposed.

none: nothing is exposed. same stream: it is on the stream of the communication. dependency: it
waits for an event of that stream. GPU synchronization: it was launched after the host waited
for the communication. late launch: it was launched after the communication began, for another
reason. nothing else to run: there is none. unknown wait: it was launched in time.
"""


def exposed_communication(dag: Dag, window: Window) -> pd.DataFrame:
    """Communication kernels with the time in which no compute kernel ran, and why.

    The compute kernel that could have hidden it is the first to start on the device after the
    exposed part. If binding edges lead from its start back to the end of the communication kernel,
    it had to wait for that.

    ::

        cpu 1    | [launch >n][launch >g]
        stream 9 |      [nccl <n         ]
        stream 7 |             . exposed  [gemm <g ]

    Here gemm waits for an event of stream 9: a dependency.

    Returns
    -------
    DataFrame, schema `answers.EXPOSED_COMMUNICATION`
        By time. Exposed time of two concurrent kernels counts for both.
    """
    events, kernel_class = dag.events, dag.classification.kernel_class
    work = device_work(dag, window)
    work = work.take(kernel_class[work.event] == KernelClass.COMMUNICATION)
    tracks = events.stream[work.event], events.device[work.event]
    work = work.take(np.lexsort((*tracks, work.end_ns, work.start_ns)))
    exposed = work.dur_ns.copy()
    follower = np.full(len(work.event), -1, dtype=np.int64)
    compute = np.flatnonzero(kernel_class == KernelClass.COMPUTE)
    for device in np.unique(events.device[work.event]).tolist():
        here = np.flatnonzero(events.device[work.event] == device)
        mine = compute[events.device[compute] == device]
        mine = mine[np.lexsort((events.end_ns[mine], events.ts_ns[mine]))]
        busy = union(np.zeros(len(mine), dtype=np.int64), events.ts_ns[mine], events.end_ns[mine])
        cover = Cover(busy.start, busy.end)
        exposed[here] -= cover.within(work.start_ns[here], work.end_ns[here])
        follower[here] = _next_compute(dag, work.take(here), mine, cover)
    why = np.where(exposed > 0, _why(dag, work.event, follower), 0)
    follower = np.where(exposed > 0, follower, -1)
    return EXPOSED_COMMUNICATION.frame(
        {
            "event": work.event,
            "name": events.names(work.event),
            "op": op_names(dag, work.event),
            "device": events.device[work.event],
            "stream": events.stream[work.event],
            "start_ns": work.start_ns,
            "dur_ns": work.dur_ns,
            "exposed_ns": exposed,
            "why": categorical(why, _WHY),
            "next_event": follower,
            "next_name": names_or_empty(dag, follower),
        }
    )


def _next_compute(dag: Dag, work: Clipped, compute: I64, cover: Cover) -> I64:
    """First compute kernel to start once each communication kernel is exposed, -1 for none."""
    if not len(compute):
        return np.full(len(work.event), -1, dtype=np.int64)
    position = np.searchsorted(dag.events.ts_ns[compute], cover.free_from(work.start_ns))
    return np.where(position < len(compute), compute[np.minimum(position, len(compute) - 1)], -1)


def _why(dag: Dag, communication: I64, follower: I64) -> I64:
    """Position in `_WHY` for each communication kernel and the compute kernel that follows it."""
    events, edges = dag.events, dag.edges
    why = np.full(len(communication), _WHY.index("unknown wait"), dtype=np.int64)
    why[follower < 0] = _WHY.index("nothing else to run")
    known = np.flatnonzero(follower >= 0)
    first, later = communication[known], follower[known]
    launch = dag.launch[later]
    is_late = (launch >= 0) & (events.ts_ns[launch] > events.ts_ns[first])
    walks = walks_back(2 * later, events.ts_ns[first], dag.binding, edges.tail, events.node_ts_ns)
    passes = edges.tail[walks.edge] >> 1 == first[walks.walk]
    kind, into_device = edges.kind[walks.edge], events.is_device[edges.head[walks.edge] >> 1]
    same_stream = (events.stream[first] == events.stream[later]) & ~is_late

    def any_edge(wanted: Bools) -> Bools:
        return np.bincount(walks.walk[wanted], minlength=len(known)) > 0

    reasons = {
        "same stream": same_stream | any_edge(passes & (kind == EdgeKind.STREAM)),
        "dependency": any_edge(passes & into_device & (kind == EdgeKind.SYNC)),
        "GPU synchronization": any_edge(passes & ~into_device),
        "late launch": is_late,
    }
    why[known] = np.select(
        list(reasons.values()), [_WHY.index(name) for name in reasons], _WHY.index("unknown wait")
    )
    return why
