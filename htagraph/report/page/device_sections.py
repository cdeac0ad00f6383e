"""Sections that the page on a rank and the page on a job share: they differ only in whose answers they show."""

from __future__ import annotations

import pandas as pd

from htagraph.model import answers
from htagraph.report import plots
from htagraph.report.page.panels import NO_DEVICE, Panel, Section, useful

__all__ = ["communication_section", "devices_section"]


def _by_cause(idle: pd.DataFrame) -> pd.DataFrame:
    """Return idle time by cause."""
    sums = (
        idle.groupby("cause", observed=True)["idle_ns"]
        .sum()
        .sort_values(ascending=False, kind="stable")
    )
    return (
        sums.rename_axis("cause")
        .reset_index()
        .assign(share=sums.to_numpy() / max(int(sums.sum()), 1))
    )


def devices_section(temporal: pd.DataFrame, idle: pd.DataFrame) -> Section:
    """Return the section of what devices do with their time, and why they are idle.

    Parameters
    ----------
    temporal : DataFrame, schema `answers.TEMPORAL_BREAKDOWN`
    idle : DataFrame, schema `answers.IDLE_TIME`
    """
    drawn = plots.temporal_breakdown(temporal)
    panels = (
        Panel("temporal-breakdown", drawn, temporal, answers.TEMPORAL_BREAKDOWN, is_wide=True),
        Panel("idle-causes", plots.idle_causes(idle), _by_cause(idle)),
        Panel("idle-time", plots.idle_time(idle), useful(idle), answers.IDLE_TIME),
    )
    intro = (
        "Compute counts before communication before copies: what is called exposed ran while nothing computed. Idle time is "
        "traced back from the work that ends it to what that work had to wait for."
    )
    return Section("devices", "Devices", intro, panels if len(temporal) else (), NO_DEVICE)


def communication_section(
    overlap: pd.DataFrame, exposed: pd.DataFrame, *, more: str = ""
) -> Section:
    """Return the section of communication.

    Parameters
    ----------
    overlap : DataFrame, schema `answers.OVERLAP`
    exposed : DataFrame, schema `answers.EXPOSED_COMMUNICATION`
    more : str
        What else is to be said of it.
    """
    longest = exposed.sort_values("exposed_ns", ascending=False, kind="stable", ignore_index=True)
    drawn = plots.exposed_communication(longest)
    panels = (
        Panel("overlap", plots.overlap(overlap), overlap, answers.OVERLAP),
        Panel("exposed-communication", drawn, useful(longest), answers.EXPOSED_COMMUNICATION),
    )
    intro = "How much of communication runs beside compute, and what kept the next compute kernel from running meanwhile."
    communicates = int(overlap["communication_ns"].sum()) > 0
    absent = "No communication kernels in this window."
    return Section(
        "communication", "Communication", intro + more, panels if communicates else (), absent
    )
