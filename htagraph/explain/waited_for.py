"""Why an event started, or ended, only then: the chain of what it waited for, back in time.

The chain is the critical path of a window that ends at the event, so it tiles the time. Here it is
put into words: stretches on one thread or stream, latest first, and why each could begin only then.

::

    thread 1   [aten::mm ][cudaLaunchKernel]        ^ 2. thread 1 launched it
    stream 7          [relu            ][gemm  ]    | 1. the stream was busy with relu
                                        why gemm?
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.arrays.codes import gather, ranges, take
from htagraph.explain.critical_path import path_edges, path_end
from htagraph.explain.segments import Segments, segment_frame
from htagraph.lookup.attribution import track_codes, track_labels
from htagraph.lookup.steps import step_events
from htagraph.model.arrays import I64, Rows
from htagraph.model.dag import Dag
from htagraph.model.frames import WHY
from htagraph.model.kinds import Bound, EdgeKind, among, bound_in_words
from htagraph.model.labels import name_label, track_name
from htagraph.model.rules import Evidence, Rule
from htagraph.model.units import human_count, human_duration
from htagraph.model.window import Window

MOST_STRETCHES = 8
"""Chosen: stretches that are told one by one. Pinned by `test_a_long_chain_ends_in_its_sums`."""
_N_ITEMS = 3
"""Chosen: names that are told of a stretch. Pinned by the same test."""
_TOLD_SHARE = 0.01
"""Chosen: share of a stretch below which a name is one of the others."""
_LONGEST_CYCLE = 4
"""Chosen: stretches that are told once if they repeat, as a call that waits in a loop does."""

_FOLDED = 4096
"""Chosen: stretches in which repeats are looked for. A limit of time."""

_RUNS = (Bound.COMPUTE, Bound.COMMUNICATION, Bound.MEMORY, Bound.HOST, Bound.DATA_LOADING)
"""Bounds whose time an event ran; of others, the bound says more than the name."""

_REASONS = {
    Rule.DURATION: "it ran for {lasted}",
    Rule.PROGRAM_ORDER: "{head} {follows} {tail} on {there}",
    Rule.BLOCKING_CALL: "{head} {follows} {tail} on {there}",
    Rule.CORRELATION: "{head} was launched by {tail} on {there}",
    Rule.GRAPH_REPLAY: "{head} is in a graph that {tail} launched on {there}",
    Rule.STREAM_ORDER: "{there} was busy with {tail}",
    Rule.STREAM_OVERLAP: "{there} was busy with {tail}",
    Rule.FWDBWD_FLOW: "{head} needs {tail} on {there}",
    Rule.HANDOFF: "the thread waited for {tail} on {there}",
    Rule.WORKER_CALLED: "the thread waited for {tail} on {there}",
    Rule.RECORDED_FLOW: "{head} needs {tail} on {there}",
    Rule.TENSOR_DEPENDENCY: "{head} reads what {tail} wrote on {there}",
    Rule.QUEUE_FULL: "the launch queue was full until {tail} on {there} started",
    Rule.NO_FREE_SMS: "{head} had no free SMs until {tail} on {there} drained",
    Rule.HOST_POLLS: "the thread waited for {tail} on {there}, without a call that says so",
    Rule.ALLOCATOR_WAITS: "the allocator waited for {tail} on {there}",
    Rule.FIRST_DEVICE_WORK: "the device still ran work from before the profile",
}
"""Why the head of an edge came only then, by its rule."""
_WAITED = "{head} waited for {tail} on {there}"
_UNKNOWN = "no recorded dependency says what it waited for"


class Stretch(NamedTuple):
    """A part of a chain on one thread or stream; of one that repeats, all times together.

    ``items`` is what its time went to, ``reason`` why it began only then, empty for the first one.
    """

    start_ns: int
    end_ns: int
    where: str
    items: str
    reason: str
    dur_ns: int
    times: int = 1

    @property
    def said(self) -> str:
        """The stretch as a sentence."""
        often = f", {self.times:,} times" if self.times > 1 else ""
        before = f" Before that, {self.reason}." if self.reason else ""
        return f"{human_duration(self.dur_ns)} on {self.where}{often}: {self.items}.{before}"


def chain_window(dag: Dag, window: Window, node: int) -> Window:
    """From the start of the step that a node belongs to, else of a window, to the node.

    Device work belongs to the step that launched it.
    """
    events, event = dag.events, node >> 1
    end_ns = int(events.node_ts_ns[node])
    call = int(dag.launch[event])
    begun_ns = int(events.ts_ns[call if call >= 0 else event])
    steps = step_events(events)[0]
    started = events.ts_ns[steps] <= begun_ns
    started &= events.end_ns[steps] > begun_ns
    held = steps[started]
    start_ns = int(events.ts_ns[held[-1]]) if len(held) else window.start_ns
    if not len(held) and start_ns > end_ns:
        start_ns = dag.span.start_ns
    verb = "end" if node & 1 else "start"
    name = f"the {verb} of {name_label(events.names([event])[0])}"
    return Window(min(start_ns, end_ns), end_ns, name, anchor=node)


def since_edge(dag: Dag, window: Window, depth: int) -> Window:
    """The last part of a window, which is as many edges of its path long."""
    edges = path_edges(dag, window)
    if len(edges) <= depth:
        return window
    start_ns = int(dag.events.node_ts_ns[dag.edges.tail[edges[len(edges) - depth]]])
    return Window(
        max(start_ns, window.start_ns), window.end_ns, window.name, window.anchor, n_steps=0
    )


def _runners_up(dag: Dag, edge: Rows) -> tuple[I64, I64]:
    """Of the head of each edge, the other edge that arrives last, and how much before; -1."""
    edges, times = dag.edges, dag.events.node_ts_ns
    head = edges.head[edge]
    first = np.searchsorted(edges.head, head, side="left").astype(np.int64)
    n = np.searchsorted(edges.head, head, side="right") - first
    other, of = ranges(first, n), np.repeat(np.arange(len(edge)), n)
    keeps = other != edge[of]
    other, of = other[keeps], of[keeps]
    arrival = times[edges.tail[other]] + edges.lag_ns[other]
    order = np.lexsort((other, arrival, of))
    last = order[np.flatnonzero(np.diff(of[order], append=-1))]
    found, slack_ns = np.full(len(edge), -1), np.zeros(len(edge), dtype=np.int64)
    found[of[last]] = other[last]
    own = times[edges.tail[edge]] + edges.lag_ns[edge]
    slack_ns[of[last]] = own[of[last]] - arrival[last]
    return found, slack_ns


def why_frame(dag: Dag, segments: Segments) -> pd.DataFrame:
    """Segments of a chain, latest first, with what each else had to wait for; schema `WHY`."""
    segments = take(segments, np.arange(len(segments.edge))[::-1])
    found = np.full(len(segments.edge), -1)
    slack_ns = np.zeros(len(found), dtype=np.int64)
    known = np.flatnonzero(segments.edge >= 0)
    found[known], slack_ns[known] = _runners_up(dag, segments.edge[known])
    none, tail = found < 0, gather(dag.edges.tail, found) >> 1
    names = np.append(dag.events.symbols.array, "")
    kinds = np.array([*EdgeKind.labels(), ""], dtype=object)
    columns = {str(name): column for name, column in segment_frame(dag, segments).items()}
    return WHY.frame(
        {
            **columns,
            "next_name": names[gather(dag.events.name, tail)],
            "next_kind": kinds[gather(dag.edges.kind, found)],
            "next_slack_ns": np.where(none, np.nan, slack_ns.astype(np.float64)),
        }
    )


class _Chain:
    """The edges of a chain, earliest first, and the stretch that each belongs to."""

    def __init__(self, dag: Dag, window: Window) -> None:
        self.dag, self.window = dag, window
        self.edges = path_edges(dag, window).astype(np.int64)
        edges = dag.edges
        tail, head = edges.tail[self.edges] >> 1, edges.head[self.edges] >> 1
        ends = np.array([path_end(dag, window)[0] >> 1])
        events = np.concatenate([tail, head, edges.event[self.edges], ends])
        codes, self._texts = track_codes(dag, events.astype(np.int64))
        *tracks, end = np.split(codes, len(self.edges) * np.arange(1, 4))
        before, after, own = tracks
        self._crosses = before != after
        there = np.cumsum(self._crosses)
        # Where what ran until then belongs to the track before, as the wait of a call for a kernel.
        self.stretch = there - (self._crosses & (own == before))
        self.track = np.concatenate([before[:1] if len(before) else end, after[self._crosses]])

    def where(self, stretch: int) -> str:
        """The thread or stream of a stretch."""
        return track_name(str(self._texts[self.track[stretch]]))

    def stretch_of(self, segments: Segments) -> I64:
        """The stretch that each segment belongs to."""
        found = np.zeros(len(segments.edge), dtype=np.int64)
        if not len(self.edges):
            return found
        order = np.argsort(self.edges)
        known = segments.edge >= 0
        place = np.searchsorted(self.edges[order], segments.edge[known])
        found[known] = self.stretch[order[place]]
        found[np.maximum.accumulate(known) & ~known] = self.stretch[-1]
        return found

    def joins(self, stretch: int) -> int:
        """The edge by which a stretch begins, -1 for none."""
        crossing = np.flatnonzero(self._crosses)
        return int(self.edges[crossing[stretch - 1]]) if stretch else -1

    def keys(self) -> list[int]:
        """A number for each stretch, the same where it continues as another one does."""
        dag, edges = self.dag, self.dag.edges
        joins = np.append(-1, self.edges[self._crosses])
        ends = [gather(dag.events.name, gather(of, joins) >> 1) for of in (edges.tail, edges.head)]
        about = np.stack([self.track, gather(edges.rule, joins), *ends])
        return np.unique(about, axis=1, return_inverse=True)[1].reshape(-1).tolist()


class _Reasons:
    """Why the heads of some edges came only then; what all need is looked up once."""

    def __init__(self, dag: Dag, edges: Sequence[int]) -> None:
        known = np.unique(np.array([edge for edge in edges if edge >= 0], dtype=np.int64))
        other, slack_ns = _runners_up(dag, known)
        self._dag, tails = dag, gather(dag.edges.tail, np.concatenate([known, other])) >> 1
        tracks = map(track_name, track_labels(dag, tails))
        self._where = dict(zip(tails.tolist(), tracks, strict=True))
        self._next = dict(zip(known.tolist(), zip(other, slack_ns, strict=True), strict=True))

    def _name(self, event: int) -> str:
        return name_label(self._dag.events.symbols.texts[self._dag.events.name[event]])

    def of(self, edge: int, head: str = "") -> str:
        """Why the head of an edge, called so, came only then."""
        if edge < 0:
            return _UNKNOWN
        edges = self._dag.edges
        rule, node = [*Rule][edges.rule[edge]], int(edges.tail[edge])
        tail, after = node >> 1, int(edges.head[edge]) >> 1
        text = _REASONS.get(Rule.DURATION if tail == after else rule, _WAITED).format(
            tail=self._name(tail),
            head=head or self._name(after),
            there=self._where[tail],
            follows="follows" if node & 1 else "is inside",
            lasted=human_duration(int(self._dag.events.dur_ns[after])),
        )
        return f"{text} (inferred)" if rule.evidence is Evidence.INFERRED else text

    def with_next(self, edge: int) -> str:
        """The same in a sentence, and what it would have waited for otherwise."""
        said, edges = f"{self.of(edge, 'it')}.", self._dag.edges
        other, slack_ns = map(int, self._next.get(edge, (-1, 0)))
        if other < 0 or not slack_ns:
            return said
        tail = int(edges.tail[other])
        came = f"{self._name(tail >> 1)} on {self._where[tail >> 1]}"
        came = f"when {came} {'ended' if tail & 1 else 'started'}"
        if edges.kind[other] == EdgeKind.LAUNCH:
            came = "when it was launched"
        verb = "ended" if edges.head[edge] & 1 else "started"
        return (
            f"{said} Without that, it could have {verb} {human_duration(slack_ns)} earlier, {came}."
        )


def _items(dag: Dag, segments: Segments) -> str:
    """What the time of a stretch went to, the longest first."""
    n = len(dag.events.symbols)
    runs = among(segments.bound, _RUNS) & (segments.event >= 0)
    bounds = n + segments.bound.astype(np.int64)
    code = np.where(runs, gather(dag.events.name, segments.event), bounds)
    codes, place = np.unique(code, return_inverse=True)
    sums = np.bincount(place, weights=segments.dur_ns).astype(np.int64).tolist()
    texts = dag.events.symbols.texts
    told = [
        name_label(texts[code]) if code < n else bound_in_words(Bound(code - n).label)
        for code in codes.tolist()
    ]
    pairs = sorted(zip(told, sums, strict=True), key=lambda pair: (-pair[1], pair[0]))
    if len(pairs) == 1:
        return pairs[0][0]
    least_ns = _TOLD_SHARE * sum(sums)
    shown = [
        f"{text} {human_duration(dur_ns)}"
        for text, dur_ns in pairs[:_N_ITEMS]
        if dur_ns >= least_ns
    ]
    more = len(pairs) - len(shown)
    return ", ".join([*shown, *([human_count(more, "other")] if more else [])])


def stretches(dag: Dag, window: Window, segments: Segments) -> list[Stretch]:
    """The last stretches of a chain, latest first; repeats are one, empty ones part of the next."""
    chain = _Chain(dag, window)
    numbers = chain.stretch_of(segments)
    keys, last = chain.keys(), numbers[np.flatnonzero(np.diff(numbers, append=-1))][::-1].tolist()
    out: list[Stretch] = []
    while last and len(out) < MOST_STRETCHES:
        length, times = _cycle([keys[number] for number in last[:_FOLDED]])
        for place in range(length):
            own = np.array(last[place : length * times : length])
            part = take(segments, np.isin(numbers, own))
            joins = chain.joins(int(own[-1]))
            out.append(
                Stretch(
                    int(part.start_ns[0]),
                    int(part.start_ns[-1] + part.dur_ns[-1]),
                    chain.where(int(own[0])),
                    _items(dag, part),
                    _Reasons(dag, [joins]).of(joins) if joins >= 0 else "",
                    int(part.dur_ns.sum()),
                    times,
                )
            )
        last = last[length * times :]
    return out


def _cycle(keys: Sequence[int]) -> tuple[int, int]:
    """Length of the cycle that keys begin with, and how often it is there: 1, 1 for none."""
    best = (1, 1)
    for length in range(1, min(_LONGEST_CYCLE, len(keys) // 2) + 1):
        times = 1
        while keys[:length] == keys[length * times : length * (times + 1)]:
            times += 1
        if times > 1 and length * times > best[0] * best[1]:
            best = (length, times)
    return best


def event_sentence(dag: Dag, window: Window, at_ns: int | None = None) -> str:
    """What a chain leads to, when that was, and what held it; of a time, what the device did."""
    node, times = window.anchor, dag.events.node_ts_ns
    event, edge, verb = node >> 1, int(dag.binding[node]), "ended" if node & 1 else "started"
    where = track_name(str(track_labels(dag, np.array([event]))[0]))
    named = f"{name_label(dag.events.names([event])[0])} on {where}"
    said = f"{named} {verb} {_since_start(dag, int(times[node]))}"
    if at_ns is not None:
        device, rest_ns = int(dag.events.device[event]), int(times[node]) - at_ns
        idle = f"Device {device} is idle {_since_start(dag, at_ns)}, for another"
        busy = f"Device {device} is not idle {_since_start(dag, at_ns)}. {said}"
        until = f"{human_duration(rest_ns)}, until {named} starts"
        said = busy if rest_ns <= 0 else f"{idle} {until}"
    call = int(dag.launch[event])
    if call >= 0 and not node & 1:
        delay_ns = int(times[node] - dag.events.end_ns[call])
        said += f", {human_duration(delay_ns)} after its launch" if delay_ns > 0 else ""
    return f"{said}: {_Reasons(dag, [edge]).with_next(edge)}"


def _since_start(dag: Dag, ts_ns: int) -> str:
    return f"{human_duration(ts_ns - dag.span.start_ns)} after the start of the trace"


def started_by(dag: Dag, edges: Sequence[int]) -> dict[int, str]:
    """Why what each edge leads to came only then; of device work that ran, why it started."""
    asked = {
        edge: int(dag.binding[dag.edges.tail[edge]])
        if dag.edges.rule[edge] == Rule.DURATION
        else edge
        for edge in edges
    }
    reasons = _Reasons(dag, [*asked.values()])
    return {edge: reasons.with_next(cause) for edge, cause in asked.items()}


def told(first: str, parts: Sequence[Stretch], segments: pd.DataFrame, start: str) -> list[str]:
    """A chain in sentences: what it leads to, its last stretches, and the sums of what is before.

    `segments`: the whole chain, in order of time. `start`: what it begins with.
    """
    lines = [first, *(one.said for one in parts)]
    reached_ns = min((one.start_ns for one in parts), default=0)
    rest = segments[segments["start_ns"] < reached_ns]
    total_ns = int(segments["dur_ns"].sum())
    if len(rest):
        sums = rest.groupby("bound", observed=True)["dur_ns"].sum().sort_values(ascending=False)
        most = [
            f"{bound_in_words(bound)} {human_duration(dur_ns)}"
            for bound, dur_ns in sums.head(_N_ITEMS).items()
        ]
        lines.append(f"Earlier, {human_duration(int(rest['dur_ns'].sum()))}: {', '.join(most)}.")
    if total_ns:
        lines.append(_coverage(segments, total_ns, start))
    return lines


def _coverage(segments: pd.DataFrame, total_ns: int, start: str) -> str:
    """How long the chain is, and how much of it is inferred, or an unknown wait."""
    unknown_ns = int(segments.loc[segments["bound"] == Bound.UNKNOWN_WAITS.label, "dur_ns"].sum())
    inferred_ns = int(segments.loc[segments["rule"].isin(_INFERRED), "dur_ns"].sum())
    shares = [
        f"{'<1%' if dur_ns < total_ns / 100 else f'{dur_ns / total_ns:.0%}'} {what}"
        for dur_ns, what in ((inferred_ns, "inferred"), (unknown_ns, "unknown waits"))
        if dur_ns
    ]
    length = f"{human_duration(total_ns)} in {human_count(len(segments), 'segment')}"
    return f"Back to {start}: {length}{''.join(f', {share}' for share in shares)}."


_INFERRED = [rule.label for rule in Rule if rule.evidence is Evidence.INFERRED]
