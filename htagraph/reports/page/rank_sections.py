"""The sections of the page of one rank."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from htagraph.model import answers, frames
from htagraph.reports import plots
from htagraph.reports.page.panels import Panel, Section
from htagraph.reports.page.path_section import help_section, numbers_section, path_section
from htagraph.reports.page.rank_answers import asked, asked_over_time
from htagraph.reports.page.shared_sections import (
    communication_section,
    devices_section,
    kernels_section,
    launches_section,
)
from htagraph.reports.plots.drawing import drawing
from htagraph.reports.summary import Summary


def _steps(summary: Summary, step_times: pd.DataFrame) -> Section:
    """Section on steps."""
    heading = "What devices do in each step"
    panels = (
        Panel(
            "path-by-step",
            drawing(plots.steps, summary.path),
            summary.by_step,
            frames.STEP_SHARES,
        ),
        Panel("step-times", None, step_times, answers.STEP_TIMES, heading),
    )
    intro = "The critical path step by step."
    return Section("steps", "Steps", intro, panels if len(step_times) else ())


def _speed_of_light(summary: Summary) -> Section:
    """Section on operators against the roof of their device."""
    graph = summary.graph
    gains, by_shape = graph.speed_of_light(), graph.roofline(by="shape")
    panels = (
        Panel("time-at-roof", drawing(plots.time_at_roof, by_shape), by_shape, answers.ROOFLINE),
        Panel(
            "gains-at-roof", None, gains, answers.SPEED_OF_LIGHT, "What operators save at the roof"
        ),
        Panel("mfu", None, graph.mfu(), answers.MFU, "Model FLOPs utilization"),
    )
    intro = (
        "How long the device needs for the work of each operator, at its dense peak or at memory "
        "bandwidth. Operators without a model are left out."
    )
    name, title = "speed-of-light", "Speed of light"
    return Section(name, title, intro, panels if len(gains) else ())


def _memory(summary: Summary) -> Section:
    """Section on memory over time."""
    frame = summary.graph.memory_timeline()
    drawn = drawing(plots.memory_timeline, frame, origin_ns=summary.graph.interval.start_ns)
    largest = frame.sort_values("allocated", ascending=False, kind="stable")
    panel = Panel("memory-timeline", drawn, largest, answers.MEMORY_TIMELINE)
    return Section("memory", "Memory", "What PyTorch's allocators hold, by device.", (panel,))


def _quality(summary: Summary) -> Section:
    """Section on the quality of the trace."""
    repairs = summary.harmless_repairs
    checks = summary.quality.sort_values("verdict", key=lambda one: one == "good", kind="stable")
    panels = (
        Panel("checks", None, checks, answers.QUALITY, "Checks"),
        Panel(
            "attached", None, summary.trace.attached, frames.ATTACHED, "Files attached to the trace"
        ),
        Panel("repairs", None, repairs, frames.REPAIRS, "Repairs of the file"),
    )
    intro = "What the trace shows, what it does not, and how to record it."
    return Section("quality", "Quality", intro, panels, checks_in_words(summary.quality))


def checks_in_words(quality: pd.DataFrame) -> str:
    """How many checks are good.

    Examples
    --------
    >>> checks_in_words(pd.DataFrame({"verdict": ["good", "weak"]}))
    '1 of 2 checks good'
    """
    return f"{int((quality['verdict'] == 'good').sum())} of {len(quality)} checks good"


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
    yield _memory(summary)
    yield _quality(summary)
