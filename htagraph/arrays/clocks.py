"""Clocks of ranks that meet in collectives: offset and drift, and how sure they are.

The members of a collective end together, up to a small jitter: this gives an estimate. And none
ends before all have started, which gives a bound: of two members ``r`` and ``q``, what must be
added to the clock of ``r`` is in ``[max(start_q - end_r), min(end_q - start_r)]``. Where members
end independently, as in a one-sided all-to-all, only the bound holds.

The bound is the clock condition of message passing (Rabenseifner, "The controlled logical clock",
1997), but here the whole clock moves, so that durations within a rank stay as measured. Some
collectives end late on one member, so the estimate uses medians.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from htagraph.arrays.passes import compiled
from htagraph.model.arrays import I64, Bools

_PPB = 1_000_000_000
"""A unit: parts per billion of all."""
_FEWEST_FOR_DRIFT = 8
"""Collectives that a slope needs: fewer fit a line by chance. Chosen."""
_DRIFT_MUST_HELP = 0.5
"""A drift counts only if it reduces the spread to this share: without drift, a slope does harm."""
_LARGEST_DRIFT_PPB = 200_000
"""Crystal oscillators are off by at most about 100 ppm each; a steeper slope is not drift."""
_UNNOTICED_DRIFT_PPB = 5_000
"""Drift that may remain where none was fitted; widens the bounds. Chosen."""
_SPREADS_OF_A_SLOPE = 4
"""Spreads by which a fitted drift may be wrong over the run; widens the bounds. Chosen."""
_UNBOUNDED_NS = 1 << 50
"""Thirteen days: how far away the bound is on a side that no collective bounds."""
ONE_HOST_NS = 100_000
"""Processes of one host read one clock, but each calibrates its ticks: they may differ by this."""


def to_common(
    ts_ns: npt.ArrayLike,
    offset_ns: npt.ArrayLike,
    drift_ppb: npt.ArrayLike,
    origin_ns: npt.ArrayLike,
) -> I64:
    """Times on the common clock, by one `Clock` for all or one for each; order is kept."""
    times = np.asarray(ts_ns, dtype=np.int64)
    drift = np.asarray(drift_ppb, dtype=np.int64)
    since = times - np.asarray(origin_ns, dtype=np.int64)
    whole = since // _PPB
    moved: I64 = times + np.asarray(offset_ns, dtype=np.int64)
    moved += whole * drift + (since - whole * _PPB) * drift // _PPB
    return moved


@dataclass(frozen=True)
class Clock:
    """Converts a member's time to common time: ``t + offset + drift * (t - origin)``."""

    offset_ns: int = 0
    drift_ppb: int = 0
    origin_ns: int = 0  # Member's time at which the offset holds

    def to_common(self, ts_ns: npt.ArrayLike) -> I64:
        """Times on the common clock; order is kept."""
        return to_common(ts_ns, self.offset_ns, self.drift_ppb, self.origin_ns)


@dataclass(frozen=True)
class ClockFit:
    """An estimated clock and how sure it is."""

    clock: Clock
    # low_ns, high_ns: feasible offsets, if the drift is wrong by at most what goes unnoticed (5 ppm
    # where none was fitted). ``low_ns > high_ns`` if no clock fits; days away on a side without a
    # bound.
    low_ns: int
    high_ns: int
    spread_ns: int  # Median distance of the ends of a matched collective after alignment
    n_collectives: int

    @property
    def width_ns(self) -> int:
        """Length of the feasible interval; negative if no clock fits."""
        return self.high_ns - self.low_ns


def _slope_ppb(time_ns: I64, difference_ns: I64) -> int:
    """Slope between the medians of the first and of the second half.

    As robust as the median of all slopes (Theil, 1950; Sen, 1968), which takes quadratic time.
    """
    half = len(time_ns) // 2
    early, late = slice(None, half), slice(len(time_ns) - half, None)
    rise = np.median(difference_ns[late]) - np.median(difference_ns[early])
    run = np.median(time_ns[late]) - np.median(time_ns[early])
    return round(float(rise) / float(run) * _PPB) if run > 0 else 0


def _median(values: I64) -> int:
    """The median, rounded down: exact however large, and as far away if all values are moved."""
    first = values[0]
    return int(first) + math.floor(float(np.median(values - first)))


def _robust_spread(values: I64) -> float:
    return float(np.median(np.abs(values - _median(values))))


