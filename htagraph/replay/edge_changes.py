"""A change of edges themselves: other weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.retime import DROPPED
from htagraph.errors import QueryError, one_of
from htagraph.model.arrays import I64
from htagraph.model.kinds import EdgeKind
from htagraph.model.units import human_count
from htagraph.replay.changes import MOST, Change
from htagraph.replay.draft import Draft


@dataclass(frozen=True, eq=False)
class EdgeRows:
    """Edges by their rows, with the events at their ends, which tell whose rows they are."""

    row: I64
    tail: npt.NDArray[np.integer]
    head: npt.NDArray[np.integer]

    def __repr__(self) -> str:
        """Count them."""
        return human_count(len(self.row), "edge")


@dataclass(frozen=True)
class Reweigh(Change):
    """Edges have other weights."""

    chosen: str | EdgeRows
    by: float | None = None
    lag_ns: int = 0

    def apply(self, draft: Draft) -> None:
        """Weigh the chosen edges anew, unknown waits on them included."""
        rows = self._rows(draft)
        rows = rows[draft.lag_ns[rows] != DROPPED]
        if self.by is None:
            draft.lag_ns[rows], draft.extra_ns[rows] = self.lag_ns, 0
            return
        for part in (draft.lag_ns, draft.extra_ns):
            part[rows] = np.rint(part[rows] * self.by).astype(np.int64)

    def _rows(self, draft: Draft) -> I64:
        """The chosen edges, in the replay."""
        if isinstance(self.chosen, EdgeRows):
            return self._at_rows(draft, self.chosen)
        found = draft.is_labelled(self.chosen)
        if found is None:
            hint = one_of(self.chosen, EdgeKind.labels(), "the kinds are")
            raise QueryError(f"no kind of edge, and no rule, is {self.chosen!r}.", hint=hint)
        if not found.any():
            raise QueryError(
                f"no edge is of {self.chosen!r}.", hint="`edges` of the graph lists all."
            )
        return np.flatnonzero(found)

    @staticmethod
    def _at_rows(draft: Draft, chosen: EdgeRows) -> I64:
        """The rows of the edge table, in the replay."""
        edges, row = draft.dag.edges, chosen.row
        inside = bool(len(row)) and row.min() >= 0 and row.max() < len(edges)
        if not (
            inside
            and np.array_equal(edges.tail[row] >> 1, chosen.tail)
            and np.array_equal(edges.head[row] >> 1, chosen.head)
        ):
            hint = "take them from `edges` of the graph that you pass to what_if."
            raise QueryError(f"the graph does not have these {chosen}.", hint=hint)
        return np.flatnonzero(np.isin(draft.replay.row, row))

    def __str__(self) -> str:
        """Write it."""
        how = f"lag_ns={self.lag_ns}" if self.by is None else f"by={self.by:g}"
        return f"reweigh({self.chosen!r}, {how})"


def reweigh(
    edges: str | pd.DataFrame, *, by: float | None = None, lag_ns: int | None = None
) -> Reweigh:
    """Change: edges take longer or shorter, by a factor, or a time of their own.

    The weight of an edge is its lag, with the unknown wait on it. The critical path of the changed
    graph is that of ``hg.what_if(graph, change)``.

    Parameters
    ----------
    edges : str or DataFrame
        The label of an `EdgeKind` or a rule, such as ``"launch"``; or rows of ``graph.edges``, or
        of ``path.edges``.
    by : float, optional
        0.5 is half the time.
    lag_ns : int, optional, unit=ns
        New weight of each.

    Returns
    -------
    Reweigh

    Raises
    ------
    QueryError
        If not exactly one of `by` and `lag_ns` is given, or it is negative or above a million (a
        million seconds); when it is applied, if the graph has no such edge.

    Examples
    --------
    >>> import htagraph as hg
    >>> graph = hg.load(hg.demo_trace("serving")).compile()
    >>> hg.what_if(graph, reweigh("stream", by=0)).critical_path()
    CriticalPath(...)
    """
    if (by is None) == (lag_ns is None):
        raise QueryError("reweigh: give by or lag_ns.", hint="by=0.5 is half the time.")
    if by is not None and not 0 <= by <= MOST:
        hint = "by=0.5 is half the time."
        raise QueryError(f"reweigh: by must be between 0 and 1,000,000, not {by:g}.", hint=hint)
    if lag_ns is not None and not 0 <= lag_ns <= MOST * 1e9:
        hint = "lag_ns=5_000 is 5 us."
        raise QueryError(f"reweigh: lag_ns must be between 0 and 1e15, not {lag_ns}.", hint=hint)
    if isinstance(edges, str):
        return Reweigh(edges.lower(), by, lag_ns or 0)
    if not {"edge", "tail_event"} <= {*getattr(edges, "columns", ())}:
        raise QueryError(
            "reweigh: these are no edges.", hint="give a kind of edge, or rows of graph.edges."
        )
    columns = (edges[name].to_numpy(np.int64) for name in ("edge", "tail_event", "head_event"))
    return Reweigh(EdgeRows(*columns), by, lag_ns or 0)
