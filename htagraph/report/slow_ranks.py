"""Kernels of a rank against those of the others: durations need no common clock, so a slow device shows where arrivals do not."""

from __future__ import annotations

import pandas as pd

from htagraph.writers.labels import distinct_names

__all__ = ["against_median_rank", "slow_device"]

_WORTH_SAYING = 0.05


def against_median_rank(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the kernels and copies of each rank with their mean duration as a ratio to that on the median rank.

    Parameters
    ----------
    frame : DataFrame, schema `answers.KERNEL_BREAKDOWN` and ``rank``
        By name, of a job.

    Returns
    -------
    DataFrame
        The same with a column ``ratio``, of what runs on two ranks at least. Communication is left
        out: it takes as long as a rank waits.

    Examples
    --------
    >>> columns = {"group": ["gemm"] * 3, "class": "compute", "rank": [0, 1, 2], "mean_ns": [10.0, 10.0, 18.0]}
    >>> against_median_rank(pd.DataFrame(columns))["ratio"].tolist()
    [1.0, 1.0, 1.8]
    """
    own = frame[frame["class"] != "communication"]
    means = own.groupby("group")["mean_ns"]
    compared: pd.DataFrame = own.assign(ratio=own["mean_ns"] / means.transform("median"))
    return compared[means.transform("size") > 1]


def slow_device(frame: pd.DataFrame, rank: int) -> str:
    """Return what says that kernels take longer on a rank than on the median one; empty if they do not.

    Parameters
    ----------
    frame : DataFrame, schema `answers.KERNEL_BREAKDOWN` and ``rank``
        By name, of a job.
    rank : int
    """
    compared = against_median_rank(frame)
    mine = compared[compared["rank"] == rank]
    if mine.empty:
        return ""
    excess_ns = mine["sum_ns"] * (1 - 1 / mine["ratio"])
    if excess_ns.sum() < _WORTH_SAYING * mine["sum_ns"].sum():
        return ""
    most = mine.iloc[int(excess_ns.to_numpy().argmax())]
    name = distinct_names([str(most["group"])])[str(most["group"])]
    return f"rank {rank} runs {name} {most['ratio']:.2f} times as long as the median rank"
