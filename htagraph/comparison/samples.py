"""Samples: the stretches of a run that a comparison covers, usually its typical steps.

Steps may come in kinds: with gradient accumulation, the optimizer runs in every fourth. Each kind
has typical steps of its own.

A step is done when its host range has ended and all device work launched in it or before is done.
It lasts from when the step before was done. Its host range alone is not enough: if nothing waits
for the device, the host runs ahead, and its ranges say nothing about the device. Steps follow each
other without gap or overlap, so their mean is the time per step, and the critical path can be cut
at them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.comparison.run_profile import Kind
from htagraph.explain.odd_steps import odd_step_reasons
from htagraph.graph import TraceGraph
from htagraph.lookup.steady_steps import FEWEST_ALIKE, MOST_KINDS, are_near, steady_steps
from htagraph.lookup.steps import step_at
from htagraph.model.arrays import I64, Bools, Texts
from htagraph.model.dag import Dag

__all__ = [
    "DoneSteps",
    "Samples",
    "compared",
    "device_work_began",
    "done_steps",
    "graph_samples",
    "one_sample",
    "sample_frame",
]

_N_ODD = 6
"""Outlier steps that a profile names; the rest are counted.

Chosen. Pinned by `test_samples.py::test_six_outlier_steps_are_named`.
"""

_BEFORE = np.iinfo(np.int64).min
"""Launch time of work from before the profile."""


class Samples(NamedTuple):
    """Stretches of a run that are compared; see `RunProfile`.

    Parameters
    ----------
    frame : DataFrame
        ``name``, ``start_ns``, ``dur_ns``; in order of time, without overlap.
    rows : ndarray of int64
        Steps of the trace that are compared; empty for a window.
    kind : ndarray of int64
        Row in `kinds` of each sample.
    """

    frame: pd.DataFrame
    unit: str
    n_steps: int
    rows: I64
    kind: I64
    kinds: tuple[Kind, ...]
    n_odd: int = 0
    left_out: tuple[str, ...] = ()


class DoneSteps(NamedTuple):
    """Steps of a rank or of a job, each from when the one before was done; all arrays by step."""

    names: Texts
    start_ns: I64
    end_ns: I64
    kind: I64


def sample_frame(names: object, start_ns: I64, dur_ns: I64) -> pd.DataFrame:
    """Frame of samples."""
    return pd.DataFrame({"name": names, "start_ns": start_ns, "dur_ns": dur_ns})


def one_sample(name: str, start_ns: int, dur_ns: int, n_steps: int = 0) -> Samples:
    """A window as one sample."""
    times = (np.array([start_ns], dtype=np.int64), np.array([dur_ns], dtype=np.int64))
    kind = np.zeros(1, dtype=np.int64)
    return Samples(sample_frame([name], *times), "window", n_steps, kind[:0], kind, (Kind(1, 1),))


def device_work_began(dag: Dag) -> tuple[I64, I64]:
    """Device work, and when it was launched, or when it began if its launch was not recorded.

    Work without a launch that began before all work with one is from before the profile.
    """
    work = np.flatnonzero(dag.events.is_device)
    is_launched, began_ns = dag.launch[work] >= 0, dag.events.ts_ns[work]
    first_ns = began_ns[is_launched].min(initial=np.iinfo(np.int64).max)
    if is_launched.any():
        began_ns = np.where(began_ns < first_ns, _BEFORE, began_ns)
    return work, np.where(is_launched, gather(dag.events.ts_ns, dag.launch[work], -1), began_ns)


def done_steps(dag: Dag) -> DoneSteps:
    """The steps of a rank, each from when the one before was done until it is done.

    Examples
    --------
    >>> from htagraph.compiler.passes import compile_events
    >>> from htagraph.synth import timeline
    >>> dag = compile_events(timeline('''
    ...     us       |0         10        20        30        40        50
    ...     cpu 1    |{ProfilerStep#0}{ProfilerStep#1}
    ...     cpu 1    | [launch >a]     [launch >b]
    ...     stream 7 |          [gemm <a          ][gemm <b          ]
    ... '''))
    >>> found = done_steps(dag)
    >>> found.start_ns.tolist(), found.end_ns.tolist()
    ([0, 29000], [29000, 48000])
    """
    found = steady_steps(dag)
    parts = found.parts
    names = dag.events.names(parts.step)
    if not len(parts.step):
        return DoneSteps(names, parts.start_ns, parts.end_ns, found.kind)
    work, began_ns = device_work_began(dag)
    ends_ns = dag.events.end_ns[work]
    whole = sample_frame(names, parts.start_ns, parts.next_ns - parts.start_ns)
    row = step_at(whole, began_ns)
    done_ns = parts.end_ns.copy()
    np.maximum.at(done_ns, row[row >= 0], ends_ns[row >= 0])
    done_ns = np.maximum.accumulate(done_ns)
    earlier = ends_ns[began_ns < parts.start_ns[0]]
    first_ns = min(int(max(parts.start_ns[0], earlier.max(initial=0))), int(done_ns[0]))
    start_ns = np.append(np.array([first_ns], dtype=np.int64), done_ns[:-1])
    return DoneSteps(names, start_ns, done_ns, found.kind)


def _all_differ(kind: I64) -> bool:
    """Whether most steps do what no other one does, as where the work depends on the data."""
    _, n_alike = np.unique(kind, return_counts=True)
    return len(kind) >= FEWEST_ALIKE and 2 * int(n_alike[n_alike > 1].sum()) < len(kind)


def _alike(steps: DoneSteps, inside: Bools, *, varies: bool) -> tuple[Bools, bool]:
    """Steps inside a window to compare: of each kind those of typical length, unless they are few.

    If their work varies, so does their length.

    Returns with them whether the first of the trace is like others, and left out all the same. It
    is if enough others are typical: its device starts idle, and no gap between steps precedes it.
    """
    lengths_ns = steps.end_ns - steps.start_ns
    kept, is_first_left_out = np.zeros_like(inside), False
    kinds, n_of_kind = np.unique(steps.kind[inside], return_counts=True)
    for kind in kinds[np.argsort(-n_of_kind, kind="stable")[:MOST_KINDS]]:
        same = inside & (steps.kind == kind)
        near = same & are_near(lengths_ns, same)
        alike = near if near.sum() >= FEWEST_ALIKE and not varies else same
        if alike[0] and alike.sum() > FEWEST_ALIKE:
            is_first_left_out, alike[0] = True, False
        kept |= alike
    return kept, is_first_left_out


def compared(
    steps: DoneSteps, inside: Bools, counted: Bools, reasons: Callable[[], list[str]]
) -> Samples:
    """The steps to compare, and why others are left out.

    Parameters
    ----------
    inside : ndarray of bool
        Steps in the window; at least one.
    counted : ndarray of bool
        Steps that are named if they are left out.
    reasons : callable
        What is unusual about each step apart from its length; empty for nothing.
    """
    if varies := _all_differ(steps.kind[inside]):
        steps = steps._replace(kind=np.zeros_like(steps.kind))
    kept, is_first_left_out = _alike(steps, inside, varies=varies)
    lengths_ns = steps.end_ns - steps.start_ns
    odd = np.flatnonzero(counted & ~kept)[is_first_left_out:]
    numbers, kind, n_alike = np.unique(steps.kind[kept], return_inverse=True, return_counts=True)
    are_outliers = (n_alike == 1) & (2 * n_alike[n_alike > 1].sum() >= inside.sum())
    known = reasons() if len(odd) or are_outliers.any() else []

    def why(step: int) -> str:
        same = kept & (steps.kind == steps.kind[step])
        usual_ns = max(float(np.median(lengths_ns[same if same.sum() > 1 else kept])), 1.0)
        more = lengths_ns[step] / usual_ns - 1
        length = f"{abs(more):.0%} {'longer' if more > 0 else 'shorter'} than usual"
        return f"{steps.names[step]}: {known[step] or length}"

    said = [f"{steps.names[0]}: the first of the trace"] if is_first_left_out else []
    said += [why(step) for step in odd[:_N_ODD].tolist()]
    if len(odd) > _N_ODD:
        said.append(f"… and {len(odd) - _N_ODD:,} more")
    kinds = []
    for number, is_outlier in zip(numbers.tolist(), are_outliers.tolist(), strict=True):
        same = kept & (steps.kind == number)
        n_same, ends = int((inside & (steps.kind == number)).sum()), (bool(same[0]), bool(same[-1]))
        reason = why(int(same.argmax())) if is_outlier else ""
        kinds.append(Kind(n_same, int(same.sum()), *ends, reason, varies))
    frame = sample_frame(steps.names[kept], steps.start_ns[kept], lengths_ns[kept])
    n_steps, rows = int(counted.sum()), np.flatnonzero(kept)
    return Samples(frame, "step", n_steps, rows, kind, tuple(kinds), len(odd), tuple(said))


def graph_samples(graph: TraceGraph) -> Samples:
    """The samples of a graph: the steps of its window, each with others of its kind.

    A window in which fewer than two steps are done is one sample.
    """
    steps, window = done_steps(graph.dag), graph.interval
    inside = (steps.start_ns >= window.start_ns) & (steps.end_ns <= window.end_ns)
    inside &= steps.end_ns > steps.start_ns
    n_inside = int(inside.sum())
    if n_inside < 1 or (n_inside < 2 and window != graph.dag.span):
        return one_sample(window.name, window.start_ns, window.dur_ns, n_inside)
    return compared(
        steps, inside, inside, lambda: odd_step_reasons(graph.dag, steady_steps(graph.dag))
    )
