"""Names of the place an event belongs to: its operator, its annotation, its Python frame."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import last_before
from htagraph.algorithms.nesting import nest
from htagraph.lookup.attribution import innermost
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind

__all__ = [
    "MODULE",
    "frames_at",
    "gap_places",
    "innermost_at",
    "names_or_empty",
    "op_names",
    "spelling",
]

I64 = npt.NDArray[np.int64]
Nodes = npt.NDArray[np.signedinteger]
Text = npt.NDArray[np.object_]

MODULE = re.compile(r"^nn\.Module: ")
"""Names of the Python frames that stand for modules."""


def names_or_empty(dag: Dag, events: I64) -> Text:
    """Name of each event, ``""`` for -1."""
    out = np.full(len(events), "", dtype=object)
    known = events >= 0
    out[known] = dag.events.names(events[known])
    return out


def spelling(dag: Dag) -> I64:
    """Place of each symbol in alphabetical order: answers do not depend on the order in a file."""
    out = np.empty(len(dag.events.symbols), dtype=np.int64)
    out[np.argsort(dag.events.symbols.array.astype(str), kind="stable")] = np.arange(len(out))
    return out


def op_names(dag: Dag, events: I64) -> Text:
    """Innermost operator or annotation that each event ran in, or was launched from.

    ``""`` for none.
    """
    return names_or_empty(dag, innermost(dag, events, (EventKind.OP, EventKind.ANNOTATION)))


def gap_places(dag: Dag, tail: Nodes, head: Nodes) -> Text:
    """Place of host code between two nodes of a thread: ``after aten::mm``, or before what begins.

    ``""`` where neither an event has just ended, nor one begins.

    Parameters
    ----------
    tail, head : ndarray of shape (n,), dtype=int
    """
    ended, begins = tail & 1 == 1, head & 1 == 0
    after, before = (dag.events.names(node >> 1) for node in (tail, head))
    places: Text = np.where(ended, "after " + after, np.where(begins, "before " + before, ""))
    return places


def frames_at(dag: Dag, lane: I64, ts_ns: I64, pattern: re.Pattern[str] | None = None) -> I64:
    """Innermost Python frame of a thread at a time, -1 where none was recorded.

    Parameters
    ----------
    lane, ts_ns : ndarray of shape (n,), dtype=int64
    pattern : re.Pattern, optional
        Only frames whose names match.

    Returns
    -------
    ndarray of shape (n,), dtype=int64
    """
    events = dag.events
    wanted = events.kind == EventKind.PYTHON
    if pattern is not None:
        wanted &= events.named(events.symbols.searched(pattern))
    return innermost_at(dag, np.flatnonzero(wanted), lane, ts_ns)[0]


def innermost_at(dag: Dag, ranges: I64, lane: I64, ts_ns: I64) -> tuple[I64, I64]:
    """Innermost of some ranges on a lane at a time, and which of them encloses each.

    Parameters
    ----------
    ranges : ndarray of shape (k,), dtype=int64
        Events of any kind.
    lane, ts_ns : ndarray of shape (n,), dtype=int64

    Returns
    -------
    innermost : ndarray of shape (n,), dtype=int64
        Event, -1 for none.
    parent : ndarray of shape (n_events,), dtype=int64
        Event that encloses each of the ranges, -1 for none.
    """
    events = dag.events
    parent = np.full(len(events), -1, dtype=np.int64)
    if not len(ranges):
        return np.full(len(lane), -1, dtype=np.int64), parent
    found = nest(events.lane[ranges], events.ts_ns[ranges], events.end_ns[ranges])
    parent[ranges] = gather(ranges, found.parent)
    owner = ranges[found.boundary >> 1]
    time = events.node_ts_ns[2 * owner + (found.boundary & 1)]
    # Right after the time: a range that begins there is meant, one that ends there is not.
    position = last_before(events.lane[owner].astype(np.int64), time, lane, ts_ns + 1)
    return gather(ranges, gather(found.innermost, position)), parent
