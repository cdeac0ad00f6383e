"""Idle time of devices or streams by cause."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.algorithms.intervals import sum_by_code
from htagraph.algorithms.matching import group_starts
from htagraph.errors import GraphError
from htagraph.explain.idle_parts import NO_EVENT_NAMES, IdleCause, idle_gaps, idle_parts, part_names
from htagraph.lookup.naming import frames_at
from htagraph.lookup.queues import queues
from htagraph.model.answers import IDLE_TIME
from htagraph.model.dag import Dag
from htagraph.model.schema import categorical
from htagraph.model.window import Window

__all__ = ["idle_time"]


def idle_time(dag: Dag, window: Window, *, per: str = "device") -> pd.DataFrame:
    """Idle time of each device, or stream, by what it waited for; it adds up to all idle time.

    `htagraph.explain.idle_parts` describes how causes are found; `idle_intervals` lists intervals.

    Parameters
    ----------
    per : {"device", "stream"}
        A device is idle when none of its streams runs anything.

    Returns
    -------
    DataFrame, schema `answers.IDLE_TIME`
        Largest first within a device or stream.

    Raises
    ------
    GraphError
        If causes do not add up to the idle time: a bug in htagraph.

    Examples
    --------
    >>> from htagraph.compiler.passes import compile_events
    >>> from htagraph.synth import timeline
    >>> dag = compile_events(timeline('''
    ...     cpu 1    |[launch >a]     [aten::add [launch >b]]
    ...     stream 7 |         [mul <a]               [add <b]
    ... '''))
    >>> idle_time(dag, dag.span)[["cause", "op", "name", "idle_ns"]]
         cause         op       name  idle_ns
    0    host  aten::add  aten::add    10000
    1   launch                   mul     9000
    2   launch  aten::add        add     5000
    """
    by = queues(dag, per)
    gap = idle_gaps(dag, window, by)
    parts, _ = idle_parts(dag, window, by, gap)
    name, op = part_names(dag, parts)
    frame_name = gather(dag.events.name, frames_at(dag, parts.lane, parts.start_ns))
    queue, n_intervals = gap.group[parts.interval], len(gap.start)
    code = queue * len(IdleCause) + parts.cause
    for key in (op, name, frame_name):
        code = pd.factorize(code * (len(dag.events.symbols) + 1) + key + 1)[0]
    n = int(code.max(initial=-1)) + 1
    time = sum_by_code(code, parts.end_ns - parts.start_ns, n)
    of_intervals = np.sort(code * n_intervals + parts.interval)
    of_intervals = of_intervals[group_starts(of_intervals)]
    n_gaps = np.bincount(of_intervals // max(n_intervals, 1), minlength=n)
    rows = np.empty(n, dtype=np.int64)
    rows[code] = np.arange(len(code))
    total = sum_by_code(queue[rows], time, len(by))
    if not np.array_equal(total, sum_by_code(gap.group, gap.end - gap.start, len(by))):
        raise GraphError(f"the causes of idle time in {window.name!r} do not add up to it.")
    texts = np.append(dag.events.symbols.array, "")
    out = IDLE_TIME.frame(
        {
            "device": by.device[queue[rows]],
            "stream": by.stream[queue[rows]],
            "cause": categorical(parts.cause[rows], IdleCause.labels()),
            "op": texts[op[rows]],
            "name": np.where(name[rows] >= 0, texts[name[rows]], NO_EVENT_NAMES[parts.cause[rows]]),
            "frame": texts[frame_name[rows]],
            "n_gaps": n_gaps,
            "idle_ns": time,
            "idle_share": time / np.maximum(total[queue[rows]], 1),
        }
    )
    order_by = ["device", "stream", "idle_ns", "cause", "op", "name", "frame"]
    return out.sort_values(
        order_by, ascending=[True, True, False, True, True, True, True], ignore_index=True
    )
