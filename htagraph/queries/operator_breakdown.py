"""Inclusive and exclusive time of operators on host and device, by name or where they ran."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.ancestors import sums_under
from htagraph.algorithms.gather import gather
from htagraph.algorithms.intervals import sum_by_code, union
from htagraph.errors import GraphError
from htagraph.explain.self_time import self_time
from htagraph.lookup.attribution import innermost
from htagraph.lookup.clipping import device_work, host_work
from htagraph.lookup.work_groups import BY_LAUNCH, named
from htagraph.model.answers import OPERATOR_BREAKDOWN
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.schema import categorical
from htagraph.model.window import Window


def operator_breakdown(dag: Dag, window: Window, *, by: str = "name") -> pd.DataFrame:
    """Operators, API calls and annotations by group, with their host time and device time.

    ::

        cpu 1    | [aten::linear [aten::mm [launch >a]]    ]   its own time is what mm leaves
        stream 7 |                       [gemm <a         ]    under linear, mm and launch

    The operator of gemm is mm.

    Parameters
    ----------
    by : {"name", "shape", "module", "annotation", "step", "phase"}
        A ``shape`` is that of the innermost operator's inputs; others are the groups of
        `kernel_breakdown`. A group with events of several kinds has a row for each.

    Returns
    -------
    DataFrame, schema `answers.OPERATOR_BREAKDOWN`
        Most own host time first. If events of a thread overlap without nesting, the one that began
        last is innermost.

    Examples
    --------
    >>> from htagraph.compiler.passes import compile_events
    >>> from htagraph.synth import timeline
    >>> dag = compile_events(timeline('''
    ...     cpu 1    |[aten::mm [launch >a]  ]
    ...     stream 7 |                 [gemm <a       ]
    ... '''))
    >>> found = operator_breakdown(dag, dag.span)
    >>> found[["name", "host_ns", "self_ns", "device_ns", "self_device_ns"]]
                   name  host_ns  self_ns  device_ns  self_device_ns
    0          aten::mm    24000    13000      16000           16000
    1  cudaLaunchKernel    11000    11000      16000               0
    """
    host, work, events = host_work(dag, window), device_work(dag, window), dag.events
    n_kinds = len(EventKind)
    groups = named(dag, host.event) if by == "name" else BY_LAUNCH[by](dag, host.event)
    codes, code = np.unique(groups.code * n_kinds + events.kind[host.event], return_inverse=True)
    n = len(codes)
    of_event = np.full(len(events), -1, dtype=np.int64)
    of_event[host.event] = code
    n_lanes = max(len(events.lanes), 1)
    # The union counts recursive calls once.
    running = union(code * n_lanes + events.lane[host.event], host.start_ns, host.end_ns)
    launch = dag.launch[work.event].astype(np.int64)
    # The launch of work that began before the window may not be in it.
    launch = np.where(gather(of_event, launch) >= 0, launch, -1)
    direct = launch >= 0
    count = np.bincount(launch[direct], minlength=len(events))
    time = sum_by_code(launch[direct], work.dur_ns[direct], len(events))
    owner = innermost(dag, launch, (EventKind.OP, EventKind.ANNOTATION))
    owner = np.where(gather(of_event, owner) >= 0, owner, launch)
    frame = OPERATOR_BREAKDOWN.frame(
        {
            "name": groups.names[codes // n_kinds],
            "kind": categorical(codes % n_kinds, EventKind.labels()),
            "n_calls": np.bincount(code, minlength=n),
            "host_ns": sum_by_code(running.group // n_lanes, running.end - running.start, n),
            "self_ns": sum_by_code(code, self_time(dag, window, host)[host.event], n),
            "n_kernels": sums_under(dag.parent, of_event, count, n),
            "device_ns": sums_under(dag.parent, of_event, time, n),
            "self_device_ns": sum_by_code(of_event[owner[direct]], work.dur_ns[direct], n),
        }
    )
    if int(frame["self_device_ns"].sum()) != int(work.dur_ns[direct].sum()):
        raise GraphError("device time by operator does not add up.")
    return frame.sort_values(
        ["self_ns", "host_ns", "name"], ascending=[False, False, True], ignore_index=True
    )
