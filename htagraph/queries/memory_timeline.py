"""Memory allocations and releases over time, recorded with ``profile_memory=True``."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.lookup.attribution import innermost
from htagraph.lookup.clipping import clipped
from htagraph.lookup.naming import innermost_at, names_or_empty
from htagraph.lookup.steps import find_steps
from htagraph.model.answers import MEMORY_TIMELINE
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window

_MEMORY = "[memory]"


def memory_timeline(dag: Dag, window: Window) -> pd.DataFrame:
    """Allocations and releases in the window, each with the operator that made it.

    Returns
    -------
    DataFrame, schema `answers.MEMORY_TIMELINE`
        By device and time. Empty if memory was not recorded. ``attrs["steps_ns"]`` has the starts
        of steps.
    """
    events = dag.events
    rows = np.flatnonzero(
        (events.kind == EventKind.INSTANT) & (events.name == events.symbols.code(_MEMORY))
    )
    rows = clipped(dag, rows, window).event
    kind, device = events.column("device_type")[rows], events.column("device_id")[rows]
    change = events.column("bytes", 0)[rows]
    order = np.lexsort((change, events.ts_ns[rows], device, kind))
    rows = rows[order]
    inner, _ = innermost_at(
        dag, np.flatnonzero(events.is_host), events.lane[rows].astype(np.int64), events.ts_ns[rows]
    )
    op = innermost(dag, inner, (EventKind.OP, EventKind.ANNOTATION))
    frame = MEMORY_TIMELINE.frame(
        {
            "event": rows,
            "ts_ns": events.ts_ns[rows],
            "device_type": kind[order],
            "device": device[order],
            "bytes": change[order],
            "allocated": events.column("total_allocated")[rows],
            "reserved": events.column("total_reserved")[rows],
            "op": names_or_empty(dag, op),
        }
    )
    steps_ns = find_steps(events)["start_ns"]
    frame.attrs["steps_ns"] = steps_ns[steps_ns.between(window.start_ns, window.end_ns)].tolist()
    return frame
