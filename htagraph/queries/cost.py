"""What the window loses to a group, or would gain by a change; how late events may end.

Nearly critical chains are nearly as long as the part of the critical path next to them::

    more critical    ====A==========================B====>
    chain                [ c1 ][   c2   ][ c3 ]- - -        could be over later by its float

All nodes of a chain have the same float. The chain begins with its tail on the more critical
chain, and ends when it arrives at its head there; the time left until that head happens is float.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from htagraph.arrays.binding import bind
from htagraph.arrays.codes import gather
from htagraph.arrays.intervals import sum_by_code
from htagraph.arrays.reach import chains
from htagraph.errors import GraphError, MissingEventsError
from htagraph.explain.attributed_time import attributed
from htagraph.explain.critical_path import critical_path, path_segments
from htagraph.explain.edge_bounds import edge_bounds
from htagraph.explain.segment_pieces import Attributed
from htagraph.explain.segments import NO_EVENT_NAMES, Segments, segment_labels
from htagraph.explain.self_time import self_time
from htagraph.explain.stacks import path_stacks
from htagraph.lookup.attribution import (
    host_of,
    innermost,
    modules_at,
    names_or_empty,
    op_names,
    spelling,
    track_codes,
    track_labels,
)
from htagraph.lookup.programs import can_capture, find_loading
from htagraph.lookup.windowed import device_work, host_work
from htagraph.model.answers import COST, NEAR_CRITICAL, SLACK
from htagraph.model.arrays import I64, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import Bound, EventKind, bound_in_words
from htagraph.model.labels import name_label
from htagraph.model.rules import Rule
from htagraph.model.schema import categorical, labelled
from htagraph.model.symbols import alphabetical
from htagraph.model.units import human_count, human_duration
from htagraph.model.window import Window
from htagraph.queries.kernels import kernel_patterns
from htagraph.queries.operators import functions_in, worth_removing
from htagraph.replay.charges import Charges
from htagraph.replay.excerpt import LARGE, Excerpt, excerpt_of
from htagraph.replay.predictions import Candidate, Trials, kinds_done, of_causes, of_parts
from htagraph.replay.rehearsal import Rehearsal
from htagraph.replay.replay import Removal, Replay

_OF_EVENTS = ("name", "op", "module", "stream")


_Groups = tuple[Texts, I64, I64, I64, Removal]
"""Groups: names, number of events, their time, their time on the path, and their removal."""


def cost(
    dag: Dag,
    window: Window,
    *,
    by: Literal["name", "op", "module", "stream", "bound", "rule"] = "name",
) -> pd.DataFrame:
    """Cost of each group: how much shorter the window would be if the group took no time.

    ::

        cpu 1    |[launch >a][launch >b]        [sync @*]    without a, the wait for b ends 9 us
        stream 7 |      [a <a                       ]        earlier: a takes 29 us, its cost is 9
        stream 9 |                 [b <b   ]

    Cost (Devaux, 1999) is found by replaying the whole trace without the group: its host events
    take no own time; its kernels and copies take none, start when their stream is free, and wait
    for no launch. Work from before the profile still delays others. The start of a later window
    moves, too, so its cost may be negative. Of a bound or a rule, edges stay but take no time.
    `by`: events by name, innermost operator or annotation, or innermost ``nn.Module``; device work
    by stream; time of edges by bound or by rule. Groups with anything in the window, most cost
    first. Costs do not add up: two groups that hide each other have no cost alone.
    """
    replay = Rehearsal(dag, window).expected.replay
    of = _of_events if by in _OF_EVENTS else _of_edges
    names, n_events, time_ns, path_ns, removal = of(dag, window, replay, by)
    cost_ns = removal.costs_ns(window)
    kept = np.flatnonzero((n_events > 0) | (path_ns > 0))
    frame = COST.frame(
        {
            "group": names[kept],
            "n_events": n_events[kept],
            "time_ns": time_ns[kept],
            "path_ns": path_ns[kept],
            "cost_ns": cost_ns[kept],
            "cost_share": cost_ns[kept] / max(window.dur_ns, 1),
        }
    )
    return frame.sort_values(
        ["cost_ns", "path_ns", "time_ns", "group"],
        ascending=[False, False, False, True],
        ignore_index=True,
    )


def _of_events(dag: Dag, window: Window, replay: Replay, by: str) -> _Groups:
    """Groups of host events and device work."""
    rows, code, names = _coded(dag, by)
    n = len(names)
    group = np.full(len(dag.events), -1, dtype=np.int64)
    group[rows] = code
    host, work = host_work(dag, window), device_work(dag, window)
    own_ns = self_time(dag, window, host)
    own_ns[work.event] = work.dur_ns
    there = np.concatenate([host.event, work.event])
    there = there[group[there] >= 0]
    segments = critical_path(dag, window)
    on_path = gather(group, segments["event"].to_numpy(np.int64))
    on_path[segments["bound"] == Bound.WORK_FROM_BEFORE_THE_PROFILE.label] = -1
    path_ns = segments["dur_ns"].to_numpy(np.int64)[on_path >= 0]
    return (
        names,
        np.bincount(group[there], minlength=n),
        sum_by_code(group[there], own_ns[there], n),
        sum_by_code(on_path[on_path >= 0], path_ns, n),
        Removal.of_events(dag, replay, group, n),
    )


def _coded(dag: Dag, by: str) -> tuple[I64, I64, Texts]:
    """Events in a group, the code of each one's group, and the names of the groups."""
    events = dag.events
    if by == "stream":
        work = np.flatnonzero(events.is_device)
        codes, texts = track_codes(dag, work)
        tracks, at = np.unique(codes, return_inverse=True)
        labels, place = alphabetical(texts[tracks])
        return work, place[at], labels
    rows = np.flatnonzero(events.is_host | events.is_device)
    dag = dag.unrolled
    events = dag.events
    if by == "op":
        named = innermost(dag, rows, (EventKind.OP, EventKind.ANNOTATION))
    else:
        named = _modules(dag, rows) if by == "module" else rows
    rows, named = rows[named >= 0], named[named >= 0]
    symbols, code = np.unique(events.name[named], return_inverse=True)
    return rows, code.astype(np.int64), events.symbols.array[symbols]


