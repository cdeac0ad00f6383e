"""Places of untraced code, by names that two runs have in common."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from htagraph.lookup.naming import gap_places
from htagraph.lookup.python_code import Stretches, code_pieces
from htagraph.model.arrays import I64, Rows, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import Bound, EventKind

_LINE_NUMBER = re.compile(r":\d+(?= in |$)|\(-?\d+\)(?=: )|, after line \d+$")
"""The same line has another number in another version of a file."""


PLACE = re.compile(r"^(after|before|at) (.+)$", re.DOTALL)
"""Places of untraced code: ``after aten::mm``, or ``after aten::mm, at train.py in main``."""


def neighbour_of(name: str) -> str:
    """What a place of untraced code is next to; any other name stays.

    Examples
    --------
    >>> neighbour_of("after aten::mm, at train.py in main"), neighbour_of("aten::mm")
    ('aten::mm', 'aten::mm')
    """
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
    pieces = code_pieces(dag, Stretches(lane, start_ns, end_ns, no_op), {})
    order = np.argsort(pieces.end_ns - pieces.start_ns, kind="stable")
    line = pieces.line[order]
    found[pieces.stretch[order]] = np.where(line == "", "", "at " + line)  # the longest is last
    return found
