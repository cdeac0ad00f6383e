"""Ancestors in a forest of parent pointers: each event is visited once, whatever its depth."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.arrays.passes import compiled
from htagraph.model.arrays import I32, I64, Bools, Rows

Parents = npt.NDArray[np.integer]


@compiled
def _parents_first(parent: Parents, events: I64, order: I32, stack: I32, seen: Bools) -> int:
    """Fill the order; return its length."""
    n = 0
    for start in events:
        event, depth = start, 0
        while event >= 0 and not seen[event]:
            seen[event] = True
            stack[depth] = event
            depth += 1
            event = parent[event]
        while depth > 0:
            depth -= 1
            order[n] = stack[depth]
            n += 1
    return n


@compiled
def _depths(parent: Parents, order: I32, depth: I64) -> None:
    """Fill the number of ancestors, itself included, of each event in the order."""
    for event in order:
        above = parent[event]
        depth[event] = 1 + (depth[above] if above >= 0 else 0)


@compiled
def _nearest(parent: Parents, events: Parents, holds: Bools, known: I32, out: Parents) -> None:
    """Fill the nearest ancestors; `known`, all -2, keeps what is found for events on the way."""
    for row in range(len(events)):
        event = events[row]
        while event >= 0 and known[event] == -2 and not holds[event]:
            event = parent[event]
        found = event
        if event >= 0 and known[event] != -2:
            found = known[event]
        out[row] = found
        event = events[row]
        while event >= 0 and known[event] == -2 and not holds[event]:
            known[event] = found
            event = parent[event]


@compiled
def _highest(parent: Parents, order: I32, holds: Bools, found: I64) -> None:
    """Fill the highest ancestor for which something holds."""
    for event in order:
        above = found[parent[event]] if parent[event] >= 0 else -1
        found[event] = event if holds[event] and above < 0 else above


@compiled
def _first_of_code(
    parent: Parents, order: I32, code: Parents, is_open: Bools, kin: tuple[I32, I32], out: Parents
) -> None:
    """Make the code -1 of events below another of the same code, depth first.

    `kin`, all -1, takes the first child and the next sibling of each event; `out` is a copy of the
    code.
    """
    child, sibling = kin
    first = -1
    for position in range(len(order) - 1, -1, -1):
        event = order[position]
        if parent[event] >= 0:
            sibling[event] = child[parent[event]]
            child[parent[event]] = event
        else:
            sibling[event] = first
            first = event
    event = first
    while event >= 0:
        if code[event] >= 0:
            if is_open[code[event]]:
                out[event] = -1
            is_open[code[event]] = True
        below = child[event]
        while below < 0 and event >= 0:
            if out[event] >= 0:
                is_open[code[event]] = False
            below = sibling[event]
            event = parent[event]
        event = below


@compiled
def _sum_up(parent: Parents, order: I32, value: I64) -> None:
    """Add the value of each event to its parent's, children first."""
    for position in range(len(order) - 1, -1, -1):
        event = order[position]
        if parent[event] >= 0:
            value[parent[event]] += value[event]


def parents_first(parent: Parents, events: Rows) -> I32:
    """Events and all their ancestors, each once, parents before children.

    `parent`, `events`: -1 for none.
    """
    n = len(parent)
    order, stack = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    events = np.ascontiguousarray(events, dtype=np.int64)
    return order[: _parents_first(parent, events, order, stack, np.zeros(n, dtype=bool))]


def depths(parent: Parents, events: I64) -> I64:
    """Number of ancestors of each event, itself included; 0 for -1."""
    depth = np.zeros(len(parent) + 1, dtype=np.int64)  # the last is for -1
    _depths(parent, parents_first(parent, events), depth)
    return depth[events]


def nearest(parent: Parents, events: Rows, holds: Bools) -> Rows:
    """Each event or its nearest ancestor for which something holds, -1 for none."""
    out = np.full(len(events), -1, dtype=events.dtype)
    if holds.any():
        known = np.full(len(parent), -2, dtype=np.int32)
        _nearest(parent, np.ascontiguousarray(events), holds, known, out)
    return out


def highest(parent: Parents, events: I64, holds: Bools) -> I64:
    """Each event or its highest ancestor for which something holds, -1 for none."""
    if not holds.any():
        return np.full(len(events), -1)
    found = np.full(len(parent) + 1, -1, dtype=np.int64)  # the last is for -1
    _highest(parent, parents_first(parent, events), holds, found)
    return found[events]


def sums_under(parent: Parents, code: Rows, values: I64, n_codes: int) -> I64:
    """Sum of the values at and under the events of each code; a value counts once for a code.

    Parent, code and value are of each event, -1 for no parent or code.
    """
    order = parents_first(parent, np.flatnonzero(values))
    child, sibling = (np.full(len(parent), -1, dtype=np.int32) for _ in range(2))
    top = code.copy()
    _first_of_code(parent, order, code, np.zeros(n_codes, dtype=bool), (child, sibling), top)
    total = values.copy()
    _sum_up(parent, order, total)
    rows = order[top[order] >= 0]
    out = np.zeros(n_codes, dtype=np.int64)
    np.add.at(out, top[rows], total[rows])
    return out