def _modules(dag: Dag, rows: I64) -> I64:
    """Frame of the innermost module in which each event began or was launched, -1 for none."""
    frames = modules_at(dag, host_of(dag, rows))
    if len(rows) and not (frames >= 0).any():
        raise MissingEventsError(
            "the trace has no modules.",
            missing="python stacks",
            hint="record with_stack=True and with_modules=True; read stacks (--stacks).",
        )
    return frames


def _of_edges(dag: Dag, window: Window, replay: Replay, by: str) -> _Groups:
    """Groups of edge time by bound, or by rule."""
    edges, weight = replay.edges, replay.weight_ns
    times = dag.events.node_ts_ns
    if by == "bound":
        labels = Bound.labels()
        bound = times[edges.tail] + weight == times[edges.head]
        codes, until = edge_bounds(dag, edges)
        rest = np.clip(np.where(bound, times[edges.head] - until, 0), 0, weight)
        code = codes.astype(np.int64)
        rest[code == Bound.UNKNOWN_WAITS] = 0
        other = np.where(rest > 0, np.int64(Bound.UNKNOWN_WAITS), -1)
    else:
        labels = Rule.labels()
        code, other = edges.rule.astype(np.int64), np.full(len(edges), -1)
        rest = np.zeros(len(edges), dtype=np.int64)
    n = len(labels)
    begin, end = times[edges.tail], times[edges.tail] + weight
    parts_ns = np.concatenate(
        [_clipped_ns(begin, end - rest, window), _clipped_ns(end - rest, end, window)]
    )
    parts = np.concatenate([code, other])
    parts, parts_ns = parts[parts_ns > 0], parts_ns[parts_ns > 0]
    segments = critical_path(dag, window)
    on_path = segments[by].cat.codes.to_numpy(np.int64)
    return (
        np.array(labels, dtype=object),
        np.bincount(parts, minlength=n),
        sum_by_code(parts, parts_ns, n),
        sum_by_code(on_path, segments["dur_ns"].to_numpy(np.int64), n),
        Removal.of_edges(
            replay, np.stack([code, other], axis=1), np.stack([rest, weight - rest], axis=1), n
        ),
    )


