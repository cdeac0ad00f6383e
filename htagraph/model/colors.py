"""The color of each bound, once: strong on figures, pale behind text, and on a terminal.

What is no bound has colors that no bound has: idle devices, and series such as ranks and streams.
"""

from __future__ import annotations

from typing import NamedTuple

from htagraph.model.kinds import Bound

__all__ = ["COLORS", "FILLS", "IDLE", "SERIES", "Color"]


class Color(NamedTuple):
    """One hue in three strengths.

    Parameters
    ----------
    strong : str
        Of bars and lines; holds on light and on dark paper.
    pale : str
        Of boxes with dark text in them.
    terminal : str
        Name of a color of the terminal.
    """

    strong: str
    pale: str
    terminal: str


COLORS = {
    Bound.COMPUTE: Color("#4ea35a", "#b7dfb9", "green"),
    Bound.COMMUNICATION: Color("#e08a4f", "#f6c6a8", "magenta"),
    Bound.MEMORY: Color("#d9b13b", "#fbe6a2", "cyan"),
    Bound.LAUNCH: Color("#d96c6c", "#f3b6b6", "yellow"),
    Bound.KERNEL_GAP: Color("#a57fc0", "#e6d3ef", "yellow"),
    Bound.HOST: Color("#5b95d6", "#bcd7f2", "blue"),
    Bound.DATA_LOADING: Color("#3fa5a5", "#a8d8d8", "bright_red"),
    Bound.PYTHON_GAP: Color("#8694a8", "#d5dbe3", "bright_blue"),
    Bound.SYNC: Color("#a78a63", "#d9c8b4", "red"),
    Bound.LAUNCHED_BEFORE_CAPTURE: Color("#b3b9c1", "#eeeeee", "bright_black"),
    Bound.UNEXPLAINED: Color("#d4749b", "#f2c4d8", "bright_black"),
    Bound.DEVICE_FULL: Color("#7a9c3f", "#d3e2ae", "green"),
    Bound.WAITING_FOR_WORK: Color("#9aa58a", "#dfe5d6", "bright_black"),
}
"""Color of each bound, wherever it is drawn."""

IDLE = "rgba(134, 148, 168, 0.35)"
"""Color of a device on which nothing runs."""

FILLS = ("#4ea35a", "#86bf8e", "#b7dfb9", "#dcefdd")
"""Shades of computation, from a device that is full to one that is empty while a kernel runs."""

SERIES = ("#4f5bd5", "#7a84ea", "#a3abf2")
"""Shades of lines and dots that stand for a rank, a stream or a kernel; a legend names them."""
