"""A path in a few boxes: the same cycle of names is one, and what is short is counted; on a slide.

Segments of one lane, bound and name in a row are one run. Cycles of runs are folded: a layer that
runs 24 times is drawn once, and ``A B C A B C A B D`` is ``A B C D``. Shorter cycles are folded
first, so that cycles of cycles become visible: in ``A A B A B`` they are ``A B``. Each costs one
pass, as in the search for tandem repeats (Main and Lorentz, 1984).

The names with most time are boxes of their own, the others of a lane and bound one box, and runs
too short to be drawn are left out. How many names get a box of their own, and what is left out, is
chosen so that most of the time is under a name; all of it adds up. On the slide, lanes go from top
to bottom, boxes in columns from left to right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.codes import distinct, largest
from htagraph.arrays.intervals import sum_by_code
from htagraph.arrays.passes import compiled
from htagraph.errors import GraphError
from htagraph.model.arrays import F64, I64
from htagraph.model.kinds import Bound, EdgeKind
from htagraph.model.labels import name_label
from htagraph.model.names import STEP_MARKERS, without_step_number

Point = tuple[float, float]

WIDTH, HEIGHT = 960, 540
"""Points of a slide: 1280 x 720 pixels."""
_TOP, _BOTTOM, _SIDE = 44, 50, 12
"""Points around the lanes: for the title, for what is left out, and at both sides."""
_HEAD, _ROW = 24, 58
"""Least points of the label of a lane, and of a row of boxes with the arrow above it."""
_MOST_COLUMNS = 5
"""Columns whose boxes, and labels of arrows between them, can still be read at that size."""
_WIDEST, _HIGHEST, _BETWEEN, _ABOVE = 230, 76, 48, 17
"""Points of a box at most, and between boxes at least."""
_TIP, _BEND, _APART, _LEVEL, _INTO = 6, 7, 6, 14, 0.8
"""Points of the tip of an arrow, of its bends, between arrows, from one to its label; and where it
enters a box from above, from the center to the side."""
_SHIFTS, _ALONG = (0, 1, -1, 2, -2), (0.5, 0.3, 0.7, 0.4, 0.6)
"""Where arrows run that share a gap, and where along them their labels are, in turn."""


class Slide(NamedTuple):
    """Places of boxes, in points from the lower left."""

    lanes: tuple[tuple[float, float, float, float], ...]  # Left, bottom, right and top of each
    boxes: tuple[Point, ...]  # Centers
    columns: tuple[int, ...]  # Of the boxes
    # width, height: of each box
    width: float
    height: float

    def route(self, tail: int, head: int, beside: int = 0) -> Route:
        """An arrow between two boxes: straight down, across to the next column, or around others.

        `beside`: arrows that run in the same gap between columns.
        """
        (x, y), (to_x, to_y) = self.boxes[tail], self.boxes[head]
        across, down, side = self.width / 2, self.height / 2, 1 if head > tail else -1
        middle = x + side * (across + _BETWEEN / 2)
        gap = middle + _APART * _SHIFTS[beside % len(_SHIFTS)]
        along = _ALONG[beside % len(_ALONG)]
        steps = self.columns[head] - self.columns[tail]
        if not steps and side > 0 and not self._between(tail, head):
            return Route(((x, y - down), (x, to_y + down)), (x + 3, (y + to_y) / 2), is_right=True)
        if steps == 1:
            label_y = max(y, to_y) - along * abs(y - to_y) + _LEVEL * (abs(y - to_y) < down)
            corners = ((x + across, y), (gap, y), (gap, to_y), (to_x - across, to_y))
            return Route(corners, (middle, label_y))
        start, above = y - side * down / 2, to_y + down + _ABOVE / 2 + (gap - middle) / 3
        into = to_x + _INTO * across * (-np.sign(steps) if steps else side)
        label = (middle, max(start, above) - along * abs(start - above))
        if side < 0:
            label = (x - across - _BETWEEN / 3, start + _LEVEL / 2)
        around = ((x + side * across, start), (gap, start), (gap, above), (into, above))
        return Route((*around, (into, to_y + down)), label)

    def _between(self, tail: int, head: int) -> bool:
        """Whether a box of the same column is between two."""
        low, high = self.boxes[head][1], self.boxes[tail][1]
        column = self.columns[tail]
        return any(
            one == column and low < y < high
            for one, (_, y) in zip(self.columns, self.boxes, strict=True)
        )


class Route(NamedTuple):
    """The corners of an arrow, and where its label is: centered there, or to its right."""

    corners: tuple[Point, ...]
    label: Point
    is_right: bool = False

    @property
    def spline(self) -> str:
        """The arrow as Graphviz draws it: cubic curves with round corners."""
        points = [np.array(corner, dtype=np.float64) for corner in self.corners]
        end = points[-1] - _TIP * _toward(points[-2], points[-1])
        path = [points[0]]
        for before, corner, after in zip(points, points[1:], [*points[2:], end], strict=False):
            if corner is points[-1]:
                break
            bend = min(_BEND, *(np.abs(corner - one).max() / 2 for one in (before, after)))
            start = corner + bend * _toward(corner, before)
            stop = corner + bend * _toward(corner, after)
            path += [path[-1], start, start, corner, corner, stop]
        path += [path[-1], end, end]
        x, y = self.corners[-1]
        return " ".join([f"e,{x:.1f},{y:.1f}", *(f"{x:.1f},{y:.1f}" for x, y in path)])


def _toward(start: F64, end: F64) -> F64:
    """Direction from one point to another."""
    way = end - start
    direction: F64 = way / max(float(np.hypot(*way)), 1e-9)
    return direction


def _stacked(lanes: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Column of each box, and row within its lane, in order of time.

    Boxes go down a column while their lanes are in order; else the next column begins.
    """
    out: list[tuple[int, int]] = []
    column = row = 0
    for at, lane in enumerate(lanes):
        before = lanes[at - 1] if at else lane
        row = row + 1 if at and lane == before else 0
        if row == most or lane < before:
            column, row = column + 1, 0
        out.append((column, row))
    return out