def fit_clock(
    start_ns: I64,
    end_ns: I64,
    reference_start_ns: I64,
    reference_end_ns: I64,
    *,
    waits: Bools | None = None,
    is_awaited: Bools | None = None,
    ends_together: Bools | None = None,
) -> ClockFit:
    """Clock of a member against a reference, from the collectives that both took part in.

    The offset is the median difference of the ends, moved into the feasible interval. Drift is
    fitted only where it halves the spread of the differences. Both come from collectives that end
    together (`ends_together`; default: all); without any, all ends give the offset, and there is no
    drift. `waits`, `is_awaited`: whether the member waits for the reference, and the reference for
    the member; default: both.
    """
    if not len(start_ns):
        return ClockFit(Clock(), 0, 0, 0, 0)
    order = np.argsort(end_ns, kind="stable")
    columns = (start_ns, end_ns, reference_start_ns, reference_end_ns)
    start, end, reference_start, reference_end = (column[order] for column in columns)
    together = np.ones(len(end), dtype=bool) if ends_together is None else ends_together[order]
    origin = int(end[0])
    drift = 0
    if together.sum() >= _FEWEST_FOR_DRIFT:
        left, difference = end[together], (reference_end - end)[together]
        slope = _slope_ppb(left - origin, difference - difference[0])
        rest = difference - Clock(0, slope, origin).to_common(left) + left
        helps = _robust_spread(rest) < _DRIFT_MUST_HELP * _robust_spread(difference)
        drift = slope if helps and abs(slope) <= _LARGEST_DRIFT_PPB else 0
    turned = Clock(0, drift, origin)
    start, end = turned.to_common(start), turned.to_common(end)
    apart = (reference_end - end)[together if together.any() else slice(None)]
    offset = _median(apart)
    spread = int(np.median(np.abs(apart - offset)))
    unnoticed = _SPREADS_OF_A_SLOPE * spread
    if not drift:
        unnoticed = int(end[-1] - end[0]) * _UNNOTICED_DRIFT_PPB // _PPB
    low, high = _bounds(
        reference_start - end,
        reference_end - start,
        waits[order] if waits is not None else None,
        is_awaited[order] if is_awaited is not None else None,
        offset,
    )
    low, high = low - unnoticed, high + unnoticed
    if low <= high:
        offset = min(max(offset, low), high)
    return ClockFit(Clock(offset, drift, origin), low, high, spread, len(end))


@compiled
def _follow(low: I64, high: I64, gap: I64, shift: I64) -> None:
    """Fill the shifts stretch by stretch: each as long as one shift fits all its intervals."""
    current = 0
    first = 0
    while first < len(low):
        least, most = low[first], high[first]
        end = first + 1
        while end < len(low) and max(least, low[end]) <= min(most, high[end]):
            least, most = max(least, low[end]), min(most, high[end])
            end += 1
        current = max(least, min(current, most), current - gap[first] if first else least)
        shift[first:end] = current
        first = end


def follow(low_ns: I64, high_ns: I64, gap_ns: I64) -> I64:
    """Shifts of a clock that drifts: one for each busy time, which change only between them.

    Busy times share a shift as long as one fits the bounds of all. It is the shift nearest to the
    one before, the first the one nearest to zero. Where bounds contradict, the lower one holds.
    After a gap, a shift drops by no more than that, so that order is kept.
    """
    shift = np.zeros(len(low_ns), dtype=np.int64)
    _follow(low_ns, high_ns, gap_ns, shift)
    return shift


def _bounds(
    lows: I64, highs: I64, waits: Bools | None, is_awaited: Bools | None, around_ns: int
) -> tuple[int, int]:
    """The least and the most that can be added; a rank that waits for no other bounds none."""
    lows = lows if waits is None else lows[waits]
    highs = highs if is_awaited is None else highs[is_awaited]
    low = int(lows.max()) if len(lows) else around_ns - _UNBOUNDED_NS
    return low, int(highs.min()) if len(highs) else around_ns + _UNBOUNDED_NS


def shared_clock(
    start_ns: I64,
    end_ns: I64,
    reference_start_ns: I64,
    reference_end_ns: I64,
    *,
    waits: Bools,
    is_awaited: Bools,
    clock: Clock,
    within_ns: int = ONE_HOST_NS,
) -> ClockFit | None:
    """The reference's own clock for a member on the same host, None if collectives forbid it.

    The reference's collectives are in common time; its `clock` and the member's may differ by
    `within_ns`. Ends may, too, if that is more than one host allows.
    """
    start, end = clock.to_common(start_ns), clock.to_common(end_ns)
    low, high = _bounds(reference_start_ns - end, reference_end_ns - start, waits, is_awaited, 0)
    apart = reference_end_ns - end
    is_far = within_ns > ONE_HOST_NS and abs(np.median(apart)) > within_ns
    if low > within_ns or high < -within_ns or low > high or is_far:
        return None
    return ClockFit(
        clock,
        clock.offset_ns + min(max(low, -within_ns), 0),
        clock.offset_ns + max(min(high, within_ns), 0),
        int(np.median(np.abs(apart))),
        len(end),
    )
