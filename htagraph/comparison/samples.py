"""Samples: the stretches of a run that a comparison is about, as a rule its steps that are alike.

A step is done when its host range has ended, and so has all device work that was launched in it or
before. It lasts from when the step before it was done until it is done itself. Its host range
alone would not tell: where nothing waits for the device, the host runs ahead, and its ranges say
nothing of how long the device takes. Steps follow each other without gap or overlap, so their mean
is the time per step of the run, and its critical path can be cut at them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.explain.odd_steps import odd_step_reasons
from htagraph.graph import TraceGraph
from htagraph.lookup.steady_steps import FEWEST_ALIKE, StepParts, are_near, steady_steps
from htagraph.lookup.steps import step_at
from htagraph.model.dag import Dag

__all__ = [
    "DoneSteps",
    "Samples",
    "alike",
    "device_work_began",
    "done_steps",
    "graph_samples",
    "left_out",
    "one_sample",
    "sample_frame",
]

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_N_ODD = 6
_WIDE_GAP = 0.02
"""Share of a step that may lie between steps for the first, which none precedes, to count."""


class Samples(NamedTuple):
    """Stretches of a run that are compared.

    Parameters
    ----------
    frame : DataFrame
        ``name``, ``start_ns``, ``dur_ns``; in order of time, without overlap.
    unit : str
        ``step`` or ``window``, which is one.
    n_steps : int
        Steps in the window, alike or not.
    rows : ndarray of int64
        Steps of the trace that are compared; empty for a window.
    odd : tuple of str
        Steps that are left out, and why.
    """

    frame: pd.DataFrame
    unit: str
    n_steps: int
    rows: I64
    odd: tuple[str, ...] = ()


class DoneSteps(NamedTuple):
    """Steps of a rank, or of a job, from when the one before was done until each is done.

    Parameters
    ----------
    names : ndarray of str
    start_ns, end_ns : ndarray of int64, unit=ns
    is_same_work : ndarray of bool
        The step does what most do.
    has_wide_gap : bool
        Time between steps is long, and the first step has none before it.
    """

    names: npt.NDArray[np.object_]
    start_ns: I64
    end_ns: I64
    is_same_work: Bools
    has_wide_gap: bool


def sample_frame(names: object, start_ns: I64, dur_ns: I64) -> pd.DataFrame:
    """Frame of samples."""
    return pd.DataFrame({"name": names, "start_ns": start_ns, "dur_ns": dur_ns})


def one_sample(name: str, start_ns: int, dur_ns: int, n_steps: int = 0) -> Samples:
    """A window that is compared as a whole."""
    times = (np.array([start_ns], dtype=np.int64), np.array([dur_ns], dtype=np.int64))
    return Samples(sample_frame([name], *times), "window", n_steps, times[0][:0])


def device_work_began(dag: Dag) -> tuple[I64, I64]:
    """Device work, and when it was launched; or began, where its launch was not recorded."""
    work = np.flatnonzero(dag.events.is_device)
    launch = dag.launch[work]
    launched_ns = gather(dag.events.ts_ns, launch, default=-1)
    return work, np.where(launch >= 0, launched_ns, dag.events.ts_ns[work])


def done_steps(dag: Dag) -> DoneSteps:
    """The steps of a rank, from when the one before was done until each is done.

    Parameters
    ----------
    dag : Dag

    Returns
    -------
    DoneSteps

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
    ([0, 30000], [30000, 50000])
    """
    found = steady_steps(dag)
    parts = found.parts
    names = dag.events.names(parts.step)
    if not len(parts.step):
        return DoneSteps(names, parts.start_ns, parts.end_ns, found.is_same_work, False)
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
    return DoneSteps(names, start_ns, done_ns, found.is_same_work, _has_wide_gap(parts))


def _has_wide_gap(parts: StepParts) -> bool:
    """Whether much of the time is between steps."""
    gap_ns, period_ns = parts.next_ns - parts.end_ns, parts.next_ns - parts.start_ns
    return bool(len(gap_ns) > 1 and np.median(gap_ns[:-1]) > _WIDE_GAP * np.median(period_ns[:-1]))


def alike(steps: DoneSteps, inside: Bools) -> Bools:
    """Steps that are compared: of the same work and length; where few are, of the same work.

    Parameters
    ----------
    steps : DoneSteps
    inside : ndarray of bool
        Steps that lie in the window; at least one.

    Returns
    -------
    ndarray of bool
    """
    counted = inside.copy()
    if steps.has_wide_gap and counted[0] and counted.sum() > FEWEST_ALIKE:
        counted[0] = False
    same = counted & steps.is_same_work
    if not same.any():
        return counted
    near = same & are_near(steps.end_ns - steps.start_ns, same)
    return near if near.sum() >= FEWEST_ALIKE else same


def left_out(steps: DoneSteps, odd: I64, kept: Bools, reasons: list[str]) -> tuple[str, ...]:
    """Steps that are left out, and why, in words.

    Parameters
    ----------
    steps : DoneSteps
    odd : ndarray of int64
        Those that are left out.
    kept : ndarray of bool
        Those that are not.
    reasons : list of str
        What is known of each step otherwise; empty for nothing.

    Returns
    -------
    tuple of str
    """
    lengths_ns = steps.end_ns - steps.start_ns
    usual_ns = max(float(np.median(lengths_ns[kept])), 1.0)
    said = []
    for step in odd[:_N_ODD].tolist():
        more = lengths_ns[step] / usual_ns - 1
        length = f"{abs(more):.0%} {'longer' if more > 0 else 'shorter'} than usual"
        said.append(f"{steps.names[step]}: {reasons[step] or length}")
    n_more = len(odd) - len(said)
    return (*said, *([f"… and {n_more:,} more"] if n_more else []))


def graph_samples(graph: TraceGraph) -> Samples:
    """What is compared of a graph: the steps of its window that are alike.

    A window in which fewer than two steps are done is compared as a whole.

    Parameters
    ----------
    graph : TraceGraph

    Returns
    -------
    Samples

    Examples
    --------
    >>> from htagraph import Trace, synth
    >>> graph = Trace.from_events(synth.timeline('''
    ...     us    |0         10        20        30        40        50        60        70
    ...     cpu 1 |{ProfilerStep#0 }{ProfilerStep#1 }{ProfilerStep#2 [save ]}{ProfilerStep#3 }
    ... ''')).compile()
    >>> graph_samples(graph).frame[["name", "dur_ns"]].to_numpy().tolist()
    [['ProfilerStep#0', 17000], ['ProfilerStep#1', 17000], ['ProfilerStep#3', 18000]]
    """
    steps, window = done_steps(graph.dag), graph.interval
    inside = (steps.start_ns >= window.start_ns) & (steps.end_ns <= window.end_ns)
    inside &= steps.end_ns > steps.start_ns
    n_inside = int(inside.sum())
    if n_inside < 1 or (n_inside < 2 and window != graph.dag.span):
        return one_sample(window.name, window.start_ns, window.dur_ns, n_inside)
    kept = alike(steps, inside)
    odd = np.flatnonzero(inside & ~kept)
    reasons = odd_step_reasons(graph.dag, steady_steps(graph.dag)) if len(odd) else []
    frame = sample_frame(
        steps.names[kept], steps.start_ns[kept], (steps.end_ns - steps.start_ns)[kept]
    )
    said = left_out(steps, odd, kept, reasons)
    return Samples(frame, "step", n_inside, np.flatnonzero(kept), said)
