"""Names of where an event belongs: its operator, its annotation, its Python frame."""

from __future__ import annotations

import re

import numpy as np

from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import last_before
from htagraph.algorithms.nesting import nest
from htagraph.lookup.attribution import innermost
from htagraph.model.arrays import I64, Rows, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.step_markers import without_step_number
from htagraph.model.symbols import alphabetical

_MODULE = re.compile(r"^nn\.Module: ")
"""Names of the Python frames that stand for modules."""


def names_or_empty(dag: Dag, events: I64) -> Texts:
    """Name of each event, ``""`` for -1."""
    out = np.full(len(events), "", dtype=object)
    known = events >= 0
    out[known] = dag.events.names(events[known])
    return out


def spelling(dag: Dag) -> I64:
    """Place of each symbol in alphabetical order: sorts names independently of the file's order."""
    return alphabetical(dag.events.symbols.texts)[1]


def op_names(dag: Dag, events: I64) -> Texts:
    """Innermost operator or annotation that each event ran in, or was launched from.

    ``""`` for none. Replayed work ran in the operator of its capture, if that was added.
    """
    dag = dag.unrolled
    return names_or_empty(dag, innermost(dag, events, (EventKind.OP, EventKind.ANNOTATION)))


def gap_places(dag: Dag, tail: Rows, head: Rows) -> Texts:
    """Place of untraced code between two nodes of a thread: ``after aten::mm``, else ``before …``.

    ``""`` if the tail is no end, and the head no start. Findings, opportunities, comparisons and
    the page name code so; a step is one neighbour, whatever its number.
    """
    ended, begins = tail & 1 == 1, head & 1 == 0
    code, place = np.unique(dag.events.name[np.where(ended, tail, head) >> 1], return_inverse=True)
    texts = dag.events.symbols.array[code].tolist()
    names = np.array([*map(without_step_number, texts), ""], dtype=object)[place]
    places: Texts = np.where(ended, "after " + names, np.where(begins, "before " + names, ""))
    return places


def frames_at(dag: Dag, lane: Rows, ts_ns: I64, pattern: re.Pattern[str] | None = None) -> I64:
    """Innermost Python frame of a thread at a time, of those that match; -1 for none."""
    events = dag.events
    wanted = events.kind == EventKind.PYTHON
    if pattern is not None:
        wanted &= events.named(events.symbols.searched(pattern))
    return innermost_at(dag, np.flatnonzero(wanted), lane, ts_ns)[0]


def modules_at(dag: Dag, host: I64) -> I64:
    """Frame of the innermost module in which each host event began, -1 for none."""
    lane = gather(dag.events.lane.astype(np.int64), host)
    return frames_at(dag, lane, gather(dag.events.ts_ns, host, 0), _MODULE)


def innermost_at(dag: Dag, ranges: I64, lane: Rows, ts_ns: I64) -> tuple[I64, I64]:
    """Innermost of some ranges on a lane at a time, -1 for none, and the parent of each event.

    The parent is the range that encloses a range, -1 for none and for all other events.
    """
    events = dag.events
    parent = np.full(len(events), -1, dtype=np.int64)
    if not len(ranges):
        return np.full(len(lane), -1, dtype=np.int64), parent
    found = nest(events.lane[ranges], events.ts_ns[ranges], events.end_ns[ranges])
    parent[ranges] = gather(ranges, found.parent)
    owner = ranges[found.boundary >> 1]
    time = events.node_ts_ns[2 * owner + (found.boundary & 1)]
    # Right after the time: a range that begins there counts, one that ends there does not.
    position = last_before(events.lane[owner].astype(np.int64), time, lane, ts_ns + 1)
    return gather(ranges, gather(found.innermost, position)), parent
