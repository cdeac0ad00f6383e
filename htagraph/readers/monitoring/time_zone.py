"""Where a log lies in a trace: the zone of its clock, and which samples belong to the trace."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.model.units import human_time

__all__ = ["Placed", "zone_of"]

_MINUTE_NS = 60 * 10**9
_QUARTERS = (-38, -14, 14, 18, 22, 23, 26, 35, 38, 42, 51)
_ZONES = tuple(sorted({*range(-48, 57, 4), *_QUARTERS}))
"""Zones that somebody lives in, in quarters of an hour ahead of UTC."""
_WRITTEN_LATE_NS = 5 * 10**9


class Placed(NamedTuple):
    """The zone of a log's clock.

    Parameters
    ----------
    ahead_ns : int or None, unit=ns
        How far it is ahead of UTC; None where that cannot be told.
    how : str
        How it was found, or why not, in words.
    """

    ahead_ns: int | None
    how: str


def zone_of(
    log: tuple[int, int], trace: tuple[int, int], *, slack_ns: int, written_ns: int
) -> Placed:
    """Zone in which a log of local times overlaps a trace best.

    A long log fits in several: then the time at which the file was last written tells, or else
    UTC is taken, which servers and containers have.

    Parameters
    ----------
    log, trace : (int, int), unit=ns
        First and last time of each; those of the log without a zone.
    slack_ns : int, unit=ns
        How long before the first sample, and after the last, the log may still speak of.
    written_ns : int, unit=ns
        When the log was last written, since the epoch.

    Examples
    --------
    >>> hour = 3600 * 10**9
    >>> log, trace = (102 * hour, 103 * hour), (100 * hour + 5, 100 * hour + 9)
    >>> zone_of(log, trace, slack_ns=0, written_ns=0).how
    'its local times taken as UTC+2, the only zone in which it overlaps the trace'
    """
    ahead = np.array(_ZONES, dtype=np.int64) * 15 * _MINUTE_NS
    begin = np.maximum(log[0] - slack_ns - ahead, trace[0])
    end = np.minimum(log[1] + slack_ns - ahead, trace[1])
    overlap = end - begin
    fits = ahead[(overlap == overlap.max()) & (overlap >= 0)]
    if not len(fits):
        when = f"from {human_time(log[0])} to {human_time(log[1])}"
        return Placed(None, f"its local times, {when}, overlap the trace in no zone")
    if len(fits) == 1:
        how = "the only zone in which it overlaps the trace"
        return _placed(fits[0], how if np.count_nonzero(overlap >= 0) == 1 else "which fits best")
    last = written_ns - (log[1] - fits)
    at_once = fits[(last > -_WRITTEN_LATE_NS) & (last < _WRITTEN_LATE_NS + slack_ns)]
    if len(at_once) == 1:
        return _placed(at_once[0], "by when the file was last written")
    if (fits == 0).any():
        return _placed(0, f"though {len(fits) - 1} other zones fit as well")
    how = f"its local times overlap the trace in {len(fits)} zones; record it with TZ=UTC"
    return Placed(None, how)


def _placed(ahead_ns: int, how: str) -> Placed:
    minutes = int(ahead_ns) // _MINUTE_NS
    hours, rest = divmod(abs(minutes), 60)
    sign = "-" if minutes < 0 else "+"
    name = "UTC" + (f"{sign}{hours}" + (f":{rest:02}" if rest else "") if minutes else "")
    return Placed(int(ahead_ns), f"its local times taken as {name}, {how}")
