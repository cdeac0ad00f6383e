"""Numbers as people read them: durations and counts in text; data stays integer nanoseconds."""

from __future__ import annotations

__all__ = ["human_count", "human_duration"]

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
