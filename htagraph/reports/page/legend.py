"""Colors of a page: marks in front of labels, and their legend."""

from __future__ import annotations

from html import escape

from htagraph.model.colors import IDLE
from htagraph.model.kinds import in_words
from htagraph.reports.plots.style import BOUND_COLORS, CAUSE_COLORS

__all__ = ["color_rules", "legend", "mark"]

_MARKED = CAUSE_COLORS | BOUND_COLORS | {"idle": IDLE}


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
    """List of the bounds whose colors mark elements of HTML.

    Examples
    --------
    >>> legend('<i data-key="host"></i>')
    '<ul class="legend" aria-label="Colors"><li data-key="host">host</li></ul>'
    """
    used = [name for name in BOUND_COLORS if mark(name) in drawn]
    items = "".join(f"<li{mark(name)}>{escape(in_words(name))}</li>" for name in used)
    return f'<ul class="legend" aria-label="Colors">{items}</ul>' if used else ""
