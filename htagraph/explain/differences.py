"""Differences between two traces: operators and kernels added, removed, grown and shrunk."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from htagraph.arrays.intervals import sum_by_code, union
from htagraph.errors import GraphError
from htagraph.lookup.windowed import Clipped, clipped, device_work
from htagraph.lookup.work_groups import COMPARED_BY, ComparedBy, by_shape_of
from htagraph.model.arrays import I64, Texts
from htagraph.model.dag import Dag
from htagraph.model.frames import DIFF, PATH_DIFF
from htagraph.model.kinds import EventKind
from htagraph.model.names import without_step_number
from htagraph.model.schema import categorical
from htagraph.model.window import Window

CHANGES = ("added", "removed", "grown", "shrunk", "equal")
"""What became of a name: by its time, where it is on both sides."""

_ARROW = re.compile(r"->|\(anonymous namespace\)::")


def short_name(name: str) -> str:
    """Name of a kernel without its template arguments, parameters and return type."""
    if name.startswith(("Mem", "##")) or ("<" not in name and "(" not in name):
        return name
    out, depth = [], 0
    for character in _ARROW.sub("", name):
        depth += (character in "<(") - (character in ">)")
        if depth == 0 and character not in ">)":
            out.append(character)
    return "".join(out).strip().rpartition(" ")[2] or name


_Side = tuple[list[str], I64, I64]
"""Names on one side, how often each occurs, and its time."""


def _side(texts: Texts, count: I64, time_ns: I64, *, short: bool = False) -> _Side:
    """Names that occur; texts of the same spelling are one."""
    used = np.flatnonzero(count)
    plain = map(without_step_number, texts[used])
    shared = np.array([short_name(text) if short else text for text in plain], dtype=object)
    code, names = pd.factorize(shared, sort=True)
    n, dur_ns = (sum_by_code(code, values[used], len(names)) for values in (count, time_ns))
    return names.tolist(), n, dur_ns


def _work_by(dag: Dag, work: Clipped, by: ComparedBy, *, short: bool) -> _Side:
    """Events by name, or device work by where it was launched, with their time."""
    by_name = dag.events.name[work.event], dag.events.symbols.array
    code, names = by_name if by == "name" else COMPARED_BY[by](dag, work.event)
    n = len(names)
    time_ns = sum_by_code(code, work.dur_ns, n)
    return _side(names, np.bincount(code, minlength=n), time_ns, short=short and by == "name")


def _operators_by(dag: Dag, work: Clipped, by: ComparedBy) -> _Side:
    """Operators by shape, or by where they ran; time of nested ones counts once."""
    event = work.event
    code, names = (
        by_shape_of(dag, event, typed=False) if by == "shape" else COMPARED_BY[by](dag, event)
    )
    n, n_lanes = len(names), max(len(dag.events.lanes), 1)
    running = union(code * n_lanes + dag.events.lane[event], work.start_ns, work.end_ns)
    return _side(
        names,
        np.bincount(code, minlength=n),
        sum_by_code(running.group // n_lanes, running.end - running.start, n),
    )


def _diff(before: _Side, after: _Side) -> pd.DataFrame:
    """Counts and times of both sides by name."""
    names = sorted({*before[0], *after[0]})
    place = {text: number for number, text in enumerate(names)}
    count, time = np.zeros((2, 2, len(names)), dtype=np.int64)
    for number, (own, n, time_ns) in enumerate((before, after)):
        rows = np.array([place[text] for text in own], dtype=np.int64)
        count[number, rows], time[number, rows] = n, time_ns
    delta = time[1] - time[0]
    change = np.select(
        [count[0] == 0, count[1] == 0, delta > 0, delta < 0], [0, 1, 2, 3], default=4
    )
    frame = DIFF.frame(
        {
            "name": names,
            "change": categorical(change, CHANGES),
            "n_before": count[0],
            "n_after": count[1],
            "n_delta": count[1] - count[0],
            "before_ns": time[0],
            "after_ns": time[1],
            "delta_ns": delta,
        }
    )
    order = np.lexsort((np.arange(len(names)), -np.abs(delta)))
    return frame.take(order).reset_index(drop=True)


def _compared(sides: Sequence[tuple[Dag, Clipped]], by: ComparedBy, *, short: bool) -> pd.DataFrame:
    """Differences of events before and after, which add up to that of all time."""
    found = _diff(*(_work_by(dag, work, by, short=short) for dag, work in sides))
    before_ns, after_ns = (int(work.dur_ns.sum()) for _, work in sides)
    if int(found["delta_ns"].sum()) != after_ns - before_ns:
        raise GraphError(f"the differences by group do not add up to {after_ns - before_ns:,} ns.")
    return found


def op_diff(
    before: Dag,
    after: Dag,
    *,
    before_window: Window | None = None,
    after_window: Window | None = None,
    by: ComparedBy = "name",
    short_names: bool = False,
) -> pd.DataFrame:
    """Counts and times of host operators, API calls and annotations, before and after.

    Windows are the whole traces by default; take a step of each, as captures differ in length. Only
    operators are grouped by the shapes of their inputs, or by where they ran. `short_names`: names
    that differ in template arguments only are one. Largest change of time first. Times are
    inclusive. ``ProfilerStep#n`` is one name.
    """
    sides = []
    for dag, window in ((before, before_window), (after, after_window)):
        chosen = dag.events.is_host if by == "name" else dag.events.kind == EventKind.OP
        sides.append((dag, clipped(dag, np.flatnonzero(chosen), window or dag.span)))
    if by == "name":
        return _compared(sides, by, short=short_names)
    return _diff(*(_operators_by(dag, work, by) for dag, work in sides))


def kernel_diff(
    before: Dag,
    after: Dag,
    *,
    before_window: Window | None = None,
    after_window: Window | None = None,
    by: ComparedBy = "name",
    short_names: bool = False,
) -> pd.DataFrame:
    """Counts and times of kernels, copies and fills, before and after.

    `before_window`, `after_window`: default is the whole trace; take a step of each, as captures
    differ in length. `by`: all but names compare runs whose kernels differ, on other devices or in
    other precisions: by operator and shapes without types, or by where they were launched.
    `short_names`: whether names that differ in template arguments only are one. Largest change of
    time first; ``delta_ns`` adds up to the change of device time.
    """
    sides = [
        (dag, device_work(dag, window or dag.span))
        for dag, window in ((before, before_window), (after, after_window))
    ]
    return _compared(sides, by, short=short_names)


def path_diff(before: pd.DataFrame, after: pd.DataFrame, *, delta_ns: int) -> pd.DataFrame:
    """Time that a path gained and lost by group, from its breakdowns; the largest change first."""
    groups = before.index.union(after.index, sort=False)
    before_ns, after_ns = (
        part["dur_ns"].reindex(groups, fill_value=0).to_numpy(np.int64) for part in (before, after)
    )
    delta = after_ns - before_ns
    if int(delta.sum()) != delta_ns:
        raise GraphError(
            "the deltas of the critical paths do not add up to the difference of the windows."
        )
    frame = PATH_DIFF.frame(
        {
            "before_ns": before_ns,
            "after_ns": after_ns,
            "delta_ns": delta,
            "delta_share": delta / max(int(before_ns.sum()), 1),
        }
    ).set_index(groups)
    return frame.iloc[np.lexsort((np.arange(len(frame)), -np.abs(delta)))]
