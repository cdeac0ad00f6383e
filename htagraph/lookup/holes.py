"""Holes: stretches of a trace in which launches, or what they launched, were not recorded.

::

    thread 1  [launch][launch][launch][launch][launch]
    stream 7       [k   ]                        [k   ]
                         '------- a hole -------'

A profiler that loses a buffer leaves no other sign. Without the lost work the device seems idle,
and the host to blame. On whole traces every kernel launch has its work, but for those that are
captured as a graph; and what follows linked work on its stream has its launch, as streams run in
order. All replays of a captured graph do the same work. Where records are lost at random, most
replays lack others of its nodes::

    stream 7   [a][b][c][d]   [a][b]   [d]   [a]   [c][d]   [a][b][c][d]   [a][b][c][d]

A graph that runs once may be a part of another one, such as the last layer of a model. So only
several replays count that each lack something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from htagraph.arrays.codes import gather, is_in
from htagraph.lookup.programs import graph_launches
from htagraph.lookup.queues import queues
from htagraph.model.api_calls import CAPTURE_BEGINS, CAPTURE_ENDS, GRAPH_LAUNCH, KERNEL_LAUNCH
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.recording import Damage, DamageKind
from htagraph.model.units import human_count, human_duration
from htagraph.model.window import Window

_FEWEST = 10
"""Launches, or pieces of device work, of a hole. Chosen: a lost buffer holds thousands, and whole
traces lack none. Pinned by `test_holes.py::test_a_hole_has_ten_launches`."""

_FEWEST_REPLAYS = 3
"""The same of launches of captured graphs, each of which is many kernels. Chosen: a graph may be
empty. Pinned by `test_holes.py::test_three_replays_without_work_are_a_hole`."""

_APART = 50
"""Launches with their work between two without, from which on these are of different holes.
Chosen. Pinned by `test_holes.py::test_two_holes`."""

_TYPICAL_PERCENTILE = 90
"""Of distances between launches without work, when all of one stream are lost: it may have few."""
_TIMES_TYPICAL = 2
"""The same, as a factor: more than that apart are different holes. Chosen, both. Pinned by
`test_holes.py::test_a_stream_with_few_launches_may_stop`."""

_MOSTLY = 0.75
"""Share of launches without work above which a stretch is a hole even if it is all of the trace.
Chosen: of one of two devices that a program uses, half have none. Pinned by
`test_holes.py::test_a_steady_rate_is_no_hole`."""

_EXPECTED = 5
"""If less is lost: launches without work that the rest of the trace would have at the same rate, to
tell a hole from calls of which some never have work (chosen: none by chance in 1% of cases).
Pinned by `test_holes.py::test_a_stream_that_stops_had_work_before`."""

_NEVER = np.iinfo(np.int64).min


class Hole(NamedTuple):
    """A stretch of a trace in which something was not recorded."""

    # n, n_all: launches, or pieces of device work, without their counterpart; and all in the
    # stretch
    n: int
    n_all: int
    start_ns: int
    end_ns: int


def kernel_launches(dag: Dag) -> tuple[I64, Bools]:
    """Launches of kernels and graphs that were to run, by time, and whether each has its work.

    Those that were captured are left out.
    A launch within another, as of two libraries, is the same launch. None of a trace that was read
    in part: its work may be in the rest.
    """
    events = dag.events
    is_call = (events.kind == EventKind.RUNTIME) & (not dag.notes.get("is_part", 0))
    calls = np.flatnonzero(is_call & events.searched(KERNEL_LAUNCH))
    calls = calls[np.argsort(events.ts_ns[calls], kind="stable")]
    has_work = np.zeros(len(events), dtype=bool)
    has_work[dag.launch[dag.launch >= 0]] = True
    outer = dag.parent[calls].astype(np.int64)
    is_inner = (outer >= 0) & is_in(np.maximum(outer, 0), calls)
    has_work[outer[is_inner]] |= has_work[calls[is_inner]]
    calls = calls[~is_inner & ~_is_captured(dag, is_call, calls)]
    return calls, has_work[calls]


def _is_captured(dag: Dag, is_call: Bools, calls: I64) -> Bools:
    """Whether each call is made while any thread captures a graph."""
    events = dag.events
    begins = np.flatnonzero(is_call & events.searched(CAPTURE_BEGINS))
    ends = np.flatnonzero(is_call & events.searched(CAPTURE_ENDS))
    times = np.concatenate([events.ts_ns[begins], events.end_ns[ends]])
    order = np.argsort(times, kind="stable")
    depth = np.cumsum(np.repeat([1, -1], [len(begins), len(ends)])[order])
    # What ends without a beginning began before the trace.
    depth = np.append(0, depth) - depth.min(initial=0)
    captured: Bools = depth[np.searchsorted(times[order], events.ts_ns[calls], "right")] > 0
    return captured


def without_work(dag: Dag) -> list[Hole]:
    """Holes of device work: launches of kernels without what they launched.

    A hole begins with the first launch, or once the device has done what was launched right before,
    and ends where the work of the next launch starts. Launches of captured graphs, each of which is
    many kernels, are judged apart. Calls whose name never launches anything do not count; if these
    are most launches, all of the trace is a hole, unless it has the kernels without links, or as
    ranges of hardware counters. At the end of a trace work may still be queued: what no launch
    follows is no hole if its streams had work until less than the longest work before the end.
    """
    events, (calls, has_work) = dag.events, kernel_launches(dag)
    works = np.bincount(events.name[calls[has_work]], minlength=len(events.symbols))
    known = works[events.name[calls]] > 0
    n_unknown, n_all = int((~known).sum()), len(known)
    if 2 * n_unknown > n_all:
        is_counted = bool((events.kind == EventKind.COUNTER_RANGE).any())
        n_unlinked = int((events.is_device & (dag.launch < 0)).sum())
        if n_unknown < _FEWEST or is_counted or 2 * n_unlinked > n_unknown:
            return []
        return [Hole(n_unknown, n_all, dag.span.start_ns, dag.span.end_ns)]
    calls, lost = calls[known], ~has_work[known]
    is_graph = events.symbols.searched(GRAPH_LAUNCH)[events.name[calls]]
    return [
        *_without_work(dag, calls[~is_graph], lost[~is_graph], _FEWEST),
        *_without_work(dag, calls[is_graph], lost[is_graph], _FEWEST_REPLAYS),
    ]


def _without_work(dag: Dag, calls: I64, lost: Bools, fewest: int) -> list[Hole]:
    """Holes among calls that all launch work."""
    events, stretches, found = dag.events, _stretches(lost, fewest), []
    if not stretches:
        return []
    place = np.full(len(events), -1, dtype=np.int64)
    place[calls] = np.arange(len(calls))
    work = np.flatnonzero(events.is_device)
    longest_ns = int(events.dur_ns[work].max())
    position = gather(place, gather(dag.launch, work))
    work, position = work[position >= 0], position[position >= 0]
    queue, work_end_ns = queues(dag, "stream").of_event[work], events.end_ns[work]
    for first, last, n in stretches:
        start_ns, end_ns = int(events.ts_ns[calls[first]]), dag.span.end_ns
        if last + 1 < len(calls):
            before_ns = work_end_ns[position == first - 1].max(initial=_NEVER)
            start_ns = max(start_ns, int(before_ns))
            end_ns = max(start_ns, int(events.ts_ns[work[position == last + 1]].min()))
        else:
            # On streams of which no work was launched from the hole on.
            stopped = ~is_in(queue, queue[position >= first])
            start_ns = max(start_ns, int(work_end_ns[stopped].max(initial=_NEVER)))
            if end_ns - start_ns <= longest_ns:
                continue
        found.append(Hole(n, last + 1 - first, start_ns, end_ns))
    return found


def without_launch(dag: Dag) -> list[Hole]:
    """Holes of launches: device work that follows launched work on its stream, but has no launch.

    Work from before the profile precedes all other work of its stream. Kernels that never have a
    launch do not count: their launches are of a library that is not recorded.
    """
    events = dag.events
    work = np.flatnonzero(events.is_device)
    is_linked = dag.launch[work] >= 0
    if is_linked.all():
        return []
    queue = queues(dag, "stream").of_event[work]
    first_ns = np.full(int(queue.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first_ns, queue[is_linked], events.ts_ns[work[is_linked]])
    names = np.bincount(events.name[work[is_linked]], minlength=len(events.symbols))
    lost = ~is_linked & (events.ts_ns[work] > first_ns[queue]) & (names[events.name[work]] > 0)
    order = np.argsort(events.ts_ns[work], kind="stable")
    work, lost = work[order], lost[order]
    return [
        Hole(n, last + 1 - first, int(events.ts_ns[work[first]]), int(events.end_ns[work[last]]))
        for first, last, n in _stretches(lost, _FEWEST)
    ]


def _stretches(lost: Bools, fewest: int) -> list[tuple[int, int, int]]:
    """First and last position of each hole, and the number of those lost in it."""
    position = np.flatnonzero(lost)
    if len(position) < fewest:
        return []
    distance = np.diff(position)
    typical = int(np.percentile(distance, _TYPICAL_PERCENTILE, method="lower"))
    cut = np.flatnonzero(distance > max(_APART, _TIMES_TYPICAL * typical)) + 1
    bounds = np.concatenate([[0], cut, [len(position)]])
    first, last, n = position[bounds[:-1]], position[bounds[1:] - 1], np.diff(bounds)
    length = last + 1 - first
    share = n / length
    is_hole = (share > _MOSTLY) | (share * (len(lost) - length) >= _EXPECTED)
    is_hole &= n >= fewest
    return list(
        zip(first[is_hole].tolist(), last[is_hole].tolist(), n[is_hole].tolist(), strict=True)
    )


_LOST_NODES_FEWEST = 3
"""Replays of a whole graph, and replays that each lack other nodes of it, that show a loss. Chosen:
two graphs that run once, before and after all layers of a model, are parts of the others.
Pinned by `test_damage.py::test_three_replays_that_lack_nodes_are_a_loss`."""

_FEWEST_UNNAMED = 10
"""If no replay is whole, and no record tells graphs apart: replays of which none is like another.
Chosen: of a program that runs ten graphs once each, some are the same.
Pinned by `test_damage.py::test_ten_replays_without_ids_are_a_loss`."""

_LOST_NODES_MOSTLY = 0.5
"""Share of replays that are unlike all others if none is whole (chosen).
Pinned by `test_damage.py::test_replays_of_several_graphs_are_whole`."""

_VARIES = 0.75
"""Share of kernel names whose number varies from replay to replay, if no record tells graphs apart.
Chosen: graphs for other batch sizes share norms and other kernels, in the same number.
Pinned by `test_damage.py::test_graphs_for_other_batch_sizes_are_whole`."""


class _Replays(NamedTuple):
    """Work of replays, in order of launches."""

    call: I64  # The launch of each replay
    graph: I64  # Recorded id of its graph, -1 if it is unknown
    kind: I64  # The same number for replays with the same nodes
    # work, of, node: of shape (m,). Device events, the position of their replay, and the number of
    # the node: by its recorded id, else by name and stream.
    work: I64
    of: I64
    node: I64

    @classmethod
    def of_trace(cls, dag: Dag) -> _Replays:
        """Those whose launch and work were recorded."""
        events = dag.events
        work = np.flatnonzero(events.is_device & (dag.launch >= 0))
        launch = dag.launch[work].astype(np.int64)
        is_replay = graph_launches(dag)[launch]
        work, launch = work[is_replay], launch[is_replay]
        call = np.unique(launch)
        call = call[np.argsort(events.ts_ns[call], kind="stable")]
        place = np.full(len(events), -1, dtype=np.int64)
        place[call] = np.arange(len(call))
        of = place[launch]
        graph_id = events.column("graph_id")[work].astype(np.int64)
        node_id = events.column("graph_node")[work].astype(np.int64)
        is_known = (graph_id > 0) & (node_id > 0)
        graph = np.full(len(call), -1, dtype=np.int64)
        np.maximum.at(graph, of, np.where(is_known, graph_id, -1))
        names = (events.name[work], events.device[work], events.stream[work])
        parts = [np.where(is_known, -1, part) for part in names]
        ids = [np.where(is_known, part, -1) for part in (graph_id, node_id)]
        keys = np.stack([*parts, *ids], axis=1)
        _, node = np.unique(keys, axis=0, return_inverse=True)
        node = node.reshape(-1)
        # Replays with the same nodes have the same sum of random numbers, one for each node.
        weight = np.random.default_rng(0).integers(1 << 62, size=int(node.max(initial=-1)) + 1)
        total = np.zeros(len(call), dtype=np.int64)
        np.add.at(total, of, weight[node])
        _, kind = np.unique(np.stack([graph, total], axis=1), axis=0, return_inverse=True)
        return cls(call, graph, kind.reshape(-1), work, of, node)

    def counts(self, rows: I64) -> I64:
        """How often each node is in some of the replays; shape (len(rows), n_nodes)."""
        place = np.full(len(self.call), -1, dtype=np.int64)
        place[rows] = np.arange(len(rows))
        mine = place[self.of] >= 0
        _, node = np.unique(self.node[mine], return_inverse=True)
        n_nodes = int(node.max(initial=-1)) + 1
        at = place[self.of[mine]] * n_nodes + node
        return np.bincount(at, minlength=len(rows) * n_nodes).reshape(len(rows), n_nodes)


def lost_nodes(dag: Dag) -> Iterator[Hole]:
    """Yield the replays of each graph that lack nodes; of unknown graphs, those of all.

    The first and the last replay of a trace may be cut, so they show nothing. None of a trace that
    was read in part.
    """
    if dag.notes.get("is_part", 0) or not dag.events.symbols.searched(GRAPH_LAUNCH).any():
        return
    replays = _Replays.of_trace(dag)
    for graph in np.unique(replays.graph).tolist():
        rows = np.flatnonzero(replays.graph == graph)
        is_lossy = _lossy(replays, rows, is_known=graph > 0)
        if is_lossy.any():
            work = replays.work[gather(is_lossy, np.searchsorted(rows, replays.of))]
            yield Hole(
                int(is_lossy.sum()),
                len(rows),
                int(dag.events.ts_ns[work].min()),
                int(dag.events.end_ns[work].max()),
            )


def _lossy(replays: _Replays, rows: I64, *, is_known: bool) -> Bools:
    """Whether each of some replays lacks nodes."""
    out = np.zeros(len(rows), dtype=bool)
    _, first, kind, n = np.unique(
        replays.kind[rows], return_index=True, return_inverse=True, return_counts=True
    )
    is_cut = (rows == 0) | (rows == len(replays.call) - 1)
    once = np.flatnonzero((n[kind] == 1) & ~is_cut)
    if len(once) < _LOST_NODES_FEWEST:
        return out
    whole = first[n >= _LOST_NODES_FEWEST]
    counts = replays.counts(rows[np.append(whole, once)])
    wholes, lacking = counts[: len(whole)], counts[len(whole) :]
    for one in wholes:
        lacks = (lacking <= one).all(axis=1)
        if lacks.sum() >= _LOST_NODES_FEWEST:
            out[once[lacks]] = True
    if len(once) > _LOST_NODES_MOSTLY * len(rows) and (is_known or _vary(lacking)):
        out[once] = True
    return out


def _vary(counts: I64) -> bool:
    """Whether many replays share most nodes, but not how often they have them."""
    has = counts > 0
    varies = (has.sum(axis=0) > 1) & (np.ptp(counts, axis=0) > 0)
    n_named = int(has.any(axis=0).sum())
    return len(counts) >= _FEWEST_UNNAMED and bool(varies.sum() > _VARIES * n_named)


def lost_records(dag: Dag) -> Iterator[Damage]:
    """Yield one row per hole.

    Where both launches and work lack the other, it is what links them that was lost.
    """
    launches, work = without_launch(dag), without_work(dag)
    work = [
        hole
        for hole in work
        if not any(hole.start_ns < one.end_ns and one.start_ns < hole.end_ns for one in launches)
    ]
    found = {
        DamageKind.LOST_LAUNCHES: launches,
        DamageKind.LOST_WORK: work,
        DamageKind.LOST_NODES: list(lost_nodes(dag)),
    }
    for kind, holes in found.items():
        said = holes_in_words(kind, holes, dag.span) if holes else ""
        yield from (Damage(kind, *hole, said) for hole in holes)


_SAID = {
    DamageKind.LOST_LAUNCHES: (
        "pieces of device work {} have no launch: calls, or what links work to them, are missing, "
        "and with that what the work waited for."
    ),
    DamageKind.LOST_WORK: (
        "kernel launches {} have no device work: its records are missing, and the device only "
        "seems idle."
    ),
    DamageKind.LOST_NODES: (
        "replays of captured graphs {} lack kernels that other replays have: their records are "
        "missing, and the device only seems idle."
    ),
}


def holes_in_words(kind: DamageKind, holes: Sequence[Hole | Damage], span: Window) -> str:
    """What all holes of a kind are, and what that does to the answer."""
    n, n_all = sum(hole.n for hole in holes), sum(hole.n_all for hole in holes)
    return f"{n:,} of {n_all:,} {_SAID[kind].format(_when(span, holes))}"


def _when(span: Window, holes: Sequence[Hole | Damage]) -> str:
    """The time of the longest hole since the start of the trace, and how many others there are."""
    hole = max(holes, key=lambda one: one.end_ns - one.start_ns)
    if hole.start_ns <= span.start_ns and hole.end_ns >= span.end_ns:
        return "in the whole trace"
    start, end = (human_duration(ns - span.start_ns) for ns in (hole.start_ns, hole.end_ns))
    more = f" and in {human_count(len(holes) - 1, 'other place')}"
    return f"between {start} and {end}{more if len(holes) > 1 else ''}"