def _rows(lanes: Sequence[int], places: Sequence[tuple[int, int]]) -> list[int]:
    """Rows that each lane needs."""
    out = [1] * (max(lanes) + 1)
    for lane, (_, row) in zip(lanes, places, strict=True):
        out[lane] = max(out[lane], row + 1)
    return out


def arranged(lanes: Sequence[int]) -> Slide | None:
    """Place boxes of lanes, in order of time; None if they do not fit a slide."""
    if not lanes:
        return Slide((), (), (), 0, 0)
    best: tuple[float, list[tuple[int, int]]] | None = None
    area = HEIGHT - _TOP - _BOTTOM
    for most in range(1, len(lanes) + 1):
        places = _stacked(lanes, most)
        rows = _rows(lanes, places)
        share = (sum(rows) * _ROW + len(rows) * _HEAD) / area
        filled = max(share, (places[-1][0] + 1) / _MOST_COLUMNS)
        if filled <= 1 and (best is None or filled < best[0]):
            best = filled, places
    return _drawn(lanes, best[1]) if best else None


def _drawn(lanes: Sequence[int], places: Sequence[tuple[int, int]]) -> Slide:
    """Points of places."""
    rows, columns = _rows(lanes, places), places[-1][0] + 1
    slot = (HEIGHT - _TOP - _BOTTOM - len(rows) * _HEAD) / sum(rows)
    across = (WIDTH - 2 * _SIDE) / columns
    width, height = min(across - _BETWEEN, _WIDEST), min(slot - _ABOVE, _HIGHEST)
    tops, top = [], float(HEIGHT - _TOP)
    for n in rows:
        tops.append(top)
        top -= n * slot + _HEAD
    bounds = [
        (_SIDE, top - n * slot - _HEAD + 6, WIDTH - _SIDE, top)
        for n, top in zip(rows, tops, strict=True)
    ]
    boxes = [
        (_SIDE + (column + 0.5) * across, tops[lane] - _HEAD + 6 - (row + 0.5) * slot)
        for lane, (column, row) in zip(lanes, places, strict=True)
    ]
    at = tuple(column for column, _ in places)
    return Slide(tuple(bounds), tuple(boxes), at, width, height)