def _clipped_ns(begin_ns: I64, end_ns: I64, window: Window) -> I64:
    """Time of ranges inside a window."""
    inside = np.minimum(end_ns, window.end_ns) - np.maximum(begin_ns, window.start_ns)
    return np.asarray(np.maximum(inside, 0), dtype=np.int64)


def slack(dag: Dag, window: Window) -> pd.DataFrame:
    """Events with their total float and free float: how much later each may end.

    ::

        cpu 1    |[launch >a][launch >b]        [sync @*]    the window ends 4 us after a
        stream 7 |      [a <a                       ]
        stream 9 |                 [b <b   ]                 b may end 13 us later

    Total and free float of the critical path method (Kelley and Walker, 1959), in the replay that
    gives expected savings (`Rehearsal.expected`). An event that ends later by ``d`` lengthens the
    window by exactly ``max(d - total_float_ns, 0)``. `window`: it ends when all work is done that
    was done by its end. Events that still run then have no row. Events that the end does not depend
    on may end as late as the window. Host events and device work that end in the window; least
    float first, then the longest.
    """
    events, replay = dag.events, Rehearsal(dag, window).expected.replay
    rows = np.flatnonzero(
        (events.is_host | events.is_device)
        & (events.end_ns > window.start_ns)
        & (events.end_ns <= window.end_ns)
    )
    ends = replay.places[2 * rows + 1]
    until_end_ns = window.end_ns - events.end_ns[rows]
    total = np.minimum(replay.float_ns(window)[ends], until_end_ns)
    free = np.minimum(replay.free_float_ns()[ends], total)
    order = np.lexsort(
        (
            events.stream[rows],
            events.device[rows],
            spelling(dag)[events.name[rows]],
            events.ts_ns[rows],
            -events.dur_ns[rows],
            total,
        )
    )
    rows, total, free = rows[order], total[order], free[order]
    return SLACK.frame(
        {
            "event": rows,
            "name": events.names(rows),
            "op": op_names(dag, rows),
            "kind": categorical(events.kind[rows], EventKind.labels()),
            "track": track_labels(dag, rows),
            "ts_ns": events.ts_ns[rows],
            "dur_ns": events.dur_ns[rows],
            "total_float_ns": total,
            "free_float_ns": free,
            "is_critical": total == 0,
        }
    )


_LONGEST = 8
"""Kernels of a sequence to fuse. Chosen: test_slack draws longer ones."""
_N_FUSIONS, _N_FUSIONS_OF_LARGE = 5, 2
"""Sequences to fuse; of a large graph fewer. A limit of time: test_slack counts them."""
_THREADS_OF_LARGE = 2
"""Each needs about 60 bytes an edge, so that two fit wherever the graph does. A limit of
memory, not of the answer."""


def opportunities(dag: Dag, window: Window) -> pd.DataFrame:
    """Changes predicted to shorten a window, with what each saves.

    The graph is replayed with each change made throughout the trace. The interval covers what the
    trace leaves open (`htagraph.replay.assumptions`). Rows do not add up. From a million edges on,
    some of the steps that do the same are replayed for all (`htagraph.replay.excerpt`). Largest
    expected saving first. Empty if steps predict each other too badly
    (`htagraph.replay.rehearsal`).
    """
    part = excerpt_of(dag, window)
    return part.scaled(trials_of(part).opportunities)


