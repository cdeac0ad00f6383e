"""Groups of events to change, defined for any trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from htagraph.explain.topics import about
from htagraph.lookup.attribution import around
from htagraph.lookup.host_waits import READS
from htagraph.lookup.naming import op_names
from htagraph.lookup.selecting import under_mask
from htagraph.model.api_calls import ALLOCATION
from htagraph.model.arrays import Bools
from htagraph.model.dag import Dag
from htagraph.model.kinds import Cause, EdgeKind, EventKind, KernelClass
from htagraph.model.rules import Rule


@dataclass(frozen=True)
class EventGroup:
    """A named group of events, found in any graph as a mask over its events."""

    name: str
    find: Callable[[Dag], Bools]

    def __repr__(self) -> str:
        """Name them."""
        return self.name


def of_class(member: KernelClass) -> EventGroup:
    """Device work of a class."""
    names = {KernelClass.COMPUTE: "computation", KernelClass.MEMORY: "copies"}

    def find(dag: Dag) -> Bools:
        return np.equal(dag.classification.kernel_class, member)

    return EventGroup(names.get(member, member.label), find)


def of_topic(topic: Cause) -> EventGroup:
    """Host ranges and Python frames named like a topic."""
    return EventGroup(str(topic), lambda dag: about(dag, topic))


def _allocates(dag: Dag) -> Bools:
    found: Bools = dag.events.named(dag.events.symbols.searched(ALLOCATION))
    found &= dag.events.kind == EventKind.RUNTIME
    return found


def _waiting(dag: Dag, *, copies: bool) -> Bools:
    """Whether each host event, or the gap before it, waits for the device."""
    edges, events = dag.edges, dag.events
    waits = np.isin(edges.kind, (EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC))
    waits &= (edges.rule == Rule.SYNCHRONOUS_COPY) == copies
    found = np.zeros(len(events), dtype=bool)
    found[edges.head[waits] >> 1] = True
    on_host: Bools = found & events.is_host
    return on_host


def _reading(dag: Dag) -> Bools:
    """Whether each event is or is in an operator that reads a value from the device."""
    reads = dag.events.named(dag.events.symbols.searched(READS)) & dag.events.is_host
    found: Bools = reads | under_mask(dag, reads)
    return found


def _waits(dag: Dag) -> Bools:
    """Whether each event waits for the device, not just for its own copy."""
    calls = _waiting(dag, copies=False) | (_waiting(dag, copies=True) & _reading(dag))
    reads = _reading(dag) & around(dag, np.flatnonzero(calls)) & dag.events.is_host
    found: Bools = calls | reads
    return found


ALLOCATIONS = EventGroup("GPU memory allocation", _allocates)
"""Calls that allocate or free device memory."""
COPIES_THAT_BLOCK = EventGroup(
    "synchronous copies", lambda dag: _waiting(dag, copies=True) & ~_reading(dag)
)
"""Calls that wait for the copy they enqueue, except to read a value."""
HOST_WAITS = EventGroup("GPU synchronization", _waits)
"""All other events that wait for the device, with the operators that read a value."""


def waits_at(name: str, op: str) -> EventGroup:
    """Calls with a name, within an operator, that wait for the device."""

    def find(dag: Dag) -> Bools:
        code = dag.events.symbols.code(name)
        waits = _waiting(dag, copies=True) | _waiting(dag, copies=False)
        rows = np.flatnonzero(waits & np.equal(dag.events.name, code))
        found = np.zeros(len(dag.events), dtype=bool)
        found[rows[op_names(dag, rows) == op]] = True
        return found

    return EventGroup(f"{name} in {op}" if op not in ("", name) else name, find)
