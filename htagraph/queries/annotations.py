"""Time under annotations: ranges that the user or the framework named, and the device work launched in them."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.distribution import distribution
from htagraph.algorithms.intervals import sum_by_code
from htagraph.errors import GraphError
from htagraph.lookup.attribution import innermost
from htagraph.lookup.clipping import Clipped, clipped, device_work
from htagraph.lookup.launched import enclosing
from htagraph.lookup.naming import MODULE, frames_at, innermost_at, names_or_empty
from htagraph.model.answers import ANNOTATION_BREAKDOWN, KERNEL_ANNOTATIONS
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.symbols import compile_pattern
from htagraph.model.window import Window

__all__ = ["annotation_breakdown", "device_annotation_breakdown", "kernel_annotations"]

I64 = npt.NDArray[np.int64]


def _ranges(dag: Dag, window: Window, kind: EventKind, name: str | re.Pattern[str]) -> Clipped:
    """Return the ranges of a kind that overlap the window and whose names match."""
    events = dag.events
    rows = np.flatnonzero(events.kind == kind)
    if name != "*":
        rows = rows[events.symbols.mask(compile_pattern(name))[events.name[rows]]]
    return clipped(dag, rows, window)


def annotation_breakdown(
    dag: Dag, window: Window, *, name: str | re.Pattern[str] = "*"
) -> pd.DataFrame:
    """Return the host ranges that were annotated, by name, with the device work launched in them.

    ::

        cpu 1    | {## forward ##  [launch >a]   }        gemm belongs to ## forward ##, whenever it runs
        stream 7 |                        [gemm <a        ]

    Parameters
    ----------
    dag : Dag
    window : Window
        Host times and device times are those inside it.
    name : str or re.Pattern, default="*"
        Name, glob or regex of annotations.

    Returns
    -------
    DataFrame, schema `answers.ANNOTATION_BREAKDOWN`
        Most device time first. ``self_device_ns`` adds up, over all annotations, to the device time
        launched in any.

    Examples
    --------
    >>> from htagraph.compiler.passes import compile_events
    >>> from htagraph.synth import timeline
    >>> dag = compile_events(timeline('''
    ...     cpu 1    |{forward [launch >a]}{backward }
    ...     stream 7 |             [gemm <a          ]
    ... '''))
    >>> annotation_breakdown(dag, dag.span)[["name", "n_ranges", "sum_ns", "n_kernels", "device_ns"]]
           name  n_ranges  sum_ns  n_kernels  device_ns
    0   forward         1   21000          1      19000
    1  backward         1   11000          0          0
    """
    work, ranges = device_work(dag, window), dag.events.kind == EventKind.ANNOTATION
    own = innermost(dag, work.event, (EventKind.ANNOTATION,))
    device = _device_time(dag, work, own, dag.parent, ranges)
    return _frame(dag, work, _ranges(dag, window, EventKind.ANNOTATION, name), device)


class _Device(NamedTuple):
    """Device work per symbol of an annotation."""

    n_kernels: I64
    device_ns: I64
    self_ns: I64


def _device_time(
    dag: Dag,
    work: Clipped,
    own: I64,
    parent: npt.NDArray[np.integer],
    wanted: npt.NDArray[np.bool_],
) -> _Device:
    """Return the device work under each name of a range, given the innermost range of each piece of work."""
    name, n = dag.events.name.astype(np.int64), len(dag.events.symbols)
    mine = own >= 0
    # First by range, of which there are few; then from each range to those around it.
    count = np.bincount(own[mine], minlength=len(dag.events))
    time = sum_by_code(own[mine], work.dur_ns[mine], len(dag.events))
    ranges = np.flatnonzero(count)
    rows, names = [own[:0]], [own[:0]]
    for level_rows, level in enclosing(parent, ranges):
        inside = wanted[level]
        rows.append(level_rows[inside])
        names.append(name[level[inside]])
    # A range inside a range of its own name counts once.
    row, code = np.divmod(
        np.unique(np.concatenate(rows) * max(n, 1) + np.concatenate(names)), max(n, 1)
    )
    self_ns = sum_by_code(name[ranges], time[ranges], n)
    if int(self_ns.sum()) != int(work.dur_ns[mine].sum()):
        raise GraphError("device time by innermost annotation does not add up.")
    return _Device(
        sum_by_code(code, count[ranges[row]], n), sum_by_code(code, time[ranges[row]], n), self_ns
    )


def _frame(dag: Dag, work: Clipped, ranges: Clipped, device: _Device) -> pd.DataFrame:
    """Return the distribution of the lengths of ranges by name, with the device work under each name."""
    found = distribution(dag.events.name[ranges.event].astype(np.int64), ranges.dur_ns)
    total = int(work.dur_ns.sum())
    names = dag.events.symbols.array[found.group]
    rows = np.lexsort((names.astype(str), -found.total, -device.device_ns[found.group]))
    group = found.group[rows]
    return ANNOTATION_BREAKDOWN.frame(
        {
            "name": names[rows],
            "n_ranges": found.n[rows],
            "sum_ns": found.total[rows],
            "mean_ns": found.mean[rows],
            "std_ns": found.deviation[rows],
            "min_ns": found.smallest[rows],
            "max_ns": found.largest[rows],
            "n_kernels": device.n_kernels[group],
            "device_ns": device.device_ns[group],
            "self_device_ns": device.self_ns[group],
            "device_share": device.device_ns[group] / max(total, 1),
        }
    )


def device_annotation_breakdown(
    dag: Dag, window: Window, *, name: str | re.Pattern[str] = "*"
) -> pd.DataFrame:
    """Return the annotations as the profiler projected them onto the device (``gpu_user_annotation``), by name.

    Parameters
    ----------
    dag : Dag
    window : Window
    name : str or re.Pattern, default="*"
        Name, glob or regex of annotations.

    Returns
    -------
    DataFrame, schema `answers.ANNOTATION_BREAKDOWN`
        Ranges are those on the device: from the first to the last work launched in the annotation,
        on one stream. Their device work is what begins on that stream inside them. Empty where the
        trace has none.
    """
    events, work = dag.events, device_work(dag, window)
    is_range = events.kind == EventKind.DEVICE_ANNOTATION
    lane = events.lane[work.event].astype(np.int64)
    own, parent = innermost_at(dag, np.flatnonzero(is_range), lane, events.ts_ns[work.event])
    device = _device_time(dag, work, own, parent, is_range)
    return _frame(dag, work, _ranges(dag, window, EventKind.DEVICE_ANNOTATION, name), device)


def kernel_annotations(dag: Dag, window: Window) -> pd.DataFrame:
    """Return each kernel, copy and fill with the annotation, the operator and the module that launched it.

    Parameters
    ----------
    dag : Dag
    window : Window

    Returns
    -------
    DataFrame, schema `answers.KERNEL_ANNOTATIONS`
        In order of time.
    """
    events, work = dag.events, device_work(dag, window)
    work = work.take(np.lexsort((events.stream[work.event], work.end_ns, work.start_ns)))
    launch = dag.launch[work.event].astype(np.int64)
    lane = np.where(launch >= 0, events.lane[launch], -1).astype(np.int64)
    called = np.where(launch >= 0, events.ts_ns[launch], 0)
    return KERNEL_ANNOTATIONS.frame(
        {
            "event": work.event,
            "name": events.names(work.event),
            "dur_ns": work.dur_ns,
            "annotation": names_or_empty(dag, innermost(dag, work.event, (EventKind.ANNOTATION,))),
            "op": names_or_empty(dag, innermost(dag, work.event, (EventKind.OP,))),
            "module": names_or_empty(dag, frames_at(dag, lane, called, MODULE)),
        }
    )
