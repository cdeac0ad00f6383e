"""Sections of a page and their panels, each a figure and the table behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from htagraph.model.schema import Schema
from htagraph.reports.page.step_views import StepChoice
from htagraph.reports.page.tables import kept_rows

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = [
    "LAUNCH_INTRO",
    "NO_DEVICE",
    "NO_LAUNCHES",
    "Panel",
    "Section",
    "useful",
]

NO_DEVICE = (
    "No device work in this window. If the whole trace has none, profile with "
    "ProfilerActivity.CUDA."
)
NO_LAUNCHES = (
    "No launches in this window. If the whole trace has none, the calls that enqueue device work "
    "were not recorded."
)
LAUNCH_INTRO = (
    "A launch that takes longer than its work leaves the device idle; a queue that is never empty "
    "keeps the device busy whatever the host does."
)


@dataclass(frozen=True)
class Panel:
    """One figure and the table behind it.

    Parameters
    ----------
    name : str
        Identifies the panel in the page.
    figure : Figure, optional
        Absent where the table is enough.
    schema : Schema, optional
        Of the frame.
    heading : str
        Title of a panel without a figure.
    is_wide : bool
        The panel is as wide as the page.
    is_open : bool
        The table is shown from the start.
    n_rows : int
        Rows of the whole table, where the frame has only the first; else 0.
    segments : tuple of int
        Segment of the path that each row of the frame is about.
    whole : str
        Command that prints all rows; by default the question of the schema.
    is_whole_window : bool
        The panel is hidden where one step is chosen.
    """

    name: str
    figure: Figure | None = None
    frame: pd.DataFrame | None = None
    schema: Schema | None = None
    heading: str = ""
    is_wide: bool = False
    is_open: bool = False
    n_rows: int = 0
    segments: tuple[int, ...] = ()
    whole: str = ""
    is_whole_window: bool = False

    @property
    def shown_segments(self) -> set[int]:
        """Segments of the path that can be opened from the figure or the table."""
        drawn = () if self.figure is None else self.figure.data
        rows = {row for trace in drawn for row in trace.meta or () if row >= 0}
        return rows | set(self.segments[: kept_rows(self.frame)])


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Parameters
    ----------
    name : str
        Anchor in the page.
    intro : str
        What the section shows.
    absent : str
        Text in place of panels where there are none.
    steps : StepChoice, optional
        Steps of which one can be chosen.
    """

    name: str
    title: str
    intro: str
    panels: tuple[Panel, ...] = ()
    absent: str = ""
    steps: StepChoice | None = None


def useful(frame: pd.DataFrame) -> pd.DataFrame:
    """Frame without columns that tell a person nothing: row numbers of events, empty texts."""
    empty = [
        name
        for name in frame.columns
        if frame[name].dtype == object and bool((frame[name] == "").all())
    ]
    numbers = ("event", "next_event", "correlation", "idle_share")
    return frame.drop(columns=[name for name in (*empty, *numbers) if name in frame.columns])
