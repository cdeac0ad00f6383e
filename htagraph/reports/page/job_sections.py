"""The sections of the page of a job: its path, late ranks, and what differs between ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from htagraph.graph import TraceGraph
from htagraph.job.job import Job
from htagraph.job.ranks import Work
from htagraph.model import answers, frames, job_answers
from htagraph.model.units import human_count
from htagraph.reports import plots
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.page.device_sections import communication_section, devices_section
from htagraph.reports.page.help_section import help_section
from htagraph.reports.page.panels import (
    LAUNCH_INTRO,
    LONGEST,
    NO_DEVICE,
    NO_LAUNCHES,
    PATH_INTRO,
    Panel,
    Section,
    useful,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["job_page_work", "job_sections"]

_MAX_RANKS = 16
_COUNTERS: dict[Literal["queue_length", "memory_bandwidth"], Callable[..., Figure]] = {
    "queue_length": plots.queue_length,
    "memory_bandwidth": plots.memory_bandwidth,
}
_ASKED = (
    "idle_time",
    "overlap",
    "exposed_communication",
    "kernel_durations",
    "launch_stats",
    "step_times",
)

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

Frames = Mapping[str, pd.DataFrame]


def _answers(graph: TraceGraph) -> dict[str, pd.DataFrame]:
    """Answers of one rank that the page shows of several."""
    asked = {name: graph.ask(name) for name in _ASKED}
    by = {f"kernels by {key}": graph.kernel_breakdown(by=key) for key in ("class", "name")}
    return asked | by


def _over_time(graph: TraceGraph) -> dict[str, pd.DataFrame]:
    """Answers that the page shows of one rank only; times count from the start of its window."""
    counters: Frames = {name: graph.counters(name=name) for name in _COUNTERS}
    start_ns = graph.interval.start_ns
    moved = {name: each.assign(ts_ns=each["ts_ns"] - start_ns) for name, each in counters.items()}
    return {"kernel_patterns": graph.kernel_patterns(), **moved}


def job_page_work(n_ranks: int) -> tuple[Work, ...]:
    """The work on every rank of a job that its page needs; none where it shows but some of them."""
    return (_answers, _over_time) if n_ranks <= _MAX_RANKS else ()


def _looked_at(summary: JobSummary) -> list[int]:
    """Ranks whose kernels and launches are drawn: most of the path first, then the latest."""
    order = [
        *summary.by_rank.index.tolist(),
        *summary.stragglers["rank"].tolist(),
        *summary.job.ranks,
    ]
    return sorted(list(dict.fromkeys(int(rank) for rank in order))[:_MAX_RANKS])


def _asked(job: Job, ranks: list[int]) -> dict[str, pd.DataFrame]:
    """Answers of some ranks, each with a column ``rank``, in common time."""
    by_rank = job.map(dict.fromkeys(ranks, _answers))
    joined = {}
    for name in next(iter(by_rank.values()), {}):
        parts = [_in_common_time(part[name], job, rank) for rank, part in by_rank.items()]
        frame: pd.DataFrame = pd.concat(parts, ignore_index=True)
        joined[name] = frame[["rank", *(column for column in frame.columns if column != "rank")]]
    return joined


def _in_common_time(frame: pd.DataFrame, job: Job, rank: int) -> pd.DataFrame:
    """Answer of one rank, in common time."""
    times = {
        name: job.clock(rank).to_common(frame[name])
        for name in ("start_ns", "ts_ns")
        if name in frame.columns
    }
    return frame.assign(rank=np.int64(rank), **times)


def _path(summary: JobSummary) -> Section:
    """Section on the critical path across ranks."""
    path = summary.path
    longest = path.segments.sort_values("dur_ns", ascending=False, kind="stable").head(LONGEST)
    columns = ["rank", "start_ns", "dur_ns", "bound", "name", "op", "track", "rule", "is_inferred"]
    named = {by: path.breakdown(by=by).rename_axis(by).reset_index() for by in ("name", "op")}
    named["op"] = named["op"].replace({"op": {"": "(no operator)"}})
    bounds = summary.by_bound.rename_axis("bound").reset_index()
    ranks = summary.by_rank.rename_axis("rank").reset_index()
    panels = (
        Panel("critical-path", plots.critical_path(path), bounds, frames.BREAKDOWN, is_wide=True),
        Panel(
            "job-path",
            plots.job_path_timeline(path),
            longest[columns],
            frames.JOB_SEGMENTS,
            is_wide=True,
        ),
        Panel(
            "path-ranks",
            None,
            ranks,
            frames.BREAKDOWN,
            heading="Ranks on the path",
            is_wide=True,
            is_open=True,
        ),
        Panel(
            "path-names",
            None,
            named["name"],
            frames.BREAKDOWN,
            heading="What ran on the path",
            is_open=True,
        ),
        Panel(
            "path-ops",
            None,
            named["op"],
            frames.BREAKDOWN,
            heading="Operators on the path",
            is_open=True,
        ),
    )
    intro = (
        f"{PATH_INTRO} Where a rank waits in a collective, the path continues on the rank that "
        "arrived last."
    )
    return Section(
        "path",
        "Critical path",
        intro,
        panels if path.dur_ns else (),
        "Nothing was recorded in this window.",
    )


def _late(summary: JobSummary) -> Section:
    """Section on late ranks."""
    job, collectives = summary.job, summary.job.collectives()
    waits = useful(collectives.sort_values("wait_ns", ascending=False, kind="stable").head(LONGEST))
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
            costs.head(LONGEST),
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
    longest = useful(durations.sort_values("dur_ns", ascending=False, kind="stable").head(LONGEST))
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
    slowest = launches.sort_values("launch_ns", ascending=False, kind="stable").head(LONGEST)
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
    for name, plot in _COUNTERS.items():
        frame = over_time[name]
        if len(frame):
            shown = frame.assign(ts_ns=frame["ts_ns"] + summary.path.start_ns)
            figure = _of_rank(rank, plot(frame, origin_ns=0))
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


def job_sections(summary: JobSummary) -> Iterator[Section]:
    """Sections of the page of a job, in order."""
    looked_at = _looked_at(summary)
    found = _asked(summary.job, looked_at)
    main_rank = summary.main_rank
    over_time = summary.job.map({main_rank: _over_time})[main_rank]
    yield _path(summary)
    yield help_section(summary)
    yield _late(summary)
    idle = found["idle_time"].sort_values(
        "idle_ns", ascending=False, kind="stable", ignore_index=True
    )
    yield devices_section(summary.devices, idle)
    yield _steps(found)
    some = (
        f" Shown: the {human_count(len(looked_at), 'rank')} with most of the path, of "
        f"{len(summary.job):,}."
    )
    more = " Waiting for a late rank counts as communication here."
    communication = communication_section(
        found["overlap"], found["exposed_communication"], more=more
    )
    for section in (
        communication,
        _kernels(summary, found, over_time),
        _launches(summary, found, over_time),
    ):
        yield (
            replace(section, intro=section.intro + some)
            if len(looked_at) < len(summary.job)
            else section
        )
    yield _quality(summary)
