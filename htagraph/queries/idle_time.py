"""Idle time of devices or streams by cause."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.algorithms.intervals import Intervals, sum_by_code
from htagraph.algorithms.matching import group_starts
from htagraph.errors import GraphError
from htagraph.explain.idle_parts import (
    NO_EVENT_NAMES,
    IdleCause,
    IdleParts,
    idle_gaps,
    idle_parts,
    part_names,
)
from htagraph.lookup.naming import frames_at
from htagraph.lookup.queues import queues
from htagraph.model.answers import IDLE_TIME
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.schema import categorical
from htagraph.model.window import Window

Codes = npt.NDArray[np.integer]


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
