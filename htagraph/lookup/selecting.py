"""Events of a kind, with a name, in a window, under others, or for which a condition holds."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from htagraph.algorithms.ancestors import nearest
from htagraph.errors import QueryError, one_of
from htagraph.lookup.conditions import rows_where
from htagraph.model.arrays import I64, Bools
from htagraph.model.captured import CAPTURED_LAUNCH
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind, KernelClass
from htagraph.model.symbols import Names
from htagraph.model.window import Window

Kinds = str | EventKind | Iterable[str | EventKind]


KIND_GROUPS = ("launch", "collective", "device", "host")
"""Kinds beyond `EventKind`: calls that launched device work, communication kernels, all events of
the device, all of the host."""


def events_in(dag: Dag, window: Window) -> I64:
    """Events that overlap a window, ascending; all of them for the whole trace."""
    events = dag.events
    if window == dag.span:
        return np.arange(len(events), dtype=np.int64)
    inside = (events.ts_ns < window.end_ns) & (events.end_ns > window.start_ns)
    inside |= (
        (events.dur_ns == 0) & (events.ts_ns >= window.start_ns) & (events.ts_ns < window.end_ns)
    )
    return np.flatnonzero(inside)


def _group_mask(dag: Dag, group: str) -> Bools:
    """Whether each event is of one of `KIND_GROUPS`."""
    if group == "launch":
        launches: Bools = np.zeros(len(dag.events), dtype=bool)
        launches[dag.launch[dag.launch >= 0]] = True
        return launches
    if group == "collective":
        communicates: Bools = dag.classification.kernel_class == KernelClass.COMMUNICATION
        communicates &= dag.events.kind == EventKind.KERNEL
        return communicates
    return dag.events.is_device if group == "device" else dag.events.is_host


def kind_mask(dag: Dag, kinds: Kinds) -> Bools:
    """Whether each event is of some kinds: of `EventKind` or its labels, or of `KIND_GROUPS`."""
    mask = np.zeros(len(dag.events), dtype=bool)
    for kind in [kinds] if isinstance(kinds, str | EventKind) else kinds:
        if isinstance(kind, EventKind):
            mask |= dag.events.kind == kind
        elif kind.lower() in KIND_GROUPS:
            mask |= _group_mask(dag, kind.lower())
        elif kind.lower() in EventKind.labels():
            mask |= dag.events.kind == EventKind.parse(kind)
        else:
            raise QueryError(
                f"there is no event kind {kind!r}.",
                hint=one_of(kind, (*EventKind.labels(), *KIND_GROUPS)),
            )
    return mask


def name_mask(dag: Dag, name: Names) -> Bools:
    """Whether the name of each event matches a glob or regex (see `compile_pattern`)."""
    return dag.events.named(dag.events.symbols.named(name))


def tree_parent(dag: Dag) -> I64:
    """Event above each in the call tree, which encloses or launched it; -1 at the top."""
    return np.where(dag.events.is_device, dag.launch, dag.parent).astype(np.int64)


def under_mask(dag: Dag, tops: Bools) -> Bools:
    """Whether each event is below some events in the call tree."""
    parent = tree_parent(dag)
    return nearest(parent, parent, tops) >= 0


def named_under(dag: Dag, name: Names) -> Bools:
    """Whether each event is below those of a name, or was captured there."""
    return under_mask(dag, name_mask(dag, name)) | replayed_in(dag, name)


def replayed_in(dag: Dag, name: Names) -> Bools:
    """Whether each event is work of a replayed graph that an operator of this name captured."""
    calls, found = dag.unrolled, np.zeros(len(dag.events), dtype=bool)
    if calls is not dag:
        rows = dag.events.columns[CAPTURED_LAUNCH].event
        is_top = name_mask(calls, name) & (np.arange(len(calls.events)) >= len(found))
        found[rows] = nearest(calls.parent, calls.launch[rows].astype(np.int64), is_top) >= 0
    return found


def where_rows(dag: Dag, rows: I64, where: str) -> I64:
    """Events for which a condition on the columns of `frames.EVENTS` holds; see `rows_where`."""
    return rows_where(dag.events.frame(rows), where)["event"].to_numpy(np.int64)