def trials_of(part: Excerpt) -> Trials[Rehearsal]:
    """Changes to a part of a graph, each replayed when it is asked for."""
    segments = path_segments(part.dag, [part.window])
    return trials_on(part.dag, part.window, segments, attributed(part.dag, segments))


def trials_on(
    dag: Dag, window: Window, segments: Segments, charged: Attributed
) -> Trials[Rehearsal]:
    """The same of a window, given its critical path."""
    rehearsal, is_large = Rehearsal(dag, window), len(dag.edges) >= LARGE

    edges = pd.DataFrame({"edge": segments.edge})

    def charges() -> Charges:
        return Charges.of(dag, rehearsal.expected.replay).with_path(edges, charged.causes())

    def causes(charges: Charges) -> Iterator[Candidate]:
        if rehearsal.hold_out.is_too_large:
            return
        yield from of_causes(edges, charged.causes(), charges)
        if is_large:
            _ = rehearsal.readings  # made once, before threads share them

    def parts() -> Iterator[Candidate]:
        if rehearsal.hold_out.is_too_large:
            return
        done = kinds_done(can_capture=can_capture(dag, window), loading=find_loading(dag))
        sequences = _sequences(dag, window, _N_FUSIONS_OF_LARGE if is_large else _N_FUSIONS)
        columns = {"event": segments.event, "edge": segments.edge, "dur_ns": segments.dur_ns}
        labels = {
            name: categorical(*segment_labels(dag, segments, name)) for name in ("bound", "name")
        }
        frame = pd.DataFrame(labels | columns, copy=False)
        frames: list[str] = []
        if (dag.events.kind == EventKind.PYTHON).any():
            find = partial(path_stacks, dag, segments)
            stacks = rehearsal.expected.replay.once("stacks", find)
            frames = worth_removing(functions_in(stacks, window))
        yield from of_parts(
            frame, charged.labels(), sequences, frames, is_large=is_large, done=done
        )

    n_threads = _THREADS_OF_LARGE if is_large else 1
    return Trials(rehearsal, charges, causes, parts, n_threads)


def _sequences(dag: Dag, window: Window, most: int) -> Iterator[tuple[str, ...]]:
    """Yield sequences of kernels that recur on a stream, by the idle time between them."""
    found = kernel_patterns(dag, window, max_length=_LONGEST, rank_by="gap_ns", top=most)
    yield from map(tuple, found.loc[found["gap_ns"] > 0, "pattern"])


class NearChains(NamedTuple):
    """Chains by float, then longest first, and the edges of each."""

    # start_ns, end_ns, float_ns: cut at the start of the window
    start_ns: I64
    end_ns: I64
    float_ns: I64
    # leaves, joins: node that a chain comes from, and node that it leads to; -1 for none
    leaves: I64
    joins: I64
    chain: I64  # Of shape (k,). Chain of each part, sorted by chain and time.
    edge: I64  # Of shape (k,). Edge of the replay whose time a part is.
    # begin_ns, until_ns: of shape (k,). The parts of a chain tile it.
    begin_ns: I64
    until_ns: I64


