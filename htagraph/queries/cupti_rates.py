"""Achieved rates from hardware counters: the points of a roofline plot."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd

from htagraph.model.answers import CUPTI_RATES
from htagraph.model.arrays import F64
from htagraph.model.dag import Dag
from htagraph.model.window import Window
from htagraph.queries.cupti_counters import Args, cupti_counters

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
    instead, which are multiplied by its measured time.

    Parameters
    ----------
    args : callable
        See `cupti_counters`.
    by : {"name", "op", "top_op"}

    Returns
    -------
    DataFrame, schema `answers.CUPTI_RATES`
        Longest first; NaN without the counter. Rates are over the time in the trace. A CUPTI range
        takes longer than its kernel, so its rates are lower bounds. Counts of Nsight Compute are
        from another run, where kernels ran alone with cold caches and a fixed clock.
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
