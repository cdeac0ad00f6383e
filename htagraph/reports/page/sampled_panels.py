"""The panel of what other instruments sampled; none where nothing was."""

from __future__ import annotations

import pandas as pd

from htagraph.model import answers
from htagraph.reports import plots
from htagraph.reports.page.panels import Panel

__all__ = ["sampled_panels"]


def sampled_panels(
    over_time: pd.DataFrame, whole: pd.DataFrame, origin_ns: int
) -> tuple[Panel, ...]:
    """The panel, if there are samples in the window.

    Parameters
    ----------
    over_time, whole : DataFrame, schema `answers.SAMPLED_COUNTERS`
        By ``time``, which is drawn, and of the window, which is the table behind it.
    origin_ns : int, unit=ns
        Start of the window.
    """
    if over_time.empty:
        return ()
    return (
        Panel(
            "sampled-counters",
            plots.sampled_counters(over_time, origin_ns=origin_ns),
            whole.drop(columns=["step", "start_ns", "dur_ns"]),
            answers.SAMPLED_COUNTERS,
            is_wide=True,
            is_whole_window=True,
        ),
    )
