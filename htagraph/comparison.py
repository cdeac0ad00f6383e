"""GraphDiff: what changed between two traces, and what of it made the difference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from htagraph.errors import GraphError
from htagraph.explain.differences import kernel_diff, op_diff
from htagraph.graph import TraceGraph
from htagraph.model.frames import PATH_DIFF
from htagraph.model.kinds import in_words
from htagraph.model.units import human_duration
from htagraph.path import BreakdownKey

__all__ = ["GraphDiff", "diff"]


@dataclass(frozen=True, repr=False)
class GraphDiff:
    """Two graphs, or two windows, compared; made by `diff`.

    Parameters
    ----------
    before, after : TraceGraph
    """

    before: TraceGraph
    after: TraceGraph

    @property
    def delta_ns(self) -> int:
        """How much longer the second window is."""
        return self.after.dur_ns - self.before.dur_ns

    def ops(self, *, short_names: bool = False) -> pd.DataFrame:
        """Return operators added, removed, grown and shrunk, by count and time; schema `frames.DIFF`.

        Parameters
        ----------
        short_names : bool, default=False
            Join names that differ in template arguments and parameters only.
        """
        return op_diff(
            self.before.dag,
            self.after.dag,
            before_window=self.before.interval,
            after_window=self.after.interval,
            short_names=short_names,
        )

    def kernels(self, *, short_names: bool = False) -> pd.DataFrame:
        """Return kernels added, removed, grown and shrunk, by count and time; schema `frames.DIFF`; as for `ops`."""
        return kernel_diff(
            self.before.dag,
            self.after.dag,
            before_window=self.before.interval,
            after_window=self.after.interval,
            short_names=short_names,
        )

    def critical_path(self, *, by: BreakdownKey = "bound") -> pd.DataFrame:
        """Return what the critical paths gained and lost by group; the deltas add up to the difference of the windows.

        Parameters
        ----------
        by : {"bound", "kind", "name", "op", "track", "rule", "step"}

        Returns
        -------
        DataFrame, schema `frames.PATH_DIFF`, indexed by group
            The largest change first.
        """
        parts = [
            graph.critical_path().breakdown(by=by)["dur_ns"] for graph in (self.before, self.after)
        ]
        groups = parts[0].index.union(parts[1].index, sort=False)
        before, after = (part.reindex(groups, fill_value=0).to_numpy(np.int64) for part in parts)
        delta = after - before
        if int(delta.sum()) != self.delta_ns:
            raise GraphError(
                "the deltas of the critical paths do not add up to the difference of the windows."
            )
        frame = PATH_DIFF.frame(
            {
                "before_ns": before,
                "after_ns": after,
                "delta_ns": delta,
                "delta_share": delta / max(self.before.dur_ns, 1),
            }
        ).set_index(groups)
        return frame.iloc[np.lexsort((np.arange(len(frame)), -np.abs(delta)))]

    def __repr__(self) -> str:
        """Say how long both are and what changed most."""
        top = self.critical_path()["delta_ns"].head(2)
        changes = ", ".join(
            f"{in_words(name)} {'+' if delta_ns >= 0 else ''}{human_duration(delta_ns)}"
            for name, delta_ns in top.items()
        )
        return (
            f"GraphDiff({human_duration(self.before.dur_ns)} -> {human_duration(self.after.dur_ns)}: "
            f"{changes or 'nothing'})"
        )


def diff(before: TraceGraph, after: TraceGraph) -> GraphDiff:
    """Return the comparison of two graphs, or of two windows.

    Parameters
    ----------
    before, after : TraceGraph

    Returns
    -------
    GraphDiff

    Examples
    --------
    >>> from htagraph import Trace, synth
    >>> slow, fast = (
    ...     Trace.from_events(synth.timeline(drawing)).compile()
    ...     for drawing in ("cpu 1 |[aten::mm      ][aten::relu]", "cpu 1 |[aten::mm][aten::relu]")
    ... )
    >>> diff(slow, fast).critical_path(by="name")["delta_ns"].to_dict()
    {'aten::mm': -6000, 'aten::relu': 0}
    """
    return GraphDiff(before, after)
