"""Sections of a page and their panels, each a figure and the table behind it."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from htagraph.model.schema import Schema
from htagraph.reports.page.html_tables import KEPT_ROWS
from htagraph.reports.plots.drawing import Drawing


@dataclass(frozen=True)
class Panel:
    """A figure, a table, or both.

    Parameters
    ----------
    name : str
        Identifies the panel in the page.
    frame : DataFrame
        Only the columns that a table shows first are kept, and as many rows as a table keeps.
    heading : str
        Title of a panel without a figure.
    n_rows : int
        Rows of the whole table if the frame has only the first; else 0.
    segments : tuple of int
        Segment of the path in each row of the frame.
    verb : str
        Verb whose command prints all rows; by default it asks the question of the schema.
    is_folded : bool
        Whether the table is folded below its figure.
    """

    name: str
    figure: Drawing | None
    frame: pd.DataFrame
    schema: Schema
    heading: str = ""
    n_rows: int = 0
    segments: tuple[int, ...] = ()
    verb: str = ""
    is_folded: bool = False

    def __post_init__(self) -> None:
        """Keep what the table shows, and count the rest: whole tables are large."""
        plain = pd.DataFrame(self.frame.head(KEPT_ROWS))  # an `Answer` is slow to take apart
        first = plain[self.schema.shown(plain)]
        told = [name for name in first if first[name].dtype != object or (first[name] != "").any()]
        object.__setattr__(self, "n_rows", self.n_rows or len(self.frame))
        object.__setattr__(self, "frame", first[told].copy())

    @property
    def legend(self) -> list[str]:
        """Names of the colors of the figure, if it needs a legend."""
        if self.figure is None or not self.figure.layout.get("showlegend", True):
            return []
        traces = [one for one in self.figure.data if one.get("showlegend", True)]
        named = list(dict.fromkeys(one["name"] for one in traces if "name" in one))
        return named if len(named) > 1 or "showlegend" in self.figure.layout else []

    @property
    def shown_segments(self) -> set[int]:
        """Segments of the path that can be opened from the figure or the table."""
        drawn = () if self.figure is None else self.figure.data
        rows = {row for trace in drawn for row in trace.get("meta", ()) if row >= 0}
        return rows | set(self.segments[: len(self.frame)])


@dataclass(frozen=True)
class Section:
    """A part of the page; `name` is its anchor.

    Parameters
    ----------
    intro : str
        How to read it.
    panels : tuple of Panel
        Those without rows are left out.
    fact : str
        What it says in one line, next to its title while it is folded; by default the title of its
        first figure.
    """

    name: str
    title: str
    intro: str
    panels: tuple[Panel, ...]
    fact: str = ""
    is_folded: bool = True

    def __post_init__(self) -> None:
        """Leave out what is empty; find the fact."""
        kept = tuple(panel for panel in self.panels if len(panel.frame))
        drawn = (panel.figure.title for panel in kept if panel.figure is not None)
        object.__setattr__(self, "panels", kept)
        object.__setattr__(self, "fact", self.fact or next(drawn, ""))
