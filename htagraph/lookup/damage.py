"""What of a trace is damaged, and the part of a window in which nothing was lost.

Where device work or launches are lost, the path runs along what is left. Of a window with such
holes, the longest part between two of them is judged. A hole is a stretch of a trace in which
launches, or what they launched, were not recorded::

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

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from htagraph.arrays.codes import gather, is_in
from htagraph.arrays.intervals import Intervals, gaps, union
from htagraph.lookup.programs import graph_launches
from htagraph.lookup.queues import queues
from htagraph.lookup.steps import step_events
from htagraph.model.api_calls import CAPTURE_BEGINS, CAPTURE_ENDS, GRAPH_LAUNCH, KERNEL_LAUNCH
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.names import step_number
from htagraph.model.recording import HOLES, Damage, DamageKind, Repair
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


_SAID_OF_HOLES = {
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
    return f"{n:,} of {n_all:,} {_SAID_OF_HOLES[kind].format(_when(span, holes))}"


def _when(span: Window, holes: Sequence[Hole | Damage]) -> str:
    """The time of the longest hole since the start of the trace, and how many others there are."""
    hole = max(holes, key=lambda one: one.end_ns - one.start_ns)
    if hole.start_ns <= span.start_ns and hole.end_ns >= span.end_ns:
        return "in the whole trace"
    start, end = (human_duration(ns - span.start_ns) for ns in (hole.start_ns, hole.end_ns))
    more = f" and in {human_count(len(holes) - 1, 'other place')}"
    return f"between {start} and {end}{more if len(holes) > 1 else ''}"


_LEAST_NS = 1_000_000
"""By how much a recorded dependency runs backward if a clock was set. Measured: of 116 real traces,
none has a dependency that does after the device clock is aligned. Device clocks that cannot be
aligned are tens of microseconds off. Pinned by test_damage.
"""
_LEAST_OVERLAP_NS = 200_000
"""By how much a wait ends before what it waited for if a clock was set; in real traces, by less
than 20 us. Pinned by `test_damage.py::test_waits_that_end_long_before_their_work_are_damage`.
"""


def clock_jumps(dag: Dag) -> Iterator[Damage]:
    """Yield a row if dependencies run backward by more than any clock is off."""
    edges, skew_ns = dag.rejected.edges, dag.rejected.skew_ns
    far = np.flatnonzero(skew_ns >= _LEAST_NS)
    n_far, n_all, times = len(far), len(dag.edges) + len(edges), dag.events.node_ts_ns
    overlap_ns = max(dag.calibration.clock_overlap_ns, dag.calibration.clock_apart_ns)
    if n_far:
        times = times[np.append(edges.tail[far], edges.head[far])]
        by = human_duration(int(skew_ns[far].max()))
        said = f"{n_far:,} of {human_count(n_all, 'edge')} run backward in time, by up to {by}: "
    elif overlap_ns >= _LEAST_OVERLAP_NS:
        n_far = 1
        said = f"Waits end up to {human_duration(overlap_ns)} before what they waited for: "
    else:
        return
    said += (
        "a clock was set during the capture, and times before and after that do not fit together."
    )
    yield Damage(DamageKind.LOST_TIMES, n_far, n_all, int(times.min()), int(times.max()), said)


def lost_steps(dag: Dag) -> Iterator[Damage]:
    """Yield a row per gap in the numbers, which the profiler counts up by one."""
    rows, _ = step_events(dag.events)
    names = dag.events.names(rows)
    number = np.array([step_number(name) for name in names.tolist()], dtype=np.int64)
    if (np.diff(number) < 1).any():  # of several threads, or no steps of the profiler
        return
    start_ns, end_ns = dag.events.ts_ns[rows], dag.events.end_ns[rows]
    for last in np.flatnonzero(np.diff(number) > 1).tolist():
        before, after = names[last : last + 2]
        n = int(number[last + 1] - number[last] - 1)
        said = (
            f"{human_count(n, 'step')} between {before} and {after} {'is' if n == 1 else 'are'} "
            "missing: what ran then is in no answer, and threads look idle."
        )
        n_all = int(number[-1] - number[0] + 1)
        yield Damage(
            DamageKind.LOST_EVENTS, n, n_all, int(end_ns[last]), int(start_ns[last + 1]), said
        )


_SAID = {
    DamageKind.CUT_FILE: (
        "the file is cut off ({why}): events of any time, thread or device may be lost with its "
        "rest."
    ),
    DamageKind.DROPPED_EVENTS: (
        "the profiler dropped events ({why}): devices and threads look idle where it did."
    ),
    DamageKind.LOST_EVENTS: (
        "{n} of {of} could not be read ({why}): devices and threads look idle in their place."
    ),
    DamageKind.LOST_TIMES: (
        "{n} of {of} have no valid time or length ({why}): they count as if they took no time."
    ),
}
"""What is said of each kind that a reader finds."""


def reader_damage(dag: Dag) -> Iterator[Damage]:
    """Yield one row per kind; a file does not say when what it lost took place."""
    by_kind: dict[str, list[Repair]] = {}
    for repair in dag.repairs:
        by_kind.setdefault(repair.damage, []).append(repair)
    for kind in filter(by_kind.__contains__, _SAID):
        repairs = by_kind[kind]
        n = sum(repair.n for repair in repairs)
        n_all = len(dag.events) + (n if kind != DamageKind.LOST_TIMES else 0)
        if kind == DamageKind.CUT_FILE:  # one cut, which shows in several ways
            repairs, n, n_all = repairs[:1], 1, 1
        why = ", ".join(repair.kind for repair in repairs)
        said = _SAID[kind].format(n=f"{n:,}", of=human_count(n_all, "event"), why=why)
        yield Damage(kind, n, n_all, dag.span.start_ns, dag.span.end_ns, said)


LOST_LIMIT = 0.05
"""Share of a window in holes up to which it is judged nevertheless. Chosen: causes are told apart
by larger shares. Pinned by test_damage.
"""

_LEAST_SHARE = 1 / 3
"""Share of a window from which on a part is judged in its place. Chosen: a hole in the middle
leaves less than half on each side. Pinned by test_damage.
"""

WHOLE_PART = "the longest part without lost records"
"""Name of the part."""

_FINDERS: tuple[Callable[[Dag], Iterable[Damage]], ...] = (
    reader_damage,
    lost_records,
    lost_steps,
    clock_jumps,
)
"""What finds damage, each of the whole trace. To add one: a function in `lookup`, and its place."""


def damage_of(dag: Dag, window: Window) -> list[Damage]:
    """Damage of the trace that reaches into the window."""
    found = (one for finder in _FINDERS for one in finder(dag))
    return [one for one in found if one.overlaps(window.start_ns, window.end_ns)]


def holes_of(found: Iterable[Damage]) -> Intervals:
    """Holes among what is damaged, joined where they overlap."""
    holes = [one for one in found if one.kind in HOLES]
    start_ns = np.array([one.start_ns for one in holes], dtype=np.int64)
    end_ns = np.array([one.end_ns for one in holes], dtype=np.int64)
    return union(np.zeros(len(holes), dtype=np.int64), start_ns, end_ns)


def _holes(found: Iterable[Damage], window: Window) -> Intervals:
    group, start_ns, end_ns = holes_of(found)
    inside = (window.start_ns, window.end_ns)
    return union(group, np.clip(start_ns, *inside), np.clip(end_ns, *inside))


def lost_share(found: Iterable[Damage], window: Window) -> float:
    """Share of a window in which device work or launches were lost."""
    holes = _holes(found, window)
    return int((holes.end - holes.start).sum()) / max(window.dur_ns, 1)


def lost_in_words(share: float) -> str:
    """Why nothing is known of a path with so much lost, and what to do."""
    return (
        f"device work or launches of {share:.0%} of the critical path were lost (limit "
        f"{LOST_LIMIT:.0%}), so the bottleneck is unknown. Capture again: fewer steps, and "
        "torch.cuda.synchronize() before the profiler stops."
    )


def longest_whole_part(found: Iterable[Damage], window: Window) -> Window | None:
    """Longest part of a window outside of all holes; None if nothing is."""
    group = np.zeros(1, dtype=np.int64)
    between = gaps(_holes(found, window), group, window.start_ns, window.end_ns)
    dur_ns = between.end - between.start
    if not dur_ns.any():
        return None
    longest = int(dur_ns.argmax())
    return Window(int(between.start[longest]), int(between.end[longest]), WHOLE_PART)


def part_to_judge(dag: Dag, window: Window) -> Window | None:
    """The longest part without holes, if it is a good part of a window with too much lost."""
    found = damage_of(dag, window)
    if lost_share(found, window) <= LOST_LIMIT:
        return None
    part = longest_whole_part(found, window)
    return part if part is not None and part.dur_ns >= _LEAST_SHARE * window.dur_ns else None