@compiled
def _fold(code: I64, place: I64, parent: I64, run: I64, longest: int) -> int:
    """Fold cycles in place; return how many places are left."""
    n, period = len(code), 1
    while period <= longest and 2 * period <= n:
        repeats = False
        run[n - period] = 0
        for at in range(n - period - 1, -1, -1):
            run[at] = run[at + 1] + 1 if code[at] == code[at + period] else 0
            repeats = repeats or run[at] >= period
        if not repeats:
            period += 1
            continue
        read, kept = 0, 0
        while read < n:
            first, length = kept, 1
            if read < n - period and run[read] >= period:
                length = run[read] + period
            for step in range(length):
                if step < period:
                    code[kept], place[kept] = code[read + step], place[read + step]
                    kept += 1
                else:
                    parent[place[read + step]] = place[first + step % period]
            read += length
        n, period = kept, 1
    return n


def folded(code: I64, longest: int) -> I64:
    """The place that each place of a sequence is folded onto: itself, or an earlier one.

    A cycle of at most `longest` codes is folded if it occurs twice in a row at least; so is the
    beginning of the next one.
    """
    parent = np.arange(len(code))
    run = np.empty(len(code) + 1, dtype=np.int64)
    _fold(code.copy(), parent.copy(), parent, run, longest)
    while len(moved := np.flatnonzero(parent[parent] != parent)):
        parent[moved] = parent[parent[moved]]
    return parent


MOST_BOXES = 24
"""Boxes of a path, besides the one that counts the rest: more are not read on a slide. Chosen."""
_LEAST_SHARE = 0.01
"""Share of the path below which a box is left out, chosen. Pinned by test_path_outline."""
_UNNAMED_WORTH = 0.5
"""What a share is worth in a box of several names, against one of its own. Chosen."""
_MOST_LEFT_OUT = 0.1
"""Share left out from which on all other bounds of a lane may share a box. Chosen."""
_MOST_FOLDED = 4 * MOST_BOXES
"""Boxes from which the smallest are taken away one by one. Changes only the speed."""
_BEGINNING, _GROWTH = 2_048, 8
"""Runs of a path that must fold before so many times more are tried. Changes the speed, rarely the
boxes."""
_N_NAMED = (24, 20, 16, 12, 10, 8, 6, 5, 4, 3, 2, 1, 0)
"""Names with boxes of their own that are tried."""
_N_NAMES = 2
"""Names in a box of several. Chosen: they fit on its line."""

_WHOLE = 1 << 20
"""Characters of a name that is not cut: those printed as the same are one."""
_STREAM = re.compile(r"(?:gpu (-?\d+) )?stream (-?\d+)")
_RANK = re.compile(r"rank (\d+) · (.*)")
_SERVING, _NUMBER = STEP_MARKERS["serving marker"], re.compile(r"[ #]\d+$")
_CONNECTS = [kind not in {EdgeKind.SPAN, EdgeKind.THREAD, EdgeKind.SOURCE} for kind in EdgeKind]

Codes = npt.NDArray[np.integer[Any]]


class Column(NamedTuple):
    """A label of each segment: its code, and the text of each code."""

    codes: Codes
    texts: Sequence[str]


class PathBox(NamedTuple):
    """Runs of a path on one lane that are drawn as one box; longest bounds and names first."""

    lane: int
    bounds: tuple[Bound, ...]
    names: tuple[str, ...]
    n_names: int
    n_runs: int
    dur_ns: int


class PathArrow(NamedTuple):
    """How the path comes from one box to another."""

    tail: int
    head: int
    kind: EdgeKind | None  # Of most of these edges; None if they were not recorded
    n: int  # How often
    lag_ns: int  # Mean of the time that passes between the boxes on such edges

    @property
    def is_back(self) -> bool:
        """Whether it leads back to an earlier box, or to the same."""
        return self.head <= self.tail


