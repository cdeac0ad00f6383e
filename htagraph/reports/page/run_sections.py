"""The sections that only the page of one rank has, or only that of a job; and all in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from htagraph.model import answers, frames, job_answers
from htagraph.model.units import human_count
from htagraph.reports import plots
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.page.panels import Panel, Section
from htagraph.reports.page.sections import (
    RankAnswers,
    asked,
    asked_over_time,
    communication_section,
    devices_section,
    drawn,
    help_section,
    kernels_section,
    launches_section,
    numbers_section,
    path_section,
)
from htagraph.reports.plots.drawing import drawing
from htagraph.reports.summary import Summary
from htagraph.run.graph import TraceGraph


def _steps(summary: Summary, step_times: pd.DataFrame) -> Section:
    """Section on steps."""
    heading, figure = "What devices do in each step", drawing(plots.steps, summary.path)
    panels = (
        Panel("path-by-step", summary.by_step, frames.STEP_SHARES, figure=figure),
        Panel("step-times", step_times, answers.STEP_TIMES, heading),
    )
    intro = "The critical path step by step."
    return Section("steps", "Steps", intro, panels if len(step_times) else ())


def _speed_of_light(summary: Summary) -> Section:
    """Section on operators against the roof of their device."""
    graph = summary.graph
    gains, by_shape = graph.speed_of_light(), graph.roofline(by="shape")
    panels = (
        drawn(plots.time_at_roof, by_shape),
        Panel("gains-at-roof", gains, answers.SPEED_OF_LIGHT, "What operators save at the roof"),
        Panel("mfu", graph.mfu(), answers.MFU, "Model FLOPs utilization"),
    )
    intro = (
        "How long the device needs for the work of each operator, at its dense peak or at memory "
        "bandwidth. Operators without a model are left out."
    )
    name, title = "speed-of-light", "Speed of light"
    return Section(name, title, intro, panels if len(gains) else ())


def _memory(graph: TraceGraph) -> Section:
    """Section on memory over time."""
    frame = graph.memory_timeline()
    largest = frame.sort_values("allocated", ascending=False, kind="stable")
    panel = drawn(plots.memory_timeline, frame, largest, origin_ns=graph.interval.start_ns)
    return Section("memory", "Memory", "What PyTorch's allocators hold, by device.", (panel,))


def _quality(summary: Summary | JobSummary) -> Section:
    """Section on the quality of a trace; or of those of a job, and their clocks."""
    quality = summary.quality
    if isinstance(summary, JobSummary):
        heading = "Clocks relative to the first rank"
        panels = (
            Panel("checks", summary.weak_by_check, answers.QUALITY, "Weak checks"),
            Panel("clocks", summary.job.clocks, job_answers.CLOCKS, heading),
            Panel("failures", summary.failures, frames.FAILURES, "Left out"),
        )
        intro = "What the traces do not show, and how well their clocks could be aligned."
    else:
        checks = quality.sort_values("verdict", key=lambda one: one == "good", kind="stable")
        attached, repairs = summary.trace.attached, summary.harmless_repairs
        panels = (
            Panel("checks", checks, answers.QUALITY, "Checks"),
            Panel("attached", attached, frames.ATTACHED, "Files attached to the trace"),
            Panel("repairs", repairs, frames.REPAIRS, "Repairs of the file"),
        )
        intro = "What the trace shows, what it does not, and how to record it."
    fact = f"{int((quality['verdict'] == 'good').sum())} of {len(quality)} checks good"
    return Section("quality", "Quality", intro, panels, fact)


def rank_sections(summary: Summary, devices: pd.DataFrame) -> Iterator[Section]:
    """Yield the sections of the page of one rank; `devices` is its `temporal_breakdown`."""
    graph, origin_ns = summary.graph, summary.graph.interval.start_ns
    yield path_section(summary)
    yield help_section(summary)
    yield numbers_section(summary)
    found, over_time = asked(graph), asked_over_time(graph)
    yield _steps(summary, found["step_times"])
    yield devices_section(
        devices, found["idle_time"], summary.used, over_time, summary.losses, origin_ns=origin_ns
    )
    yield communication_section(found)
    yield kernels_section(found["kernels by name"])
    if len(devices):
        yield _speed_of_light(summary)
    yield launches_section(over_time, origin_ns)
    yield _memory(graph)
    yield _quality(summary)


def _late(summary: JobSummary) -> Section:
    """Section on late ranks; empty if no collectives were matched."""
    job, collectives = summary.job, summary.job.collectives()
    waits = collectives.sort_values("wait_ns", ascending=False, kind="stable")
    pipeline = job.timeline.pipeline
    # Stages wait for each other by schedule: that is not lateness.
    met = collectives if pipeline is None else collectives[pipeline.of_one_stage(collectives)]
    caused = "What caused the waits, followed through ranks that waited in between"
    bubbles, between = job.pipeline_bubbles(), "Waits for the sender between pipeline stages"
    waiting = "collective-waits", waits, job_answers.MATCHED_COLLECTIVES, "Waits in collectives"
    panels = (
        Panel(*waiting, drawing(plots.collective_waits, met) if len(met) else None),
        Panel("stragglers", summary.stragglers, job_answers.STRAGGLERS, "Late ranks, and why"),
        Panel("delay-costs", job.delay_costs(), job_answers.DELAY_COSTS, caused),
        Panel("bubbles", bubbles, job_answers.PIPELINE_BUBBLES, between),
    )
    intro = (
        "A collective cannot end before its last rank arrives: the late rank is the one that does "
        "not wait while all others do. Only waits longer than the clock uncertainty count."
    )
    return Section("late", "Late ranks", intro, panels if len(collectives) else ())


def _pipeline(summary: JobSummary) -> Section:
    """Section on a pipeline; empty if there is none."""
    job = summary.job
    figure = drawing(plots.pipeline_schedule, job.pipeline_schedule())
    slow = "What is slow in it"
    panels = (
        Panel("pipeline", job.pipeline(), job_answers.PIPELINE, figure=figure),
        Panel("pipeline-savings", job.pipeline_savings(), job_answers.PIPELINE_SAVINGS, slow),
    )
    intro = (
        "What each rank did for which micro-batch, and where it waited. Each saving is that of a "
        "replay in which every rank keeps its order."
    )
    return Section("pipeline", "Pipeline", intro, panels)


def _kernels(by_rank: pd.DataFrame) -> Section:
    """Section on kernels, summed over ranks and by rank."""
    whole = by_rank.groupby("group", as_index=False).agg(
        **{"class": ("class", "first")},
        n_kernels=("n_kernels", "sum"),
        sum_ns=("sum_ns", "sum"),
        max_ns=("max_ns", "max"),
    )
    whole = whole.sort_values(["sum_ns", "group"], ascending=[False, True], ignore_index=True)
    whole = whole.assign(share=whole["sum_ns"] / max(int(whole["sum_ns"].sum()), 1))
    longest = by_rank.sort_values(["sum_ns", "rank"], ascending=[False, True], ignore_index=True)
    return kernels_section(whole, drawn(plots.kernels_across_ranks, by_rank, longest))


def job_sections(summary: JobSummary, asked: RankAnswers) -> Iterator[Section]:
    """Yield the sections of the page of a job."""
    found, over_time = asked.by_rank, asked.over_time
    rank, origin_ns = summary.main_rank, summary.path.start_ns
    n_shown, n_ranks = len(asked.ranks), len(summary.job)
    shown = human_count(n_shown, "rank")
    some = f" Shown: the {shown} with most of the path, of {n_ranks:,}."
    yield path_section(summary)
    yield help_section(summary)
    if summary.job.stage_times is not None:
        yield _pipeline(summary)
    yield _late(summary)
    yield numbers_section(summary)
    yield devices_section(
        summary.devices,
        found["idle_time"],
        summary.used,
        over_time,
        origin_ns=origin_ns,
        rank=rank,
    )
    figure = drawing(plots.step_spread, found["step_times"])
    steps = Panel("step-times", found["step_times"], answers.STEP_TIMES, figure=figure)
    for section in (
        Section("steps", "Steps", "How long each step is on each rank.", (steps,)),
        communication_section(found),
        _kernels(found["kernels by name"]),
    ):
        intro = f"{section.intro}{some}".strip() if n_shown < n_ranks else section.intro
        yield replace(section, intro=intro)
    yield launches_section(over_time, origin_ns, rank=rank)
    yield _quality(summary)
