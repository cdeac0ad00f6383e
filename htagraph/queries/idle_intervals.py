"""Idle intervals of devices or streams, one by one, each tiled by its causes."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.explain.idle_parts import (
    NO_EVENT_NAMES,
    IdleCause,
    IdleParts,
    idle_gaps,
    idle_parts,
    part_names,
)
from htagraph.lookup.naming import frames_at, names_or_empty
from htagraph.lookup.queues import queues
from htagraph.model.answers import IDLE_INTERVALS
from htagraph.model.dag import Dag
from htagraph.model.schema import categorical
from htagraph.model.window import Window


def idle_intervals(dag: Dag, window: Window, *, per: str = "device") -> pd.DataFrame:
    """Every idle interval, tiled by what the device waited for.

    Binding edges are followed back from the work that ends the interval until the interval begins.
    The last interval of the window is explained by the work after it.

    ::

        cpu 1    | [aten::mul [launch]]      host gap      [aten::add [launch >a]]
        stream 7 | [mul       ]                                          [add <a ]
        idle     |             [.........untraced_code........][..host..][la]

    Parameters
    ----------
    per : {"device", "stream"}
        A device is idle when none of its streams runs anything.

    Returns
    -------
    DataFrame, schema `answers.IDLE_INTERVALS`
        In order of time within each device or stream.
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
