"""Answers as plotly figures: every title states a fact, every axis has a unit.

Each function takes the frame that the question of its name returns
(``plots.idle_time(graph.idle_time())``), of one rank or of a job, or the critical path or graph
itself, and returns a `plotly.graph_objects.Figure`. If it joins marks to keep the figure small,
``figure.layout.meta["note"]`` says so.
"""

from __future__ import annotations

from htagraph.reports.plots.counter_plots import (
    launch_stats,
    memory_bandwidth,
    memory_timeline,
    queue_length,
    sampled_counters,
)
from htagraph.reports.plots.device_plots import (
    exposed_communication,
    idle_categories,
    idle_time,
    overlap,
    roofline,
    temporal_breakdown,
    time_at_roof,
    timeline,
    top_kernels,
    utilization,
)
from htagraph.reports.plots.history_plots import run_history
from htagraph.reports.plots.path_plots import (
    collective_waits,
    critical_path_timeline,
    differences,
    job_path_timeline,
    kernels_across_ranks,
    pipeline_schedule,
    step_spread,
    steps,
)

__all__ = [
    "collective_waits", "critical_path_timeline", "differences", "exposed_communication",
    "idle_categories", "idle_time", "job_path_timeline", "kernels_across_ranks", "launch_stats",
    "memory_bandwidth", "memory_timeline", "overlap", "pipeline_schedule", "queue_length",
    "roofline", "run_history", "sampled_counters", "step_spread", "steps", "temporal_breakdown",
    "time_at_roof", "timeline", "top_kernels", "utilization",
]  # fmt: skip
