"""Pieces tile a window or an error says so."""

from __future__ import annotations

import numpy as np
import pytest

from htagraph.arrays.intervals import check_tiling
from htagraph.errors import GraphError


@pytest.mark.parametrize(
    ("pieces", "window"),
    [
        ([(0, 4), (4, 9)], (0, 9)),
        ([(0, 4), (4, 4), (4, 9)], (0, 9)),
        ([], (3, 3)),
    ],
)
def test_adjacent_pieces_from_start_to_end_tile(pieces, window):
    start, end = np.array(pieces, dtype=np.int64).reshape(-1, 2).T
    check_tiling("the path", start, end, window)


@pytest.mark.parametrize(
    ("pieces", "window"),
    [
        pytest.param([(0, 4), (5, 9)], (0, 9), id="a gap"),
        pytest.param([(0, 5), (4, 9)], (0, 9), id="an overlap"),
        pytest.param([(1, 9)], (0, 9), id="too late"),
        pytest.param([(0, 8)], (0, 9), id="too early"),
        pytest.param([], (0, 9), id="nothing"),
        pytest.param([(0, 9)], (9, 9), id="something in an empty window"),
    ],
)
def test_what_does_not_tile_is_named(pieces, window):
    start, end = np.array(pieces, dtype=np.int64).reshape(-1, 2).T
    with pytest.raises(GraphError, match="the path does not tile the window from"):
        check_tiling("the path", start, end, window)


def test_each_window_has_pieces_of_its_own():
    start, end, of = np.array([0, 4, 20]), np.array([4, 9, 30]), np.array([0, 0, 2])
    windows = np.array([0, 15, 20]), np.array([9, 15, 30])
    check_tiling("the path", start, end, windows, of)
    with pytest.raises(GraphError, match="from 20 to 30"):
        check_tiling("the path", start, end - (of == 2), windows, of)
