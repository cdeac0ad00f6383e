"""Sections that the page of a rank and the page of a job share."""

from __future__ import annotations

import pandas as pd

from htagraph.model import answers
from htagraph.reports import plots
from htagraph.reports.device_use import lost_slots
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.page.panels import Panel, Section, useful
from htagraph.reports.plots.drawing import Drawing, drawing
from htagraph.reports.summary import Summary
from htagraph.reports.what_helps import NOT_REPLAYED, UNCHANGED, UNKNOWN

__all__ = [
    "communication_section",
    "devices_section",
    "help_section",
    "kernels_section",
    "launches_section",
    "sampled_panels",
]

_NO_DEVICE = "No device work here. If the whole trace has none, profile with ProfilerActivity.CUDA."
_NO_LAUNCHES = (
    "No launches here. If the whole trace has none, the calls that enqueue device work "
    "were not recorded."
)


def _of_rank(rank: int, figure: Drawing) -> Drawing:
    """Figure with its rank in the title; unchanged for rank -1."""
    if rank >= 0:
        figure.layout["title"]["text"] = f"Rank {rank}: {figure.title}"
    return figure


def sampled_panels(
    over_time: pd.DataFrame, whole: pd.DataFrame, origin_ns: int, *, rank: int = -1
) -> tuple[Panel, ...]:
    """Panel of what other instruments sampled; none without samples in the window.

    Parameters
    ----------
    over_time, whole : DataFrame, schema `answers.SAMPLED_COUNTERS`
        By ``time``, which is drawn, and of the window, which is the table behind it.
    origin_ns : int, unit=ns
        Start of the window.
    """
    if over_time.empty:
        return ()
    figure = _of_rank(rank, drawing(plots.sampled_counters, over_time, origin_ns=origin_ns))
    shown = whole.drop(columns=["step", "start_ns", "dur_ns"])
    schema = answers.SAMPLED_COUNTERS
    return (Panel("sampled-counters", figure, shown, schema, is_whole_window=True),)


def help_section(summary: Summary | JobSummary, *more: Panel) -> Section:
    """Section on what would help, or why no change is listed; `more` are below the changes."""
    helpful = summary.what_helps
    heading = "Changes, largest saving first"
    changes = Panel("what-helps", None, helpful, answers.OPPORTUNITIES, heading)
    if summary.verdict.withheld:
        absent = UNKNOWN
    else:
        is_replayed = isinstance(summary, Summary) or summary.is_replayed
        absent = UNCHANGED if is_replayed else NOT_REPLAYED
    panels = () if helpful.empty else (changes, *more)
    return Section("help", "What would help", summary.help_notes, panels, absent)


def _by_cause(idle: pd.DataFrame) -> pd.DataFrame:
    """Idle time by cause."""
    sums = idle.groupby("cause", observed=True)["idle_ns"].sum()
    sums = sums.sort_values(ascending=False, kind="stable")
    share = sums.to_numpy() / max(int(sums.sum()), 1)
    return sums.rename_axis("cause").reset_index().assign(share=share)


def devices_section(
    temporal: pd.DataFrame,
    idle: pd.DataFrame,
    used: pd.DataFrame,
    losses: pd.DataFrame | None = None,
) -> Section:
    """Section on what devices spend their time on, how full they are, and why they are idle."""
    drawn, by_name = drawing(plots.temporal_breakdown, temporal), drawing(plots.idle_time, idle)
    told = [name for name in used.columns if used[name].notna().any() and name != "name"]
    panels = [
        Panel("temporal-breakdown", drawn, temporal, answers.TEMPORAL_BREAKDOWN),
        Panel("utilization", drawing(plots.utilization, used), used[told], answers.UTILIZATION),
        Panel("idle-causes", drawing(plots.idle_causes, idle), _by_cause(idle), is_wide=False),
        Panel("idle-time", by_name, useful(idle), answers.IDLE_TIME, is_wide=False),
    ]
    if losses is not None and len(lost := lost_slots(losses)):
        schema, heading = answers.UTILIZATION_LOSSES, "Which kernels leave the device empty"
        panels.insert(2, Panel("utilization-losses", None, lost, schema, heading))
    intro = (
        "Where work overlaps, compute counts before communication, and communication before "
        "copies: exposed communication means that nothing computes meanwhile. Idle time is charged "
        "to what the next work had to wait for. Utilization as in nvidia-smi is the time with any "
        "kernel running; how full the device is then is estimated from launch geometry."
    )
    return Section("devices", "Devices", intro, tuple(panels) if len(temporal) else (), _NO_DEVICE)


