"""The sections of the page on a job: its path across ranks, who is late, and what differs between ranks."""

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
from htagraph.report import plots
from htagraph.report.job_summary import JobSummary
from htagraph.report.page.device_sections import communication_section, devices_section
from htagraph.report.page.panels import (
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
    """Return what the page asks of each rank that it shows."""
    asked = {name: graph.ask(name) for name in _ASKED}
    by = {f"kernels by {key}": graph.kernel_breakdown(by=key) for key in ("class", "name")}
    return asked | by


def _over_time(graph: TraceGraph) -> dict[str, pd.DataFrame]:
    """Return what the page shows of one rank only; times count from the start of its window."""
    counters: Frames = {name: graph.counters(name=name) for name in _COUNTERS}
    start_ns = graph.interval.start_ns
    moved = {name: each.assign(ts_ns=each["ts_ns"] - start_ns) for name, each in counters.items()}
    return {"kernel_patterns": graph.kernel_patterns(), **moved}


def job_page_work(n_ranks: int) -> tuple[Work, ...]:
    """The work on every rank of a job that its page needs; none where it shows but some of them."""
    return (_answers, _over_time) if n_ranks <= _MAX_RANKS else ()


def _looked_at(summary: JobSummary) -> list[int]:
    """Return the ranks whose kernels and launches are drawn one by one: those of the path, then those that cost most."""
    order = [
        *summary.by_rank.index.tolist(),
        *summary.stragglers["rank"].tolist(),
        *summary.job.ranks,
    ]
    return sorted(list(dict.fromkeys(int(rank) for rank in order))[:_MAX_RANKS])


def _asked(job: Job, ranks: list[int]) -> dict[str, pd.DataFrame]:
    """Return the answers of some ranks, each with a column ``rank``; times are common."""
    by_rank = job.map(dict.fromkeys(ranks, _answers))
    joined = {}
    for name in next(iter(by_rank.values()), {}):
        parts = [_in_common_time(part[name], job, rank) for rank, part in by_rank.items()]
        frame: pd.DataFrame = pd.concat(parts, ignore_index=True)
        joined[name] = frame[["rank", *(column for column in frame.columns if column != "rank")]]
    return joined


def _in_common_time(frame: pd.DataFrame, job: Job, rank: int) -> pd.DataFrame:
    """Return an answer of one rank with its times moved to the common clock."""
    times = {
        name: job.clock(rank).to_common(frame[name])
        for name in ("start_ns", "ts_ns")
        if name in frame.columns
    }
    return frame.assign(rank=np.int64(rank), **times)


def _path(summary: JobSummary) -> Section:
    """Return the section of the job's path."""
    path = summary.path
    longest = path.segments.sort_values("dur_ns", ascending=False, kind="stable").head(LONGEST)
    columns = ["rank", "start_ns", "dur_ns", "bound", "name", "op", "track", "rule"]
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
    intro = f"{PATH_INTRO} Where a rank waited in a collective, the path goes on with the rank that came last."
    return Section(
        "path",
        "Critical path",
        intro,
        panels if path.dur_ns else (),
        "Nothing was recorded in this window.",
    )


def _late(summary: JobSummary) -> Section:
    """Return the section of who waits for whom."""
    job, collectives = summary.job, summary.job.collectives()
    waits = useful(collectives.sort_values("wait_ns", ascending=False, kind="stable").head(LONGEST))
    bubbles = job.pipeline_bubbles()
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
            heading="Who the others wait for, and why",
            is_wide=True,
            is_open=True,
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
        "A collective ends when the last rank has come: the rank that does not wait when all others do is the late one. "
        "Only waits longer than the clocks are uncertain count."
    )
    absent = "No collectives were matched across ranks: these are traces of one rank, or of different steps or runs."
    return Section("late", "Late ranks", intro, tuple(panels) if len(collectives) else (), absent)


def _steps(found: Frames) -> Section:
    """Return the section of steps."""
    frame = found["step_times"]
    panels = (
        Panel("step-times", plots.step_spread(frame), frame, answers.STEP_TIMES, is_wide=True),
    )
    absent = "The traces have no steps: call profiler.step() after each, or name them with record_function."
    intro = "How long each step takes, and by how much the ranks differ."
    return Section("steps", "Steps", intro, panels if len(frame) else (), absent)


def _over_ranks(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a breakdown of kernels of several ranks as one."""
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
    """Return the section of kernels; what repeats is shown of the rank with most of the path."""
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
    intro = "What runs on the devices, how long, and whether it takes longer on some ranks than on others."
    return Section("kernels", "Kernels", intro, tuple(panels) if len(durations) else (), NO_DEVICE)


def _of_rank(rank: int, figure: Figure) -> Figure:
    """Return a figure that says of which rank it is."""
    figure.layout.title.text = f"Rank {rank}: {figure.layout.title.text}"
    return figure


def _launches(summary: JobSummary, found: Frames, over_time: Frames) -> Section:
    """Return the section of launches, and of what changes over time on the rank with most of the path."""
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
    intro = f"{LAUNCH_INTRO} Over time for rank {rank}, which has most of the path."
    return Section(
        "launches",
        "Launches and copies",
        intro,
        tuple(panels) if len(launches) else (),
        NO_LAUNCHES,
    )


def _quality(summary: JobSummary) -> Section:
    """Return the section of how far the traces can be trusted."""
    panel = partial(Panel, figure=None, is_wide=True, is_open=True)
    panels = [
        panel(
            "checks",
            frame=summary.weak_by_check,
            schema=answers.QUALITY,
            heading="Checks that are not good on some rank",
        ),
        panel(
            "clocks",
            frame=summary.job.clocks,
            schema=job_answers.CLOCKS,
            heading="Clocks of the ranks against the first",
        ),
    ]
    if len(summary.failures):
        panels.append(
            panel("failures", frame=summary.failures, schema=frames.FAILURES, heading="Left out")
        )
    intro = (
        "What the traces tell and do not tell, and how well their clocks could be brought together."
    )
    return Section("quality", "Quality", intro, tuple(panels))


def job_sections(summary: JobSummary) -> Iterator[Section]:
    """Yield the sections of the page on a job, in order."""
    looked_at = _looked_at(summary)
    found = _asked(summary.job, looked_at)
    main_rank = summary.main_rank
    over_time = summary.job.map({main_rank: _over_time})[main_rank]
    yield _path(summary)
    yield _late(summary)
    idle = found["idle_time"].sort_values(
        "idle_ns", ascending=False, kind="stable", ignore_index=True
    )
    yield devices_section(summary.devices, idle)
    yield _steps(found)
    some = (
        f" Of {human_count(len(looked_at), 'rank')} with most of the path, of {len(summary.job):,}."
    )
    more = " On a rank that waits for a late one, the wait counts here."
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
