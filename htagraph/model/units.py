"""Numbers as people read them: durations and counts in text; data stays integer nanoseconds."""

from __future__ import annotations

from datetime import UTC, datetime

TIME_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Units of time that people write, in ns."""

_STEPS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))


def human_duration(dur_ns: float) -> str:
    """A duration with three significant digits and a unit.

    Examples
    --------
    >>> [human_duration(dur_ns) for dur_ns in (1_924_310, 950, -12_500, 61_400_000_000)]
    ['1.92 ms', '950 ns', '-12.5 us', '61.4 s']
    """
    for size, unit in _STEPS:
        if abs(dur_ns) >= size:
            value = dur_ns / size
            digits = max(0, 2 - len(str(int(abs(value)))) + 1)
            return f"{value:,.{digits}f} {unit}"
    return f"{dur_ns:.0f} ns"


def human_count(count: int, noun: str) -> str:
    """A count and its noun in the right number.

    Examples
    --------
    >>> human_count(1, "event"), human_count(41_203, "event")
    ('1 event', '41,203 events')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def human_number(value: float) -> str:
    """A number with three significant digits, and all digits before the point.

    Examples
    --------
    >>> [human_number(value) for value in (1.0, 12.3456, 0.00123, 61_400.7)]
    ['1', '12.3', '0.00123', '61,401']
    """
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) >= 100 or value.is_integer():
        return f"{value:,.0f}"
    return f"{value:.3g}"


def human_percent(share: float) -> str:
    """A share in percent with two significant digits.

    Examples
    --------
    >>> [human_percent(share) for share in (0.442, 0.0893, 0.05, 12.9)]
    ['44%', '8.9%', '5%', '1,290%']
    """
    return f"{share:,.{int(abs(share) < 0.0995)}%}".replace(".0%", "%")


def human_size(n_bytes: int) -> str:
    """A size of files.

    Examples
    --------
    >>> human_size(37_034), human_size(12_500_000)
    ('37 kB', '12.5 MB')
    """
    return f"{n_bytes / 1e6:,.1f} MB" if n_bytes >= 1e6 else f"{n_bytes / 1e3:,.0f} kB"


def human_time(time_ns: int) -> str:
    """A time since the epoch, in UTC to the millisecond.

    Examples
    --------
    >>> human_time(1_700_000_000_123_456_789)
    '2023-11-14 22:13:20.123'
    """
    try:
        at = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC) if time_ns > 0 else None
    except (OverflowError, OSError, ValueError):
        at = None
    return f"{at:%Y-%m-%d %H:%M:%S}.{time_ns // 1_000_000 % 1000:03d}" if at else "-"


def apart_from_unit(text: str, brackets: str = "[]()") -> tuple[str, str]:
    """A name and the unit in brackets at its end, empty for none.

    Examples
    --------
    >>> apart_from_unit("power.draw [W]"), apart_from_unit("GPU use (%)"), apart_from_unit("SMACT")
    (('power.draw', 'W'), ('GPU use', '%'), ('SMACT', ''))
    """
    opening, closing = brackets[::2], brackets[1::2]
    if not text.endswith(tuple(closing)):
        return text, ""
    before = text[:-1]
    behind = max(before.rfind(bracket) for bracket in closing) + 1
    starts = [at for bracket in opening if (at := before.find(bracket, behind)) >= 0]
    if not starts:
        return text, ""
    return before[: min(starts)].rstrip(), before[min(starts) + 1 :]