def near_chains(
    dag: Dag, replay: Replay, window: Window, *, within_ns: int, least_ns: int, top: int
) -> NearChains:
    """The first chains of a window with float up to ``within_ns`` and length from ``least_ns``."""
    ts_ns, weight = replay.ts_ns, replay.weight_ns
    latest_ns = replay.latest_ns(replay.bounds(window).until)
    float_ns = latest_ns - ts_ns
    tiebreak = dag.events.tiebreak[replay.node >> 1]
    binding = bind(replay.tail, replay.head, replay.kind, weight, ts_ns, tiebreak)
    onward = bind(replay.head, replay.tail, replay.kind, weight, -latest_ns, tiebreak)
    next_ns = gather(latest_ns, gather(replay.head, onward, 0)) - gather(weight, onward, 0)
    onward = np.where(latest_ns == next_ns, onward, -1)
    is_near = (float_ns > 0) & (float_ns <= within_ns)
    is_near &= (ts_ns > window.start_ns) & (ts_ns <= window.end_ns)
    number, first, last = chains(float_ns, is_near, binding, replay.tail)

    entry, leave = binding[first], onward[last]
    from_node = gather(replay.tail, entry).astype(np.int64)
    to_node = gather(replay.head, leave).astype(np.int64)
    start_ns = np.maximum(
        np.where(entry >= 0, gather(ts_ns, from_node, 0), ts_ns[first]), window.start_ns
    )
    end_ns = ts_ns[last] + gather(weight, leave, 0)
    dur_ns = end_ns - start_ns
    row = np.flatnonzero((dur_ns >= least_ns) & (dur_ns > 0))
    row = row[np.lexsort((start_ns[row], -dur_ns[row], float_ns[last[row]]))][:top]

    rank = np.full(len(first), -1, dtype=np.int64)
    rank[row] = np.arange(len(row))
    nodes = np.flatnonzero(gather(rank, number) >= 0)
    nodes = nodes[binding[nodes] >= 0]
    closing = np.flatnonzero(leave[row] >= 0)
    chain = np.concatenate([rank[number[nodes]], closing])
    edge = np.concatenate([binding[nodes], leave[row[closing]]]).astype(np.int64)
    begin = np.maximum(ts_ns[replay.tail[edge]], window.start_ns)
    until = ts_ns[replay.tail[edge]] + weight[edge]
    order = np.lexsort((until, begin, chain))
    order = order[(until > begin)[order]]
    parts_ns = np.zeros(len(row), dtype=np.int64)
    np.add.at(parts_ns, chain[order], (until - begin)[order])
    if parts_ns.tolist() != dur_ns[row].tolist():
        raise GraphError("the parts of a chain do not add up to its length.")
    return NearChains(
        start_ns=start_ns[row],
        end_ns=end_ns[row],
        float_ns=float_ns[last[row]],
        leaves=gather(replay.node, from_node[row]),
        joins=gather(replay.node, to_node[row]),
        chain=chain[order],
        edge=edge[order],
        begin_ns=begin[order],
        until_ns=until[order],
    )


_WITHIN = 20
"""By default, float is at most the window divided by this. Chosen: test_slack draws chains
on both sides, of this and of the next."""
_LEAST = 1_000
"""Chains shorter than the window divided by this are left out. Chosen."""
_MOSTLY = 0.5
"""More than half is mostly: test_slack has chains of 45% and 58%."""
_WORTH_SAYING = 0.05
"""Share below which a bound is not listed: it would be a rounding error to a reader. Chosen:
test_slack has shares on both sides."""
_KEYS = ("bound", "name", "op", "track")
_NOTHING_BEFORE = "(start of the trace)"
_NOTHING_AFTER = "(end of the window)"


