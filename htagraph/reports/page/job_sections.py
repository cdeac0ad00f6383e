"""The sections of the page of a job: its path, late ranks, and what differs between ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from htagraph.model import answers, frames, job_answers
from htagraph.model.units import human_count
from htagraph.reports import plots
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.page.device_sections import communication_section, devices_section
from htagraph.reports.page.help_section import help_section
from htagraph.reports.page.panels import (
    LAUNCH_INTRO,
    NO_DEVICE,
    NO_LAUNCHES,
    Panel,
    Section,
    useful,
)
from htagraph.reports.page.path_section import path_section
from htagraph.reports.page.rank_answers import COUNTERS, Frames, RankAnswers
from htagraph.reports.page.sampled_panels import sampled_panels
from htagraph.reports.page.step_views import job_step_choice

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["job_sections"]

_COUNTERS: dict[str, Callable[..., Figure]] = {
    "queue_length": plots.queue_length,
    "memory_bandwidth": plots.memory_bandwidth,
}

_LATE = [
    "rank",
    "n_last",
    "n_certain",
    "caused_wait_ns",
    "longest_wait_ns",
    "own_wait_ns",
    "transfer_ns",
]
_LATE += ["cause_bound", "cause_name", "cause_ns", "n_cause"]


def _late(summary: JobSummary) -> Section:
    """Section on late ranks."""
    job, collectives = summary.job, summary.job.collectives()
    waits = useful(collectives.sort_values("wait_ns", ascending=False, kind="stable"))
    bubbles, costs = job.pipeline_bubbles(), job.delay_costs()
    panels = [
        Panel(
            "collective-waits",
            plots.collective_waits(collectives),
            waits,
            job_answers.MATCHED_COLLECTIVES,
            is_wide=True,
        ),
        Panel(
            "stragglers",
            None,
            summary.stragglers[_LATE],
            job_answers.STRAGGLERS,
            heading="Late ranks, and why they are late",
            is_wide=True,
            is_open=True,
        ),
        Panel(
            "delay-costs",
            None,
            costs,
            job_answers.DELAY_COSTS,
            heading="What all waits are due to, through ranks that waited in between",
            is_wide=True,
        ),
    ]
    if len(bubbles):
        heading = "Waits for the sender between pipeline stages"
        panels.append(
            Panel(
                "bubbles",
                None,
                bubbles,
                job_answers.PIPELINE_BUBBLES,
                heading=heading,
                is_open=True,
            )
        )
    intro = (
        "A collective cannot end before its last rank arrives: the late rank is the one that does "
        "not wait while all others do. Only waits longer than the clock uncertainty count."
    )
    absent = (
        "No collectives were matched across ranks: the traces are of one rank, or of different "
        "steps or runs."
    )
    return Section("late", "Late ranks", intro, tuple(panels) if len(collectives) else (), absent)


def _steps(found: Frames) -> Section:
    """Section on steps."""
    frame = found["step_times"]
    panels = (
        Panel("step-times", plots.step_spread(frame), frame, answers.STEP_TIMES, is_wide=True),
        Panel(
            "steady-state",
            None,
            found["steady_state"],
            answers.STEADY_STATE,
            heading="Which steps are alike",
            is_wide=True,
        ),
    )
    absent = (
        "The traces have no steps: call profiler.step() after each step, or name steps with "
        "record_function."
    )
    intro = "How long each step takes, and how much the ranks differ."
    return Section("steps", "Steps", intro, panels if len(frame) else (), absent)


def _over_ranks(frame: pd.DataFrame) -> pd.DataFrame:
    """Breakdown of kernels over all ranks, from one by rank."""
    whole = frame.groupby("group", as_index=False).agg(
        **{"class": ("class", "first")},
        n_ranks=("rank", "nunique"),
        n_kernels=("n_kernels", "sum"),
        sum_ns=("sum_ns", "sum"),
        min_ns=("min_ns", "min"),
        max_ns=("max_ns", "max"),
    )
    whole = whole.sort_values(
        ["sum_ns", "group"], ascending=[False, True], kind="stable", ignore_index=True
    )
    return whole.assign(share=whole["sum_ns"] / max(int(whole["sum_ns"].sum()), 1))


def _kernels(summary: JobSummary, found: Frames, over_time: Frames) -> Section:
    """Section on kernels; sequences that repeat are those of the rank with most of the path."""
    durations, by_rank = found["kernel_durations"], found["kernels by name"]
    by_class, by_name = _over_ranks(found["kernels by class"]), _over_ranks(by_rank)
    longest = useful(durations.sort_values("dur_ns", ascending=False, kind="stable"))
    per_rank = by_rank.sort_values(
        ["sum_ns", "rank"], ascending=[False, True], kind="stable", ignore_index=True
    )
    breakdown = answers.KERNEL_BREAKDOWN
    panels = [
        Panel("kernel-classes", plots.kernel_classes(by_class), by_class, breakdown, is_wide=True),
        Panel("top-kernels", plots.top_kernels(by_name), by_name, breakdown, is_wide=True),
        Panel(
            "kernels-across-ranks",
            plots.kernels_across_ranks(by_rank),
            per_rank,
            breakdown,
            is_wide=True,
        ),
        Panel(
            "kernel-durations",
            plots.kernel_durations(durations),
            longest,
            answers.KERNEL_DURATIONS,
            is_wide=True,
        ),
    ]
    rank = summary.main_rank
    patterns = over_time["kernel_patterns"]
    if len(patterns):
        drawn = _of_rank(rank, plots.kernel_patterns(patterns))
        panels.append(
            Panel("kernel-patterns", drawn, useful(patterns), answers.KERNEL_PATTERNS, is_wide=True)
        )
    intro = (
        "Which kernels run, how long, and whether some ranks take longer than others. Classes and "
        "names are sums over all ranks."
    )
    return Section("kernels", "Kernels", intro, tuple(panels) if len(durations) else (), NO_DEVICE)


def _of_rank(rank: int, figure: Figure) -> Figure:
    """Figure whose title names its rank."""
    figure.layout.title.text = f"Rank {rank}: {figure.layout.title.text}"
    return figure


def _launches(summary: JobSummary, found: Frames, over_time: Frames) -> Section:
    """Section on launches, and on queue length and memory bandwidth of the main rank."""
    launches = found["launch_stats"]
    slowest = launches.sort_values("launch_ns", ascending=False, kind="stable")
    panels = [
        Panel(
            "launch-stats",
            plots.launch_stats(launches),
            useful(slowest),
            answers.LAUNCH_STATS,
            is_wide=True,
        )
    ]
    rank = summary.main_rank
    for name in COUNTERS:
        frame = over_time[name]
        if len(frame):
            shown = frame.assign(ts_ns=frame["ts_ns"] + summary.path.start_ns)
            figure = _of_rank(rank, _COUNTERS[name](frame, origin_ns=0))
            panels.append(Panel(name.replace("_", "-"), figure, shown, answers.COUNTERS))
    intro = f"{LAUNCH_INTRO} Curves over time are of rank {rank}, which has most of the path."
    return Section(
        "launches",
        "Launches and copies",
        intro,
        tuple(panels) if len(launches) else (),
        NO_LAUNCHES,
    )


def _quality(summary: JobSummary) -> Section:
    """Section on the quality of the traces and their clocks."""
    panel = partial(Panel, figure=None, is_wide=True, is_open=True)
    panels = [
        panel(
            "checks",
            frame=summary.weak_by_check,
            schema=answers.QUALITY,
            heading="Weak checks",
        ),
        panel(
            "clocks",
            frame=summary.job.clocks,
            schema=job_answers.CLOCKS,
            heading="Clocks relative to the first rank",
        ),
    ]
    if len(summary.failures):
        panels.append(
            panel("failures", frame=summary.failures, schema=frames.FAILURES, heading="Left out")
        )
    intro = "What the traces do not show, and how well their clocks could be aligned."
    return Section("quality", "Quality", intro, tuple(panels))


def job_sections(summary: JobSummary, asked: RankAnswers) -> Iterator[Section]:
    """Sections of the page of a job, in order."""
    found, over_time = asked.by_rank, asked.over_time
    sampled = sampled_panels(
        over_time["sampled_counters by time"],
        over_time["sampled_counters"],
        origin_ns=0,
        rank=summary.main_rank,
    )
    yield path_section(summary, job_step_choice(summary.path, summary.window_name), sampled)
    yield help_section(summary)
    yield _late(summary)
    idle = found["idle_time"].sort_values(
        "idle_ns", ascending=False, kind="stable", ignore_index=True
    )
    yield devices_section(summary.devices, idle, summary.used)
    some = (
        f" Shown: the {human_count(len(asked.ranks), 'rank')} with most of the path, of "
        f"{len(summary.job):,}."
    )
    more = " Waiting for a late rank counts as communication here."
    communication = communication_section(
        found["overlap"], found["exposed_communication"], more=more
    )
    for section in (
        _steps(found),
        communication,
        _kernels(summary, found, over_time),
        _launches(summary, found, over_time),
    ):
        yield (
            replace(section, intro=section.intro + some)
            if len(asked.ranks) < len(summary.job)
            else section
        )
    yield _quality(summary)
