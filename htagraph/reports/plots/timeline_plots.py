"""Figure of what runs on each stream, over time."""

from __future__ import annotations

import numpy as np

from htagraph.arrays.codes import largest
from htagraph.arrays.matching import running_latest
from htagraph.lookup.queues import queues
from htagraph.lookup.steps import find_steps
from htagraph.lookup.windowed import Clipped, device_work
from htagraph.model.arrays import I64, Texts
from htagraph.model.kinds import KernelClass
from htagraph.model.units import human_count, human_duration
from htagraph.model.window import Window
from htagraph.reports.plots.drawing import Blocks, Drawing, thin_path
from htagraph.reports.plots.style import (
    CLASS_COLORS,
    TimeUnit,
    block_bars,
    color_of,
    label,
    named_rows,
    new_figure,
    no_figure,
    of_path,
    percent,
    step_lines,
    time_axis,
)
from htagraph.run.graph import TraceGraph

_MAX_MARKS = 1_200
"""Kernels drawn one by one: chosen, to keep a figure of any trace a few MB."""
_MAX_STREAMS = 16
"""Streams with a row, the busiest: chosen, to fit a screen."""
_IDLE = len(KernelClass)
"""Code of time in which nothing runs, after those of the classes."""


@of_path("TraceGraph")
def timeline(graph: TraceGraph, *, max_marks: int = _MAX_MARKS) -> Drawing:
    """Figure of what runs on each stream over time: a row per stream, colored by class.

    Where kernels of a stream overlap, the time belongs to the first.

    Parameters
    ----------
    graph : TraceGraph
        In its window: ``graph.window("ProfilerStep#5")``.
    max_marks : int
        Number of the longest kernels and gaps that are drawn one by one, over all streams. The
        others are joined between them, each block as high as its share of the time.
    """
    dag, window, by = graph.dag, graph.interval, queues(graph.dag, "stream")
    work = device_work(dag, window)
    lane = by.of_event[work.event]
    busy_ns = np.bincount(lane, weights=work.dur_ns, minlength=len(by))
    lanes = np.sort(largest(busy_ns, _MAX_STREAMS))
    lanes = lanes[busy_ns[lanes] > 0]
    if not len(lanes):
        return no_figure("No device work was recorded")
    unit, named, traces = TimeUnit.fitting(window.dur_ns), set[int](), []
    rows, n_joined = [], 0
    for row, one in enumerate(lanes.tolist()):
        tiles, event = _tiled(work.take(lane == one), window)
        of_class = dag.classification.kernel_class
        code = np.where(event >= 0, of_class[event], _IDLE)
        found = thin_path(tiles[0], tiles[1], code, max_single=max(max_marks // len(lanes), 1))
        runs = found.code != _IDLE
        n_joined += int(found.n_segments[runs & (found.segment < 0)].sum())
        share = float(found.dur_ns[runs].sum()) / window.dur_ns
        rows.append(f"device {by.device[one]}, stream {by.stream[one]} {percent(share)}")
        for kind in np.unique(found.code[runs]).tolist():
            name, at = KernelClass(kind).label, np.flatnonzero(found.code == kind)
            names = dag.events.names(event[found.segment[at]])
            about = row, name, window.start_ns, unit
            drawn = block_bars(
                found, at, about, color_of(CLASS_COLORS, name), _said(found, at, names)
            )
            traces.append(drawn | {"legendgroup": name, "showlegend": kind not in named})
            named.add(kind)
    note = f"The {n_joined:,} shortest kernels are joined between the others." if n_joined else ""
    if len(lanes) < np.count_nonzero(busy_ns):
        note += f" The {len(lanes)} busiest of {np.count_nonzero(busy_ns):,} streams."
    most = rows[int(busy_ns[lanes].argmax())].rpartition(" ")
    return new_figure(
        traces,
        f"{most[0].capitalize()} is busy {most[2]} of {human_duration(window.dur_ns)}",
        rows=len(rows),
        barmode="overlay",
        yaxis=named_rows(rows) | {"fixedrange": True},
        xaxis=time_axis(unit, window.dur_ns),
        shapes=step_lines(find_steps(dag.events)["start_ns"], window, unit),
        dragmode="zoom",
        meta={"note": note.strip()},
    )


def _tiled(work: Clipped, window: Window) -> tuple[tuple[I64, I64], I64]:
    """Starts and lengths that tile a window, and the event that runs then, -1 for none."""
    work = work.take(np.lexsort((work.end_ns, work.start_ns)))
    latest = work.end_ns[running_latest(work.end_ns, np.arange(len(work.event)) == 0)]
    free = np.concatenate([[window.start_ns], latest])
    edge = np.append(np.maximum(work.start_ns, free[:-1]), window.end_ns)
    start = np.stack([free, edge], axis=1).ravel()[:-1]
    dur = np.diff(np.append(start, window.end_ns))
    event = np.full(len(start), -1, dtype=np.int64)
    event[1::2] = work.event
    lasts = dur > 0
    return (start[lasts], dur[lasts]), event[lasts]


def _said(blocks: Blocks, at: I64, names: Texts) -> list[str]:
    """Text of each block on hovering."""
    columns = (blocks.segment, blocks.n_segments, blocks.dur_ns, blocks.span_ns)
    return [
        f"{label(name)}, {human_duration(dur)}"
        if segment >= 0
        else f"{human_count(n, 'short kernel')}, {human_duration(dur)} of {human_duration(span)}"
        for name, segment, n, dur, span in zip(
            names, *(column[at].tolist() for column in columns), strict=True
        )
    ]
