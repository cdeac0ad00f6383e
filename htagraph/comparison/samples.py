"""Samples: the stretches of a run that a comparison covers, usually its typical steps.

Steps may come in kinds: with gradient accumulation, the optimizer runs in every fourth. Each kind
has typical steps of its own. A step lasts from when the one before was done until it is done
(`htagraph.lookup.done_steps`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.comparison.run_profile import Kind
from htagraph.explain.odd_steps import odd_step_reasons
from htagraph.lookup.attribution import gap_places
from htagraph.lookup.done_steps import DoneSteps, alike_steps, done_steps
from htagraph.lookup.python_code import code_pieces
from htagraph.lookup.steady_steps import steady_steps
from htagraph.model.arrays import I64, Bools, Rows, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import Bound, EventKind
from htagraph.run.graph import TraceGraph

_N_ODD = 6
"""Outlier steps that a profile names; the rest are counted. Chosen: test_kinds."""


class Samples(NamedTuple):
    """Stretches of a run that are compared; see `RunProfile`."""

    frame: pd.DataFrame  # ``name``, ``start_ns``, ``dur_ns``; in order of time, without overlap
    unit: str
    n_steps: int
    rows: I64  # Steps of the trace that are compared; empty for a window
    kind: I64  # Row in `kinds` of each sample
    kinds: tuple[Kind, ...]
    n_odd: int = 0
    left_out: tuple[str, ...] = ()


def sample_frame(names: object, start_ns: I64, dur_ns: I64) -> pd.DataFrame:
    """Frame of samples."""
    return pd.DataFrame({"name": names, "start_ns": start_ns, "dur_ns": dur_ns})


def one_sample(name: str, start_ns: int, dur_ns: int, n_steps: int = 0) -> Samples:
    """A window as one sample."""
    times = (np.array([start_ns], dtype=np.int64), np.array([dur_ns], dtype=np.int64))
    kind = np.zeros(1, dtype=np.int64)
    return Samples(sample_frame([name], *times), "window", n_steps, kind[:0], kind, (Kind(1, 1),))


def compared(
    steps: DoneSteps, inside: Bools, counted: Bools, reasons: Callable[[], list[str]]
) -> Samples:
    """The steps to compare (`inside`: one at least), and why others are left out, if `counted`.

    `reasons`: what is unusual about each step apart from its length; empty for nothing.
    """
    found = alike_steps(steps, inside)
    kept, is_first_left_out, lengths_ns = found.kept, found.is_first_left_out, steps.lengths_ns
    steps = steps._replace(kind=found.kind)
    odd = np.flatnonzero(counted & ~kept)[is_first_left_out:]
    numbers, kind = np.unique(steps.kind[kept], return_inverse=True)
    are_outliers = np.isin(numbers, found.outliers)
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
        kinds.append(Kind(n_same, int(same.sum()), *ends, reason, found.varies))
    frame = sample_frame(steps.names[kept], steps.start_ns[kept], lengths_ns[kept])
    n_steps, rows = int(counted.sum()), np.flatnonzero(kept)
    return Samples(frame, "step", n_steps, rows, kind, tuple(kinds), len(odd), tuple(said))


def graph_samples(graph: TraceGraph) -> Samples:
    """The samples of a graph: the steps of its window, each with others of its kind.

    A window in which fewer than two steps are done is one sample.
    """
    steps, window = done_steps(graph.dag), graph.interval
    inside = steps.inside(window.start_ns, window.end_ns)
    n_inside, is_asked = int(inside.sum()), graph.asked not in (None, graph.dag.span)
    if n_inside < 1 or (n_inside < 2 and is_asked):
        return one_sample(window.name, window.start_ns, window.dur_ns, n_inside)
    found = compared(
        steps, inside, inside, lambda: odd_step_reasons(graph.dag, steady_steps(graph.dag))
    )
    return found._replace(left_out=(*graph.left_out, *found.left_out))


_LINE_NUMBER = re.compile(r":\d+(?= in |$)|\(-?\d+\)(?=: )|, after line \d+$")
"""The same line has another number in another version of a file."""


PLACE = re.compile(r"^(after|before|at) (.+)$", re.DOTALL)
"""Places of untraced code: ``after aten::mm``, or ``after aten::mm, at train.py in main``."""


def neighbour_of(name: str) -> str:
    """What a place of untraced code is next to; any other name stays."""
    found = PLACE.match(name)
    return found[2].partition(", at ")[0] if found else name


def gap_edges(segments: pd.DataFrame) -> I64:
    """Edge of each segment in which untraced code ran, -1 for all others."""
    is_gap = segments["bound"] == Bound.UNTRACED_CODE.label
    return np.where(is_gap, segments["edge"], -1).astype(np.int64)


def code_places(dag: Dag, edge: I64) -> dict[int, str]:
    """Place of untraced code by its edge: its neighbour, and its code if stacks were recorded."""
    edge = np.unique(edge[edge >= 0])
    tail, head = dag.edges.tail[edge], dag.edges.head[edge]
    place, places = pd.factorize(gap_places(dag, tail, head))
    code, codes = pd.factorize(_codes(dag, tail, head))
    which, first = np.unique(place * len(codes) + code, return_inverse=True)
    texts = [
        ", ".join(filter(None, [places[one], _LINE_NUMBER.sub("", codes[other])]))
        for one, other in zip(*divmod(which, max(len(codes), 1)), strict=True)
    ]
    named = np.array([*texts, ""], dtype=object)[first]
    return dict(zip(edge.tolist(), named.tolist(), strict=True))


def _codes(dag: Dag, tail: Rows, head: Rows) -> Texts:
    """The user code that ran longest between two nodes; empty if no stacks were recorded."""
    found = np.full(len(tail), "", dtype=object)
    if not len(tail) or not (dag.events.kind == EventKind.PYTHON).any():
        return found
    start_ns, end_ns = dag.events.node_ts_ns[tail], dag.events.node_ts_ns[head]
    lane = dag.events.lane[head >> 1].astype(np.int64)
    no_op = np.full(len(tail), -1, np.int64)
    pieces = code_pieces(dag, (lane, start_ns, end_ns, no_op), {})
    order = np.argsort(pieces.end_ns - pieces.start_ns, kind="stable")
    line = pieces.line[order]
    found[pieces.stretch[order]] = np.where(line == "", "", "at " + line)  # the longest is last
    return found
