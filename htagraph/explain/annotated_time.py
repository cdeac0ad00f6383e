"""Time under annotations: durations of the ranges, and the device work in them."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.ancestors import sums_under
from htagraph.algorithms.distribution import distribution
from htagraph.algorithms.intervals import sum_by_code
from htagraph.errors import GraphError
from htagraph.lookup.clipping import Clipped, clipped
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.schema import Schema
from htagraph.model.symbols import compile_pattern
from htagraph.model.window import Window

__all__ = ["RangesOfWork", "annotated_time"]

I64 = npt.NDArray[np.int64]


class RangesOfWork(NamedTuple):
    """Device work and the ranges around it.

    Parameters
    ----------
    work : Clipped
        Device work of the window.
    innermost : ndarray of shape (n_work,), dtype=int64
        Innermost range of each piece of work, -1 for none.
    parent : ndarray of shape (n_events,), dtype=int
        Event that encloses each range, -1 for none.
    """

    work: Clipped
    innermost: I64
    parent: npt.NDArray[np.integer]


def annotated_time(
    dag: Dag,
    window: Window,
    found: RangesOfWork,
    *,
    kind: EventKind,
    name: str | re.Pattern[str],
    schema: Schema,
) -> pd.DataFrame:
    """Durations of ranges by name, with the device work under each name.

    Parameters
    ----------
    kind : {EventKind.ANNOTATION, EventKind.DEVICE_ANNOTATION}
    name : str or re.Pattern
        Only ranges whose names match.
    schema : Schema
        Of the answer: `answers.ANNOTATION_BREAKDOWN`, or the one of the device.

    Returns
    -------
    DataFrame
        Most device time first. ``self_device_ns`` adds up, over all names, to the device time in
        any range.

    Raises
    ------
    GraphError
        If it does not: a bug in htagraph.
    """
    ranges = _ranges(dag, window, kind, name)
    device = _device_time(dag, found, dag.events.kind == kind)
    lengths = distribution(dag.events.name[ranges.event].astype(np.int64), ranges.dur_ns)
    total = int(found.work.dur_ns.sum())
    names = dag.events.symbols.array[lengths.group]
    rows = np.lexsort((names.astype(str), -lengths.total, -device.device_ns[lengths.group]))
    group = lengths.group[rows]
    return schema.frame(
        {
            "name": names[rows],
            "n_ranges": lengths.n[rows],
            "sum_ns": lengths.total[rows],
            "mean_ns": lengths.mean[rows],
            "std_ns": lengths.deviation[rows],
            "min_ns": lengths.smallest[rows],
            "max_ns": lengths.largest[rows],
            "n_kernels": device.n_kernels[group],
            "device_ns": device.device_ns[group],
            "self_device_ns": device.self_ns[group],
            "device_share": device.device_ns[group] / max(total, 1),
        }
    )


def _ranges(dag: Dag, window: Window, kind: EventKind, name: str | re.Pattern[str]) -> Clipped:
    """Ranges of a kind that match, clipped to the window."""
    events = dag.events
    rows = np.flatnonzero(events.kind == kind)
    if name != "*":
        rows = rows[events.symbols.mask(compile_pattern(name))[events.name[rows]]]
    return clipped(dag, rows, window)


class _DeviceTime(NamedTuple):
    """Device work per symbol of an annotation."""

    n_kernels: I64
    device_ns: I64
    self_ns: I64


def _device_time(dag: Dag, found: RangesOfWork, wanted: npt.NDArray[np.bool_]) -> _DeviceTime:
    """Device work under each name of the selected ranges."""
    name, n = dag.events.name.astype(np.int64), len(dag.events.symbols)
    work, own = found.work, found.innermost
    mine = own >= 0
    count = np.bincount(own[mine], minlength=len(dag.events))
    time = sum_by_code(own[mine], work.dur_ns[mine], len(dag.events))
    ranges, code = np.flatnonzero(count), np.where(wanted, name, -1)
    self_ns = sum_by_code(name[ranges], time[ranges], n)
    if int(self_ns.sum()) != int(work.dur_ns[mine].sum()):
        raise GraphError("device time by innermost annotation does not add up.")
    return _DeviceTime(
        sums_under(found.parent, code, count, n), sums_under(found.parent, code, time, n), self_ns
    )
