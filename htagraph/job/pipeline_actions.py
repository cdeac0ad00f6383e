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

On a device, sends and receives are kernels on a stream of their own. The compute stream waits for a
receive, and a send waits for the compute stream, so recorded waits cut the kernels of the operators
into actions whatever the host does meanwhile::

    receives  [recv F0   ]      [recv B0      ]
    compute               [F0  ]               [B0  ]
    sends                       [F0]                 [B0]

Such an action receives from the stage before and sends to the stage after, or the other way round
if it is a backward; the first stage receives nothing forward, the last one sends nothing. A step in
which an action does otherwise is of another schedule, and is left out.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.arrays.ancestors import highest, nearest
from htagraph.arrays.codes import gather
from htagraph.arrays.intervals import Cover, union
from htagraph.arrays.pipelines import FORWARD, GRADIENT, PHASES
from htagraph.lookup.collectives import host_ranges
from htagraph.lookup.steps import find_steps, step_at
from htagraph.model.arrays import I64, Bools
from htagraph.model.collective_names import HOST_CALL, POINT_TO_POINT, operation_of
from htagraph.model.dag import Dag
from htagraph.model.events import EventTable
from htagraph.model.kinds import EdgeKind, EventKind, KernelClass
from htagraph.queries.communication import HOST_RANGE
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
    is_op = (events.kind == EventKind.OP) & ~events.searched(_CALL)
    ops = np.flatnonzero(is_op)
    outer = highest(dag.parent, ops, is_op)
    is_engine = events.searched(_AUTOGRAD)[outer]
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
    rows = rows[events.searched(_MESSAGE)[rows]]
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
    by_call = (above >= 0) & gather(events.searched(HOST_CALL), above, default=False)
    event = np.where(by_call, above, ranges)
    called = gather(events.searched(_CALL), above, default=False)
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
    is_op = (events.kind == EventKind.OP) & ~events.searched(_CALL)
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
    called = events.searched(_CALL) & (events.lane == lane)
    calls = np.flatnonzero(called)
    if len(annotated.begin):
        sends = events.searched(_SEND)[calls]
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


_HOST_SHARE = 0.1
"""Share of its actions that the device may wait for launches, for a step to be clear. Beyond,
actions last as the host launches them, and a stage that waits for its input first seems faster than
one that need not. Chosen, as is what stages differ by that are called slow. Pinned by
test_pipeline_kernels."""


def _computed(dag: Dag, lane: int) -> tuple[I64, I64, I64]:
    """The compute stream: all its work, its kernels of forward and backward operators, and phases.

    It is the stream with most time in such kernels; both are in order.
    """
    events = dag.events
    forward, backward = phases_of_operators(dag, lane)
    phase = np.full(len(events), -1, dtype=np.int64)
    phase[forward], phase[backward] = FORWARD, GRADIENT
    is_compute = events.is_device & (dag.classification.kernel_class != KernelClass.COMMUNICATION)
    work = np.flatnonzero(is_compute)
    anchor = nearest(dag.parent, dag.launch[work].astype(np.int64), phase >= 0)
    of = np.where(events.kind[work] == EventKind.KERNEL, gather(phase, anchor), -1)
    if not (of >= 0).any():
        return work[:0], work[:0], of[:0]
    pairs = np.column_stack([events.device[work], events.stream[work]])
    queue = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
    main = np.bincount(queue, np.where(of >= 0, events.dur_ns[work], 0)).argmax()
    work, of = work[queue == main], of[queue == main]
    order = np.lexsort((events.end_ns[work], events.ts_ns[work]))
    work, of = work[order], of[order]
    return work, work[of >= 0], of[of >= 0]


def _waits_between(dag: Dag, first: I64, second: I64) -> tuple[I64, I64]:
    """Pairs of device work of which the second waits for the first, on another stream."""
    edges = dag.edges
    tail, head = edges.tail >> 1, edges.head >> 1
    rows = np.flatnonzero((edges.kind == EdgeKind.SYNC) & np.isin(tail, first))
    rows = rows[np.isin(head[rows], second)]
    return tail[rows].astype(np.int64), head[rows].astype(np.int64)


