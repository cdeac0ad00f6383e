"""Times in monitoring logs: since 1970 or calendar times, and the time zone of the latter."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.model.arrays import I64, Bools
from htagraph.model.units import human_time

TIME = (
    r"(?:\d{10}(?:\.\d{1,9})?|\d{13}|\d{16}|\d{19}"
    r"|\d{4}[-/]?\d\d[-/]?\d\d[T ]+\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?)"
)
"""Pattern of a time: seconds or finer units since 1970, or date and time."""

_NS_PER_S = 10**9
_FACTORS = {10: _NS_PER_S, 13: 10**6, 16: 10**3, 19: 1}
"""Nanoseconds per unit since 1970, by the number of digits."""
FIRST_NS, LAST_NS = 10**18, 41 * 10**17
"""Plausible times: 2001 to 2099."""
_MINUTE_NS = 60 * 10**9
_QUARTERS = (-38, -14, 14, 18, 22, 23, 26, 35, 38, 42, 51)
_ZONES = tuple(sorted({*range(-48, 57, 4), *_QUARTERS}))
"""Inhabited time zones, in quarters of an hour ahead of UTC."""
_WRITTEN_LATE_NS = 5 * 10**9
"""How long after its last line a log may be written (chosen): tools buffer."""


def read_times(texts: pd.Series[str]) -> tuple[I64, Bools, bool, int]:
    """Times since 1970, which of the texts are one, and whether most are local, without a zone.

    With the unit of their last digit. Local times are as if they were UTC, and no others are read
    next to them.
    """
    code, unique = pd.factorize(texts)
    ts_ns, is_time, of_calendar, digit_ns = _of_each(pd.Series(unique, dtype=object))
    n_local = np.count_nonzero((is_time & of_calendar)[code])
    is_local = bool(2 * n_local > np.count_nonzero(is_time[code]))
    is_read = is_time & (of_calendar == is_local)
    resolution_ns = int(digit_ns[is_read].min(initial=_NS_PER_S))
    return ts_ns[code], is_read[code], is_local, resolution_ns


def _of_each(texts: pd.Series[str]) -> tuple[I64, Bools, Bools, I64]:
    """Times one by one: which are read, which are local, and the units of their last digits."""
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
    return ts_ns, is_read, is_local, 10 ** (9 - n_digits)


def _since_epoch(whole: pd.Series[str]) -> I64:
    """Nanoseconds of numbers that count from 1970, 0 for other texts."""
    factor = whole.str.len().map(_FACTORS).fillna(0)
    number = pd.to_numeric(whole, errors="coerce").fillna(0)
    is_usual = number.to_numpy(np.float64) * factor.to_numpy(np.float64) < LAST_NS
    # Whole numbers of 19 digits are not exact as floats.
    exact = whole.where(is_usual & whole.notna().to_numpy(), "0").astype(np.int64)
    return exact.to_numpy() * factor.to_numpy(np.int64)


def _zone_ns(zone: pd.Series[str]) -> I64:
    parts = zone.str.extract(r"^(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)$")
    minutes = pd.to_numeric(parts["hours"]) * 60 + pd.to_numeric(parts["minutes"])
    ahead = minutes.fillna(0).to_numpy(np.int64) * 60 * _NS_PER_S
    return np.where(parts["sign"] == "-", -ahead, ahead)


def zone_of(
    log: tuple[int, int], trace: tuple[int, int], *, slack_ns: int, written_ns: int
) -> tuple[int | None, str]:
    """How far a log of local times is ahead of UTC, None if unknown; and how it was found.

    Its time zone is that in which it best overlaps the trace.

    A long log overlaps it in several: then the time at which the file was last written decides, or
    else UTC counts, which servers and containers use. `log`, `trace`: first and last time of each;
    those of the log without a zone. `slack_ns`: how far beyond its first and last sample the log is
    valid. `written_ns`: when the log was last written, since 1970.
    """
    ahead = np.array(_ZONES, dtype=np.int64) * 15 * _MINUTE_NS
    begin = np.maximum(log[0] - slack_ns - ahead, trace[0])
    end = np.minimum(log[1] + slack_ns - ahead, trace[1])
    overlap = end - begin
    fits = ahead[(overlap == overlap.max()) & (overlap >= 0)]
    if not len(fits):
        when = f"from {human_time(log[0])} to {human_time(log[1])}"
        return None, f"its local times, {when}, overlap the trace in no zone"
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
    return None, how


def _placed(ahead_ns: int, how: str) -> tuple[int, str]:
    minutes = int(ahead_ns) // _MINUTE_NS
    hours, rest = divmod(abs(minutes), 60)
    sign = "-" if minutes < 0 else "+"
    name = "UTC" + (f"{sign}{hours}" + (f":{rest:02}" if rest else "") if minutes else "")
    return int(ahead_ns), f"its local times taken as {name}, {how}"