def communication_section(overlap: pd.DataFrame, exposed: pd.DataFrame) -> Section:
    """Section on communication; of a job, frames have a column ``rank``."""
    longest = exposed.sort_values("exposed_ns", ascending=False, kind="stable", ignore_index=True)
    drawn, schema = drawing(plots.exposed_communication, longest), answers.EXPOSED_COMMUNICATION
    panels = (
        Panel("overlap", drawing(plots.overlap, overlap), overlap, answers.OVERLAP, is_wide=False),
        Panel("exposed-communication", drawn, useful(longest), schema, is_wide=False),
    )
    intro = (
        "How much communication overlaps with compute, and what kept the next compute kernel from "
        "running while communication was exposed."
    )
    if "rank" in overlap.columns:
        intro += " Waiting for a late rank counts as communication here."
    communicates = int(overlap["communication_ns"].sum()) > 0
    absent = "No communication kernels here."
    return Section("communication", "Communication", intro, panels if communicates else (), absent)


def kernels_section(
    by_class: pd.DataFrame,
    by_name: pd.DataFrame,
    durations: pd.DataFrame,
    patterns: pd.DataFrame,
    *across: Panel,
    intro: str,
    rank: int = -1,
) -> Section:
    """Section on kernels: breakdowns, panels on differences between ranks, durations, patterns.

    Patterns are of one rank: of a job, of `rank`.
    """
    longest = useful(durations.sort_values("dur_ns", ascending=False, kind="stable"))
    drawn, breakdown = drawing(plots.kernel_durations, durations), answers.KERNEL_BREAKDOWN
    panels = [
        Panel("kernel-classes", drawing(plots.kernel_classes, by_class), by_class, breakdown),
        Panel("top-kernels", drawing(plots.top_kernels, by_name), by_name, breakdown),
        *across,
        Panel("kernel-durations", drawn, longest, answers.KERNEL_DURATIONS),
    ]
    if len(patterns):
        figure = _of_rank(rank, drawing(plots.kernel_patterns, patterns))
        panels.append(Panel("kernel-patterns", figure, useful(patterns), answers.KERNEL_PATTERNS))
    return Section("kernels", "Kernels", intro, tuple(panels) if len(durations) else (), _NO_DEVICE)


def launches_section(
    launches: pd.DataFrame,
    queue: pd.DataFrame,
    blocked: pd.DataFrame,
    copies: pd.DataFrame,
    origin_ns: int,
    *,
    rank: int = -1,
) -> Section:
    """Section on launches, queue length and memory bandwidth.

    The last two are of one rank: of a job, of `rank`.

    Parameters
    ----------
    origin_ns : int, unit=ns
        Start of the window.
    """
    slowest = useful(launches.sort_values("launch_ns", ascending=False, kind="stable"))
    panels, is_wide = [], not len(copies)
    if len(launches):
        drawn = drawing(plots.launch_stats, launches)
        length = _of_rank(rank, drawing(plots.queue_length, queue, origin_ns=origin_ns))
        panels = [
            Panel("launch-stats", drawn, slowest, answers.LAUNCH_STATS),
            Panel("queue-length", length, blocked, answers.QUEUE_BLOCKED, is_wide=is_wide),
        ]
    if len(copies):
        figure = _of_rank(rank, drawing(plots.memory_bandwidth, copies, origin_ns=origin_ns))
        panels.append(Panel("memory-bandwidth", figure, copies, answers.COUNTERS, is_wide=False))
    intro = (
        "A launch that takes longer than its work leaves the device idle; while the queue is never "
        "empty, the device stays busy whatever the host does."
    )
    if rank >= 0:
        intro += f" Curves over time are of rank {rank}, which has most of the path."
    return Section("launches", "Launches and copies", intro, tuple(panels), _NO_LAUNCHES)