def _sent_after(dag: Dag, work: I64, sends: I64, others: I64) -> tuple[I64, I64]:
    """Pairs of computed work and a send that waits for it, or for a collective that does."""
    done, sent = _waits_between(dag, work, sends)
    met, by = _waits_between(dag, others, sends)
    before, meets = _waits_between(dag, work, others)
    both = pd.DataFrame({"met": met, "sent": by}).merge(
        pd.DataFrame({"met": meets, "done": before}), on="met"
    )
    return np.append(done, both["done"]), np.append(sent, both["sent"])


def _is_late(dag: Dag, work: I64) -> Bools:
    """Whether work was launched too late to begin with what was before it."""
    launched: Bools = gather(dag.edges.kind, dag.binding[2 * work], -1) == EdgeKind.LAUNCH
    return launched


def _waited_for_host(dag: Dag, work: I64, first: I64, last: I64) -> I64:
    """How long the stream had nothing to run inside each action, as it was not launched yet."""
    start = dag.events.ts_ns[work]
    free = np.append(start[:1], np.maximum.accumulate(dag.events.end_ns[work])[:-1])
    waited = np.where(_is_late(dag, work), np.maximum(start - free, 0), 0)
    until = np.append(0, np.cumsum(waited))
    begun, done = (np.searchsorted(start, dag.events.ts_ns[one], "right") for one in (first, last))
    out: I64 = until[done] - until[begun]
    return out


def _device_messages(
    dag: Dag, table: pd.DataFrame, others: I64, work: I64, kernels: I64
) -> pd.DataFrame:
    """Which kernel needs what a receive brings, and after which one a send begins.

    Columns ``event``, ``peer``, ``sends`` and ``place`` (a position in `kernels`). `others` are the
    other collectives.
    """
    begun = dag.events.ts_ns[kernels]
    event, sends = table["event"].to_numpy(np.int64), (table["operation"] == "send").to_numpy()
    received, needing = _waits_between(dag, event[~sends], work)
    done, sent = _sent_after(dag, work, event[sends], others)
    needing = np.searchsorted(begun, dag.events.ts_ns[needing])
    done = np.searchsorted(begun, dag.events.ts_ns[done], side="right") - 1
    last = pd.Series(done, dtype=np.int64).groupby(sent).max()
    first = pd.Series(needing, dtype=np.int64).groupby(received).min()
    place = pd.concat([first, last]).rename("place")
    found = table[["event", "peer"]].assign(sends=sends).join(place, on="event", how="inner")
    inside = (found["place"] >= 0) & (found["place"] < len(kernels))
    return pd.DataFrame(found[inside])


class _Cut(NamedTuple):
    """Kernels cut into actions by messages: one entry per action, in order.

    First and last kernel, phase, the ranks that it receives from and sends to (-1 for none), and
    when its receives began and ended (0 at the end without any).
    """

    first: I64
    last: I64
    phase: I64
    gets: I64
    gives: I64
    posted: I64
    there: I64


def _cut(dag: Dag, told: pd.DataFrame, kernels: I64, phase: I64) -> _Cut | None:
    """The actions between messages; None if one passes something to several ranks."""
    gotten, given = told[~told["sends"]], told[told["sends"]]
    after = given["place"].to_numpy(np.int64) + 1
    begins = np.append(True, np.diff(phase) != 0)
    begins[gotten["place"]] = True
    begins[after[after < len(begins)]] = True
    first, of = np.flatnonzero(begins), np.cumsum(begins) - 1
    last = np.append(first[1:], len(begins)) - 1
    gets, gives = np.full((2, len(first)), -1, dtype=np.int64)
    for side, one in ((gets, gotten), (gives, given)):
        action, peer = of[one["place"]], one["peer"].to_numpy(np.int64)
        side[action] = peer
        if (side[action] != peer).any():
            return None
    posted = np.full(len(first), np.iinfo(np.int64).max)
    there = np.zeros(len(first), dtype=np.int64)
    np.minimum.at(posted, of[gotten["place"]], dag.events.ts_ns[gotten["event"]])
    np.maximum.at(there, of[gotten["place"]], dag.events.end_ns[gotten["event"]])
    return _Cut(kernels[first], kernels[last], phase[first], gets, gives, posted, there)


