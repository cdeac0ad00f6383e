"""Samples: the stretches of a run that a comparison is about, as a rule its steps that are alike."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.explain.odd_steps import odd_step_reasons
from htagraph.graph import TraceGraph
from htagraph.lookup.steady_steps import FEWEST_ALIKE, SteadySteps, steady_steps

__all__ = ["Samples", "graph_samples", "one_sample", "sample_frame"]

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_N_ODD = 6
_WIDE_GAP = 0.02
"""Share of a step that time between steps may be, for the last to count although none follows."""


class Samples(NamedTuple):
    """Stretches of a run that are compared.

    Parameters
    ----------
    frame : DataFrame
        ``name``, ``start_ns``, ``dur_ns``; in order of time, without overlap.
    unit : str
        ``step``: from the start of a step to that of the next; or ``window``, which is one.
    n_steps : int
        Steps in the window, alike or not.
    odd : tuple of str
        Steps that are left out, and why.
    """

    frame: pd.DataFrame
    unit: str
    n_steps: int
    odd: tuple[str, ...] = ()


def sample_frame(names: object, start_ns: I64, dur_ns: I64) -> pd.DataFrame:
    """Frame of samples."""
    return pd.DataFrame({"name": names, "start_ns": start_ns, "dur_ns": dur_ns})


def one_sample(name: str, start_ns: int, dur_ns: int) -> Samples:
    """A window without steps, as the one sample of it."""
    times = (np.array([start_ns], dtype=np.int64), np.array([dur_ns], dtype=np.int64))
    return Samples(sample_frame([name], *times), "window", 0)


def _compared(found: SteadySteps, inside: Bools) -> Bools:
    """Steps in the window that are compared: those alike, else those that do the same work."""
    parts = found.parts
    gap_ns, last = parts.next_ns - parts.end_ns, len(parts.step) - 1
    kept = inside & (found.is_steady if (found.is_steady & inside).any() else found.is_same_work)
    is_wide = last > 0 and np.median(gap_ns[:last]) > _WIDE_GAP * np.median(found.compared_ns)
    if is_wide and kept[last] and kept.sum() > FEWEST_ALIKE:
        kept[last] = False
    return kept if kept.any() else inside


def graph_samples(graph: TraceGraph) -> Samples:
    """What is compared of a graph: the steps of its window that are alike.

    A step lasts until the next begins, so that what happens between them counts. A window without
    steps is compared as a whole.

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
    found, window = steady_steps(graph.dag), graph.interval
    parts, events = found.parts, graph.dag.events
    inside = (parts.start_ns >= window.start_ns) & (parts.end_ns <= window.end_ns)
    if not inside.any():
        return one_sample(window.name, window.start_ns, window.dur_ns)
    kept = _compared(found, inside)
    until = np.minimum(parts.next_ns, window.end_ns)
    until[np.flatnonzero(inside)[-1]] = parts.end_ns[inside][-1]
    names = events.names(parts.step)
    return Samples(
        sample_frame(names[kept], parts.start_ns[kept], (until - parts.start_ns)[kept]),
        "step",
        int(inside.sum()),
        _said(graph, found, np.flatnonzero(inside & ~kept), names),
    )


def _said(graph: TraceGraph, found: SteadySteps, odd: I64, names: I64) -> tuple[str, ...]:
    """Steps that are left out, and why."""
    if not len(odd):
        return ()
    reasons = odd_step_reasons(graph.dag, found)
    said = [f"{names[k]}: {reasons[k] or 'no step follows it'}" for k in odd[:_N_ODD].tolist()]
    more = len(odd) - len(said)
    return (*said, *([f"… and {more:,} more"] if more else []))
