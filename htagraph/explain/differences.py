"""Differences between two traces: operators and kernels added, removed, grown and shrunk."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.intervals import sum_by_code
from htagraph.errors import GraphError
from htagraph.lookup.clipping import Clipped, clipped, device_work
from htagraph.model.dag import Dag
from htagraph.model.frames import DIFF, PATH_DIFF
from htagraph.model.schema import categorical
from htagraph.model.step_markers import without_step_number
from htagraph.model.window import Window

__all__ = ["CHANGES", "kernel_diff", "op_diff", "path_diff", "short_name"]

I64 = npt.NDArray[np.int64]

CHANGES = ("added", "removed", "grown", "shrunk", "equal")
"""What became of a name: by its time, where it is on both sides."""

_ARROW = re.compile(r"->|\(anonymous namespace\)::")


def short_name(name: str) -> str:
    """Name of a kernel without its template arguments, parameters and return type.

    Examples
    --------
    >>> short_name("void at::native::elementwise_kernel<4, Add<float> >(int, Add<float>)")
    'at::native::elementwise_kernel'
    >>> short_name("Memcpy DtoH (Device -> Pinned)")
    'Memcpy DtoH (Device -> Pinned)'
    """
    if name.startswith(("Mem", "##")) or ("<" not in name and "(" not in name):
        return name
    out, depth = [], 0
    for character in _ARROW.sub("", name):
        depth += (character in "<(") - (character in ">)")
        if depth == 0 and character not in ">)":
            out.append(character)
    return "".join(out).strip().rpartition(" ")[2] or name


def _same_name(name: str, *, short: bool) -> str:
    """Name by which events are compared; all steps have one, whatever their number."""
    step = without_step_number(name)
    return short_name(step) if short else step


def _sums(dag: Dag, work: Clipped, *, short: bool) -> tuple[list[str], I64, I64]:
    """Names of events, how often each occurs, and its time."""
    symbol, n_symbols = dag.events.name[work.event], len(dag.events.symbols)
    count, time = (
        np.bincount(symbol, minlength=n_symbols),
        sum_by_code(symbol, work.dur_ns, n_symbols),
    )
    used = np.flatnonzero(count)
    texts = [_same_name(text, short=short) for text in dag.events.symbols.array[used]]
    names = sorted(set(texts))
    place = {text: number for number, text in enumerate(names)}
    number = np.array([place[text] for text in texts], dtype=np.int64)
    return (
        names,
        sum_by_code(number, count[used], len(names)),
        sum_by_code(number, time[used], len(names)),
    )


def _diff(before: tuple[Dag, Clipped], after: tuple[Dag, Clipped], *, short: bool) -> pd.DataFrame:
    """Counts and times of both sides by name."""
    sides = [_sums(dag, work, short=short) for dag, work in (before, after)]
    names = sorted(set(sides[0][0]) | set(sides[1][0]))
    place = {text: number for number, text in enumerate(names)}
    count, time = np.zeros((2, len(sides), len(names)), dtype=np.int64)
    for side, (texts, n, total) in enumerate(sides):
        rows = np.array([place[text] for text in texts], dtype=np.int64)
        count[side, rows], time[side, rows] = n, total
    delta = time[1] - time[0]
    expected = int(after[1].dur_ns.sum()) - int(before[1].dur_ns.sum())
    if int(delta.sum()) != expected:
        raise GraphError(f"the differences by name do not add up to {expected:,} ns.")
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


def op_diff(
    before: Dag,
    after: Dag,
    *,
    before_window: Window | None = None,
    after_window: Window | None = None,
    short_names: bool = False,
) -> pd.DataFrame:
    """Counts and times of host operators, API calls and annotations, before and after.

    Parameters
    ----------
    before_window, after_window : Window, optional
        Default is the whole trace; take a step of each, as captures differ in length.
    short_names : bool, default=False
        Whether names that differ in template arguments only are one.

    Returns
    -------
    DataFrame, schema `frames.DIFF`
        Largest change of time first. Times are inclusive. ``ProfilerStep#n`` is one name.
    """
    sides = [
        (dag, clipped(dag, np.flatnonzero(dag.events.is_host), window or dag.span))
        for dag, window in ((before, before_window), (after, after_window))
    ]
    return _diff(sides[0], sides[1], short=short_names)


def kernel_diff(
    before: Dag,
    after: Dag,
    *,
    before_window: Window | None = None,
    after_window: Window | None = None,
    short_names: bool = False,
) -> pd.DataFrame:
    """Counts and times of kernels, copies and fills, before and after.

    Parameters
    ----------
    before_window, after_window : Window, optional
        Default is the whole trace; take a step of each, as captures differ in length.
    short_names : bool, default=False
        Whether names that differ in template arguments only are one.

    Returns
    -------
    DataFrame, schema `frames.DIFF`
        Largest change of time first; ``delta_ns`` adds up to the change of device time.

    Examples
    --------
    >>> from htagraph.compiler.passes import compile_events
    >>> from htagraph.synth import timeline
    >>> before = compile_events(timeline("stream 7 |[gemm][relu]"))
    >>> after = compile_events(timeline("stream 7 |[gemm   ]"))
    >>> kernel_diff(before, after)[["name", "change", "n_delta", "delta_ns"]]
       name   change  n_delta  delta_ns
    0  relu  removed       -1     -6000
    1  gemm    grown        0      3000
    """
    sides = [
        (dag, device_work(dag, window or dag.span))
        for dag, window in ((before, before_window), (after, after_window))
    ]
    return _diff(sides[0], sides[1], short=short_names)


def path_diff(before: pd.DataFrame, after: pd.DataFrame, *, delta_ns: int) -> pd.DataFrame:
    """Time that a path gained and lost by group, from its breakdowns.

    Parameters
    ----------
    delta_ns : int, unit=ns
        How much longer the second window is.

    Returns
    -------
    DataFrame, schema `frames.PATH_DIFF`, indexed by group
        The largest change first.

    Raises
    ------
    GraphError
        If the deltas do not add up to that: a bug in htagraph.

    Examples
    --------
    >>> groups = ["compute", "host"]
    >>> before, after = (pd.DataFrame({"dur_ns": ns}, index=groups) for ns in ([6, 4], [3, 4]))
    >>> path_diff(before, after, delta_ns=-3)["delta_ns"].to_dict()
    {'compute': -3, 'host': 0}
    """
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
