"""The sections of a page, of a rank or of a job, and what they ask.

Of a job, all ranks are asked once, and one again for what is shown over time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from htagraph.arrays.codes import largest
from htagraph.errors import IncompleteTraceWarning, TraceLimitError
from htagraph.job.job import Job
from htagraph.job.path import JobPath
from htagraph.job.ranks import Work
from htagraph.model import answers, frames, job_answers
from htagraph.model.columns import schema_of
from htagraph.model.kinds import EventKind, bound_in_words
from htagraph.model.schema import Schema
from htagraph.model.units import human_count
from htagraph.queries.operators import functions_in
from htagraph.reports import plots
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.markdown import lost_slots
from htagraph.reports.page.panels import KEPT_ROWS, Panel, Section, flame_boxes
from htagraph.reports.plots.drawing import drawing
from htagraph.reports.summary import ALONE, NOT_MATCHED, NOT_REPLAYED, UNCHANGED, Summary
from htagraph.run.graph import TraceGraph

_MAX_RANKS = 16
"""Ranks whose kernels and launches are drawn: chosen, as each needs rows of its own in figures."""

_QUESTIONS = ("idle_time", "overlap", "exposed_communication", "step_times")

Frames = Mapping[str, "pd.DataFrame"]


def asked(graph: TraceGraph) -> dict[str, pd.DataFrame]:
    """Answers of one rank, the page of a job shows them of several; without rows if too large."""
    found = {"kernels by name": graph.kernel_breakdown(by="name")}
    for name in _QUESTIONS:
        try:
            found[name] = graph.ask(name)
        except TraceLimitError as exc:
            warnings.warn(f"The page has no {name}: {exc}", IncompleteTraceWarning, stacklevel=2)
            found[name] = schema_of(name).empty()
    return found


def _asked_of_job(graph: TraceGraph) -> dict[str, pd.DataFrame]:
    """The same, and what inferred waits rest on."""
    return asked(graph) | {"inferences": graph.inferences()}


def asked_over_time(graph: TraceGraph) -> dict[str, pd.DataFrame]:
    """Answers that are drawn over time, or are too many to show of several ranks."""
    return {
        "launch_stats": graph.launch_stats(),
        "queue_length": graph.counters(name="queue_length"),
        "queue_blocked": graph.queue_blocked(),
        "memory_bandwidth": graph.counters(name="memory_bandwidth"),
        "sampled_counters": graph.sampled_counters(),
        "sampled_counters by time": graph.sampled_counters(by="time"),
    }


def _over_time(graph: TraceGraph) -> dict[str, pd.DataFrame]:
    """The same; times count from the start of the window."""
    found = asked_over_time(graph)
    return {name: _moved(frame, -graph.interval.start_ns) for name, frame in found.items()}


def _moved(frame: pd.DataFrame, by_ns: int) -> pd.DataFrame:
    """Answer at another time."""
    names = [name for name in ("start_ns", "ts_ns") if name in frame.columns]
    return frame.assign(**{name: frame[name] + by_ns for name in names})


def job_page_work(n_ranks: int) -> tuple[Work, ...]:
    """The work on every rank of a job that its page needs; none if it shows only some of them."""
    return (_asked_of_job,) if n_ranks <= _MAX_RANKS else ()


def _in_common_time(frame: pd.DataFrame, job: Job, rank: int) -> pd.DataFrame:
    """Answer of one rank, in common time, with a column ``rank`` in front."""
    names = [name for name in ("start_ns", "ts_ns") if name in frame.columns]
    out = frame.assign(**{name: job.clock(rank).to_common(frame[name]) for name in names})
    out.insert(0, "rank", np.int64(rank))
    return out


def answers_of(job: Job, ranks: list[int]) -> dict[str, pd.DataFrame]:
    """Answers of some ranks, each with a column ``rank``, in common time."""
    by_rank = job.map(dict.fromkeys(ranks, _asked_of_job))
    return {
        name: pd.concat(
            [_in_common_time(found[name], job, rank) for rank, found in by_rank.items()],
            ignore_index=True,
        )
        for name in next(iter(by_rank.values()), {})
    }


def rank_answers(summary: JobSummary) -> tuple[list[int], Frames, Frames]:
    """The ranks that a page shows, their answers by question, and those over time of the main one.

    These are all ranks, or those with most of the path and the latest. Times are common time.
    """
    job, main_rank = summary.job, summary.main_rank
    ranks = sorted(summary.ranks_by_interest()[:_MAX_RANKS])
    over_time = job.map({main_rank: _over_time})[main_rank]
    start_ns = summary.path.start_ns
    moved = {name: _moved(frame, start_ns) for name, frame in over_time.items()}
    return ranks, answers_of(job, ranks), moved


def drawn(
    plot: Callable[..., Any],
    answer: pd.DataFrame,
    listed: pd.DataFrame | None = None,
    *,
    heading: str = "",
    rank: int = -1,
    **options: int,
) -> Panel:
    """Panel of the name of a plot of an answer; `listed` are other rows for the table behind it.

    `rank`: in the title, unless it is -1.
    """
    figure = drawing(plot, answer, **options)
    if rank >= 0:
        figure.layout["title"]["text"] = f"Rank {rank}: {figure.title}"
    schema: Schema = plot.schema  # type: ignore[attr-defined]
    name, frame = plot.__name__.replace("_", "-"), answer if listed is None else listed
    return Panel(name, frame, schema, heading, figure)


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
    """Section on what devices spend their time on, how full they are, and why they are idle."""
    sampled = over_time["sampled_counters by time"]
    lost = answers.UTILIZATION_LOSSES.empty() if losses is None else lost_slots(losses)
    empty, samples = "Which kernels leave the device empty", over_time["sampled_counters"]
    panels = (
        drawn(plots.temporal_breakdown, devices),
        drawn(plots.idle_time, idle, _largest(idle, "idle_ns")),
        drawn(plots.utilization, used),
        Panel("utilization-losses", lost, answers.UTILIZATION_LOSSES, empty),
        drawn(plots.sampled_counters, sampled, samples, origin_ns=origin_ns, rank=rank),
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
    is_some = bool(overlap["communication_ns"].any())
    panels = drawn(plots.overlap, overlap), drawn(plots.exposed_communication, exposed)
    intro = "Exposed communication is communication while nothing computes on the device."
    if "rank" in overlap.columns:
        intro += " Waiting for a late rank counts as communication here."
    return Section("communication", "Communication", intro, panels if is_some else ())


def kernels_section(by_name: pd.DataFrame, across: Panel | None = None) -> Section:
    """Section on kernels: those with most time, and how much ranks differ."""
    kernels = drawn(plots.top_kernels, by_name)
    return Section("kernels", "Kernels", "", (kernels, across) if across else (kernels,))


def launches_section(over_time: Frames, origin_ns: int, *, rank: int = -1) -> Section:
    """Section on launches, the queue and copies of one rank; of a job, of `rank`."""
    launches, queue, copies = (
        over_time[name] for name in ("launch_stats", "queue_length", "memory_bandwidth")
    )
    length = drawn(plots.queue_length, queue, origin_ns=origin_ns, rank=rank)
    panels = (
        drawn(plots.launch_stats, launches, _largest(launches, "launch_ns"), rank=rank),
        Panel(length.name, over_time["queue_blocked"], answers.QUEUE_BLOCKED, figure=length.figure),
        drawn(plots.memory_bandwidth, copies, origin_ns=origin_ns, rank=rank),
    )
    intro = (
        "A launch that takes longer than its work leaves the device idle; while the queue is never "
        "empty, the device stays busy whatever the host does."
    )
    return Section("launches", "Launches and copies", intro, panels)


_INTRO = (
    "The chain of waits that decides how long this takes; only a shorter path makes it shorter. "
    "Click a segment to see what it is; select a stretch to zoom, double-click to zoom out."
)
_INTRO_OF_JOB = (
    " Where a rank waits in a collective, the path continues on the rank that arrived last."
)
_COLUMNS = frames.SEGMENTS.first.split()


def path_section(summary: Summary | JobSummary) -> Section:
    """Section on the critical path over time."""
    path = summary.path
    if isinstance(path, JobPath):
        intro, name, schema, n_rows = _INTRO + _INTRO_OF_JOB, "job-path", frames.JOB_SEGMENTS, 0
        longest = path.segments.sort_values("dur_ns", ascending=False, kind="stable")
        listed, rows = longest[["rank", *_COLUMNS]], longest.index[:KEPT_ROWS].to_numpy()
        figure = drawing(plots.job_path_timeline, path)
    else:
        intro, name, schema = _INTRO, "critical-path-timeline", frames.SEGMENTS
        n_rows = path.n_segments
        rows = largest(path.durations_ns, min(n_rows, KEPT_ROWS))
        listed = path.segments_at(rows)[_COLUMNS]
        figure = drawing(plots.critical_path_timeline, path)
    panel = Panel(
        name,
        listed,
        schema,
        figure=figure,
        n_rows=n_rows,
        segments=tuple(rows.tolist()),
        verb="path",
        is_folded=True,
    )
    panels = (panel, _flame(summary)) if isinstance(summary, Summary) else (panel,)
    return Section("path", "Critical path", intro, panels, is_folded=False)


def _flame(summary: Summary) -> Panel:
    """Flame graph of the path, and the functions or stacks in it."""
    path, heading = summary.path, "Critical path by who called what: a flame graph"
    flame, schema = path.flame(), frames.FLAME
    boxes = flame_boxes(flame, summary.verdict.functions)
    if (path.dag.events.kind == EventKind.PYTHON).any():
        flame, schema = functions_in(path.stacks, path.window), answers.FUNCTIONS
    return Panel("flame", flame, schema, heading, is_folded=True, flame=boxes)


def help_section(summary: Summary | JobSummary) -> Section:
    """Section on what would help: each change alone, or why none is listed."""
    helpful, verdict = summary.first_changes, summary.verdict
    panel = Panel("what-helps", helpful, frames.FIRST_CHANGES)
    is_replayed = isinstance(summary, Summary) or summary.is_replayed
    said = f"{ALONE} {verdict.rests_on}".strip() if len(helpful) else UNCHANGED
    why_not = NOT_MATCHED if isinstance(summary, JobSummary) and summary.job.alone else NOT_REPLAYED
    intro = said if is_replayed else why_not
    return Section("help", "What would help", intro, (panel,), is_folded=False)


def numbers_section(summary: Summary | JobSummary) -> Section:
    """Section on the time of the path by bound, name and operator; of a job also by rank."""
    by = {"bound": summary.by_bound, "name": summary.by_name, "op": summary.by_op}
    if isinstance(summary, JobSummary):
        by = {"rank": summary.by_rank, **by}
    headings = {"rank": "Ranks", "bound": "Bounds", "name": "What ran", "op": "Operators"}
    panels = [
        Panel(
            f"path-{name}s",
            frame.rename_axis(name).reset_index().replace({"op": {"": "(no operator)"}}),
            frames.BREAKDOWN,
            f"{headings[name]} on the path",
        )
        for name, frame in by.items()
    ]
    intro = f"Each table adds up to the path. {summary.inferred}".strip()
    first = summary.by_bound["share"].head(2)
    fact = " and ".join(f"{share:.0%} {bound_in_words(str(name))}" for name, share in first.items())
    return Section("numbers", "Critical path in numbers", intro, tuple(panels), fact)


def _steps(summary: Summary, step_times: pd.DataFrame) -> Section:
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
    frame = graph.memory_timeline()
    most = frame.sort_values("allocated", ascending=False, kind="stable")
    panel = drawn(plots.memory_timeline, frame, most, origin_ns=origin_ns)
    yield Section("memory", "Memory", "What PyTorch's allocators hold, by device.", (panel,))
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


def job_sections(
    summary: JobSummary, answered: tuple[list[int], Frames, Frames]
) -> Iterator[Section]:
    """Yield the sections of the page of a job, given its `rank_answers`."""
    ranks, found, over_time = answered
    rank, origin_ns = summary.main_rank, summary.path.start_ns
    n_shown, n_ranks = len(ranks), len(summary.job)
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
