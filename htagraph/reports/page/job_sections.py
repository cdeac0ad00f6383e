"""The sections of the page of a job: its path, late ranks, and what differs between ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from htagraph.model import answers, frames, job_answers
from htagraph.model.units import human_count
from htagraph.reports import plots
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.page.panels import Panel, Section, useful
from htagraph.reports.page.path_section import path_section
from htagraph.reports.page.rank_answers import Frames, RankAnswers
from htagraph.reports.page.shared_sections import (
    communication_section,
    devices_section,
    help_section,
    kernels_section,
    launches_section,
    sampled_panels,
)
from htagraph.reports.page.step_views import job_step_choice
from htagraph.reports.plots.drawing import drawing

__all__ = ["job_sections"]


def _late(summary: JobSummary) -> Section:
    """Section on late ranks."""
    job, collectives = summary.job, summary.job.collectives()
    waits = useful(collectives.sort_values("wait_ns", ascending=False, kind="stable"))
    late = summary.stragglers[job_answers.STRAGGLERS.shown(summary.stragglers)]
    bubbles, costs = job.pipeline_bubbles(), job.delay_costs()
    pipeline = job.timeline.pipeline
    # Stages wait for each other by schedule: that is not lateness.
    met = collectives if pipeline is None else collectives[pipeline.of_one_stage(collectives)]
    drawn = drawing(plots.collective_waits, met) if len(met) else None
    heading = "Waits in collectives"
    caused = "What caused the waits, followed through ranks that waited in between"
    panels = [
        Panel("collective-waits", drawn, waits, job_answers.MATCHED_COLLECTIVES, heading),
        Panel("stragglers", None, late, job_answers.STRAGGLERS, "Late ranks, and why"),
        Panel("delay-costs", None, useful(costs), job_answers.DELAY_COSTS, caused),
    ]
    if len(bubbles):
        heading = "Waits for the sender between pipeline stages"
        schema = job_answers.PIPELINE_BUBBLES
        panels.append(Panel("bubbles", None, bubbles, schema, heading, is_wide=False))
    intro = (
        "A collective cannot end before its last rank arrives: the late rank is the one that does "
        "not wait while all others do. Only waits longer than the clock uncertainty count."
    )
    absent = (
        "No collectives were matched across ranks: the traces are of one rank, or of different "
        "steps or runs."
    )
    return Section("late", "Late ranks", intro, tuple(panels) if len(collectives) else (), absent)


def _pipeline(summary: JobSummary) -> Section:
    """Section on a pipeline."""
    job = summary.job
    schedule, table, savings = job.pipeline_schedule(), job.pipeline(), job.pipeline_savings()
    drawn, repairs = drawing(plots.pipeline_schedule, schedule), job_answers.PIPELINE_SAVINGS
    panels = (
        Panel("pipeline", drawn, useful(table), job_answers.PIPELINE),
        Panel("pipeline-savings", None, savings, repairs, "What is slow in it"),
    )
    intro = (
        "What each rank did for which micro-batch, and where it waited. Each saving is that of a "
        "replay in which every rank keeps its order."
    )
    return Section("pipeline", "Pipeline", intro, panels)


def _steps(found: Frames) -> Section:
    """Section on steps."""
    frame, steady = found["step_times"], found["steady_state"]
    panels = (
        Panel("step-times", drawing(plots.step_spread, frame), frame, answers.STEP_TIMES),
        Panel("steady-state", None, steady, answers.STEADY_STATE, "Which steps are typical"),
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
    whole = _longest_first(whole, "group")
    return whole.assign(share=whole["sum_ns"] / max(int(whole["sum_ns"].sum()), 1))


def _longest_first(frame: pd.DataFrame, then: str) -> pd.DataFrame:
    """Rows by total duration."""
    return frame.sort_values(
        ["sum_ns", then], ascending=[False, True], kind="stable", ignore_index=True
    )


def _kernels(found: Frames, over_time: Frames, rank: int) -> Section:
    """Section on kernels; repeating sequences are of the rank with most of the path."""
    by_rank = found["kernels by name"]
    drawn, table = drawing(plots.kernels_across_ranks, by_rank), _longest_first(by_rank, "rank")
    return kernels_section(
        _over_ranks(found["kernels by class"]),
        _over_ranks(by_rank),
        found["kernel_durations"],
        over_time["kernel_patterns"],
        Panel("kernels-across-ranks", drawn, table, answers.KERNEL_BREAKDOWN),
        intro="Which kernels run, for how long, and whether some ranks take longer than others. "
        "Classes and names are sums over all ranks.",
        rank=rank,
    )


def _quality(summary: JobSummary) -> Section:
    """Section on the quality of the traces and their clocks."""
    clocks, heading = summary.job.clocks, "Clocks relative to the first rank"
    panels = [
        Panel("checks", None, summary.weak_by_check, answers.QUALITY, "Weak checks"),
        Panel("clocks", None, clocks, job_answers.CLOCKS, heading),
    ]
    if len(summary.failures):
        panels.append(Panel("failures", None, summary.failures, frames.FAILURES, "Left out"))
    intro = "What the traces do not show, and how well their clocks could be aligned."
    return Section("quality", "Quality", intro, tuple(panels))


def job_sections(summary: JobSummary, asked: RankAnswers) -> Iterator[Section]:
    """Sections of the page of a job, in order."""
    found, over_time = asked.by_rank, asked.over_time
    rank, origin_ns = summary.main_rank, summary.path.start_ns
    sampled = sampled_panels(
        over_time["sampled_counters by time"], over_time["sampled_counters"], origin_ns, rank=rank
    )
    yield path_section(summary, job_step_choice(summary.path, summary.window_name), sampled)
    yield help_section(summary)
    if summary.job.stage_times is not None:
        yield _pipeline(summary)
    yield _late(summary)
    idle = found["idle_time"].sort_values(
        "idle_ns", ascending=False, kind="stable", ignore_index=True
    )
    yield devices_section(summary.devices, idle, summary.used)
    n_shown, n_ranks = len(asked.ranks), len(summary.job)
    shown = human_count(n_shown, "rank")
    some = (
        f" Shown: the {shown} with most of the path, of {n_ranks:,}." if n_shown < n_ranks else ""
    )
    for section in (
        _steps(found),
        communication_section(found["overlap"], found["exposed_communication"]),
        _kernels(found, over_time, rank),
        launches_section(
            found["launch_stats"],
            over_time["queue_length"],
            over_time["queue_blocked"],
            over_time["memory_bandwidth"],
            origin_ns,
            rank=rank,
        ),
    ):
        yield replace(section, intro=section.intro + some)
    yield _quality(summary)
