"""Headings of table columns, on the terminal, in Markdown and on the page."""

from __future__ import annotations

from htagraph.model.kinds import in_words

__all__ = ["heading"]

_HEADINGS = {
    "n_last": "times last",
    "n_certain": "certain",
    "cause_ns": "cause dur",
    "n_cause": "times",
}
"""Headings of columns whose name says too little without its unit."""


def heading(column: str) -> str:
    """Heading of a column: its name in words, without the unit.

    Examples
    --------
    >>> heading("n_segments"), heading("bound_share"), heading("n_last")
    ('segments', 'bound share', 'times last')
    """
    return _HEADINGS.get(column) or in_words(column.removesuffix("_ns")).removeprefix("n ")
