"""Sections of a page and their panels, each a figure and the table behind it."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from htagraph.model.schema import Schema
from htagraph.reports.page.html_tables import kept_rows
from htagraph.reports.page.step_views import StepChoice
from htagraph.reports.plots.drawing import Drawing

__all__ = ["Panel", "Section", "useful"]


@dataclass(frozen=True)
class Panel:
    """One figure and the table behind it, which is open if it stands alone.

    Parameters
    ----------
    name : str
        Identifies the panel in the page.
    heading : str
        Title of a panel without a figure.
    is_wide : bool
        The panel is as wide as the page.
    n_rows : int
        Rows of the whole table if the frame has only the first; else 0.
    segments : tuple of int
        Segment of the path in each row of the frame.
    verb : str
        Verb whose command prints all rows; by default it asks the question of the schema.
    is_whole_window : bool
        The panel is hidden while one step is chosen.
    """

    name: str
    figure: Drawing | None
    frame: pd.DataFrame
    schema: Schema | None = None
    heading: str = ""
    is_wide: bool = True
    n_rows: int = 0
    segments: tuple[int, ...] = ()
    verb: str = ""
    is_whole_window: bool = False

    def __post_init__(self) -> None:
        """Keep the rows that are shown, and count the others: whole tables are large."""
        if (kept := kept_rows(self.frame)) < len(self.frame):
            object.__setattr__(self, "n_rows", self.n_rows or len(self.frame))
            object.__setattr__(self, "frame", self.frame.head(kept).copy())

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
    absent : str
        Text in place of panels.
    steps : StepChoice, optional
        Steps to choose from.
    """

    name: str
    title: str
    intro: str
    panels: tuple[Panel, ...] = ()
    absent: str = ""
    steps: StepChoice | None = None


def useful(frame: pd.DataFrame) -> pd.DataFrame:
    """Frame without columns that tell people nothing: rows of the event table, empty texts."""
    empty = [
        name
        for name in frame.columns
        if frame[name].dtype == object and bool((frame[name] == "").all())
    ]
    numbers = ("event", "next_event", "correlation", "idle_share")
    return frame.drop(columns=[name for name in (*empty, *numbers) if name in frame.columns])
