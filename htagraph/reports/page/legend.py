"""Colors of the page: one legend next to its sections, and marks in front of labels."""

from __future__ import annotations

from html import escape

from htagraph.model.colors import IDLE
from htagraph.model.kinds import bound_in_words
from htagraph.reports.plots.style import BOUND_COLORS, CAUSE_COLORS

__all__ = ["TOLD", "color_rules", "legend", "mark"]

_COLORS = BOUND_COLORS | {"idle": IDLE}
_MARKED = CAUSE_COLORS | _COLORS
_QUALIFIED = {"exposed communication", "exposed copies"}

TOLD = {bound_in_words(name) for name in _COLORS} | _QUALIFIED
"""Names of traces of figures that need no legend of their own."""


def mark(label: str) -> str:
    """Attribute of an element that shows the color of a bound or a cause before its text.

    Examples
    --------
    >>> mark("host"), mark("aten::mm")
    (' data-key="host"', '')
    """
    return f' data-key="{escape(label)}"' if label in _MARKED else ""


def color_rules() -> str:
    """Rules of CSS that give the marks their colors."""
    return "\n".join(
        f'[data-key="{name}"] {{ --key: {color.css}; --fill: {color.fill}; }}'
        for name, color in _MARKED.items()
    )


def legend(drawn: str) -> str:
    """List of the bounds whose colors occur in figures (as JSON) or elements (as HTML).

    Examples
    --------
    >>> legend('<i data-key="host"></i>')
    '<ul class="legend" aria-label="Colors"><li data-key="host">CPU operators</li></ul>'
    """
    used = [name for name, color in _COLORS.items() if color.fill in drawn or mark(name) in drawn]
    items = "".join(f"<li{mark(name)}>{escape(bound_in_words(name))}</li>" for name in used)
    return f'<ul class="legend" aria-label="Colors">{items}</ul>' if used else ""
