"""How far a graph can be trusted: what is linked, classified and recorded, and what is not."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.algorithms.components import components
from htagraph.algorithms.matching import group_starts
from htagraph.compiler.structure import FEWEST_IDLE_LAUNCHES
from htagraph.explain.critical_path import end_node, path_segments
from htagraph.explain.segments import Segments
from htagraph.lookup.attribution import track_codes
from htagraph.lookup.bandwidths import bandwidths
from htagraph.lookup.holes import kernel_launches
from htagraph.lookup.host_collectives import host_ranges
from htagraph.lookup.host_waits import is_matched, long_waits
from htagraph.lookup.plain_traces import NO_DEVICE_WORK, is_plain
from htagraph.lookup.selecting import events_in
from htagraph.lookup.steps import find_steps
from htagraph.model.answers import QUALITY
from htagraph.model.categories import CRITICAL_PATH, FORWARD_BACKWARD
from htagraph.model.dag import Dag
from htagraph.model.kinds import Bound, EdgeKind, EventKind
from htagraph.model.rules import Evidence, Rule
from htagraph.model.symbols import alphabetical
from htagraph.model.units import human_count, human_duration
from htagraph.model.window import Window
from htagraph.queries.inferences import inferences_of
from htagraph.queries.profiler_overhead import profiler_overhead_of

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
    launches = kernel_launches(dag)
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
            int(launches.has_work.sum()),
            len(launches.event),
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
    return _Check(
        "operators and device work joined by edges",
        len(rows) - len(apart),
        len(rows),
        said,
        note=said,
    )


def _arrows(dag: Dag) -> list[_Check]:
    """Check of whether the file's arrows join slices, if it has any besides PyTorch's own."""
    flows, code = dag.events.flows, dag.events.symbols.code
    others = ~np.isin(flows.category, [code(FORWARD_BACKWARD), code(CRITICAL_PATH)])
    n_arrows = int((others & (flows.phase > 0)).sum())
    rules = np.concatenate([dag.edges.rule, dag.rejected.edges.rule])
    n_joined = int(np.isin(rules, (Rule.RECORDED_FLOW, Rule.TENSOR_DEPENDENCY)).sum())
    if not n_arrows:
        return []
    return [
        _Check(
            "arrows of the file join two slices",
            min(n_joined, n_arrows),
            n_arrows,
            "Some arrows have no start, or no slice at one of their ends: they are no edges.",
        )
    ]


def _cut_ranges(dag: Dag) -> list[_Check]:
    """Check of whether collectives of the host end before their callers continue, if some do not.

    See `htagraph.compiler.host_collectives.until_resumed`.
    """
    if not (n_cut := dag.notes.get("n_cut_ranges", 0)):
        return []
    n_all = len(host_ranges(dag))
    return [
        _Check(
            "host collectives end before their callers continue",
            n_all - n_cut,
            n_all,
            "Some host collectives were recorded as ending after their callers continue: they end "
            "there.",
            limit=1.0,
        )
    ]


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
    found = inferences_of(dag, window, path)
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
    found = profiler_overhead_of(dag, window, path)
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
    return [
        _Check(
            "critical path free of the profiler's own work (ns)",
            window.dur_ns - path_ns,
            window.dur_ns,
            said,
            note=said,
        )
    ]


def unknown_in_words(share: float) -> str:
    """Why nothing is predicted of a path with so many unknown waits; empty below the limit.

    Examples
    --------
    >>> unknown_in_words(0.25)
    '25% of the critical path is unknown waits (limit 20%), so no prediction is made'
    """
    if share <= UNKNOWN_LIMIT:
        return ""
    return (
        f"{share:.0%} of the critical path is unknown waits (limit {UNKNOWN_LIMIT:.0%}), so no "
        "prediction is made"
    )


def quality(dag: Dag, window: Window) -> pd.DataFrame:
    """Checks of what is linked, classified and recorded, and what a failed check means."""
    return quality_of(dag, window, path_segments(dag, [window]))


def quality_of(dag: Dag, window: Window, path: Segments) -> pd.DataFrame:
    """The same, given the window's critical path."""
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
