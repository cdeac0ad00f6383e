"""What of a trace is damaged, and the part of a window in which nothing was lost.

Where device work or launches are lost, the path runs along what is left. Of a window with such
holes, the longest part between two of them is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from htagraph.arrays.intervals import Intervals, gaps, union
from htagraph.lookup.holes import lost_records
from htagraph.lookup.steps import step_events
from htagraph.model.dag import Dag
from htagraph.model.names import step_number
from htagraph.model.recording import HOLES, Damage, DamageKind, Repair
from htagraph.model.units import human_count, human_duration
from htagraph.model.window import Window

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
    """Holes within a window."""
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
