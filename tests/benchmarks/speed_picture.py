"""The picture of speed: time and memory over the size of a trace, both logarithmic, as SVG."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

from docs.drawings import STYLE, SVG
from tests.benchmarks.rounds import OURS, Run
from tests.benchmarks.speed_table import Measured, gigabytes, seconds

_WIDTH, _HEIGHT, _EDGE, _LEFT, _BOTTOM = 340, 280, 34, 52, 44
_TICKS = (1, 2, 5)
_COLORS = ("#0969da", "#bc4c00", "#8250df")


class _Scale:
    """A logarithmic axis between two pixels."""

    def __init__(self, values: list[float], start: float, end: float) -> None:
        low, high = math.log10(min(values) / 1.3), math.log10(max(values) * 1.3)
        self._at = lambda value: start + (math.log10(value) - low) / (high - low) * (end - start)
        powers = range(math.floor(low), math.ceil(high) + 1)
        every = [tick * 10.0**power for power in powers for tick in _TICKS]
        within = [tick for tick in every if low <= math.log10(tick) <= high]
        tens = [tick for tick in within if math.log10(tick).is_integer()]
        self.ticks = within if len(within) <= 7 else tens

    def __call__(self, value: float) -> float:
        return round(self._at(value), 1)


def picture(measured: Measured) -> str:
    """Two panels: seconds of CPU from the file to its critical path, and the peak memory so far."""
    panels = (
        ("seconds of CPU to the critical path", lambda run: seconds(run, "to the path", "cpu_s")),
        ("peak memory, GB", gigabytes),
    )
    drawn = [
        _panel(measured, title, take, number * _WIDTH)
        for number, (title, take) in enumerate(panels)
    ]
    width = len(panels) * _WIDTH
    title = "Time and memory over the size of a trace, on logarithmic axes."
    return "\n".join(
        [
            f'<svg xmlns="{SVG}" width="{width}" viewBox="0 0 {width} {_HEIGHT}">',
            f"<title>{title}</title><style>{STYLE}</style>",
            f'<rect class="ground" width="{width}" height="{_HEIGHT}" rx="8"/>',
            *drawn,
            "</svg>\n",
        ]
    )


def _panel(measured: Measured, title: str, take: Callable[[Run], float | None], offset: int) -> str:
    """One panel: a line for each contender, with least and most of its runs."""
    lines: dict[str, list[tuple[float, list[float]]]] = {}
    for size, runs in measured.items():
        for name, own in runs.items():
            values = [value for run in own if (value := take(run)) is not None]
            if values:
                lines.setdefault(name, []).append((float(size), values))
    across = _Scale([float(size) for size in measured], offset + _LEFT, offset + _WIDTH - _EDGE)
    up = _Scale(
        [value for line in lines.values() for _, values in line for value in values],
        _HEIGHT - _BOTTOM,
        _EDGE,
    )
    left, right, floor = offset + _LEFT, offset + _WIDTH - _EDGE, _HEIGHT - _BOTTOM
    parts = [_text(left, 20, title, "text", "start")]
    for tick in up.ticks:
        y = up(tick)
        parts += [
            f'<line class="lane" x1="{left}" x2="{right}" y1="{y}" y2="{y}"/>',
            _text(left - 6, y + 4, f"{tick:g}", "dim", "end"),
        ]
    parts += [_text(across(float(size)), floor + 16, size, "dim", "middle") for size in measured]
    parts.append(_text((left + right) / 2, floor + 34, "MB of JSON", "dim", "middle"))
    order = sorted(lines, key=lambda name: name != OURS)
    for name, color in zip(order, _COLORS, strict=False):
        middles = [(across(size), up(statistics.median(values))) for size, values in lines[name]]
        points = " ".join(f"{x},{y}" for x, y in middles)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        for (_, values), (x, y) in zip(lines[name], middles, strict=True):
            ends = f'y1="{up(min(values))}" y2="{up(max(values))}"'
            parts.append(f'<line x1="{x}" x2="{x}" {ends} stroke="{color}"/>')
            parts.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{color}"/>')
        x, y = middles[-1]
        parts.append(_text(x, y - 9, name, "text", "end"))
    return "\n".join(parts)


def _text(x: float, y: float, text: str, look: str, anchor: str) -> str:
    """Text at a place."""
    return f'<text class="{look}" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>'
