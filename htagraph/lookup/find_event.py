"""From what people call an event to its row: a name, its row, or a time at which a device idles."""

from __future__ import annotations

import re
import warnings
from difflib import get_close_matches

import numpy as np

from htagraph.errors import AmbiguousWindowWarning, QueryError
from htagraph.lookup.selecting import events_in, name_mask
from htagraph.model.dag import Dag
from htagraph.model.units import human_duration
from htagraph.model.window import Window

_N_SIMILAR = 3
"""Chosen: names that a hint suggests."""


def find_event(
    dag: Dag, window: Window, what: str | re.Pattern[str] | int, *, instance: int | None = None
) -> int:
    """Event of a window that a name, glob, regex or row means, in order of time.

    `what`: name, glob or regex; a number, also as text, is a row of the event table, in any window.
    `instance`: which of several; negative from the end. By default the first, with a warning.
    """
    events = dag.events
    in_graph = events.is_device | events.is_host
    if not isinstance(what, str | re.Pattern) or (isinstance(what, str) and what.isdecimal()):
        row = int(what)
        if not 0 <= row < len(events):
            raise QueryError(
                f"there is no event {row:,}: the trace has {len(events):,}.",
                hint="graph.events has the rows; a name or a glob also finds an event.",
            )
        if not in_graph[row]:
            raise QueryError(
                f"event {row:,} ({events.names([row])[0]}) is context, not in the graph.",
                hint="name an operator, a call of the device's API, or device work.",
            )
        return row
    text = getattr(what, "pattern", what)
    inside = events_in(dag, window)
    rows = inside[in_graph[inside]]
    found = rows[name_mask(dag, what)[rows]]
    if not len(found):
        names = np.unique(events.name[rows])
        similar = get_close_matches(text, events.symbols.array[names].tolist(), _N_SIMILAR, 0.4)
        raise QueryError(
            f"no event of {window.name} is called {text!r}.",
            hint=f"similar: {', '.join(similar)}." if similar else "use a glob: '*gemm*'.",
        )
    found = found[np.lexsort((events.tiebreak[found], events.ts_ns[found]))]
    if not -len(found) <= (instance or 0) < len(found):
        raise QueryError(
            f"there is no instance {instance} of {text!r}: {window.name} has {len(found):,}.",
            hint="instance=0 is the first, -1 the last.",
        )
    event = int(found[instance or 0])
    if instance is None and len(found) > 1:
        warnings.warn(
            f"{len(found):,} events match {text!r}; this is the first, "
            f"{human_duration(int(events.ts_ns[event]) - dag.span.start_ns)} after the start of "
            "the trace. Give an instance to see another.",
            AmbiguousWindowWarning,
            stacklevel=3,
        )
    return event


def next_work(dag: Dag, ts_ns: int, device: int | None = None) -> int:
    """Device work that runs at a time, else the next to start: what an idle device waits for.

    `device`: of any device by default.
    """
    events = dag.events
    rows = np.flatnonzero(events.is_device & (events.end_ns > ts_ns))
    if device is not None:
        rows = rows[events.device[rows] == device]
    if not len(rows):
        known = np.unique(events.device[events.is_device]).tolist()
        where = "the device" if device is None else f"device {device}"
        at = human_duration(ts_ns - dag.span.start_ns)
        raise QueryError(
            f"{where} runs nothing from {at} after the start of the trace on.",
            hint=f"the trace has work of {', '.join(f'device {one}' for one in known)}."
            if known
            else "the trace has no device work; name a host event.",
        )
    return int(rows[np.lexsort((events.tiebreak[rows], events.ts_ns[rows]))[0]])
