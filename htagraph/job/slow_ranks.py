"""Slow ranks: kernel durations against the median rank, which need no common clock."""

from __future__ import annotations

import pandas as pd

from htagraph.writers.labels import distinct_names

__all__ = ["against_median_rank", "slow_device"]

_MIN_EXCESS = 0.05


def against_median_rank(frame: pd.DataFrame) -> pd.DataFrame:
    """Kernels and copies of each rank, with the ratio of their mean duration to the median rank's.

    Parameters
    ----------
    frame : DataFrame, schema `answers.KERNEL_BREAKDOWN` and ``rank``
        By name, of a job.

    Returns
    -------
    DataFrame
        The same with a column ``ratio``, without kernels that only one rank runs, and without
        communication, which takes as long as a rank waits.

    Examples
    --------
    >>> frame = pd.DataFrame({"rank": [0, 1, 2], "group": "gemm", "class": "compute"})
    >>> against_median_rank(frame.assign(mean_ns=[10.0, 10.0, 18.0]))["ratio"].tolist()
    [1.0, 1.0, 1.8]
    """
    own = frame[frame["class"] != "communication"]
    means = own.groupby("group")["mean_ns"]
    compared: pd.DataFrame = own.assign(ratio=own["mean_ns"] / means.transform("median"))
    return compared[means.transform("size") > 1]


def slow_device(frame: pd.DataFrame, rank: int) -> str:
    """Sentence on a rank whose kernels take longer than the median rank's; empty if they do not.

    Parameters
    ----------
    frame : DataFrame, schema `answers.KERNEL_BREAKDOWN` and ``rank``
        By name, of a job.
    """
    compared = against_median_rank(frame)
    mine = compared[compared["rank"] == rank]
    if mine.empty:
        return ""
    excess_ns = mine["sum_ns"] * (1 - 1 / mine["ratio"])
    if excess_ns.sum() < _MIN_EXCESS * mine["sum_ns"].sum():
        return ""
    most = mine.iloc[int(excess_ns.to_numpy().argmax())]
    name = distinct_names([str(most["group"])])[str(most["group"])]
    return f"rank {rank} runs {name} {most['ratio']:.2f} times as long as the median rank"
