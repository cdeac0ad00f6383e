"""FLOW, recorded: arrows in the file.

Arrows of a trace (``ph`` s, t, f) lead from slice to slice; any program may write them. A tensor
dependency leads from the operator that wrote a tensor to one on another thread that reads it. Edges
go from the end of one to the start of the other. Where the first still ran, they leave from its
last boundary before the arrow; where the second had begun before, they lead to its next one.

::

    thread 1   [post   ]
                      |-----.
    thread 2   [read]       '->[task  ]        a gap in which the arrow begins is a wait
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import group_starts, last_before
from htagraph.compiler.structure import Structure, end_node, start_node
from htagraph.model.arrays import I64
from htagraph.model.categories import FORWARD_BACKWARD, TENSOR_DEPENDENCY
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import among
from htagraph.model.rules import Rule

_START, _STEP, _NEXT_SLICE = 0, 1, 3


class _Arrows(NamedTuple):
    """Pairs of flow points, as rows of the flow table."""

    tail: I64
    head: I64


def slices_around(structure: Structure, points: I64) -> I64:
    """Host event that each flow point is on: as recorded, else what encloses it; or -1."""
    flows = structure.events.flows
    between = structure.boundaries
    around = gather(between.inside, between.last(flows.lane[points], flows.ts_ns[points]))
    return np.where(flows.event[points] >= 0, flows.event[points], around)


def _arrows(structure: Structure) -> _Arrows:
    """Each step or finish with the last start or step of its id before it."""
    flows = structure.events.flows
    rows = np.flatnonzero(flows.category != structure.events.symbols.code(FORWARD_BACKWARD))
    sends_last = np.where(flows.phase[rows] == _START, 0, flows.phase[rows])
    keys = (sends_last, flows.ts_ns[rows], flows.id[rows], flows.category[rows])
    rows = rows[np.lexsort(keys)]
    starts = group_starts(flows.category[rows], flows.id[rows])
    position = np.arange(len(rows))
    group = np.maximum.accumulate(np.where(starts, position, 0))
    sends = among(flows.phase[rows], (_START, _STEP))
    sent = np.maximum.accumulate(np.where(sends, position, -1))
    source = np.where(starts, -1, np.roll(sent, 1))
    heads = np.flatnonzero((flows.phase[rows] != _START) & (source >= group))
    return _Arrows(rows[source[heads]], rows[heads])


def _slices(structure: Structure, points: I64) -> I64:
    """The slice that each flow point is on, or leads to; -1 for none."""
    events, flows, host = structure.events, structure.events.flows, structure.host
    order = host[np.lexsort((-events.dur_ns[host], events.ts_ns[host], events.lane[host]))]
    lanes, lane = events.lane[order], flows.lane[points]
    before = last_before(
        lanes.astype(np.int64), events.ts_ns[order], lane.astype(np.int64), flows.ts_ns[points]
    )
    after = np.where(before < 0, np.searchsorted(lanes, lane), before + 1)
    after[after >= len(order)] = -1
    after[gather(lanes, after) != lane] = -1
    leads_on = (flows.phase[points] == _NEXT_SLICE) & (flows.event[points] < 0)
    return np.where(leads_on, gather(order, after), slices_around(structure, points))


def _nodes(structure: Structure, arrows: _Arrows, tail: I64, head: I64) -> tuple[I64, I64]:
    """The nodes that arrows between two slices join."""
    events, flows, times = structure.events, structure.events.flows, structure.events.node_ts_ns
    between, start_ns = structure.boundaries, events.ts_ns[head]
    is_named = flows.event[arrows.tail] >= 0
    sent_ns = np.where(is_named, events.ts_ns[tail], flows.ts_ns[arrows.tail])
    is_running = (start_ns < sent_ns) & (flows.event[arrows.head] < 0)
    come_ns = np.where(is_running, flows.ts_ns[arrows.head], start_ns)
    sent = gather(between.node, between.last(events.lane[tail], sent_ns))
    source = np.where(is_named, start_node(tail), sent)
    source = np.where(events.end_ns[tail] <= come_ns, end_node(tail), source)
    until = np.maximum(come_ns, times[source])
    following = np.minimum(between.last(events.lane[head], until - 1) + 1, len(between) - 1)
    return source, np.where(is_running, between.node[following], start_node(head))


def recorded_flow_edges(structure: Structure) -> EdgeTable:
    """Edges for the arrows of the file, except from forward to backward operators."""
    flows = structure.events.flows
    if not len(structure.host):
        return EdgeTable()
    arrows = _arrows(structure)
    if not len(arrows.tail):
        return EdgeTable()
    tail, head = _slices(structure, arrows.tail), _slices(structure, arrows.head)
    is_host = structure.events.is_host
    found = np.flatnonzero((tail >= 0) & (head >= 0) & (tail != head))
    found = found[is_host[tail[found]] & is_host[head[found]]]
    arrows = _Arrows(arrows.tail[found], arrows.head[found])
    source, target = _nodes(structure, arrows, tail[found], head[found])
    of_tensors = flows.category[arrows.head] == structure.events.symbols.code(TENSOR_DEPENDENCY)
    rule = np.where(of_tensors, Rule.TENSOR_DEPENDENCY, Rule.RECORDED_FLOW).astype(np.int8)
    return EdgeTable.of(rule, source, target, event=head[found])
