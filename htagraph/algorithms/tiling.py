"""Pieces that tile a window: adjacent, disjoint, together the whole, to the nanosecond."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.errors import GraphError
from htagraph.model.arrays import I64


def check_tiling(
    what: str,
    start: I64,
    end: I64,
    windows: tuple[npt.ArrayLike, npt.ArrayLike],
    of: npt.NDArray[np.integer] | None = None,
) -> None:
    """Raise unless pieces tile their window, or each its own of several.

    Parameters
    ----------
    what : str
        Name of what should tile: ``"the critical path"``.
    start, end : ndarray of shape (n,), dtype=int64
        Pieces, by window and then in order of time.
    windows : (int, int) or two arrays of shape (n_windows,)
        Starts and ends.
    of : ndarray of shape (n,), dtype=int, optional
        Number of the window of each piece, ascending; default: all of the first.

    Examples
    --------
    >>> check_tiling("the path", np.array([0, 4]), np.array([4, 9]), (0, 9))
    >>> check_tiling("the path", np.array([0, 5]), np.array([4, 9]), (0, 9))
    Traceback (most recent call last):
    htagraph.errors.GraphError: the path does not tile the window from 0 to 9 ns. ...
    """
    window_start, window_end = (np.atleast_1d(np.asarray(side, dtype=np.int64)) for side in windows)
    group = np.zeros(len(start), dtype=np.int8) if of is None else of
    number = np.arange(len(window_start))
    first, last = np.searchsorted(group, number), np.searchsorted(group, number, side="right")
    tiled = window_start == window_end
    some = np.flatnonzero(last > first)
    tiled[some] = (start[first[some]] == window_start[some]) & (
        end[last[some] - 1] == window_end[some]
    )
    torn = 1 + np.flatnonzero(start[1:] != end[:-1])
    tiled[group[torn[group[torn] == group[torn - 1]]]] = False
    if not tiled.all():
        worst = int(np.argmin(tiled))
        raise not_tiled(what, int(window_start[worst]), int(window_end[worst]))


def not_tiled(what: str, start_ns: int, end_ns: int) -> GraphError:
    """The error for pieces that do not tile their window."""
    return GraphError(
        f"{what} does not tile the window from {start_ns:,} to {end_ns:,} ns.",
        hint="this is a defect of htagraph; please report it with the trace.",
    )
