"""Hardware counters of kernels (CUPTI ranges), and the rates they stand for: the points of a roofline."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.errors import QueryError
from htagraph.lookup.attribution import innermost
from htagraph.lookup.clipping import clipped
from htagraph.lookup.launched import outermost
from htagraph.lookup.naming import names_or_empty
from htagraph.model.answers import CUPTI_COUNTERS, CUPTI_RATES
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window

__all__ = ["Args", "cupti_counters", "cupti_rates"]

I64 = npt.NDArray[np.int64]
Args = Callable[[I64], Sequence[Mapping[str, Any]]]
"""Gives the ``args`` of events: `Trace.args`."""

_KERNEL_LAUNCH = re.compile(r"^(cuda|hip|cu)(Ext)?(Module)?Launch(Cooperative)?Kernel")
_NO_COUNTER = frozenset(
    {"device", "stream", "correlation", "External id", "external id", "graph id"}
)
_SASS = re.compile(r"^smsp__sass_thread_inst_executed_op_[fhd](?P<op>add|mul|fma)_pred_on\.sum$")
_NS_PER_S = 1e9
_OPERATIONS = {"add": 1, "mul": 1, "fma": 2}
_TRAFFIC = re.compile(r"^dram__bytes(_read|_write)?\.sum$")


def _ranges_and_launches(dag: Dag, window: Window) -> tuple[I64, I64]:
    """Return the counted ranges of a window in order of time, and the call that launched each, -1 where not known.

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
    """Return the hardware counters of each counted kernel, one row per counter.

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
            "top_op": names_or_empty(dag, outermost(dag, launch[row], is_op)),
            "counter": [name for _, name, _ in values],
            "value": [value for _, _, value in values],
        }
    )


def cupti_rates(dag: Dag, window: Window, *, args: Args, by: str = "name") -> pd.DataFrame:
    """Return floating-point operations and memory traffic by kernel or operator, and the rates achieved.

    Operations are counted from executed SASS instructions (a fused multiply-add is two), traffic
    from device memory bytes.

    Parameters
    ----------
    dag : Dag
    window : Window
    args : callable
        See `cupti_counters`.
    by : {"name", "op", "top_op"}

    Returns
    -------
    DataFrame, schema `answers.CUPTI_RATES`
        Longest first. NaN where the trace does not count what is asked. A range takes longer than
        its kernel, so that rates are lower bounds.

    Raises
    ------
    QueryError
        If there is no such group.
    """
    if by not in ("name", "op", "top_op"):
        raise QueryError(f"counters cannot be grouped by {by!r}.", hint="by name, op or top_op.")
    counted = cupti_counters(dag, window, args=args)
    counter = counted["counter"].astype(object)
    sass = {name: match for name in counter.unique() if (match := _SASS.match(name))}
    weight = counter.map(
        {name: float(_OPERATIONS[match["op"]]) for name, match in sass.items()}
    ).astype("float64")
    traffic = counter.map(lambda name: _TRAFFIC.match(name) is not None).astype(bool)
    value = counted["value"]
    group = counted[by]
    ranges = counted.drop_duplicates("event").groupby(by, sort=True)["dur_ns"].agg(["size", "sum"])
    flop = (value * weight).groupby(group).sum(min_count=1).reindex(ranges.index)
    n_bytes = value.where(traffic).groupby(group).sum(min_count=1).reindex(ranges.index)
    dur_ns = ranges["sum"].to_numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        frame = CUPTI_RATES.frame(
            {
                "name": ranges.index.to_numpy(),
                "n_ranges": ranges["size"].to_numpy(),
                "dur_ns": dur_ns,
                "flop": flop.to_numpy(),
                "bytes": n_bytes.to_numpy(),
                "flop_per_s": flop.to_numpy() * _NS_PER_S / dur_ns,
                "bytes_per_s": n_bytes.to_numpy() * _NS_PER_S / dur_ns,
                "flop_per_byte": flop.to_numpy() / n_bytes.to_numpy(),
            }
        )
    return frame.sort_values(["dur_ns", "name"], ascending=[False, True], ignore_index=True)
