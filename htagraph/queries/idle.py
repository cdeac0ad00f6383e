"""Idle time of devices or streams: by cause, one by one, and in the three categories of HTA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.codes import QUANTILES, distribution, gather
from htagraph.arrays.intervals import Intervals, sum_by_code
from htagraph.arrays.matching import group_starts
from htagraph.errors import GraphError
from htagraph.explain.idle_parts import (
    NO_EVENT_NAMES,
    IdleCause,
    IdleParts,
    idle_gaps,
    idle_parts,
    part_names,
)
from htagraph.lookup.attribution import frames_at, names_or_empty
from htagraph.lookup.queues import NEVER, queues
from htagraph.lookup.windowed import device_work
from htagraph.model.answers import IDLE_CATEGORIES, IDLE_INTERVALS, IDLE_TIME
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.schema import categorical
from htagraph.model.window import Window

Codes = npt.NDArray[np.integer]


def idle_time(dag: Dag, window: Window, *, per: str = "device") -> pd.DataFrame:
    """Idle time of each device, or stream, by what it waited for; it adds up to all idle time.

    `htagraph.explain.idle_parts` describes how causes are found; `idle_intervals` lists intervals.
    `per`: a device is idle when none of its streams runs anything. Largest first within a device or
    stream.
    """
    by = queues(dag, per)
    gap = idle_gaps(dag, window, by)
    ended_by = by.next_work(dag, gap.group, gap.end)
    blocks = [_sums(dag, gap, parts) for parts in idle_parts(dag, window, gap, ended_by)]
    none = (np.empty(0, dtype=np.int64),) * 7
    columns = [np.concatenate(parts) for parts in zip(none, *blocks, strict=True)]
    code, rows = _groups(columns[:-2])
    time, n_gaps = (sum_by_code(code, column, len(rows)) for column in columns[-2:])
    queue, cause, op, name, frame_name = (column[rows] for column in columns[:-2])
    total = sum_by_code(queue, time, len(by))
    if not np.array_equal(total, sum_by_code(gap.group, gap.end - gap.start, len(by))):
        raise GraphError(f"the causes of idle time in {window.name!r} do not add up to it.")
    texts = np.append(dag.events.symbols.array, "")
    out = IDLE_TIME.frame(
        {
            "device": by.device[queue],
            "stream": by.stream[queue],
            "cause": categorical(cause, IdleCause.labels()),
            "op": texts[op],
            "name": np.where(name >= 0, texts[name], NO_EVENT_NAMES[cause]),
            "frame": texts[frame_name],
            "n_gaps": n_gaps,
            "idle_ns": time,
            "idle_share": time / np.maximum(total[queue], 1),
        }
    )
    order_by = ["device", "stream", "idle_ns", "cause", "op", "name", "frame"]
    return out.sort_values(
        order_by, ascending=[True, True, False, True, True, True, True], ignore_index=True
    )


def _groups(keys: Sequence[Codes]) -> tuple[I64, I64]:
    """Group of each row by its keys, from -1, and a row of each group."""
    code = np.zeros(len(keys[0]), dtype=np.int64)
    for key in keys:
        code *= int(key.max(initial=-1)) + 2
        code += key + 1
        code = pd.factorize(code)[0]
    rows = np.empty(int(code.max(initial=-1)) + 1, dtype=np.int64)
    rows[code] = np.arange(len(code))
    return code, rows


def _sums(dag: Dag, gap: Intervals, parts: IdleParts) -> tuple[I64, ...]:
    """Queue, cause, operator, name and frame of parts, with their time and number of intervals."""
    name, op = part_names(dag, parts)
    frame_name = gather(dag.events.name, frames_at(dag, parts.lane, parts.start_ns))
    keys: list[Codes] = [gap.group[parts.interval], parts.cause, op, name, frame_name]
    code, rows = _groups(keys)
    of_intervals = code * len(gap.start)
    of_intervals += parts.interval
    of_intervals.sort()
    of_intervals = of_intervals[group_starts(of_intervals)] // max(len(gap.start), 1)
    return (
        *(key[rows].astype(np.int64) for key in keys),
        sum_by_code(code, parts.end_ns - parts.start_ns, len(rows)),
        np.bincount(of_intervals, minlength=len(rows)),
    )


def idle_intervals(dag: Dag, window: Window, *, per: str = "device") -> pd.DataFrame:
    """Every idle interval, tiled by what the device waited for.

    Binding edges are followed back from the work that ends the interval until the interval begins.
    The last interval of the window is explained by the work after it.

    ::

        cpu 1    | [aten::mul [launch]]      host gap      [aten::add [launch >a]]
        stream 7 | [mul       ]                                          [add <a ]
        idle     |             [.........untraced_code........][..host..][la]

    `per`: a device is idle when none of its streams runs anything. In order of time within each
    device or stream.
    """
    by = queues(dag, per)
    gap = idle_gaps(dag, window, by)
    ended_by = by.next_work(dag, gap.group, gap.end)
    parts = IdleParts.joined(idle_parts(dag, window, gap, ended_by))
    name, op = part_names(dag, parts)
    texts = np.append(dag.events.symbols.array, "")
    queue = gap.group[parts.interval]
    return IDLE_INTERVALS.frame(
        {
            "interval": parts.interval,
            "device": by.device[queue],
            "stream": by.stream[queue],
            "start_ns": parts.start_ns,
            "dur_ns": parts.end_ns - parts.start_ns,
            "cause": categorical(parts.cause, IdleCause.labels()),
            "event": parts.event,
            "op": texts[op],
            "name": np.where(parts.event >= 0, texts[name], NO_EVENT_NAMES[parts.cause]),
            "frame": names_or_empty(dag, frames_at(dag, parts.lane, parts.start_ns)),
            "ended_by": ended_by[parts.interval],
        }
    )


_CATEGORIES = ("host_wait", "kernel_wait", "other")


def idle_categories(dag: Dag, window: Window, *, kernel_wait_ns: int = 30_000) -> pd.DataFrame:
    """Gaps of each stream in three categories: ``host_wait``, ``kernel_wait`` and other.

    A gap is a ``host_wait`` if the work that ends it was launched after the gap began, else a
    ``kernel_wait`` if it is short, else other. Only time between two kernels is a gap, not that
    before the first or after the last. `kernel_wait_ns`: gaps shorter than this are kernel waits.
    Three rows per stream that has work in the window; all is 0 of a category without gaps.
    """
    by = queues(dag, "stream")
    work, queue, latest = by.in_order(device_work(dag, window))
    follows = np.flatnonzero(latest > NEVER)
    before, later = latest[follows], work.event[follows]
    length = work.start_ns[follows] - before
    launched = gather(dag.events.ts_ns, dag.launch[later], NEVER)
    category = np.where(launched > before, 0, np.where(length < kernel_wait_ns, 1, 2))
    is_gap = length > 0
    n, lanes = len(_CATEGORIES), np.unique(queue)
    found = distribution((queue[follows] * n + category)[is_gap], length[is_gap], QUANTILES)
    row = np.repeat(lanes, n) * n + np.tile(np.arange(n), len(lanes))

    def of_row(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        out = np.zeros(len(by) * n, dtype=values.dtype)
        out[found.group] = values
        return out[row]

    time = of_row(found.total)
    total = time.reshape(-1, n).sum(axis=1).repeat(n)
    return IDLE_CATEGORIES.frame(
        {
            "device": by.device[row // n],
            "stream": by.stream[row // n],
            "category": categorical(row % n, _CATEGORIES),
            "n_gaps": of_row(found.n),
            "idle_ns": time,
            "idle_share": time / np.maximum(total, 1),
            **{name: of_row(values) for name, values in found.spread.items()},
        }
    )
