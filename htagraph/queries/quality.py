"""How far a graph can be trusted: checks, kinds, inferences, damage; overhead of the profiler.

CUPTI records two sorts of overhead as one kind: its own (buffers, instrumentation), which a run
without the profiler does not have, and the driver's (lazy loading of modules and functions, a full
command buffer), which it has. Neither includes the cost of recording each event.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.codes import gather, take
from htagraph.arrays.intervals import sum_by_code
from htagraph.arrays.matching import group_starts
from htagraph.arrays.nesting import nest
from htagraph.arrays.reach import components
from htagraph.compiler.structure import FEWEST_IDLE_LAUNCHES
from htagraph.explain.critical_path import end_node, path_segments
from htagraph.explain.segments import Segments, coded_texts, segment_labels
from htagraph.lookup.attribution import track_codes
from htagraph.lookup.collectives import host_ranges
from htagraph.lookup.damage import damage_of, kernel_launches
from htagraph.lookup.programs import NO_DEVICE_WORK, is_plain
from htagraph.lookup.queues import is_matched, long_waits
from htagraph.lookup.samples import bandwidths
from htagraph.lookup.selecting import events_in
from htagraph.lookup.steps import find_steps
from htagraph.lookup.windowed import Clipped, clipped, edges_in
from htagraph.model.answers import DAMAGE, INFERENCES, KINDS, PROFILER_OVERHEAD, QUALITY
from htagraph.model.arrays import I64, Texts
from htagraph.model.dag import Dag
from htagraph.model.edges import Support
from htagraph.model.kinds import Bound, EdgeKind, EventKind, among
from htagraph.model.names import CRITICAL_PATH, FORWARD_BACKWARD
from htagraph.model.recording import Damage, DamageKind
from htagraph.model.rules import Evidence, Rule
from htagraph.model.schema import categorical, labelled
from htagraph.model.symbols import alphabetical
from htagraph.model.units import human_count, human_duration
from htagraph.model.window import Window


def inferences(
    dag: Dag,
    window: Window,
    path: Segments | None = None,
    *,
    by: Literal["rule", "pair"] = "rule",
) -> pd.DataFrame:
    """Inferred edges by rule with their time on the critical path, or the evidence by pair.

    `by`: one row for each rule with edges in the window, or for each pair of places that was
    learned from the whole trace. Most time on the path first; pairs by rule, most matched first.
    """
    if by == "pair":
        ordered = sorted(dag.support, key=_place)
        return _inferences_frame(
            [pair.rule for pair in ordered],
            [[pair] for pair in ordered],
            source=[pair.source for pair in ordered],
            target=[pair.target for pair in ordered],
            distance_ns=[pair.distance_ns for pair in ordered],
            spread_ns=[pair.spread_ns for pair in ordered],
        )
    path = path_segments(dag, [window]) if path is None else path
    n_edges = np.bincount(dag.edges.rule[edges_in(dag, window)], minlength=len(Rule)).tolist()
    path_ns = sum_by_code(path.rule(dag), path.dur_ns, len(Rule)).tolist()
    rules = [rule for rule in Rule if rule.evidence is Evidence.INFERRED and n_edges[rule]]
    rules.sort(key=lambda rule: (-path_ns[rule], -n_edges[rule], rule))
    on_path = [path_ns[rule] for rule in rules]
    return _inferences_frame(
        rules,
        [[pair for pair in dag.support if pair.rule is rule] for rule in rules],
        n_edges=[n_edges[rule] for rule in rules],
        path_ns=on_path,
        path_share=[dur_ns / max(window.dur_ns, 1) for dur_ns in on_path],
    )


def _place(pair: Support) -> tuple[object, ...]:
    """Sort key of a pair: most matches first."""
    return pair.rule, -pair.n_matched, pair.n_all, pair.source, pair.target, pair.distance_ns


def _inferences_frame(
    rules: Sequence[Rule], support: Sequence[Sequence[Support]], **known: Iterable[object]
) -> pd.DataFrame:
    """Rows of the answer, from rules, their evidence, and other known columns."""
    n = len(rules)
    unknown = {name: [0] * n for name in ("n_edges", "path_ns", "distance_ns", "spread_ns")}
    return INFERENCES.frame(
        {
            **unknown,
            "path_share": [np.nan] * n,
            "source": [""] * n,
            "target": [""] * n,
            **known,
            "rule": categorical(np.array(rules, dtype=np.int64), Rule.labels()),
            "kind": categorical(np.array([r.kind for r in rules], np.int64), EdgeKind.labels()),
            "n_pairs": [len(pairs) for pairs in support],
            "n_matched": [sum(pair.n_matched for pair in pairs) for pairs in support],
            "n_all": [sum(pair.n_all for pair in pairs) for pairs in support],
            "chance": [max((pair.chance for pair in pairs), default=np.nan) for pairs in support],
        }
    )


UNKNOWN_LIMIT = 0.2
"""Share of unknown waits above which a critical path does not establish what limits the run.
Chosen."""

_GOOD = 0.95
"""Share from which on a check is good, unless it has a limit of its own. Chosen: test_quality draws
links on both sides."""


class _Check(NamedTuple):
    check: str
    n_good: int
    n_all: int
    consequence: str
    limit: float = _GOOD
    note: str = ""  # the consequence printed for a good check

    @property
    def share(self) -> float:
        return self.n_good / self.n_all if self.n_all else 1.0

    @property
    def verdict(self) -> str:
        if self.share >= self.limit:
            return "good"
        return "weak" if self.n_good else "missing"


def _links(dag: Dag) -> list[_Check]:
    """Checks of whether device work is linked to its launches, and whether clocks agree."""
    device = np.flatnonzero(dag.events.is_device)
    linked = int((dag.launch[device] >= 0).sum())
    _, has_work = kernel_launches(dag)
    ids = dag.events.correlation[device[dag.launch[device] >= 0]]
    n_ids = int(group_starts(np.sort(ids)).sum())  # `np.unique` takes far longer
    moved_by, overlap = dag.calibration.moved_by, dag.calibration.clock_overlap_ns
    n_idle, floor_ns = dag.calibration.n_idle_launches, dag.calibration.launch_latency_ns
    return [
        _Check(
            "device work present",
            min(len(device), 1),
            1,
            NO_DEVICE_WORK
            if is_plain(dag.events)
            else "No question on the GPU can be answered: profile with ProfilerActivity.CUDA.",
        ),
        _Check(
            "device work linked to its launch",
            linked,
            len(device),
            f"The launch of {1 - linked / max(len(device), 1):.0%} of the device work is unknown, "
            "so that the path may begin there: start the profile before the work is launched.",
        ),
        _Check(
            "launches with their device work",
            int(has_work.sum()),
            len(has_work),
            "The work of some launches was still queued when the profile ended, or its records "
            "were lost: the question damage says when.",
        ),
        _Check(
            "correlation ids name one call",
            n_ids - dag.notes["n_ambiguous_correlations"],
            n_ids,
            "Several calls carry one correlation id: the earliest is taken as the launch.",
            limit=1.0,
        ),
        _Check(
            "device clock agrees with host clock",
            int(not moved_by),
            1,
            f"The clocks disagree: device times are moved by {moved_by}, so that no kernel "
            "precedes its launch and no wait ends before what it waited for."
            if moved_by
            else "",
        ),
        _Check(
            "launch latency measured on an idle device",
            n_idle,
            max(n_idle, FEWEST_IDLE_LAUNCHES) if linked else 0,
            f"Launch overhead is a guess ({human_duration(floor_ns)} a launch): "
            f"{human_count(n_idle, 'usable sample')}, {FEWEST_IDLE_LAUNCHES} needed.",
        ),
        _Check(
            "waits end after what they waited for",
            int(overlap == 0),
            1,
            f"Clocks drift: by them, waits end up to {human_duration(overlap)} before what they "
            "waited for, which then counts until the wait ends.",
        ),
        _Check(
            "edges run forward in time",
            len(dag.edges),
            len(dag.edges) + len(dag.rejected.edges),
            "Some dependencies run backward in time and are not used: graph.rejected_edges has "
            "them with their skew.",
            limit=1.0,
        ),
    ]


def _waits(dag: Dag) -> list[_Check]:
    """Checks of whether waits are explained, and by which kind of evidence."""
    sync = dag.edges.take(dag.edges.kind == EdgeKind.SYNC)
    between_streams = sync.rule[dag.events.is_device[sync.head >> 1]]
    recorded = int(np.isin(between_streams, Rule.on(Evidence.RECORDED)).sum())
    waits = long_waits(dag)
    return [
        _Check(
            "long synchronizations matched with device work",
            int((waits & is_matched(dag)).sum()),
            int(waits.sum()),
            "What some long waits are for is unknown: their time counts as unrecorded waits. "
            "Record it with enable_cuda_sync_events=True.",
        ),
        _Check(
            "stream waits recorded, not inferred",
            recorded,
            len(between_streams),
            "Waits between streams are inferred from the order and times of calls. Record them: "
            "experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True).",
        ),
    ]


def _joined(dag: Dag, window: Window) -> _Check:
    """Check of whether edges in either direction join all work to the end of the window.

    API calls do not count: threads that only poll need no edge to the rest.
    """
    events, edges, end = dag.events, dag.edges, end_node(dag, window)
    counted = events.is_device | np.isin(events.kind, (EventKind.OP, EventKind.ANNOTATION))
    rows = events_in(dag, window)
    rows = rows[counted[rows]] if end >= 0 else rows[:0]
    component = components(edges.tail >> 1, edges.head >> 1, len(events))
    apart = rows[component[rows] != component[end >> 1]] if len(rows) else rows
    said = ""
    if len(apart):
        codes, texts = track_codes(dag, apart)
        tracks, place = alphabetical(texts)
        found, first, n = np.unique(place[codes], return_index=True, return_counts=True)
        most = n.argmax()
        thread = "" if events.is_device[apart[first[most]]] else "thread "
        device_ns = int(events.dur_ns[apart[events.is_device[apart]]].sum())
        on_device = f"{human_duration(device_ns)} of device time; " if device_ns else ""
        said = (
            f"No edge joins {human_count(len(apart), 'event')} ({on_device}{n[most]:,} on "
            f"{thread}{tracks[found[most]]}) to the rest: they are of another task, or what gave "
            "them their work was not recorded; no path leads there."
        )
    name, n_all = "operators and device work joined by edges", len(rows)
    return _Check(name, n_all - len(apart), n_all, said, note=said)


def _arrows(dag: Dag) -> list[_Check]:
    """Check of whether the file's arrows join slices, if it has any besides PyTorch's own."""
    flows, code = dag.events.flows, dag.events.symbols.code
    others = ~np.isin(flows.category, [code(FORWARD_BACKWARD), code(CRITICAL_PATH)])
    n_arrows = int((others & (flows.phase > 0)).sum())
    rules = np.concatenate([dag.edges.rule, dag.rejected.edges.rule])
    n_joined = int(np.isin(rules, (Rule.RECORDED_FLOW, Rule.TENSOR_DEPENDENCY)).sum())
    if not n_arrows:
        return []
    said = "Some arrows have no start, or no slice at one of their ends: they are no edges."
    return [_Check("arrows of the file join two slices", min(n_joined, n_arrows), n_arrows, said)]


def _cut_ranges(dag: Dag) -> list[_Check]:
    """Check of whether collectives of the host end before their callers continue, if some do not.

    See `htagraph.compiler.host_collectives.until_resumed`.
    """
    if not (n_cut := dag.notes.get("n_cut_ranges", 0)):
        return []
    n_all, name = len(host_ranges(dag)), "host collectives end before their callers continue"
    said = (
        "Some host collectives were recorded as ending after their callers continue: they end "
        "there."
    )
    return [_Check(name, n_all - n_cut, n_all, said, limit=1.0)]


def _recorded_values(dag: Dag) -> _Check:
    """Check of recorded bandwidths against bytes and durations of their copies."""
    found = bandwidths(dag)
    taken = (
        "taken as recorded, for durations are whole microseconds"
        if found.is_as_recorded
        else "bandwidth is bytes by duration"
    )
    return _Check(
        "recorded bandwidths of copies fit bytes and durations",
        found.n_fit,
        found.n_compared,
        f"The median recorded value is {found.factor:.3g} of bytes by duration; {taken}.",
        note=f"{taken[0].upper()}{taken[1:]}." if found.n_compared else "",
    )


def _inferences(dag: Dag, window: Window, path: Segments) -> list[_Check]:
    """What each rule inferred; a learned pair of places counts by its matches."""
    found = inferences(dag, window, path)
    names = ["rule", "n_edges", "path_ns", "path_share", "n_pairs", "n_matched", "n_all", "chance"]
    checks = []
    for row in found[names].itertuples(index=False):
        rule, n_edges, path_ns, share, n_pairs, n_matched, n_all, chance = row
        on_path = f"{human_duration(path_ns)} ({share:.1%}) of the path"
        rests = (
            f"learned from {human_count(n_pairs, 'pair')} of places, which random times would "
            f"match in {chance:.2%} of cases at most"
            if n_pairs
            else "each judged by itself"
        )
        said = f"{human_count(n_edges, 'edge')}, {on_path}; {rests}."
        good, of = (n_matched, n_all) if n_pairs else (n_edges, n_edges)
        checks.append(_Check(f"inferred: {rule}", good, of, said, limit=0.0, note=said))
    return checks


def _overhead(dag: Dag, window: Window, path: Segments) -> list[_Check]:
    """Check of how much of the path is profiler overhead, if any is recorded."""
    found = profiler_overhead(dag, window, path)
    found = found[found["source"] == "profiler"]
    if not len(found):
        return []
    path_ns, most = int(found["path_ns"].sum()), found.iloc[0]
    too_long = (
        f"Times of the path are too long by {human_duration(path_ns)} "
        f"({path_ns / max(window.dur_ns, 1):.1%}) at least, most in {most['inside']} "
        f"({most['name']})"
        if path_ns
        else "None of what is recorded of it is on the path"
    )
    said = f"{too_long}; what it takes to record each event is not recorded."
    name, whole_ns = "critical path free of the profiler's own work (ns)", window.dur_ns
    return [_Check(name, whole_ns - path_ns, whole_ns, said, note=said)]


def unknown_in_words(share: float) -> str:
    """Why nothing is predicted of a path with so many unknown waits; empty below the limit."""
    if share <= UNKNOWN_LIMIT:
        return ""
    return (
        f"{share:.0%} of the critical path is unknown waits (limit {UNKNOWN_LIMIT:.0%}), so no "
        "prediction is made"
    )


def quality(dag: Dag, window: Window, path: Segments | None = None) -> pd.DataFrame:
    """Checks of what is linked, classified and recorded, and what a failed check means.

    `path`: the window's critical path, if it is known.
    """
    path = path_segments(dag, [window]) if path is None else path
    kernels = np.flatnonzero(dag.events.kind == EventKind.KERNEL)
    by_default = dag.classification.rule[kernels] == len(dag.classification.rules) - 1
    unexplained = int(path.dur_ns[path.bound == Bound.UNKNOWN_WAITS].sum())
    checks = [
        *_links(dag),
        _joined(dag, window),
        *_arrows(dag),
        *_cut_ranges(dag),
        *_waits(dag),
        *_inferences(dag, window, path),
        *_overhead(dag, window, path),
        _Check(
            "kernels named by a rule (the others count as compute)",
            len(kernels) - int(by_default.sum()),
            len(kernels),
            "",
            limit=0.0,
        ),
        _recorded_values(dag),
        _Check(
            "steps marked",
            min(len(find_steps(dag.events)), 1),
            1,
            "no per-step answers: ask for a time range, or for a slice by its name."
            if is_plain(dag.events)
            else "no per-step answers: call profiler.step(), or ask for a time range.",
        ),
        _Check(
            "critical path explained (ns)",
            window.dur_ns - unexplained,
            window.dur_ns,
            "what limits the run is not established; see the other checks for what is missing.",
            limit=1 - UNKNOWN_LIMIT,
        ),
    ]
    return QUALITY.frame(
        {
            "check": [check.check for check in checks],
            "n_good": [check.n_good for check in checks],
            "n_all": [check.n_all for check in checks],
            "share": [check.share for check in checks],
            "verdict": pd.Categorical(
                [check.verdict for check in checks], categories=["good", "weak", "missing"]
            ),
            "consequence": [
                check.note if check.verdict == "good" else check.consequence for check in checks
            ],
        }
    )


NO_EVENT = "(no event)"
"""Kind of the time of a path in which no event ran."""


def kinds(dag: Dag, window: Window, *, of: Literal["edges", "events"] = "edges") -> pd.DataFrame:
    """Kinds of edges or events of a window: how many, and their time on the critical path.

    Most time on the path first. All times add up to the window.
    """
    path = path_segments(dag, [window])
    if of == "events":
        labels = [*EventKind.labels(), NO_EVENT]
        own = dag.events.kind[events_in(dag, window)]
        on_path = gather(dag.events.kind, path.event, len(EventKind))
        return _frame(own, on_path, path.dur_ns, [(label, "", "") for label in labels])
    rows = edges_in(dag, window)
    kind, _ = segment_labels(dag, path, "kind")
    return _frame(
        dag.edges.kind[rows].astype(np.int64) * len(Rule) + dag.edges.rule[rows],
        kind.astype(np.int64) * len(Rule) + path.rule(dag),
        path.dur_ns,
        [(kind.label, rule.label, str(rule.evidence)) for kind in EdgeKind for rule in Rule],
    )


def _frame(
    own: npt.NDArray[np.integer[Any]],
    on_path: npt.NDArray[np.integer[Any]],
    dur_ns: npt.NDArray[np.int64],
    labels: list[tuple[str, str, str]],
) -> pd.DataFrame:
    """The answer from codes of things and of segments, and what each code is called."""
    n = np.bincount(own, minlength=len(labels))
    path_ns = sum_by_code(on_path, dur_ns, len(labels))
    found = np.flatnonzero((n > 0) | (path_ns > 0))
    found = found[np.lexsort((found, -n[found], -path_ns[found]))]
    kind, rule, evidence = ([labels[code][at] for code in found.tolist()] for at in range(3))
    return KINDS.frame(
        {
            "kind": kind,
            "rule": rule,
            "evidence": evidence,
            "n": n[found],
            "path_ns": path_ns[found],
            "path_share": path_ns[found] / max(int(dur_ns.sum()), 1),
        }
    )


def damage(dag: Dag, window: Window) -> pd.DataFrame:
    """What of the window is damaged: events that are lost, times that are wrong."""
    return damage_frame(damage_of(dag, window))


def damage_frame(found: Iterable[Damage]) -> pd.DataFrame:
    """Damage as a frame, schema `answers.DAMAGE`."""
    rows = list(found)
    return DAMAGE.frame(
        {
            "kind": labelled([one.kind for one in rows], list(DamageKind)),
            "n": [one.n for one in rows],
            "n_all": [one.n_all for one in rows],
            "start_ns": [one.start_ns for one in rows],
            "end_ns": [one.end_ns for one in rows],
            "consequence": [one.said for one in rows],
        }
    )


_SOURCES = ("profiler", "driver", "unknown")
_DRIVER = re.compile(r"(?i)\bdriver\b|(module|function)[ _]loading|command[ _]buffer[ _]full")
_UNKNOWN = re.compile(
    r"(?i)^(cupti\W*)?(unknown|unrecognized|force int)$"
    r"|^dl(open|close)\b(?!.*(cupti|tools_?injection))"
)
"""Includes library loads that Nsight Systems records, unless they are its own."""
_FLUSH = re.compile(r"(?i)flush")
"""Overhead that is also on threads of the profiler, which the file may not name."""
_NO_PROCESS = -1
"""Process of the row to which Kineto assigns all overhead."""
_NEVER_NS = np.iinfo(np.int64).min
"""Before all times."""
_HOST_RUNS = (Bound.HOST, Bound.DATA_LOADING, Bound.UNTRACED_CODE)
_CALLS = (EventKind.OP, EventKind.RUNTIME)


def profiler_overhead(dag: Dag, window: Window, path: Segments | None = None) -> pd.DataFrame:
    """Recorded overhead by name: its source, its time, and its time on the path.

    ::

        cpu 1    |[aten::add [launch >a]   ]    6 us of the path are the profiler's: they lie in
                      [Buffer]                  aten::add
        stream 7 |                    [k <a ]

    Overhead is on the path while the path is on the same host thread; the innermost of overlapping
    ones counts. If the file names no thread, as Kineto does for CUPTI, the thread is the only one
    in an operator or call all that time. With none or several, and for buffer flushes, it is
    unknown, and the overhead is not on the path. Most time on the path first. Path times are too
    long by at least the profiler's share: the cost of recording each event is not recorded.
    """
    path = path_segments(dag, [window]) if path is None else path
    events = dag.events
    found = clipped(dag, np.flatnonzero(events.kind == EventKind.OVERHEAD), window)
    # Sorted, so that the answer does not depend on the order of the file.
    symbols, at = np.unique(events.name[found.event], return_inverse=True)
    names, place = alphabetical(events.symbols.array[symbols])
    group, n = place[at], len(names)
    sources = [2 if _UNKNOWN.search(one) else int(bool(_DRIVER.search(one))) for one in names]
    lane = _lanes(dag, found)
    row, segment, dur_ns = _on_path(dag, found, lane, path)
    path_ns = sum_by_code(group[row], dur_ns, n)
    assert path_ns.sum() <= window.dur_ns, "overhead on the path is part of the window"
    frame = PROFILER_OVERHEAD.frame(
        {
            "name": names,
            "source": categorical(np.array(sources, dtype=np.int64), _SOURCES),
            "n_events": np.bincount(group, minlength=n),
            "n_placed": np.bincount(group[lane >= 0], minlength=n),
            "sum_ns": sum_by_code(group, found.dur_ns, n),
            "path_ns": path_ns,
            "path_share": path_ns / max(window.dur_ns, 1),
            "inside": _inside(dag, take(path, segment), group[row], dur_ns, n),
        }
    )
    return frame.sort_values(
        ["path_ns", "sum_ns", "name"], ascending=[False, False, True], ignore_index=True
    )


def _lanes(dag: Dag, found: Clipped) -> I64:
    """Host thread of each overhead, -1 if unknown."""
    events = dag.events
    lane = events.lane[found.event].astype(np.int64)
    threads = np.unique(events.lane[events.is_host]).astype(np.int64)
    by_tid: dict[int | str, list[int]] = {}
    for thread in threads.tolist():
        by_tid.setdefault(events.lanes.tid[thread], []).append(thread)
    own = np.full(len(events.lanes) + 1, -1, dtype=np.int64)
    own[threads] = threads
    unnamed = np.zeros(len(events.lanes) + 1, dtype=bool)
    for one in np.setdiff1d(lane, threads).tolist():
        if events.lanes.pid[one] == _NO_PROCESS:
            alike = by_tid.get(events.lanes.tid[one], [])
            own[one] = alike[0] if len(alike) == 1 else -1
            unnamed[one] = not alike
    is_flush = events.named(events.symbols.searched(_FLUSH))[found.event]
    lane, asked = own[lane], np.flatnonzero(unnamed[lane] & ~is_flush)
    lane[asked] = _only_thread_in_a_call(dag, found.take(asked))
    return lane


def _only_thread_in_a_call(dag: Dag, found: Clipped) -> I64:
    """The thread that is in one operator or call from start to end; -1 for none or several.

    Of all that have begun, the last end and the last one of another thread are running maxima.
    """
    events = dag.events
    calls = np.flatnonzero(among(events.kind, _CALLS))
    calls = calls[np.argsort(events.ts_ns[calls], kind="stable")]
    lane, ends_ns = events.lane[calls], events.end_ns[calls]
    last_ns = np.maximum.accumulate(np.append(_NEVER_NS, ends_ns))
    latest = np.maximum.accumulate(np.where(ends_ns > last_ns[:-1], np.arange(len(calls)), 0))
    leads = gather(lane, latest, -1)
    is_other = lane != np.append(-1, leads[:-1])
    next_ns = np.maximum.accumulate(
        np.where(is_other, np.minimum(ends_ns, last_ns[:-1]), _NEVER_NS)
    )
    last = np.searchsorted(events.ts_ns[calls], found.start_ns, side="right") - 1
    covers = gather(last_ns[1:], last, _NEVER_NS) >= found.end_ns
    covers &= gather(next_ns, last, _NEVER_NS) < found.end_ns
    return np.where(covers, gather(leads, last, -1), -1)


def _on_path(dag: Dag, found: Clipped, lane: I64, path: Segments) -> tuple[I64, I64, I64]:
    """Parts of the path with overhead: the innermost overhead, the segment, and the time."""
    placed = np.flatnonzero(lane >= 0)
    some = found.take(placed)
    nesting = nest(
        lane[placed].astype(np.int32),
        some.start_ns,
        some.end_ns,
        (np.zeros(len(placed), dtype=np.int8), dag.events.tiebreak[some.event]),
    )
    times = np.stack([some.start_ns, some.end_ns], axis=1).reshape(-1)[nesting.boundary]
    # After the last boundary of a thread, nothing is innermost.
    runs = np.flatnonzero(nesting.innermost[:-1] >= 0)
    row, begin, end = placed[nesting.innermost[runs]], times[runs], times[runs + 1]
    start_ns, end_ns = path.start_ns, path.start_ns + path.dur_ns
    first = np.searchsorted(end_ns, begin, side="right")
    n_segments = np.maximum(np.searchsorted(start_ns, end, side="left") - first, 0)
    of = np.repeat(np.arange(len(runs)), n_segments)
    segment = first[of] + np.arange(len(of)) - (np.cumsum(n_segments) - n_segments)[of]
    inside_ns = np.minimum(end[of], end_ns[segment]) - np.maximum(begin[of], start_ns[segment])
    # The path continues on the thread of the edge's head.
    head = gather(dag.edges.head.astype(np.int64), path.edge[segment], -2)
    counts = among(path.bound[segment], _HOST_RUNS) & (inside_ns > 0)
    counts &= gather(dag.events.lane.astype(np.int64), head >> 1) == lane[row[of]]
    return row[of][counts], segment[counts], inside_ns[counts]


def _inside(dag: Dag, path: Segments, group: I64, dur_ns: I64, n: int) -> Texts:
    """Operator, else name, with most of each group's overhead on the path."""
    op, name = (coded_texts(dag, path, column).words for column in ("op", "name"))
    time = pd.DataFrame({"group": group, "name": np.where(op == "", name, op), "dur_ns": dur_ns})
    sums = time.groupby(["group", "name"], as_index=False).sum()
    most = sums.sort_values(["dur_ns", "name"], ascending=[False, True]).drop_duplicates("group")
    out = np.full(n, "", dtype=object)
    out[most["group"].to_numpy(np.int64)] = most["name"].to_numpy(object)
    return out