def _neighbors(cut: _Cut) -> tuple[int, int] | None:
    """The ranks of the stage before and after, -1 for none; None if there are several."""
    found = [
        np.unique(peers[(cut.phase == FORWARD) & (peers >= 0)]) for peers in (cut.gets, cut.gives)
    ]
    if any(len(one) > 1 for one in found):
        return None
    before, after = (int(one[0]) if len(one) else -1 for one in found)
    return None if before == after else (before, after)


def _device_waits(dag: Dag, work: I64, cut: _Cut) -> I64:
    """Where the stream waited for receives, until its next kernel began or was to be launched."""
    begin = dag.events.ts_ns[cut.first]
    busy = np.maximum.accumulate(dag.events.end_ns[work])
    free = gather(busy, np.searchsorted(dag.events.ts_ns[work], begin) - 1, 0)
    until = np.where(_is_late(dag, cut.first), np.minimum(cut.there, begin), begin)
    since = np.maximum(free, cut.posted)
    rows = np.flatnonzero((cut.there > free) & (since < until))
    both = union(np.zeros(len(rows), dtype=np.int64), since[rows], until[rows])
    return np.column_stack([both.start, both.end])


def _bounds(step: I64, start: I64, end: I64, n_steps: int) -> tuple[I64, I64]:
    """Begin and end of the work that the host launched in each step; empty without any."""
    begun = np.full(n_steps, np.iinfo(np.int64).max)
    done = np.zeros(n_steps, dtype=np.int64)
    inside = step >= 0
    np.minimum.at(begun, step[inside], start[inside])
    np.maximum.at(done, step[inside], end[inside])
    return np.minimum(begun, done), done


def device_actions(dag: Dag, collectives: pd.DataFrame) -> RankActions | None:
    """The actions of a rank whose sends and receives are kernels; None if they are not clear."""
    events, steps = dag.events, find_steps(dag.events)
    is_paired = collectives["operation"].isin(POINT_TO_POINT)
    table = collectives[is_paired & (collectives["found_by"] != HOST_RANGE)]
    if table.empty or steps.empty or (table["peer"] < 0).any():
        return None
    work, kernels, phase = _computed(dag, int(events.lane[steps["event"].iloc[0]]))
    others = collectives.loc[~is_paired, "event"].to_numpy(np.int64)
    told = _device_messages(dag, table, others, work, kernels)
    cut = None if told.empty else _cut(dag, told, kernels, phase)
    neighbors = None if cut is None else _neighbors(cut)
    if cut is None or neighbors is None:
        return None
    # The host is steps ahead of its device: an action is of the step in which it was launched.
    step = step_at(steps, gather(events.ts_ns, dag.launch[cut.first], -1))
    before, after = neighbors
    forward = cut.phase == FORWARD
    other = cut.gets != np.where(forward, before, after)
    other |= cut.gives != np.where(forward, after, before)
    dur_ns = events.end_ns[cut.last] - events.ts_ns[cut.first]
    host_ns = np.bincount(step + 1, _waited_for_host(dag, work, cut.first, cut.last))
    by_host = host_ns > _HOST_SHARE * np.bincount(step + 1, dur_ns)
    kept = np.flatnonzero((step >= 0) & ~np.isin(step, step[other]) & ~by_host[step + 1])
    if not len(kept):
        return None
    waits, own = (
        _device_waits(dag, work, cut),
        step_at(steps, gather(events.ts_ns, dag.launch[work], -1)),
    )
    begun, done = _bounds(own, events.ts_ns[work], events.end_ns[work], len(steps))
    step, begin, end = step[kept], events.ts_ns[cut.first[kept]], events.end_ns[cut.last[kept]]
    free = np.minimum(np.maximum(np.append(0, end[:-1]), begun[step]), begin)
    actions = pd.DataFrame(
        {
            "stage": np.int64(-1),
            "phase": cut.phase[kept],
            "micro_batch": numbered(cut.phase[kept], step),
            "step": step,
            "begin_ns": begin,
            "end_ns": end,
            "waited_ns": Cover(*waits.T).within(free, begin),
            "python_ns": np.int64(0),
        }
    )
    # Sends and receives have their peers: nothing has to be said of them.
    none = pd.DataFrame(
        dict.fromkeys(("event", "stage", "phase", "micro_batch", "step"), np.empty(0, np.int64))
    ).assign(sends=np.empty(0, bool))
    return RankActions(actions, step_table(steps, begun, done), waits, none, neighbors)
