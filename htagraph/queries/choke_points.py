"""Choke points: nodes that every chain of dependencies through the window passes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.dominators import dominators
from htagraph.algorithms.gather import gather
from htagraph.algorithms.intervals import sum_by_code
from htagraph.algorithms.matching import group_starts
from htagraph.algorithms.spread import ancestors
from htagraph.algorithms.tiling import check_tiling
from htagraph.explain.critical_path import critical_path, end_node
from htagraph.lookup.naming import names_or_empty, op_names, spelling
from htagraph.model.answers import CHOKE_POINTS
from htagraph.model.dag import Dag
from htagraph.model.kinds import Bound, EventKind
from htagraph.model.schema import categorical
from htagraph.model.window import Window

__all__ = ["choke_points"]

I64 = npt.NDArray[np.int64]

_SIDES = ("start", "end")
_TELLING = (
    EventKind.KERNEL,
    EventKind.MEMCPY,
    EventKind.MEMSET,
    EventKind.RUNTIME,
    EventKind.OP,
    EventKind.ANNOTATION,
)
"""Kinds of events, the most specific first."""


class _Points(NamedTuple):
    """The start of a window and its choke points, in order of time.

    Parameters
    ----------
    node : ndarray of shape (n,), dtype=int64
        -1 for the start of the window.
    ts_ns : ndarray of shape (n,), dtype=int64, unit=ns
    is_serial : ndarray of shape (n,), dtype=bool
        Whether nothing is between each and the next.
    """

    node: I64
    ts_ns: I64
    is_serial: npt.NDArray[np.bool_]


def _points(dag: Dag, window: Window) -> _Points:
    """The start and the choke points of a window."""
    edges, times = dag.edges, dag.events.node_ts_ns
    inside = (times >= window.start_ns) & (times <= window.end_ns)
    last = inside & (np.arange(len(times)) == end_node(dag, window))
    within = inside[edges.tail] & inside[edges.head]
    needed = ancestors(dag.order, dag.in_offsets, edges.tail, within, last)
    nodes = dag.order[needed[dag.order]].astype(np.int64)
    place = np.zeros(len(times), dtype=np.int64)
    place[nodes] = np.arange(len(nodes))
    rows = np.flatnonzero(within & needed[edges.head])
    points = np.flatnonzero(
        dominators(place[edges.tail[rows]], place[edges.head[rows]], len(nodes))
    )
    return _Points(
        np.append(-1, nodes[points]),
        np.append(window.start_ns, times[nodes[points]]),
        np.append(np.diff(points, prepend=-1) == 1, True),
    )


def _most_telling(dag: Dag, points: _Points) -> _Points:
    """One choke point per instant: work or a call rather than the ranges around it."""
    events, event = dag.events, points.node >> 1
    rank = np.full(len(EventKind), len(_TELLING))
    rank[list(_TELLING)] = np.arange(len(_TELLING))
    keys = (
        event,
        points.node & 1,
        gather(spelling(dag)[events.name], event),
        gather(events.dur_ns, event),
        gather(rank[events.kind], event, len(_TELLING)),
        points.ts_ns,
    )
    order = np.lexsort(keys)
    begins = np.flatnonzero(group_starts(points.ts_ns))
    # The last point of an instant tells whether what follows is serial.
    last = np.append(begins[1:], len(order)) - 1
    return _Points(points.node[order[begins]], points.ts_ns[begins], points.is_serial[last])


def choke_points(dag: Dag, window: Window) -> pd.DataFrame:
    """Stretches of the window between choke points: serial, or with parallel chains.

    At a choke point, everything that the window's end depends on is either done or has not begun,
    so nothing in parallel hides a delay there. Work that the end does not wait for is left out:
    other threads, and kernels that were done before a call waited. The end is that of the critical
    path.

    In a serial stretch, choke point follows choke point. In any other, chains run in parallel and
    join at its end, as host and device do from a launch to the call that waits for its work.

    ::

        cpu 1    |[op   ][launch >a][launch >b] [sync        ]   [op ]
        stream 7 |                  [gemm <a      ][relu <b]
                  |serial|  parallel                         | serial|

    Returns
    -------
    DataFrame, schema `answers.CHOKE_POINTS`
        By time; the stretches tile the window. Of choke points at one instant, one is kept: device
        work, else an API call, else an operator.

    Raises
    ------
    GraphError
        If the stretches do not tile the window: a bug in htagraph.

    Examples
    --------
    >>> from htagraph.compiler.passes import compile_events
    >>> from htagraph.synth import timeline
    >>> dag = compile_events(timeline('''
    ...     cpu 1    |[op   ][launch >a][launch >b] [sync        ]   [op ]
    ...     stream 7 |                  [gemm <a      ][relu <b]
    ... '''))
    >>> found = choke_points(dag, dag.span)
    >>> found[["dur_ns", "is_serial", "n_points", "bound", "until"]]
       dur_ns  is_serial  n_points    bound                       until
    0    7000       True         1     host     cudaLaunchKernel starts
    1   37000      False         1  compute  cudaDeviceSynchronize ends
    2    8000       True         2     host                     op ends
    """
    points = _most_telling(dag, _points(dag, window))
    if points.ts_ns[-1] < window.end_ns:
        points = _Points(
            np.append(points.node, -1),
            np.append(points.ts_ns, window.end_ns),
            np.append(points.is_serial, True),
        )
    serial = points.is_serial[:-1]
    begins = np.flatnonzero(~(serial & np.append(False, serial[:-1])))
    ends = np.append(begins, len(serial))[1:]
    start_ns, end_ns = points.ts_ns[begins], points.ts_ns[ends]
    check_tiling(
        "the stretches between choke points", start_ns, end_ns, (window.start_ns, window.end_ns)
    )
    event, until = points.node[begins] >> 1, points.node[ends]
    ending = names_or_empty(dag, until >> 1) + np.where(until & 1, " ends", " starts").astype(
        object
    )
    bound, bound_ns = _largest_bound(dag, window, start_ns)
    names = names_or_empty(dag, event)
    return CHOKE_POINTS.frame(
        {
            "event": event,
            "name": np.where(event < 0, "(window start)", names),
            "kind": categorical(
                gather(dag.events.kind, event, EventKind.OTHER), EventKind.labels()
            ),
            "op": op_names(dag, event),
            "side": categorical((points.node[begins] & 1) * (event >= 0), _SIDES),
            "ts_ns": start_ns,
            "dur_ns": end_ns - start_ns,
            "is_serial": serial[begins],
            "n_points": ends - begins,
            "until": np.where(until < 0, "(window end)", ending),
            "bound": categorical(bound, Bound.labels()),
            "bound_share": bound_ns / np.maximum(end_ns - start_ns, 1),
        }
    )


def _largest_bound(dag: Dag, window: Window, start_ns: I64) -> tuple[I64, I64]:
    """Largest bound of the critical path in each stretch, and its time; from stretch starts."""
    path = critical_path(dag, window)
    begin = path["start_ns"].to_numpy(np.int64)
    cuts = np.union1d(begin, start_ns)
    dur_ns = np.diff(np.append(cuts, window.end_ns))
    bound = path["bound"].cat.codes.to_numpy(np.int64)[
        np.searchsorted(begin, cuts, side="right") - 1
    ]
    stretch = np.searchsorted(start_ns, cuts, side="right") - 1
    n = len(Bound)
    times = sum_by_code(stretch * n + bound, dur_ns, n * len(start_ns)).reshape(-1, n)
    return times.argmax(axis=1), times.max(axis=1, initial=0)
