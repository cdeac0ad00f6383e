"""The main range of a finding: the range of the program that most of its time lies in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pandas as pd

from htagraph.lookup.user_ranges import WITHIN
from htagraph.model.kinds import Cause

_MOST = 0.5
"""Part of a finding from which on most of it lies in a range.

Chosen. Pinned with `_EVERYWHERE` by `test_main_range.py`.
"""

_EVERYWHERE = 0.9
"""Share of the window from which on a range tells nothing: all runs in it. Chosen."""

_NAMED = (
    Cause.LATE_RANK,
    Cause.GPU_SYNCHRONIZATION,
    Cause.UNRECORDED_WAIT,
    Cause.SYNCHRONOUS_COPIES,
    Cause.CPU_WORK,
    Cause.CPU_OPERATORS,
    Cause.SMALL_OPERATORS,
    Cause.HOST_CODE,
)
"""Causes of host time that do not say what the program does."""


def range_times(attributed_time: pd.DataFrame) -> Mapping[str, int]:
    """Time in each range, with that of the ranges in it; in ns."""
    by_nest = attributed_time.groupby("ranges", observed=True)["dur_ns"].sum()
    times: Counter[str] = Counter()
    for nest, dur_ns in by_nest.items():
        for name in set(filter(None, str(nest).split(WITHIN))):
            times[name] += int(dur_ns)
    return times


def main_range(
    cause: Cause, part: pd.DataFrame, window_times: Mapping[str, int], window_ns: int
) -> str:
    """The smallest range with more than half of a finding's host time; empty for none.

    Parameters
    ----------
    part : DataFrame
        The attributed time of the finding.
    window_times : mapping of str to int, unit=ns
        Time of the window in each range.
    """
    if cause not in _NAMED:
        return ""
    times, least_ns = range_times(part), _MOST * part["dur_ns"].sum()
    found = [
        (window_times[name], -times[name], name)
        for name in times
        if times[name] > least_ns and window_times[name] < _EVERYWHERE * window_ns
    ]
    return min(found)[2] if found else ""
