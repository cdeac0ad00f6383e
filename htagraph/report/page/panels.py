"""What a page is made of: sections, and in them panels, each a figure and the table behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from htagraph.model.schema import Schema

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = [
    "LAUNCH_INTRO",
    "LONGEST",
    "NO_DEVICE",
    "NO_LAUNCHES",
    "PATH_INTRO",
    "Panel",
    "Section",
    "useful",
]

LONGEST = 200
"""Rows of the tables that would be as long as the trace."""

NO_DEVICE = "No device work in this window; where a trace has none at all, profile with ProfilerActivity.CUDA."
NO_LAUNCHES = "No launches in this window; where a trace has none at all, the calls that enqueue device work were not recorded."
LAUNCH_INTRO = (
    "A launch that takes longer than its work leaves the device idle; a queue that is never empty keeps it busy "
    "whatever the host does."
)
PATH_INTRO = (
    "Back from the end of the window, what each thing had to wait for: the segments tile the window, so only what is "
    "on this path can make it shorter. Drag to zoom, double-click to zoom out."
)


@dataclass(frozen=True)
class Panel:
    """One figure and the table behind it.

    Parameters
    ----------
    name : str
        Identifies the panel in the page.
    figure : Figure, optional
        Absent where a table says all.
    frame : DataFrame, optional
    schema : Schema, optional
        Of the frame.
    heading : str
        Instead of the title of a figure.
    is_wide : bool
        Takes the whole width of the page.
    is_open : bool
        The table is shown without being asked for.
    """

    name: str
    figure: Figure | None = None
    frame: pd.DataFrame | None = None
    schema: Schema | None = None
    heading: str = ""
    is_wide: bool = False
    is_open: bool = False


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Parameters
    ----------
    name : str
        Anchor in the page.
    title : str
    intro : str
        What one sees here, in a sentence.
    panels : tuple of Panel
    absent : str
        What is said instead where there are no panels.
    """

    name: str
    title: str
    intro: str
    panels: tuple[Panel, ...] = ()
    absent: str = ""


def useful(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame without columns that say nothing: numbers of events, texts that are all empty."""
    empty = [
        name
        for name in frame.columns
        if frame[name].dtype == object and bool((frame[name] == "").all())
    ]
    numbers = ("event", "next_event", "correlation", "idle_share")
    return frame.drop(columns=[name for name in (*empty, *numbers) if name in frame.columns])
