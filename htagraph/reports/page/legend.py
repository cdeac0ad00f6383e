"""Colors of a page: marks in front of labels, and their legend."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from htagraph.model.colors import IDLE
from htagraph.model.kinds import bound_in_words
from htagraph.reports.plots.style import BOUND_COLORS, CAUSE_COLORS

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


def legend(names: Iterable[str]) -> str:
    """List of bounds with their colors; empty if any name is no bound.

    Examples
    --------
    >>> legend(["unknown waits"])
    '<ul class="legend" aria-label="Colors"><li data-key="unknown_waits">unknown waits</li></ul>'
    """
    labels = {bound_in_words(name): name for name in BOUND_COLORS}
    told = list(dict.fromkeys(map(bound_in_words, names)))
    if not told or not labels.keys() >= set(told):
        return ""
    items = "".join(f"<li{mark(labels[name])}>{escape(name)}</li>" for name in told)
    return f'<ul class="legend" aria-label="Colors">{items}</ul>'