class Outline(NamedTuple):
    """A path in a few boxes."""

    lanes: tuple[str, ...]
    boxes: tuple[PathBox, ...]  # In order of time
    arrows: tuple[PathArrow, ...]  # How each box is first reached, and how most often
    # n_left_out, left_out_ns: segments in no box, and their time
    n_left_out: int
    left_out_ns: int
    left_out: tuple[tuple[Bound, int], ...]  # Most of this time by bound, the largest first
    dur_ns: int  # Of the path: what all boxes and what is left out add up to


class _Runs(NamedTuple):
    """Runs of segments of one lane, bound and name; these by key, which says them."""

    first: I64
    key: I64
    dur_ns: I64
    lane: I64
    bound: I64
    name: I64

    @property
    def codes(self) -> tuple[I64, I64, I64]:
        """Each key as a number: by itself, by its lane and bound, by its lane; all differ."""
        n_keys = len(self.lane)
        n_groups = (int(self.lane.max(initial=-1)) + 1) * len(Bound)
        group = n_keys + self.lane * len(Bound) + self.bound
        return np.arange(n_keys), group, n_keys + n_groups + self.lane


_Plan = tuple[I64, float]
"""Box of each run, -1 for none, and what the boxes are worth."""


def path_outline(lane: Column, bound: Codes, name: Column, kind: Codes, dur_ns: I64) -> Outline:
    """Outline of a path; a segment without a lane is on that of the segment before it."""
    if not len(dur_ns):
        return Outline((), (), (), 0, 0, (), 0)
    lane, name = _in_order(lane), _as_printed(name)
    runs = _runs(lane.codes, bound, name.codes, dur_ns)
    box, _ = _best_plan(runs)
    out, ends = box < 0, np.append(runs.first[1:], len(dur_ns))
    by_bound = sum_by_code(runs.bound[runs.key[out]], runs.dur_ns[out], len(Bound)).tolist()
    used = distinct(runs.lane[runs.key[~out]])
    found = Outline(
        lanes=tuple(lane.texts[code] for code in used.tolist()),
        boxes=_boxes(runs, box, used, name.texts),
        arrows=_arrows(runs, box, kind, dur_ns, [bool(_STREAM.search(one)) for one in lane.texts]),
        n_left_out=int((ends - runs.first)[out].sum()),
        left_out_ns=int(runs.dur_ns[out].sum()),
        left_out=tuple(
            (one, by_bound[one]) for one in sorted(Bound, key=lambda one: -by_bound[one])
        )[:_N_NAMES],
        dur_ns=int(dur_ns.sum()),
    )
    if sum(one.dur_ns for one in found.boxes) + found.left_out_ns != found.dur_ns:
        raise GraphError("the boxes of a drawn path do not add up to the path.")
    return found


def _in_order(lane: Column) -> Column:
    """Lanes in the order in which they are drawn; threads first, in the order of the path."""
    known = np.array([bool(text) for text in lane.texts], dtype=bool)[lane.codes]
    at = np.maximum.accumulate(np.where(known, np.arange(len(known)), int(known.argmax())))
    codes, texts = pd.factorize(lane.codes[at])
    named = [lane.texts[code] for code in texts.tolist()]
    order = sorted(range(len(named)), key=lambda code: _lane_key(named[code]))
    row = np.empty(len(order), dtype=np.int64)
    row[order] = np.arange(len(order))
    return Column(row[codes], [named[code] for code in order])


def _lane_key(text: str) -> tuple[int, ...]:
    """Where a lane is drawn: by rank, then threads, then streams by device and number."""
    rank = _RANK.fullmatch(text)
    stream = _STREAM.fullmatch(rank[2] if rank else text)
    place = (1, int(stream[1] or 0), int(stream[2])) if stream else (0, 0, 0)
    return (int(rank[1]) if rank else -1, *place)


def _as_printed(name: Column) -> Column:
    """Names as they are printed, without numbers of steps."""
    bare = (
        _NUMBER.sub("", text) if _SERVING.search(text) else without_step_number(text)
        for text in name.texts
    )
    printed = [name_label(text, width=_WHOLE) for text in bare]
    number, texts = pd.factorize(np.array(printed, dtype=object))
    return Column(number[name.codes], texts.tolist())


