"""Numbers as people read them: durations and counts in text; data stays integer nanoseconds."""

from __future__ import annotations

from datetime import UTC, datetime

TIME_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Units of time that people write, in ns."""

_STEPS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))


def human_duration(dur_ns: float) -> str:
    """A duration with three significant digits and a unit."""
    for size, unit in _STEPS:
        if abs(dur_ns) >= size:
            value = dur_ns / size
            digits = max(0, 2 - len(str(int(abs(value)))) + 1)
            return f"{value:,.{digits}f} {unit}"
    return f"{dur_ns:.0f} ns"


def human_count(count: int, noun: str) -> str:
    """A count and its noun in the right number."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def human_number(value: float) -> str:
    """A number with three significant digits, and all digits before the point."""
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) >= 100 or value.is_integer():
        return f"{value:,.0f}"
    return f"{value:.3g}"


def human_percent(share: float) -> str:
    """A share in percent with two significant digits."""
    return f"{share:,.{int(abs(share) < 0.0995)}%}".replace(".0%", "%")


def human_size(n_bytes: int) -> str:
    """A size of files."""
    return f"{n_bytes / 1e6:,.1f} MB" if n_bytes >= 1e6 else f"{n_bytes / 1e3:,.0f} kB"


def human_time(time_ns: int) -> str:
    """A time since the epoch, in UTC to the millisecond."""
    try:
        at = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC) if time_ns > 0 else None
    except (OverflowError, OSError, ValueError):
        at = None
    return f"{at:%Y-%m-%d %H:%M:%S}.{time_ns // 1_000_000 % 1000:03d}" if at else "-"


def apart_from_unit(text: str, brackets: str = "[]()") -> tuple[str, str]:
    """A name and the unit in brackets at its end, empty for none."""
    opening, closing = brackets[::2], brackets[1::2]
    if not text.endswith(tuple(closing)):
        return text, ""
    before = text[:-1]
    behind = max(before.rfind(bracket) for bracket in closing) + 1
    starts = [at for bracket in opening if (at := before.find(bracket, behind)) >= 0]
    if not starts:
        return text, ""
    return before[: min(starts)].rstrip(), before[min(starts) + 1 :]
