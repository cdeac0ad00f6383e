"""Changes to device work: overlap, fusion, and operators at the roof of their device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from htagraph.arrays.codes import gather
from htagraph.arrays.retime import DROPPED, retime
from htagraph.errors import QueryError
from htagraph.lookup.operator_roofs import OperatorRoofs, operator_roofs
from htagraph.lookup.queues import queues
from htagraph.lookup.work_groups import work_of_shape
from htagraph.model.arrays import F64, I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EdgeKind, EventKind, among
from htagraph.model.rules import Rule
from htagraph.replay.assumptions import Assumption
from htagraph.replay.changes import Change, written
from htagraph.replay.draft import Draft, Events, Parts
from htagraph.replay.replay import Replay, offsets_of

_MOST_STREAMS = 32
"""Streams that chosen work is found to have waited for; of more, some share a place, for the last
work of them. A limit of time, chosen like that of `latent_waits`: test_changes draws more.
"""


def overlap(chosen: Events) -> Change:
    """Change: device work runs on a stream of its own, and nothing on the device waits for it.

    It still waits for the same work, and host calls and the end of the run still wait for it.

    Parameters
    ----------
    chosen : str, re.Pattern or Selection

    Returns
    -------
    Change
    """
    return Change(f"overlap({written(chosen)})", _overlap, (chosen,))


def _overlap(draft: Draft, chosen: Events) -> None:
    """Let what waited for the chosen work wait for what that had waited for.

    So nothing happens earlier than if the chosen work were removed.
    """
    waiting, out, tail, into, before, after = draft.once(chosen, partial(_aside, draft, chosen))
    replay, lag_ns = draft.replay, draft.lag_ns
    events, floor_ns = draft.dag.events, draft.dag.calibration.stream_floor_ns
    there = (gather(lag_ns, into, 0) != DROPPED) & (lag_ns[out] != DROPPED)
    into, out, tail = into[there], out[there], tail[there]
    ran = (replay.owner >= 0) | (replay.kind == EdgeKind.SOURCE)
    runs = gather(ran, into, default=False)  # a wait that is time of its tail, not a gap
    head = replay.node[replay.head[out]]
    inherited = EdgeTable.of(
        replay.rule[out],
        tail,
        head,
        lag_ns=np.where(runs, gather(lag_ns, into), 0)
        + np.where(replay.owner[out] >= 0, 0, draft.weight_ns[out]),
        event=np.where(runs, gather(replay.event, into), head >> 1),
    )
    gap_ns = events.ts_ns[after] - events.end_ns[before]
    in_order = EdgeTable.of(
        Rule.STREAM_ORDER,
        2 * before + 1,
        2 * after,
        lag_ns=np.clip(gap_ns, 0, floor_ns),
        event=after,
    )
    draft.drop(waiting)
    draft.add(EdgeTable.concat([inherited, in_order]))


def fuse(*chosen: Events) -> Change:
    """Change: kernels that follow each other on a stream become one.

    The parts take as long as before; the gaps between them, and all launches but the first, are
    gone. The interval covers whether the operators that only launched the others are gone, too.

    Parameters
    ----------
    *chosen : str, re.Pattern or Selection
        Names of the kernels in order; or one set of kernels, whose runs are fused.

    Returns
    -------
    Change
    """
    if not chosen:
        raise QueryError("fuse needs at least one name.", hint="fuse('add', 'mul').")
    call = f"fuse({', '.join(written(one) for one in chosen)})"
    return Change(call, _fuse, (call, chosen))


def _fuse(draft: Draft, call: str, chosen: tuple[Events, ...]) -> None:
    """Join later members to the first, and remove their launches."""
    later, launches, gaps, calls, queue = draft.once(chosen, partial(_fused, draft, call, chosen))
    draft.drop(launches)
    draft.clear(gaps)
    draft.release(2 * later)
    draft.clear(calls)
    draft.drop(queue)


def _fused(draft: Draft, call: str, chosen: tuple[Events, ...]) -> tuple[I64, ...]:
    """Members but the first of each run, and the edges that go with them.

    Those from their launches, and from the work before them; those of the host that only launched
    them; those by which these launches waited for room.
    """
    dag, replay = draft.dag, draft.replay
    in_order = replay.once("streams", partial(_streams, dag))
    later = _later_members(*in_order, *(draft.events(one) for one in chosen))
    if not later.any():
        hint = "the question kernel_patterns lists sequences that recur."
        raise QueryError(f"{call}: no such kernels follow each other.", hint=hint)
    into = draft.into(later)
    into = into[replay.node[replay.head[into]] & 1 == 0]
    calls = np.zeros(len(dag.events), dtype=bool)
    launch = dag.launch[later]
    calls[launch[launch >= 0]] = True
    if draft.assumption is not Assumption.RIGID:
        calls |= _only_launching(dag, later)
    gone = draft.nested(calls)
    waits = draft.into(gone)
    return (
        np.flatnonzero(later),
        into[replay.kind[into] == EdgeKind.LAUNCH],
        into[replay.kind[into] == EdgeKind.STREAM],
        replay.rows_owned(gone),
        waits[replay.kind[waits] == EdgeKind.QUEUE],
    )


def _aside(draft: Draft, chosen: Events) -> tuple[I64, I64, I64, I64, I64, I64]:
    """The edges of a run in which some device work runs on a stream of its own.

    ::

        stream 7   [A  ][copy    ][B  ]          [A  ][B  ]
                       '-->'  '-->'       becomes    '-->'
        stream 20                                    '-->[copy    ]

    B waited for A through the copy, and still does. Without that, B would start before what it
    needs, and moving the copy would save more than removing it.

    Returns the edges at which other device work waited for it; those at which it waited, through
    the chosen work, for more: the edge, a node, and the edge from that into the chosen work (-1 if
    nothing leads to it); and chosen work that ran on one stream, and its next.
    """
    dag, replay = draft.dag, draft.replay
    events = dag.events
    aside = draft.events(chosen) & events.is_device
    if not aside.any():
        hint = "name kernels, as the question kernel_breakdown lists them by name."
        raise QueryError(f"{written(chosen)} matches no device work.", hint=hint)
    head, tail = (replay.node[end] >> 1 for end in (replay.head, replay.tail))
    waits = events.is_device[head] & among(replay.kind, (EdgeKind.STREAM, EdgeKind.SYNC))
    out = np.flatnonzero(waits & aside[tail] & ~aside[head])
    work, same = _streams(dag)
    mine = np.flatnonzero(aside[work])
    stream = np.cumsum(~same)[mine]
    follows = np.flatnonzero(stream[1:] == stream[:-1])
    before, after = work[mine[follows]], work[mine[follows + 1]]
    in_turn = events.end_ns[before] <= events.ts_ns[after]
    awaited = _awaited_through(dag, replay, aside, out)
    return out, *awaited, before[in_turn], after[in_turn]


def _awaited_through(dag: Dag, replay: Replay, chosen: Bools, out: I64) -> tuple[I64, I64, I64]:
    """For what else the heads of edges out of chosen work waited: the last node of each stream."""
    nodes = np.flatnonzero(chosen[replay.node >> 1])
    rows = replay.rows_at(nodes)
    rows = rows[~among(replay.kind[rows], (EdgeKind.LAUNCH, EdgeKind.CONTENTION))]
    within = chosen[replay.node[replay.tail[rows]] >> 1]
    inner, outer = rows[within], rows[~within]
    roots = nodes[replay.offsets[nodes] == replay.offsets[nodes + 1]]
    tail = np.concatenate([replay.tail[outer], roots])
    order = np.argsort(tail, kind="stable")
    into = np.concatenate([outer, np.full(len(roots), -1)])[order]
    head = np.concatenate([replay.head[outer], roots])[order]
    tail = tail[order]
    # Edges from outside come first, each as a node of its own; then the chosen nodes, in order.
    place = np.full(len(replay.node), -1, dtype=np.int64)
    place[nodes] = len(into) + np.arange(len(nodes))
    heads = np.concatenate([place[head], place[replay.head[inner]]])
    tails = np.concatenate([np.arange(len(into)), place[replay.tail[inner]]])
    by_head = np.argsort(heads, kind="stable")
    offsets = offsets_of(heads, len(into) + len(nodes))
    stream = gather(queues(dag, "stream").of_event, replay.node[tail] >> 1) % _MOST_STREAMS
    found = []
    for one in np.unique(stream):
        last = np.full(len(into) + len(nodes), -1, dtype=np.int64)
        mine = np.flatnonzero(stream == one)
        last[mine] = mine
        last = retime(offsets, tails[by_head].astype(np.int32), np.zeros_like(heads), last)
        at = last[place[replay.tail[out]]]
        found.append((out[at >= 0], at[at >= 0]))
    through, at = map(np.concatenate, zip(*found, strict=True)) if found else (out[:0], out[:0])
    return through, replay.node[tail[at]], into[at]


def _streams(dag: Dag) -> tuple[I64, Bools]:
    """Device work by stream, and whether each runs on the stream of the one before."""
    events = dag.events
    work = np.flatnonzero(events.is_device)
    work = work[np.lexsort((events.ts_ns[work], events.stream[work], events.device[work]))]
    same = np.zeros(len(work), dtype=bool)
    same[1:] = (events.stream[work[1:]] == events.stream[work[:-1]]) & (
        events.device[work[1:]] == events.device[work[:-1]]
    )
    return work, same


def _later_members(work: I64, same: Bools, *members: Bools) -> Bools:
    """Members of each run of kernels but the first, which would take them in.

    Of one mask, a run is chosen work in a row on one stream; of several, work in the masks' order.
    Runs of a sequence do not overlap.
    """
    later = np.zeros_like(members[0])
    if len(members) == 1:
        chosen = members[0][work]
        chosen[1:] &= chosen[:-1] & same[1:]
        chosen[:1] = False
        later[work] = chosen
        return later
    n, length = len(work), len(members)
    if n < length:
        return later
    begins = np.ones(n - length + 1, dtype=bool)
    for place, mask in enumerate(members):
        begins &= mask[work[place : n - length + 1 + place]]
        if place:
            begins &= same[place : n - length + 1 + place]
    taken = -1
    for first in np.flatnonzero(begins).tolist():  # one step per occurrence
        if first > taken:
            later[work[first + 1 : first + length]] = True
            taken = first + length - 1
    return later


def _only_launching(dag: Dag, work: Bools) -> Bools:
    """Whether each event is an operator that launches nothing but chosen work."""
    n_all, n_chosen = (np.zeros(len(dag.events), dtype=np.int64) for _ in range(2))
    launched = np.flatnonzero(dag.launch >= 0)
    above, chosen = dag.launch[launched].astype(np.int64), work[launched]
    while len(above):
        np.add.at(n_all, above, 1)
        np.add.at(n_chosen, above[chosen], 1)
        above = dag.parent[above].astype(np.int64)
        going = above >= 0
        above, chosen = above[going], chosen[going]
    found: Bools = (n_chosen > 0) & (n_chosen == n_all) & (dag.events.kind == EventKind.OP)
    return found


_SHAPED = "["
"""What the name of an operator with its shapes has: ``aten::mm 2x bf16[64, 64]``."""


def spared_shares(dag: Dag, needed_ns: Callable[[OperatorRoofs], F64]) -> F64:
    """Share of the time of each event that its operator spares, if it takes as long as needed."""
    work = np.flatnonzero(dag.events.is_device)
    roofs = operator_roofs(dag, work, dag.events.dur_ns[work])
    out = np.zeros(len(dag.events))
    if roofs.has_peaks:
        spared = 1 - needed_ns(roofs) / np.maximum(roofs.device_ns, 1)
        out[work] = np.maximum(gather(spared, roofs.work.call, 0.0), 0.0)
    return out


def at_roof(chosen: Events | None = None, *, efficiency: float = 1.0) -> Change:
    """Change: operators take the least time that the device needs for their work.

    The roof is that of `TraceGraph.roofline`. Work without a model keeps its time.

    Parameters
    ----------
    chosen : str, re.Pattern or Selection, optional
        Kernels, or operators with all that they launch; an operator with its shapes, as
        `TraceGraph.speed_of_light` names it. Default: all.
    efficiency : float, default=1.0
        Share of the roof that is reached, above 0 and at most 1.

    Returns
    -------
    Change

    Raises
    ------
    QueryError
        If the efficiency is out of range.
    """
    if not 0 < efficiency <= 1:
        raise QueryError(f"at_roof: efficiency must be above 0 and at most 1, not {efficiency}.")
    names = [] if chosen is None else [written(chosen)]
    more = [] if efficiency == 1 else [f"efficiency={efficiency:g}"]
    call = f"at_roof({', '.join(names + more)})"
    return Change(call, _at_roof, (call, chosen, efficiency))


def _at_roof(draft: Draft, call: str, chosen: Events | None, efficiency: float) -> None:
    """Scale device work to the least time that its operators need; other work keeps its time."""
    spared = spared_shares(draft.dag, lambda roofs: roofs.roof_ns / efficiency)
    if chosen is not None:
        spared[~_work(draft, chosen)] = 0.0
    if not spared.any():
        hint = "the question roofline lists operators that have one."
        raise QueryError(f"{call}: no such work is above a known roof.", hint=hint)
    draft.scale(Parts.of(gather(spared, draft.replay.owner, 0.0)), 0.0)


def _work(draft: Draft, chosen: Events) -> Bools:
    """Whether each event is chosen: by an operator with its shapes, or as all changes do."""
    if isinstance(chosen, str) and _SHAPED in chosen:
        found = draft.once(chosen, partial(work_of_shape, draft.dag, chosen))
        if found.any():
            return found
    return draft.launched(draft.events(chosen))


def allow_tf32() -> Change:
    """Change: products of fp32 run as TF32, at the same share of its peak.

    Of matrix products or convolutions none of which runs on tensor cores yet, as the names of their
    kernels say. No faster than memory allows. Results are rounded: 10 bits of mantissa.

    Returns
    -------
    Change
    """
    return Change("allow_tf32()", _allow_tf32)


def _allow_tf32(draft: Draft) -> None:
    """Scale the device work of products that run in FP32, as TF32 is not allowed."""
    spared = spared_shares(draft.dag, lambda roofs: roofs.tf32_ns)
    if not spared.any():
        hint = "the question roofline has the limit of each operator."
        raise QueryError("allow_tf32(): no product runs in FP32 where TF32 is faster.", hint=hint)
    draft.scale(Parts.of(gather(spared, draft.replay.owner, 0.0)), 0.0)
