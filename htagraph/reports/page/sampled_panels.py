"""The panel of what other instruments sampled; none where nothing was."""

from __future__ import annotations

import pandas as pd

from htagraph.model import answers
from htagraph.reports import plots
from htagraph.reports.page.panels import Panel

__all__ = ["sampled_panels"]


def sampled_panels(
    over_time: pd.DataFrame, whole: pd.DataFrame, origin_ns: int, *, rank: int = -1
) -> tuple[Panel, ...]:
    """The panel, if there are samples in the window.

    Parameters
    ----------
    over_time, whole : DataFrame, schema `answers.SAMPLED_COUNTERS`
        By ``time``, which is drawn, and of the window, which is the table behind it.
    origin_ns : int, unit=ns
        Start of the window.
    rank : int, default=-1
        Named in the title, unless the page is of one rank.
    """
    if over_time.empty:
        return ()
    figure = plots.sampled_counters(over_time, origin_ns=origin_ns)
    if rank >= 0:
        figure.layout.title.text = f"Rank {rank}: {figure.layout.title.text}"
    return (
        Panel(
            "sampled-counters",
            figure,
            whole.drop(columns=["step", "start_ns", "dur_ns"]),
            answers.SAMPLED_COUNTERS,
            is_wide=True,
            is_whole_window=True,
        ),
    )
