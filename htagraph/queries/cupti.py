"""Hardware counters of kernels, from CUPTI ranges or from Nsight Compute, and achieved rates."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.ancestors import highest
from htagraph.errors import QueryError
from htagraph.lookup.attribution import innermost, names_or_empty
from htagraph.lookup.windowed import clipped
from htagraph.model.answers import CUPTI_COUNTERS, CUPTI_RATES
from htagraph.model.arrays import F64, I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.names import ncu_columns
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

    `window`: ranges and kernels that overlap it. `args`: gives the ``args`` of events, in which the
    counters of CUPTI are: `Trace.args`. By time. ``launch`` is -1 for all ranges if launches and
    ranges differ in number.
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
    names, counts = [name for _, name, _ in values], [count for *_, count in values]
    return _counted(ranges[row], launch[row], names, counts, "CUPTI")


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


_NS_PER_S = 1e9
"""A unit: nanoseconds of a second."""
_OPERATIONS = {"add": 1, "mul": 1, "fma": 2}
"""Floating-point operations of an instruction: a fused multiply-add is two."""
_UNITS = ("smsp", "sm")
"""Units that count instructions: parts of an SM, or the SM; never both."""
_INSTRUCTIONS = {
    f"op_{kind}{operation}_pred_on": n
    for kind, (operation, n) in product("fhd", _OPERATIONS.items())
}
_TIME, _CYCLES = "gpu__time_duration.sum", "smsp__cycles_elapsed.avg.per_second"


def cupti_rates(dag: Dag, window: Window, *, args: Args, by: str = "name") -> pd.DataFrame:
    """Floating-point operations and memory traffic by kernel or operator, and the rates achieved.

    Operations are counted from executed SASS instructions (a fused multiply-add is two), which
    leaves out tensor cores; traffic from device memory bytes. Nsight Compute often reports rates
    instead, which are multiplied by its measured time. `args`: see `cupti_counters`. Longest first;
    NaN without the counter. Rates are over the time in the trace. A CUPTI range takes longer than
    its kernel, so its rates are lower bounds. Counts of Nsight Compute are from another run, where
    kernels ran alone with cold caches and a fixed clock.
    """
    counted = cupti_counters(dag, window, args=args)
    kernels = counted.drop_duplicates("event").set_index("event")
    values = {
        str(counter): rows.set_index("event")["value"].reindex(kernels.index).to_numpy(np.float64)
        for counter, rows in counted.groupby("counter", sort=False)
    }
    done = pd.DataFrame(
        {
            by: kernels[by],
            "n_ranges": 1,
            "dur_ns": kernels["dur_ns"],
            "flop": _flop(values, len(kernels)),
            "bytes": _bytes(values, len(kernels)),
        }
    )
    total = done.groupby(by, sort=True).sum(min_count=1)
    flop, n_bytes = total["flop"].to_numpy(np.float64), total["bytes"].to_numpy(np.float64)
    dur_ns = total["dur_ns"].to_numpy(np.int64)
    with np.errstate(divide="ignore", invalid="ignore"):
        frame = CUPTI_RATES.frame(
            {
                "name": total.index.to_numpy(object),
                "n_ranges": total["n_ranges"].to_numpy(np.int64),
                "dur_ns": dur_ns,
                "flop": flop,
                "bytes": n_bytes,
                "flop_per_s": flop * _NS_PER_S / dur_ns,
                "bytes_per_s": n_bytes * _NS_PER_S / dur_ns,
                "flop_per_byte": flop / n_bytes,
            }
        )
    return frame.sort_values(["dur_ns", "name"], ascending=[False, True], ignore_index=True)


def _first_known(*choices: F64) -> F64:
    """The first choice that is not NaN, for each."""
    out = choices[0]
    for other in choices[1:]:
        out = np.where(np.isnan(out), other, out)
    return out


def _total(values: dict[str, F64], metric: str, n: int) -> F64:
    """Count of a metric in each kernel, directly or as its rate times the time."""
    unknown = np.full(n, np.nan)
    seconds = values.get(_TIME, unknown) / _NS_PER_S
    per_cycle = values.get(f"{metric}.sum.per_cycle_elapsed", unknown)
    return _first_known(
        values.get(f"{metric}.sum", unknown),
        values.get(f"{metric}.sum.per_second", unknown) * seconds,
        per_cycle * values.get(_CYCLES, unknown) * seconds,
    )


def _flop(values: dict[str, F64], n: int) -> F64:
    """Floating-point operations of each kernel."""
    sums = []
    for unit in _UNITS:
        counted = [
            weight * _total(values, f"{unit}__sass_thread_inst_executed_{name}", n)
            for name, weight in _INSTRUCTIONS.items()
        ]
        known = ~np.isnan(counted).all(axis=0)
        sums.append(np.where(known, np.nansum(counted, axis=0), np.nan))
    return _first_known(*sums)


def _bytes(values: dict[str, F64], n: int) -> F64:
    """Bytes that each kernel moved from and to device memory."""
    read, written = (_total(values, f"dram__bytes_{way}", n) for way in ("read", "write"))
    known = ~(np.isnan(read) & np.isnan(written))
    both = np.where(known, np.nan_to_num(read) + np.nan_to_num(written), np.nan)
    return _first_known(_total(values, "dram__bytes", n), both)
