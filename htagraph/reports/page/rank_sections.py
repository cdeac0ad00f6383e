"""The sections of the page of one rank: figures, the tables behind them, and texts for nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from htagraph.model import answers, frames
from htagraph.reports import plots
from htagraph.reports.page.panels import Panel, Section, useful
from htagraph.reports.page.path_section import path_section
from htagraph.reports.page.shared_sections import (
    communication_section,
    devices_section,
    help_section,
    kernels_section,
    launches_section,
    sampled_panels,
)
from htagraph.reports.page.step_views import step_choice
from htagraph.reports.plots.drawing import drawing
from htagraph.reports.summary import Summary

__all__ = ["rank_sections"]


def _help(summary: Summary) -> Section:
    """Section on what would help, with curves."""
    curves = summary.speed_ups
    if curves.empty:
        return help_section(summary)
    drawn = drawing(plots.speed_ups, curves)
    return help_section(summary, Panel("speed-ups", drawn, curves, frames.SPEED_UPS))


def _steps(summary: Summary, steady: pd.DataFrame) -> Section:
    """Section on steps."""
    frame, drawn = summary.graph.step_times(), drawing(plots.steps, summary.path)
    panels = (
        Panel("path-by-step", drawn, summary.by_step, frames.STEP_SHARES),
        Panel("step-times", None, frame, answers.STEP_TIMES, "What devices do in each step"),
        Panel("steady-state", None, steady, answers.STEADY_STATE, "Which steps are typical"),
    )
    absent = (
        "The window touches no step of the trace."
        if len(summary.trace.steps)
        else "The trace has no steps: call profiler.step() after each step, or name steps with "
        "record_function."
    )
    intro = "The critical path step by step."
    return Section("steps", "Steps", intro, panels if len(frame) else (), absent)


def _speed_of_light(summary: Summary) -> Iterator[Section]:
    """Section on operators against the roof of their device, if any is known."""
    graph = summary.graph
    gains = graph.speed_of_light()
    if gains.empty:
        return
    by_shape = graph.roofline(by="shape")
    panels = (
        Panel("time-at-roof", drawing(plots.time_at_roof, by_shape), by_shape, answers.ROOFLINE),
        Panel("roofline", drawing(plots.roofline, by_shape), by_shape, answers.ROOFLINE),
        Panel(
            "speed-of-light", None, gains, answers.SPEED_OF_LIGHT, "What operators save at the roof"
        ),
        Panel("mfu", None, graph.mfu(), answers.MFU, "Model FLOPs utilization"),
    )
    intro = (
        "How long the device needs for the work of each operator, at its dense peak or at memory "
        "bandwidth, and what the window would gain. Operators without a model are left out."
    )
    yield Section("speed-of-light", "Speed of light", intro, panels)


def _memory(summary: Summary) -> Iterator[Section]:
    """Section on memory over time, if it was recorded."""
    graph = summary.graph
    frame = graph.memory_timeline()
    if frame.empty:
        return
    drawn = drawing(plots.memory_timeline, frame, origin_ns=graph.interval.start_ns)
    largest = frame.sort_values("allocated", ascending=False, kind="stable")
    panel = Panel("memory-timeline", drawn, useful(largest), answers.MEMORY_TIMELINE)
    yield Section("memory", "Memory", "What PyTorch's allocators hold, by device.", (panel,))


def _quality(summary: Summary) -> Section:
    """Section on the quality of the trace."""
    checks = Panel("checks", None, summary.quality, answers.QUALITY, "Checks")
    attached, repairs = summary.trace.attached, summary.harmless_repairs.drop(columns="damage")
    more = (
        Panel("attached", None, attached, frames.ATTACHED, "Files attached to the trace"),
        Panel("repairs", None, repairs, frames.REPAIRS, "Repairs of the file"),
    )
    intro = "What the trace shows, what it does not, and how to record it."
    panels = (checks, *(panel for panel in more if len(panel.frame)))
    return Section("quality", "Quality", intro, panels)


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
    yield kernels_section(
        graph.kernel_breakdown(by="class"),
        graph.kernel_breakdown(by="name"),
        graph.kernel_durations(),
        graph.kernel_patterns(),
        intro="Which kernels run, for how long, and which sequences one fused kernel could "
        "replace.",
    )
    yield from _speed_of_light(summary)
    yield launches_section(
        graph.launch_stats(),
        graph.counters(name="queue_length"),
        graph.queue_blocked(),
        graph.counters(name="memory_bandwidth"),
        origin_ns,
    )
    yield from _memory(summary)
    yield _quality(summary)
