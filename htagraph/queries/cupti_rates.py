"""Rates that hardware counters stand for: the points of a roofline."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from htagraph.errors import QueryError
from htagraph.model.answers import CUPTI_RATES
from htagraph.model.dag import Dag
from htagraph.model.window import Window
from htagraph.queries.cupti_counters import Args, cupti_counters

__all__ = ["cupti_rates"]

_SASS = re.compile(r"^smsp__sass_thread_inst_executed_op_[fhd](?P<op>add|mul|fma)_pred_on\.sum$")
_NS_PER_S = 1e9
_OPERATIONS = {"add": 1, "mul": 1, "fma": 2}
_TRAFFIC = re.compile(r"^dram__bytes(_read|_write)?\.sum$")


def cupti_rates(dag: Dag, window: Window, *, args: Args, by: str = "name") -> pd.DataFrame:
    """Floating-point operations and memory traffic by kernel or operator, and the rates achieved.

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