def near_critical(dag: Dag, window: Window, *, within_ns: int = 0, top: int = 20) -> pd.DataFrame:
    """Chains of events that would be critical if delayed by a little.

    ::

        cpu 1    |[launch >a][launch >b]        [sync @*]    9 us behind: the host, until it waits
        stream 7 |      [a <a                       ]        the path
        stream 9 |                 [b <b   ]                 13 us behind

    `within_ns`: largest float of a chain; 0 for a twentieth of the window. Least float first, then
    the longest, without those shorter than a thousandth of the window. A chain ends where it leaves
    or joins one with less float.
    """
    replay = Rehearsal(dag, window).expected.replay
    found = near_chains(
        dag,
        replay,
        window,
        within_ns=within_ns or window.dur_ns // _WITHIN,
        least_ns=-(-window.dur_ns // _LEAST),
        top=top,
    )
    dur_ns = found.end_ns - found.start_ns
    parts = _parts(dag, replay, found)
    bounds = np.searchsorted(found.chain, np.arange(len(dur_ns) + 1))
    made_of = [parts.iloc[begin:end] for begin, end in pairwise(bounds.tolist())]
    most = {key: [_sums(part, key).index[0] for part in made_of] for key in _KEYS}
    bounds_ns = [_sums(part, "bound") for part in made_of]
    return NEAR_CRITICAL.frame(
        {
            "said": [
                _said(part, int(dur), int(left))
                for part, dur, left in zip(made_of, dur_ns, found.float_ns, strict=True)
            ],
            "float_ns": found.float_ns,
            "dur_ns": dur_ns,
            "start_ns": found.start_ns,
            "end_ns": found.end_ns,
            "track": most["track"],
            "n_tracks": [part["track"].nunique() for part in made_of],
            "bound": labelled(most["bound"], Bound.labels()),
            "bound_share": np.array([sums.iloc[0] for sums in bounds_ns], dtype=np.float64)
            / dur_ns,
            "bounds": [_shares(sums) for sums in bounds_ns],
            "name": most["name"],
            "op": most["op"],
            "n_events": [part.loc[part["event"] >= 0, "event"].nunique() for part in made_of],
            "leaves": _names_at(dag, found.leaves, _NOTHING_BEFORE),
            "joins": _names_at(dag, found.joins, _NOTHING_AFTER),
        }
    )


def _parts(dag: Dag, replay: Replay, found: NearChains) -> pd.DataFrame:
    """Parts of the chains with their bounds, events and tracks."""
    edges = replay.edges.take(found.edge)
    event = edges.event.astype(np.int64)
    where = np.where(event >= 0, event, edges.head >> 1)
    bound, _ = edge_bounds(dag, edges)
    nameless = np.array([NO_EVENT_NAMES.get(one, "(host gap)") for one in Bound], dtype=object)
    return pd.DataFrame(
        {
            "dur_ns": found.until_ns - found.begin_ns,
            "event": event,
            "bound": np.array(Bound.labels(), dtype=object)[bound],
            "name": np.where(event >= 0, names_or_empty(dag, event), nameless[bound]),
            "op": op_names(dag, event),
            "track": track_labels(dag, where),
            "is_device": dag.events.is_device[where],
        }
    )


def _sums(part: pd.DataFrame, key: str) -> pd.Series[int]:
    """Time by group, most first; ties in order of occurrence."""
    sums = part.groupby(key, sort=False)["dur_ns"].sum()
    return sums.sort_values(ascending=False, kind="stable")


def _shares(sums: pd.Series[int]) -> str:
    """Groups with their shares, without the smallest: ``host 62%, launch 38%``."""
    shares = sums / sums.sum()
    worth = shares[shares >= _WORTH_SAYING]
    return ", ".join(f"{bound_in_words(name)} {share:.0%}" for name, share in worth.items())


def _said(part: pd.DataFrame, dur_ns: int, float_ns: int) -> str:
    """A chain in one sentence."""
    tracks = _sums(part, "track")
    track = tracks.index[0]
    on_device = bool(part.loc[part["track"] == track, "is_device"].iloc[0])
    where = f"device chain on {track}" if on_device else f"host chain on thread {track}"
    if len(tracks) > 1:
        where += f" and {human_count(len(tracks) - 1, 'other track')}"
    doing = _sums(part.assign(doing=part["op"].where(part["op"] != "", part["name"])), "doing")
    share = doing.iloc[0] / dur_ns
    most = name_label(doing.index[0])
    what = f"mostly {most}" if share > _MOSTLY else f"{share:.0%} {most}"
    return f"{where}, {human_duration(dur_ns)}, is {human_duration(float_ns)} behind: {what}"


def _names_at(dag: Dag, nodes: I64, none: str) -> list[str]:
    """Names of the events of nodes; `none` for -1."""
    names = names_or_empty(dag, np.where(nodes >= 0, nodes >> 1, -1))
    return [name if node >= 0 else none for name, node in zip(names, nodes, strict=True)]
