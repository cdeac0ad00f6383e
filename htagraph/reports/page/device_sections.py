"""Sections that the page of a rank and the page of a job share: devices and communication."""

from __future__ import annotations

import pandas as pd

from htagraph.model import answers
from htagraph.reports import plots
from htagraph.reports.device_use import lost_slots
from htagraph.reports.page.panels import NO_DEVICE, Panel, Section, useful

__all__ = ["communication_section", "devices_section"]


def _by_cause(idle: pd.DataFrame) -> pd.DataFrame:
    """Idle time by cause."""
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


def devices_section(
    temporal: pd.DataFrame,
    idle: pd.DataFrame,
    used: pd.DataFrame,
    losses: pd.DataFrame | None = None,
) -> Section:
    """Section on what devices spend their time on, how full they are, and why they are idle."""
    drawn = plots.temporal_breakdown(temporal)
    told = [name for name in used.columns if used[name].notna().any() and name != "name"]
    panels = [
        Panel("temporal-breakdown", drawn, temporal, answers.TEMPORAL_BREAKDOWN, is_wide=True),
        Panel(
            "utilization", plots.utilization(used), used[told], answers.UTILIZATION, is_wide=True
        ),
        Panel("idle-causes", plots.idle_causes(idle), _by_cause(idle)),
        Panel("idle-time", plots.idle_time(idle), useful(idle), answers.IDLE_TIME),
    ]
    if losses is not None and len(lost := lost_slots(losses)):
        panels.insert(
            2,
            Panel(
                "utilization-losses",
                None,
                lost,
                answers.UTILIZATION_LOSSES,
                heading="Which kernels leave the device empty",
                is_wide=True,
            ),
        )
    intro = (
        "Where work overlaps, compute counts before communication, and communication before "
        "copies: exposed means that nothing computed meanwhile. Idle time is charged to what the "
        "work that ends it had to wait for. Utilization as nvidia-smi reports it is the time in "
        "which any kernel runs; how full the device is then is estimated from launch geometry."
    )
    return Section("devices", "Devices", intro, tuple(panels) if len(temporal) else (), NO_DEVICE)


def communication_section(
    overlap: pd.DataFrame, exposed: pd.DataFrame, *, more: str = ""
) -> Section:
    """Section on communication.

    Parameters
    ----------
    more : str
        More sentences of its introduction.
    """
    longest = exposed.sort_values("exposed_ns", ascending=False, kind="stable", ignore_index=True)
    drawn = plots.exposed_communication(longest)
    panels = (
        Panel("overlap", plots.overlap(overlap), overlap, answers.OVERLAP),
        Panel("exposed-communication", drawn, useful(longest), answers.EXPOSED_COMMUNICATION),
    )
    intro = (
        "How much communication overlaps with compute, and what kept the next compute kernel from "
        "running while communication was exposed."
    )
    communicates = int(overlap["communication_ns"].sum()) > 0
    absent = "No communication kernels in this window."
    return Section(
        "communication", "Communication", intro + more, panels if communicates else (), absent
    )