def _runs(lane: Codes, bound: Codes, name: Codes, dur_ns: I64) -> _Runs:
    """Runs of segments, in order of time; keys are numbered as they come."""
    n_names = int(name.max(initial=0)) + 1
    key, found = pd.factorize((lane * len(Bound) + bound) * n_names + name)
    first = np.flatnonzero(np.diff(key, prepend=-1))
    group = found // n_names
    return _Runs(
        first,
        key[first],
        np.add.reduceat(dur_ns, first) if len(first) else dur_ns,
        group // len(Bound),
        group % len(Bound),
        found % n_names,
    )


def _best_plan(runs: _Runs) -> _Plan:
    """The boxes that tell most, by lane and bound; by lane, if those leave too much out."""
    _, by_bound, by_lane = runs.codes
    plan = _best_of(runs, by_bound)
    left_out_ns = int(runs.dur_ns[plan[0] < 0].sum())
    if left_out_ns <= _MOST_LEFT_OUT * int(runs.dur_ns.sum()):
        return plan
    return max(plan, _best_of(runs, by_lane), key=lambda plan: plan[1])


def _best_of(runs: _Runs, code: I64) -> _Plan:
    """The boxes that tell most: plans are tried in the order of what they can be worth."""
    n_keys = len(runs.lane)
    key_ns = sum_by_code(runs.key, runs.dur_ns, n_keys)
    longest = largest(key_ns, MOST_BOXES)
    options = []
    for n_named in _N_NAMED:
        named = longest[:n_named]
        drawn = _drawn_as(code, named, named[:0])
        rest, rest_ns = _shortest_first(drawn[runs.key], runs.dur_ns, n_keys)
        for n_out in range(len(rest) + (n_named > 0)):
            worth = key_ns[named].sum() + _UNNAMED_WORTH * rest_ns[n_out:].sum()
            options.append((float(worth), named, rest[:n_out]))
    options.sort(key=lambda option: -option[0])
    best = np.full(len(runs.key), -1), -1.0
    for worth, named, out in options:
        if worth <= best[1]:
            break
        found = _plan(runs, _drawn_as(code, named, out))
        best = found if found and found[1] > best[1] else best
    return best


def _drawn_as(code: I64, named: I64, out: I64) -> I64:
    """The code that each key is drawn as: its own if it is named, -1 if it is left out."""
    drawn = code.copy()
    drawn[named] = named
    drawn[np.isin(drawn, out)] = -1
    return drawn


def _shortest_first(code: I64, dur_ns: I64, n_keys: int) -> tuple[I64, I64]:
    """Codes of no name of their own by the mean length of their stretches, and their times."""
    begins = np.diff(code, prepend=-1) != 0
    rest = distinct(code[code >= n_keys])
    n = np.bincount(code[begins], minlength=int(rest.max(initial=0)) + 1)[rest]
    rest_ns = sum_by_code(code, dur_ns, int(code.max(initial=0)) + 1)[rest]
    order = np.argsort(rest_ns / np.maximum(n, 1), kind="stable")
    return rest[order], rest_ns[order]


