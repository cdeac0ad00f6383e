"""Where things are on a slide: lanes from top to bottom, boxes in columns from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from htagraph.model.arrays import F64

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
