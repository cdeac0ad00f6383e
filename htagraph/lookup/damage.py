"""What of a trace is damaged, and the part of a window in which nothing was lost.

Where device work or launches are lost, the path runs along what is left. Of a window with such
holes, the longest part between two of them is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from htagraph.algorithms.intervals import Intervals, gaps, union
from htagraph.lookup.clock_jumps import clock_jumps
from htagraph.lookup.lost_records import lost_records
from htagraph.lookup.lost_steps import lost_steps
from htagraph.lookup.reader_damage import reader_damage
from htagraph.model.dag import Dag
from htagraph.model.damage import HOLES, Damage
from htagraph.model.window import Window

LOST_LIMIT = 0.05
"""Share of a window in holes up to which it is judged nevertheless.

Chosen: causes are told apart by larger shares. Pinned by
`test_damage.py::test_a_small_hole_is_only_told`.
"""

_LEAST_SHARE = 1 / 3
"""Share of a window from which on a part is judged in its place.

Chosen: a hole in the middle leaves less than half on each side. Pinned by
`test_damage.py::test_a_part_of_a_third_is_judged_in_place_of_the_whole`.
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
    """Longest part of a window outside of all holes; None if nothing is.

    Examples
    --------
    >>> hole = Damage(HOLES[0], 90, 100, 20, 30, "lost.")
    >>> part = longest_whole_part([hole], Window(0, 100, "all"))
    >>> part.start_ns, part.end_ns
    (30, 100)
    """
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