def _plan(runs: _Runs, code_of_key: I64) -> _Plan | None:
    """Boxes of runs by the codes of their keys, -1 for none; None if they are far too many."""
    code = code_of_key[runs.key]
    kept = np.flatnonzero(code >= 0)
    n = min(_BEGINNING, len(kept))
    drawn, box = _folded_boxes(code[kept[:n]])
    while n < len(kept) and len(drawn) <= _MOST_FOLDED:
        n = min(_GROWTH * n, len(kept))
        drawn, box = _folded_boxes(code[kept[:n]])
    if len(drawn) > _MOST_FOLDED:
        return None
    least_ns = _LEAST_SHARE * int(runs.dur_ns.sum())
    box_ns = sum_by_code(box, runs.dur_ns[kept], len(drawn))
    lane = np.zeros(int(code.max()) + 2, dtype=np.int64)  # the last one for -1
    lane[code_of_key] = runs.lane
    final = np.arange(len(drawn))
    while len(drawn) > 1 and (
        box_ns.min() < least_ns
        or len(drawn) > MOST_BOXES
        or arranged(np.unique(lane[drawn], return_inverse=True)[1].tolist()) is None
    ):
        stays = np.arange(len(drawn)) != box_ns.argmin()
        drawn, merged = _folded_boxes(drawn[stays])
        box_ns = sum_by_code(merged, box_ns[stays], len(drawn))
        moved = np.full(len(stays) + 1, -1)
        moved[:-1][stays] = merged
        final = moved[final]
    out = np.full(len(code), -1)
    out[kept] = final[box]
    return out, float(np.where(drawn < len(runs.lane), 1.0, _UNNAMED_WORTH) @ box_ns)


def _folded_boxes(code: I64) -> tuple[I64, I64]:
    """Codes of boxes in order of time, and the box of each place."""
    parent = folded(code, MOST_BOXES)
    first = distinct(parent)
    return code[first], np.searchsorted(first, parent)


def _boxes(runs: _Runs, box: I64, used: I64, texts: Sequence[str]) -> tuple[PathBox, ...]:
    """Boxes in order of time."""
    out = []
    for number in range(int(box.max(initial=-1)) + 1):
        own = np.flatnonzero(box == number)
        key = runs.key[own]
        names = sum_by_code(runs.name[key], runs.dur_ns[own], len(texts))
        bounds = sum_by_code(runs.bound[key], runs.dur_ns[own], len(Bound))
        out.append(
            PathBox(
                int(np.searchsorted(used, runs.lane[key[0]])),
                tuple(Bound(one) for one in largest(bounds, len(Bound)).tolist() if bounds[one]),
                tuple(texts[one] for one in largest(names, _N_NAMES).tolist() if names[one]),
                int(np.count_nonzero(names)),
                len(own),
                int(runs.dur_ns[own].sum()),
            )
        )
    return tuple(out)


def _arrows(
    runs: _Runs, box: I64, kind: Codes, dur_ns: I64, is_stream: Sequence[bool]
) -> tuple[PathArrow, ...]:
    """How each box is first reached, and how most often, in the order of the boxes."""
    kept = np.flatnonzero(box >= 0)
    number = box[kept]
    change = np.flatnonzero(np.diff(number)) + 1
    tail, head = number[change - 1], number[change]
    ends = np.append(runs.first[1:], len(dur_ns))[kept[change - 1]]
    begins = runs.first[kept[change]]
    connects = np.array(_CONNECTS)[kind]
    last = np.maximum.accumulate(np.where(connects, np.arange(len(kind)), -1))[begins]
    lane = runs.lane[runs.key[kept]]
    implied = np.where(np.array(is_stream)[lane[change]], EdgeKind.STREAM, EdgeKind.THREAD)
    implied[lane[change] != lane[change - 1]] = -1
    is_known = last >= ends
    how = np.where(is_known, kind[last], implied)
    lag_ns = np.where(is_known & (last < begins), dur_ns[last], 0)
    out = []
    pair, first, n = np.unique(tail * MOST_BOXES + head, return_index=True, return_counts=True)
    for one in range(int(number.max(initial=0)) + 1):
        into = np.flatnonzero(pair % MOST_BOXES == one)
        if not len(into):
            continue
        chosen = {int(into[first[into].argmin()]), int(into[n[into].argmax()])}
        for row in sorted(chosen, key=lambda row: int(first[row])):
            own = (tail * MOST_BOXES + head) == pair[row]
            most = int(np.bincount(how[own] + 1).argmax()) - 1
            of_kind = own & (how == most)
            out.append(
                PathArrow(
                    int(pair[row]) // MOST_BOXES,
                    one,
                    EdgeKind(most) if most >= 0 else None,
                    int(n[row]),
                    int(lag_ns[of_kind].mean()),
                )
            )
    return tuple(out)
