"""Hardware counters of kernels, recorded as CUPTI ranges."""

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
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window

__all__ = ["Args", "cupti_counters"]

I64 = npt.NDArray[np.int64]
Args = Callable[[I64], Sequence[Mapping[str, Any]]]
"""The ``args`` of some events, as `Trace.args` reads them from the file."""

_KERNEL_LAUNCH = re.compile(r"^(cuda|hip|cu)(Ext)?(Module)?Launch(Cooperative)?Kernel")
_NO_COUNTER = frozenset(
    {"device", "stream", "correlation", "External id", "external id", "graph id"}
)


def _ranges_and_launches(dag: Dag, window: Window) -> tuple[I64, I64]:
    """Counted ranges of a window in order of time, and the call that launched each, -1 for unknown.

    While kernels are counted they run one by one, and the profiler records ranges in place of
    kernels: the i-th range belongs to the i-th launch of the trace, if there are as many of both.
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
    dag : Dag
    window : Window
        Ranges that overlap it.
    args : callable
        Gives the ``args`` of events, in which the counters are: `Trace.args`.

    Returns
    -------
    DataFrame, schema `answers.CUPTI_COUNTERS`
        In order of time. Empty where the trace has no counters. ``launch`` is -1 for all if
        launches and ranges differ in number, for then it is not known which belong together.
    """
    events = dag.events
    ranges, launch = _ranges_and_launches(dag, window)
    decoded = args(ranges) if len(ranges) else []
    if len(decoded) != len(ranges):
        raise QueryError(
            f"args gave {len(decoded):,} of {len(ranges):,} events.", hint="pass Trace.args."
        )
    # One step per counter of a range: they are few, and text in the file.
    values = [
        (row, name, float(value))
        for row, arguments in enumerate(decoded)
        for name, value in arguments.items()
        if name not in _NO_COUNTER and isinstance(value, int | float)
    ]
    row = np.array([row for row, _, _ in values], dtype=np.int64)
    is_op = events.kind == EventKind.OP
    return CUPTI_COUNTERS.frame(
        {
            "event": ranges[row],
            "name": events.names(ranges[row]),
            "ts_ns": events.ts_ns[ranges[row]],
            "dur_ns": events.dur_ns[ranges[row]],
            "launch": launch[row],
            "op": names_or_empty(dag, innermost(dag, launch[row], (EventKind.OP,))),
            "top_op": names_or_empty(dag, highest(dag.parent, launch[row], is_op)),
            "counter": [name for _, name, _ in values],
            "value": [value for _, _, value in values],
        }
    )
