"""What a rank did for a pipeline: forward and backward of each micro-batch, and where it waited.

Schedules of `torch.distributed.pipelining` annotate actions (``PP:1F0``: stage 1, forward of
micro-batch 0), or micro-batches (``Forward 0``), or nothing. Then sends and receives separate the
actions: between two of them, operators whose gradients are computed later are a forward, the
autograd engine is a backward, and micro-batches have their order.

A rank waits from where its thread blocks, not from where a receive was posted. The range of a
host's send or receive ends when its wait returned, and overlaps what the thread does until then::

    thread   [recv_][compute             ]        [next]
    range        [gloo:recv                      ]
    waited                                ^^^^^^^^
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.arrays.ancestors import highest
from htagraph.arrays.codes import gather
from htagraph.arrays.intervals import Cover, union
from htagraph.arrays.pipelines import PHASES
from htagraph.lookup.collectives import host_ranges
from htagraph.lookup.steps import find_steps, step_at
from htagraph.model.arrays import I64
from htagraph.model.collective_names import HOST_CALL, POINT_TO_POINT, operation_of
from htagraph.model.dag import Dag
from htagraph.model.events import EventTable
from htagraph.model.kinds import EventKind
from htagraph.run.graph import TraceGraph

_ACTION = re.compile(r"^PP:(\d{1,6})([FBIW])(\d{1,6})$")
_MICRO_BATCH = re.compile(r"^(Forward|Backward) (\d{1,6})$")
_CALL = re.compile(r"^c10d::(send|recv|recv_any_source)_?$")
_SEND = re.compile(r"^c10d::send$")
_AUTOGRAD = re.compile(r"^autograd::engine::evaluate_function")

_A_CALL_NS = 50_000
"""Below this, the shortest wait of a rank is what the call takes by itself. Chosen:
test_pipeline."""

_MESSAGE = re.compile(r"^PP:(\d{1,6})(SEND|RECV)_([FB])(\d{1,6})$")

_KINDS = [EventKind.OP, EventKind.ANNOTATION]


class RankActions(NamedTuple):
    """The actions of one rank, and where it was blocked in sends and receives."""

    # Columns ``stage`` (-1 where not recorded), ``phase`` (a position in `PHASES`),
    # ``micro_batch``, ``step``, ``begin_ns``, ``end_ns``, ``waited_ns``, ``python_ns``; by time
    actions: pd.DataFrame
    steps: pd.DataFrame  # Columns ``step``, ``name``, ``start_ns``, ``end_ns``
    waits: I64  # Of shape (n, 2). In ns. Begin and end of each wait.
    # Sends and receives: columns ``event`` (as in `answers.COLLECTIVES`), ``sends``, and ``stage``,
    # ``phase``, ``micro_batch``, ``step`` of the action of this rank whose result is sent, or that
    # needs what is received
    messages: pd.DataFrame
    # The ranks of the stage before and of the stage after, -1 for none, where they are recorded
    neighbors: tuple[int, int] | None = None

    def since(self, step: int) -> RankActions:
        """The same from one of the steps on."""
        actions, messages = (
            table[table["step"] >= step].reset_index(drop=True)
            for table in (self.actions, self.messages)
        )
        return self._replace(actions=actions, messages=messages)


def _point_to_point(events: EventTable, ranges: I64) -> I64:
    """Host ranges of sends and receives, by their ends."""
    codes, place = np.unique(events.name[ranges], return_inverse=True)
    names = [operation_of(events.symbols.texts[code]) in POINT_TO_POINT for code in codes.tolist()]
    found = ranges[np.array(names, dtype=bool)[place]] if len(ranges) else ranges
    return found[np.argsort(events.end_ns[found], kind="stable")]


def _waits(events: EventTable, lane: int, ranges: I64) -> I64:
    """Where the thread was blocked until each range ended: it recorded nothing meanwhile."""
    own = np.flatnonzero((events.lane == lane) & np.isin(events.kind, _KINDS))
    own = np.setdiff1d(own, ranges)
    times = np.sort(np.concatenate([events.ts_ns[own], events.end_ns[own]]))
    end = events.end_ns[ranges]
    last = np.searchsorted(times, end, side="right") - 1
    begin = np.maximum(gather(times, last, 0), events.ts_ns[ranges])
    # The call itself takes a while, also if there is nothing to wait for.
    dur = np.maximum(end - begin, 0)
    for name in np.unique(events.name[ranges]).tolist():
        own = events.name[ranges] == name
        least = int(dur[own].min())
        dur[own] -= least if least < _A_CALL_NS else 0
    begin = end - dur
    both = union(np.zeros(len(ranges), dtype=np.int64), np.minimum(begin, end), end)
    return np.column_stack([both.start, both.end])


class _Found(NamedTuple):
    """Actions as they are found: stage and micro-batch are -1 where not recorded."""

    stage: I64
    phase: I64
    micro_batch: I64
    begin: I64
    end: I64


def _annotated(events: EventTable) -> _Found:
    """Actions that annotations name."""
    rows = np.flatnonzero(events.kind == EventKind.ANNOTATION)
    codes, place = np.unique(events.name[rows], return_inverse=True)
    named = np.full((len(codes), 3), -1, dtype=np.int64)
    for at, code in enumerate(codes.tolist()):
        text = events.symbols.texts[code]
        if found := _ACTION.match(text):
            named[at] = int(found[1]), PHASES.index(found[2]), int(found[3])
        elif found := _MICRO_BATCH.match(text):
            named[at] = -1, PHASES.index(found[1][0]), int(found[2])
    named = named[place] if len(rows) else np.empty((0, 3), dtype=np.int64)
    if (named[:, 0] >= 0).any():
        named[named[:, 0] < 0] = -1, -1, -1
    is_action = named[:, 2] >= 0
    rows, named = rows[is_action], named[is_action]
    stage, phase, number = named.T
    return _Found(stage, phase, number, events.ts_ns[rows], events.end_ns[rows])


def _without_waits(found: _Found, waits: I64, calls: I64) -> _Found:
    """Annotated actions from the end of the wait for their input to their first send."""
    begin, end = found.begin.copy(), found.end.copy()
    if len(waits):
        last = np.searchsorted(waits[:, 1], end, side="right") - 1
        until = gather(waits[:, 1], last, 0)
        begin = np.maximum(begin, until)
    if len(calls):
        following = np.append(np.sort(calls), np.iinfo(np.int64).max)
        end = np.minimum(end, following[np.searchsorted(following, begin)])
    return found._replace(begin=begin, end=end)


def phases_of_operators(dag: Dag, lane: int) -> tuple[I64, I64]:
    """Outermost operators of a thread whose gradients are computed later, and of the engine."""
    events = dag.events
    # Ranges of sends and receives begin in the call, and end long after it.
    is_op = (events.kind == EventKind.OP) & ~events.named(events.symbols.searched(_CALL))
    ops = np.flatnonzero(is_op)
    outer = highest(dag.parent, ops, is_op)
    is_engine = events.named(events.symbols.searched(_AUTOGRAD))[outer]
    sequence = events.column("sequence")[ops]
    answered = np.unique(sequence[is_engine & (sequence >= 0)])
    own = np.flatnonzero((events.lane[ops] == lane) & ~is_engine & np.isin(sequence, answered))
    # An operator that makes no gradient shows the number that the next one to do so takes.
    own = own[np.lexsort((events.ts_ns[ops[own]], sequence[own]))]
    own = own[np.append(np.diff(sequence[own]) > 0, True)[: len(own)]]
    return np.unique(outer[own]), np.unique(outer[is_engine])


def _inferred(dag: Dag, lane: int, cuts: I64) -> _Found:
    """Actions by what runs between sends and receives (`cuts`: begin and end of each, by time)."""
    events = dag.events
    forward, backward = phases_of_operators(dag, lane)
    anchors = np.concatenate([forward, backward])
    phase = np.repeat([0, 1], [len(forward), len(backward)])
    order = np.lexsort((-events.end_ns[anchors], events.ts_ns[anchors]))
    anchors, phase = anchors[order], phase[order]
    start, end = events.ts_ns[anchors], events.end_ns[anchors]
    block = np.searchsorted(cuts[:, 1], start, side="right")
    first = np.flatnonzero(np.r_[True, (np.diff(block) != 0) | (np.diff(phase) != 0)])
    if not len(anchors):
        first = np.empty(0, dtype=np.int64)
    begin, until = start[first], np.maximum.reduceat(end, first) if len(first) else end
    of, n_cuts = block[first], len(cuts)
    begins_block = np.r_[True, np.diff(of) != 0][: len(of)] & (of > 0)
    ends_block = np.r_[np.diff(of) != 0, True][-len(of) :] & (of < n_cuts) if len(of) else of > 0
    begin = np.where(begins_block, gather(cuts[:, 1], of - 1, 0), begin)
    until = np.where(ends_block, gather(cuts[:, 0], np.minimum(of, n_cuts - 1), 0), until)
    none = np.full(len(first), -1, dtype=np.int64)
    return _Found(none, phase[first].astype(np.int64), none, begin, until)


def _named_messages(events: EventTable, lane: int, at_ns: I64) -> I64:
    """Stage, phase and micro-batch that the annotation at each time names, -1 for none."""
    rows = np.flatnonzero((events.kind == EventKind.ANNOTATION) & (events.lane == lane))
    rows = rows[events.named(events.symbols.searched(_MESSAGE))[rows]]
    rows = rows[np.argsort(events.ts_ns[rows], kind="stable")]
    named = [
        (int(found[1]), PHASES.index(found[3]), int(found[4]))
        for text in events.names(rows).tolist()
        if (found := _MESSAGE.match(text))
    ]
    last = np.searchsorted(events.ts_ns[rows], at_ns, side="right") - 1
    inside = (last >= 0) & (gather(events.end_ns[rows], last, 0) >= at_ns)
    table = np.array(named, dtype=np.int64).reshape(-1, 3)
    return np.where(inside[:, None], table[np.maximum(last, 0)] if len(table) else -1, -1)


def _messages(dag: Dag, lane: int, ranges: I64, actions: pd.DataFrame, steps: I64) -> pd.DataFrame:
    """The sends and receives of a rank, each with the action that it is of.

    What is sent is the result of the last action before the call; what is received is needed by the
    next action after the wait.
    """
    events = dag.events
    sends = np.array([operation_of(str(text)) == "send" for text in events.names(ranges)], bool)
    above = dag.parent[ranges].astype(np.int64)
    by_call = (above >= 0) & gather(
        events.named(events.symbols.searched(HOST_CALL)), above, default=False
    )
    event = np.where(by_call, above, ranges)
    called = gather(events.named(events.symbols.searched(_CALL)), above, default=False)
    at_ns = events.ts_ns[np.where(called, above, ranges)]
    named = _named_messages(events, lane, at_ns)
    begin = actions["begin_ns"].to_numpy(np.int64)
    last = np.searchsorted(begin, at_ns, side="right") - 1
    # A wait ends shortly before or after what is taken for the begin of its action.
    until = actions["end_ns"].to_numpy(np.int64)
    following = np.searchsorted(until, events.end_ns[ranges], side="right")
    of = np.where(sends, last, np.where(following < len(begin), following, -1))
    keys = ["stage", "phase", "micro_batch"]
    by_order = np.column_stack([gather(actions[key].to_numpy(np.int64), of) for key in keys])
    found = np.where((named >= 0).any(), named, by_order)
    step = np.searchsorted(steps, at_ns, side="right") - 1
    same_step = gather(actions["step"].to_numpy(np.int64), of) == step
    kept = (found[:, 2] >= 0) & ((named >= 0).any() | same_step)
    table = pd.DataFrame(found, columns=keys).assign(event=event, sends=sends, step=step)
    return pd.DataFrame(table[kept]).reset_index(drop=True)


def _operators(events: EventTable, ranges: I64) -> Cover:
    """When an operator ran on any thread, other than sends and receives."""
    is_op = (events.kind == EventKind.OP) & ~events.named(events.symbols.searched(_CALL))
    is_op[ranges] = False
    rows = np.flatnonzero(is_op)
    both = union(np.zeros(len(rows), dtype=np.int64), events.ts_ns[rows], events.end_ns[rows])
    return Cover(both.start, both.end)


def numbered(phase: I64, step: I64) -> I64:
    """The micro-batch of each action: by its place among those of its phase in the step."""
    keys = pd.DataFrame({"step": step, "phase": phase})
    return np.asarray(keys.groupby(["step", "phase"]).cumcount(), dtype=np.int64)


def step_table(steps: pd.DataFrame, start_ns: I64, end_ns: I64) -> pd.DataFrame:
    """`RankActions.steps` of the steps of a trace, `frames.STEPS`, with these bounds."""
    names = steps["name"].to_numpy()
    number = np.arange(len(steps))
    return pd.DataFrame({"step": number, "name": names, "start_ns": start_ns, "end_ns": end_ns})


def rank_actions(graph: TraceGraph) -> RankActions | None:
    """The actions of a rank in its steps; None if it sends and receives nothing as a pipeline."""
    events = graph.dag.events
    on_host = host_ranges(graph.dag)
    ranges, steps = _point_to_point(events, on_host), find_steps(events)
    if not len(ranges) or not len(steps):
        return None
    annotated = _annotated(events)
    lanes, n = np.unique(events.lane[ranges], return_counts=True)
    lane = int(lanes[n.argmax()])
    ranges = ranges[events.lane[ranges] == lane]
    waits = _waits(events, lane, ranges)
    called = events.named(events.symbols.searched(_CALL)) & (events.lane == lane)
    calls = np.flatnonzero(called)
    if len(annotated.begin):
        sends = events.named(events.symbols.searched(_SEND))[calls]
        found = _without_waits(annotated, waits, events.ts_ns[calls[sends]])
    else:
        begin = np.concatenate([waits[:, 0], events.ts_ns[calls]])
        end = np.concatenate([waits[:, 1], events.end_ns[calls]])
        cuts = union(np.zeros(len(begin), dtype=np.int64), begin, end)
        found = _inferred(graph.dag, lane, np.column_stack([cuts.start, cuts.end]))
    order = np.lexsort((found.end, found.begin))
    found = _Found(*(column[order] for column in found))
    found = found._replace(end=np.minimum(found.end, np.append(found.begin[1:], found.end[-1:])))
    step = step_at(steps, found.begin)
    inside = (step >= 0) & (found.end > found.begin)
    found, step = _Found(*(column[inside] for column in found)), step[inside]
    if not len(step):
        return None
    cover, operators = Cover(waits[:, 0], waits[:, 1]), _operators(events, on_host)
    free = np.append(steps["start_ns"].to_numpy(np.int64)[step[0]], found.end[:-1])
    free = np.maximum(free, steps["start_ns"].to_numpy(np.int64)[step])
    is_numbered = bool((found.micro_batch >= 0).all())
    actions = pd.DataFrame(
        {
            "stage": found.stage,
            "phase": found.phase,
            "micro_batch": found.micro_batch if is_numbered else numbered(found.phase, step),
            "step": step,
            "begin_ns": found.begin,
            "end_ns": found.end,
            "waited_ns": cover.within(np.minimum(free, found.begin), found.begin),
            "python_ns": found.end - found.begin - operators.within(found.begin, found.end),
        }
    )
    start_ns = steps["start_ns"].to_numpy(np.int64)
    kept = step_table(steps, start_ns, start_ns + steps["dur_ns"].to_numpy(np.int64))
    return RankActions(actions, kept, waits, _messages(graph.dag, lane, ranges, actions, start_ns))
