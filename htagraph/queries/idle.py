"""Idle time of devices and streams by cause, and by the three categories that other tools know."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.intervals import sum_by_code
from htagraph.algorithms.matching import group_starts, running_latest
from htagraph.errors import GraphError
from htagraph.lookup.clipping import device_work
from htagraph.lookup.naming import frames_at
from htagraph.lookup.queues import queues
from htagraph.model.answers import IDLE_CATEGORIES, IDLE_TIME
from htagraph.model.dag import Dag
from htagraph.model.frames import categorical
from htagraph.model.window import Window
from htagraph.queries.idle_intervals import (
    NO_EVENT_NAMES,
    IdleCause,
    idle_gaps,
    idle_parts,
    part_names,
)

__all__ = ["CATEGORIES", "idle_categories", "idle_time"]

CATEGORIES = ("host_wait", "kernel_wait", "other")
"""Why a gap between two pieces of work of one stream is there."""


def idle_time(dag: Dag, window: Window, *, per: str = "device") -> pd.DataFrame:
    """Return the idle time of each device by what it waited for; the rows of a device add up to its idle time exactly.

    `htagraph.queries.idle_intervals` says how causes are found, and lists the intervals one by one.

    Parameters
    ----------
    dag : Dag
    window : Window
    per : {"device", "stream"}
        A device is idle when none of its streams runs anything.

    Returns
    -------
    DataFrame, schema `answers.IDLE_TIME`
        Largest first within a device or stream.

    Raises
    ------
    GraphError
        If causes do not add up to the idle time: a defect of this package.

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
    0  host_op  aten::add  aten::add    10000
    1   launch                   mul     9000
    2   launch  aten::add        add     5000
    """
    by = queues(dag, per)
    gap = idle_gaps(dag, window, by)
    parts, _ = idle_parts(dag, window, by, gap)
    frame = frames_at(dag, parts.lane, parts.start_ns)
    name, op = part_names(dag, parts)
    frame_name = np.where(frame >= 0, dag.events.name[frame], -1) if len(dag.events) else frame
    queue = gap.group[parts.interval]
    keys = (frame_name, name, op, parts.cause, queue)
    order = np.lexsort((parts.interval, *keys))
    begins = group_starts(*(np.asarray(key)[order] for key in keys))
    code = np.cumsum(begins) - 1
    n = int(begins.sum())
    time = sum_by_code(code, (parts.end_ns - parts.start_ns)[order], n)
    first_of_interval = begins | group_starts(parts.interval[order])
    n_gaps = sum_by_code(code, first_of_interval.astype(np.int64), n)
    rows = order[begins]
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


def idle_categories(dag: Dag, window: Window, *, kernel_wait_ns: int = 30_000) -> pd.DataFrame:
    """Return the gaps of each stream in three categories: a roll-up for readers who know these.

    A gap is a host wait if the work that ends it was launched after the gap began, else a kernel
    wait if it is short, else other. Gaps lie between two pieces of work; what overlaps leaves none,
    and neither does an idle stream before its first and after its last work.

    Parameters
    ----------
    dag : Dag
    window : Window
    kernel_wait_ns : int, default=30_000, unit=ns
        Gaps shorter than this are kernel waits.

    Returns
    -------
    DataFrame, schema `answers.IDLE_CATEGORIES`
        Three rows per stream that has work in the window.
    """
    by = queues(dag, "stream")
    work = device_work(dag, window)
    work = work.take(np.lexsort((work.end_ns, work.start_ns, by.of_event[work.event])))
    queue = by.of_event[work.event]
    starts = group_starts(queue)
    latest = work.end_ns[running_latest(work.end_ns, starts)]
    follows = np.flatnonzero(~starts)
    before, later = latest[follows - 1], work.event[follows]
    length = work.start_ns[follows] - before
    launch = dag.launch[later]
    launched = np.where(launch >= 0, dag.events.ts_ns[launch], np.iinfo(np.int64).min)
    category = np.where(launched > before, 0, np.where(length < kernel_wait_ns, 1, 2))
    is_gap = length > 0
    n = len(by) * len(CATEGORIES)
    code = (queue[follows] * len(CATEGORIES) + category)[is_gap]
    time = sum_by_code(code, length[is_gap], n)
    n_gaps = np.bincount(code, minlength=n)
    used = np.repeat(np.isin(np.arange(len(by)), queue), len(CATEGORIES))
    row = np.flatnonzero(used)
    total = time.reshape(len(by), len(CATEGORIES)).sum(axis=1).repeat(len(CATEGORIES))
    return IDLE_CATEGORIES.frame(
        {
            "device": by.device[row // len(CATEGORIES)],
            "stream": by.stream[row // len(CATEGORIES)],
            "category": categorical(row % len(CATEGORIES), CATEGORIES),
            "n_gaps": n_gaps[row],
            "idle_ns": time[row],
            "idle_share": time[row] / np.maximum(total[row], 1),
        }
    )
