"""Times as tools of monitoring write them: since the epoch, or of a calendar."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = ["FIRST_NS", "LAST_NS", "TIME", "Times", "read_times"]

TIME = (
    r"(?:\d{10}(?:\.\d{1,9})?|\d{13}|\d{16}|\d{19}"
    r"|\d{4}[-/]?\d\d[-/]?\d\d[T ]+\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?)"
)
"""Pattern of a time: seconds or finer since the epoch, or date and time."""

_NS_PER_S = 10**9
_FACTORS = {10: _NS_PER_S, 13: 10**6, 16: 10**3, 19: 1}
"""Nanoseconds in what is counted from the epoch, by the digits of the number."""
FIRST_NS, LAST_NS = 10**18, 41 * 10**17
"""Times since the epoch lie between these: 2001 to 2099."""


class Times(NamedTuple):
    """Times that were read.

    Parameters
    ----------
    ts_ns : ndarray of shape (n,), dtype=int64, unit=ns
        Since the epoch; of a calendar without zone as if it were UTC.
    is_read : ndarray of shape (n,), dtype=bool
        False for what is no time.
    is_local : bool
        Whether the zone is not known. What is not like most is not read.
    resolution_ns : int, unit=ns
        Finest digit that is written.
    """

    ts_ns: npt.NDArray[np.int64]
    is_read: npt.NDArray[np.bool_]
    is_local: bool
    resolution_ns: int


def read_times(texts: pd.Series[str]) -> Times:
    """Times from their texts.

    Examples
    --------
    >>> times = read_times(pd.Series(["2024/05/01 12:00:00.250", "soon"]))
    >>> int(times.ts_ns[0]), times.is_read.tolist(), times.is_local, times.resolution_ns
    (1714564800250000000, [True, False], True, 1000000)
    >>> read_times(pd.Series(["1714564800.25", "1714564801"])).ts_ns.tolist()
    [1714564800250000000, 1714564801000000000]
    """
    code, unique = pd.factorize(texts)
    times = _of_each(pd.Series(unique, dtype=object))
    local = np.count_nonzero((times.is_read & times.is_local)[code])
    is_local = bool(2 * local > np.count_nonzero(times.is_read[code]))
    is_read = times.is_read & (times.is_local == is_local)
    resolution_ns = int(times.resolution_ns[is_read].min(initial=_NS_PER_S))
    return Times(times.ts_ns[code], is_read[code], is_local, resolution_ns)


class _EachTime(NamedTuple):
    """Times one by one."""

    ts_ns: npt.NDArray[np.int64]
    is_read: npt.NDArray[np.bool_]
    is_local: npt.NDArray[np.bool_]
    resolution_ns: npt.NDArray[np.int64]


def _of_each(texts: pd.Series[str]) -> _EachTime:
    """Times from their texts, each by itself."""
    found = texts.str.extract(
        r"^(?:(?P<whole>\d{10}|\d{13}|\d{16}|\d{19})|"
        r"(?P<year>\d{4})[-/]?(?P<month>\d\d)[-/]?(?P<day>\d\d)[T ]+"
        r"(?P<clock>\d\d:\d\d:\d\d))(?:[.,](?P<digits>\d{1,9}))? ?(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?$"
    )
    since = _since_epoch(found["whole"])
    calendar = found["year"] + "-" + found["month"] + "-" + found["day"] + "T" + found["clock"]
    seconds = pd.to_datetime(calendar, format="%Y-%m-%dT%H:%M:%S", errors="coerce")
    of_calendar = (seconds.notna() & seconds.dt.year.between(2001, 2099)).to_numpy()
    stamps = seconds.to_numpy().astype("datetime64[s]").astype(np.int64)
    ts_ns = np.where(of_calendar, np.where(of_calendar, stamps, 0) * _NS_PER_S, since)
    digits = found["digits"].fillna("")
    ts_ns = ts_ns + digits.str.ljust(9, "0").astype(np.int64).to_numpy()
    zone = found["zone"].fillna("")
    ts_ns = ts_ns - _zone_ns(zone)
    is_read = (ts_ns > FIRST_NS) & (ts_ns < LAST_NS)
    is_local = of_calendar & (zone == "").to_numpy()
    finer = found["whole"].str.len().astype(float).fillna(10).to_numpy(np.int64) - 10
    n_digits = np.minimum(finer + digits.str.len().to_numpy(np.int64), 9)
    return _EachTime(ts_ns, is_read, is_local, 10 ** (9 - n_digits))


def _since_epoch(whole: pd.Series[str]) -> npt.NDArray[np.int64]:
    """Nanoseconds of numbers that count from the epoch, 0 for none."""
    factor = whole.str.len().map(_FACTORS).fillna(0)
    number = pd.to_numeric(whole, errors="coerce").fillna(0)
    is_usual = number.to_numpy(np.float64) * factor.to_numpy(np.float64) < LAST_NS
    # Whole numbers of 19 digits are not exact as floats.
    exact = whole.where(is_usual & whole.notna().to_numpy(), "0").astype(np.int64)
    return exact.to_numpy() * factor.to_numpy(np.int64)


def _zone_ns(zone: pd.Series[str]) -> npt.NDArray[np.int64]:
    """How far the clock of a zone is ahead."""
    parts = zone.str.extract(r"^(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)$")
    minutes = pd.to_numeric(parts["hours"]) * 60 + pd.to_numeric(parts["minutes"])
    ahead = minutes.fillna(0).to_numpy(np.int64) * 60 * _NS_PER_S
    return np.where(parts["sign"] == "-", -ahead, ahead)
