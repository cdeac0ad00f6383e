"""Sections that the page of a rank and the page of a job share; without rows they are left out."""

from __future__ import annotations

import pandas as pd

from htagraph.model import answers
from htagraph.reports import plots
from htagraph.reports.device_use import lost_slots
from htagraph.reports.page.panels import Panel, Section
from htagraph.reports.page.rank_answers import Frames
from htagraph.reports.plots.drawing import Drawing, drawing


def _of_rank(rank: int, figure: Drawing) -> Drawing:
    """Figure with its rank in the title; unchanged for rank -1."""
    if rank >= 0:
        figure.layout["title"]["text"] = f"Rank {rank}: {figure.title}"
    return figure


def _largest(frame: pd.DataFrame, by: str) -> pd.DataFrame:
    """Rows by a time, the longest first."""
    return frame.sort_values(by, ascending=False, kind="stable", ignore_index=True)


def devices_section(
    devices: pd.DataFrame,
    idle: pd.DataFrame,
    used: pd.DataFrame,
    over_time: Frames,
    losses: pd.DataFrame | None = None,
    *,
    origin_ns: int,
    rank: int = -1,
) -> Section:
    """Section on what devices spend their time on, how full they are, and why they are idle.

    Parameters
    ----------
    over_time : mapping of str to DataFrame
        With ``sampled_counters``: of one rank, of a job `rank`.
    origin_ns : int, unit=ns
        Start of the window.
    """
    sampled = over_time["sampled_counters by time"]
    lost = answers.UTILIZATION_LOSSES.empty() if losses is None else lost_slots(losses)
    samples = drawing(plots.sampled_counters, sampled, origin_ns=origin_ns)
    panels = (
        Panel(
            "temporal-breakdown",
            drawing(plots.temporal_breakdown, devices),
            devices,
            answers.TEMPORAL_BREAKDOWN,
        ),
        Panel(
            "idle-time",
            drawing(plots.idle_time, idle),
            _largest(idle, "idle_ns"),
            answers.IDLE_TIME,
        ),
        Panel("utilization", drawing(plots.utilization, used), used, answers.UTILIZATION),
        Panel(
            "utilization-losses",
            None,
            lost,
            answers.UTILIZATION_LOSSES,
            "Which kernels leave the device empty",
        ),
        Panel(
            "sampled-counters",
            _of_rank(rank, samples),
            over_time["sampled_counters"],
            answers.SAMPLED_COUNTERS,
        ),
    )
    intro = (
        "Where work overlaps, compute counts before communication, and communication before "
        "copies. Idle time is charged to what the next work had to wait for. How full a device is "
        "while a kernel runs is estimated from launch geometry."
    )
    return Section("devices", "Devices", intro, panels)


def communication_section(found: Frames) -> Section:
    """Section on communication; of a job, frames have a column ``rank``."""
    overlap, exposed = found["overlap"], _largest(found["exposed_communication"], "exposed_ns")
    drawn, schema = drawing(plots.exposed_communication, exposed), answers.EXPOSED_COMMUNICATION
    is_some = bool(overlap["communication_ns"].any())
    panels = (
        Panel("overlap", drawing(plots.overlap, overlap), overlap, answers.OVERLAP),
        Panel("exposed-communication", drawn, exposed, schema),
    )
    intro = "Exposed communication is communication while nothing computes on the device."
    if "rank" in overlap.columns:
        intro += " Waiting for a late rank counts as communication here."
    return Section("communication", "Communication", intro, panels if is_some else ())


def kernels_section(by_name: pd.DataFrame, across: Panel | None = None) -> Section:
    """Section on kernels: those with most time, and how much ranks differ."""
    drawn = drawing(plots.top_kernels, by_name)
    kernels = Panel("top-kernels", drawn, by_name, answers.KERNEL_BREAKDOWN)
    return Section("kernels", "Kernels", "", (kernels, across) if across else (kernels,))


def launches_section(over_time: Frames, origin_ns: int, *, rank: int = -1) -> Section:
    """Section on launches, the queue and copies of one rank; of a job, of `rank`.

    Parameters
    ----------
    origin_ns : int, unit=ns
        Start of the window.
    """
    launches, queue, copies = (
        over_time[name] for name in ("launch_stats", "queue_length", "memory_bandwidth")
    )
    length = drawing(plots.queue_length, queue, origin_ns=origin_ns)
    moved = drawing(plots.memory_bandwidth, copies, origin_ns=origin_ns)
    panels = (
        Panel(
            "launch-stats",
            _of_rank(rank, drawing(plots.launch_stats, launches)),
            _largest(launches, "launch_ns"),
            answers.LAUNCH_STATS,
        ),
        Panel(
            "queue-length",
            _of_rank(rank, length),
            over_time["queue_blocked"],
            answers.QUEUE_BLOCKED,
        ),
        Panel("memory-bandwidth", _of_rank(rank, moved), copies, answers.COUNTERS),
    )
    intro = (
        "A launch that takes longer than its work leaves the device idle; while the queue is never "
        "empty, the device stays busy whatever the host does."
    )
    return Section("launches", "Launches and copies", intro, panels)
