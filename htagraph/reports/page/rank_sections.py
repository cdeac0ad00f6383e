"""The sections of the page of one rank: figures, the tables behind them, and texts for nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from htagraph.graph import TraceGraph
from htagraph.model import answers, frames
from htagraph.reports import plots
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
from htagraph.reports.page.sampled_panels import sampled_panels
from htagraph.reports.page.step_views import step_choice
from htagraph.reports.summary import Summary

__all__ = ["rank_sections"]


def _help(summary: Summary) -> Section:
    """Section on what would help, with curves."""
    curves = summary.speed_ups
    if curves.empty:
        return help_section(summary)
    drawn = plots.speed_ups(curves)
    return help_section(summary, Panel("speed-ups", drawn, curves, frames.SPEED_UPS, is_wide=True))


def _steps(summary: Summary, steady: pd.DataFrame) -> Section:
    """Section on steps."""
    frame = summary.graph.step_times()
    panels = (
        Panel("path-by-step", plots.steps(summary.path), summary.by_step, is_wide=True),
        Panel(
            "step-times",
            None,
            frame,
            answers.STEP_TIMES,
            heading="What devices do in each step",
            is_wide=True,
            is_open=True,
        ),
        Panel(
            "steady-state",
            None,
            steady,
            answers.STEADY_STATE,
            heading="Which steps are alike",
            is_wide=True,
        ),
    )
    absent = (
        "The window touches no step of the trace."
        if len(summary.trace.steps)
        else "The trace has no steps: call profiler.step() after each step, or name steps with "
        "record_function."
    )
    return Section(
        "steps",
        "Steps",
        "The critical path step by step.",
        panels if len(frame) else (),
        absent,
    )


def _kernels(graph: TraceGraph) -> Section:
    """Section on kernels."""
    by_class, by_name = graph.kernel_breakdown(by="class"), graph.kernel_breakdown(by="name")
    durations = graph.kernel_durations()
    patterns = graph.kernel_patterns()
    longest = useful(durations.sort_values("dur_ns", ascending=False, kind="stable"))
    drawn = plots.kernel_durations(durations)
    panels = [
        Panel(
            "kernel-classes",
            plots.kernel_classes(by_class),
            by_class,
            answers.KERNEL_BREAKDOWN,
            is_wide=True,
        ),
        Panel(
            "top-kernels",
            plots.top_kernels(by_name),
            by_name,
            answers.KERNEL_BREAKDOWN,
            is_wide=True,
        ),
        Panel("kernel-durations", drawn, longest, answers.KERNEL_DURATIONS, is_wide=True),
    ]
    if len(patterns):
        drawn, frame = plots.kernel_patterns(patterns), useful(patterns)
        panels.append(Panel("kernel-patterns", drawn, frame, answers.KERNEL_PATTERNS, is_wide=True))
    intro = (
        "Which kernels run on the devices, how long, and which sequences one fused kernel could "
        "replace."
    )
    return Section("kernels", "Kernels", intro, tuple(panels) if len(durations) else (), NO_DEVICE)


def _launches(graph: TraceGraph) -> Section:
    """Section on launches, queue length and memory bandwidth."""
    launches, origin = graph.launch_stats(), graph.interval.start_ns
    queue, copies = graph.counters(name="queue_length"), graph.counters(name="memory_bandwidth")
    slowest = launches.sort_values("launch_ns", ascending=False, kind="stable")
    panels = []
    if len(launches):
        blocked = graph.queue_blocked()
        drawn = plots.queue_length(queue, origin_ns=origin)
        panels += [
            Panel(
                "launch-stats",
                plots.launch_stats(launches),
                useful(slowest),
                answers.LAUNCH_STATS,
                is_wide=True,
            ),
            Panel("queue-length", drawn, blocked, answers.QUEUE_BLOCKED, is_wide=not len(copies)),
        ]
    if len(copies):
        panels.append(
            Panel(
                "memory-bandwidth",
                plots.memory_bandwidth(copies, origin_ns=origin),
                copies,
                answers.COUNTERS,
            )
        )
    return Section("launches", "Launches and copies", LAUNCH_INTRO, tuple(panels), NO_LAUNCHES)


def _quality(summary: Summary) -> Section:
    """Section on the quality of the trace."""
    checks = [
        Panel(
            "checks",
            None,
            summary.quality,
            answers.QUALITY,
            heading="Checks",
            is_wide=True,
            is_open=True,
        )
    ]
    listed = (
        ("attached", summary.trace.attached, frames.ATTACHED, "Files beside the trace"),
        ("repairs", summary.trace.repairs, frames.REPAIRS, "Repairs of the file"),
    )
    checks += [
        Panel(name, None, frame, schema, heading=heading, is_wide=True, is_open=True)
        for name, frame, schema, heading in listed
        if len(frame)
    ]
    return Section(
        "quality",
        "Quality",
        "What the trace shows, what it does not, and how to record it.",
        tuple(checks),
    )


def rank_sections(
    summary: Summary, steady: pd.DataFrame, temporal: pd.DataFrame
) -> Iterator[Section]:
    """Sections of the page of one rank, in order."""
    graph = summary.graph
    usual = steady.loc[steady["is_representative"], "name"].tolist()
    steps = step_choice(summary.path, summary.window_name, usual[0] if usual else "")
    over_time, origin_ns = graph.sampled_counters(by="time"), graph.interval.start_ns
    sampled = sampled_panels(over_time, graph.sampled_counters(), origin_ns)
    yield path_section(summary, steps, sampled)
    yield _help(summary)
    yield _steps(summary, steady)
    yield devices_section(temporal, graph.idle_time(), summary.used, summary.losses)
    yield communication_section(graph.overlap(), graph.exposed_communication())
    yield _kernels(graph)
    yield _launches(graph)
    yield _quality(summary)
