"""Hardware counters of kernels, from CUPTI ranges or from Nsight Compute."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.ancestors import highest
from htagraph.errors import QueryError
from htagraph.lookup.attribution import innermost
from htagraph.lookup.clipping import clipped
from htagraph.lookup.naming import names_or_empty
from htagraph.model.answers import CUPTI_COUNTERS
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.metrics import ncu_columns
from htagraph.model.window import Window

Args = Callable[[I64], Sequence[Mapping[str, Any]]]
"""Reads the ``args`` of some events, as `Trace.args` does."""

_KERNEL_LAUNCH = re.compile(r"^(cuda|hip|cu)(Ext)?(Module)?Launch(Cooperative)?Kernel")
_NO_COUNTER = frozenset(
    {"device", "stream", "correlation", "External id", "external id", "graph id"}
)


def _ranges_and_launches(dag: Dag, window: Window) -> tuple[I64, I64]:
    """CUPTI ranges of a window by time, and the call that launched each, -1 if unknown.

    While CUPTI counts, kernels run one by one and ranges are recorded instead of kernels: the i-th
    range belongs to the i-th launch of the trace, if there are as many of both.
    """
    events = dag.events
    ranges = np.flatnonzero(events.kind == EventKind.COUNTER_RANGE)
    ranges = ranges[np.lexsort((events.end_ns[ranges], events.ts_ns[ranges]))]
    is_launch = events.named(events.symbols.searched(_KERNEL_LAUNCH))
    calls = np.flatnonzero((events.kind == EventKind.RUNTIME) & is_launch)
    calls = calls[np.lexsort((events.end_ns[calls], events.ts_ns[calls]))]
    launch = calls if len(calls) == len(ranges) else np.full(len(ranges), -1, dtype=np.int64)
    inside = np.isin(ranges, clipped(dag, ranges, window).event)
    return ranges[inside], launch[inside]


def cupti_counters(dag: Dag, window: Window, *, args: Args) -> pd.DataFrame:
    """Hardware counters of each counted kernel, one row per counter.

    Parameters
    ----------
    window : Window
        Ranges and kernels that overlap it.
    args : callable
        Gives the ``args`` of events, in which the counters of CUPTI are: `Trace.args`.

    Returns
    -------
    DataFrame, schema `answers.CUPTI_COUNTERS`
        By time. ``launch`` is -1 for all ranges if launches and ranges differ in number.
    """
    events = dag.events
    found = pd.concat([_of_ranges(dag, window, args), _of_kernels(dag, window)], ignore_index=True)
    event, launch = found["event"].to_numpy(np.int64), found["launch"].to_numpy(np.int64)
    is_op = events.kind == EventKind.OP
    frame = CUPTI_COUNTERS.frame(
        {
            "event": event,
            "name": events.names(event),
            "ts_ns": events.ts_ns[event],
            "dur_ns": events.dur_ns[event],
            "launch": launch,
            "op": names_or_empty(dag, innermost(dag, launch, (EventKind.OP,))),
            "top_op": names_or_empty(dag, highest(dag.parent, launch, is_op)),
            "counter": found["counter"].to_numpy(object),
            "value": found["value"].to_numpy(np.float64),
            "instrument": found["instrument"].to_numpy(object),
        }
    )
    order = np.lexsort((frame["dur_ns"], frame["ts_ns"]))
    return frame.iloc[order].reset_index(drop=True)


def _of_ranges(dag: Dag, window: Window, args: Args) -> pd.DataFrame:
    """Counters of CUPTI ranges."""
    ranges, launch = _ranges_and_launches(dag, window)
    decoded = args(ranges) if len(ranges) else []
    if len(decoded) != len(ranges):
        raise QueryError(
            f"args gave {len(decoded):,} of {len(ranges):,} events.", hint="pass Trace.args."
        )
    # A Python loop: counters are few, and text in the file.
    values = [
        (row, name, float(value))
        for row, arguments in enumerate(decoded)
        for name, value in arguments.items()
        if name not in _NO_COUNTER and isinstance(value, int | float)
    ]
    row = np.array([row for row, _, _ in values], dtype=np.int64)
    return _counted(
        ranges[row],
        launch[row],
        [name for _, name, _ in values],
        [v for _, _, v in values],
        "CUPTI",
    )


def _of_kernels(dag: Dag, window: Window) -> pd.DataFrame:
    """Metrics of the kernels that Nsight Compute measured."""
    parts = []
    for name, column in sorted(ncu_columns(dag.events).items()):
        inside = np.isin(column.event, clipped(dag, column.event, window).event)
        event, value = column.event[inside], column.value[inside].astype(np.float64)
        parts.append(_counted(event, dag.launch[event], name, value, "Nsight Compute"))
    none = np.empty(0, dtype=np.int64)
    return pd.concat(parts or [_counted(none, none, "", none, "")], ignore_index=True)


def _counted(
    event: I64, launch: npt.NDArray[np.integer], counter: object, value: object, instrument: str
) -> pd.DataFrame:
    """Counters as rows; a scalar applies to all."""
    columns = {"event": event, "launch": launch, "counter": counter, "value": value}
    return pd.DataFrame({**columns, "instrument": instrument}, index=np.arange(len(event))).astype(
        {"counter": object, "instrument": object, "value": np.float64}
    )
