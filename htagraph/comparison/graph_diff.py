"""GraphDiff: two graphs, or two windows, and what changed between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from htagraph.comparison.profiling import graph_profile
from htagraph.comparison.run_diff import RunDiff
from htagraph.explain.differences import kernel_diff, op_diff, path_diff
from htagraph.findings.path import BreakdownKey, write_runs
from htagraph.lookup.work_groups import ComparedBy
from htagraph.model.frames import DIFF, PATH_DIFF
from htagraph.run.graph import TraceGraph
from htagraph.writers.answering import answers


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

    @answers(DIFF)
    def ops(self, *, by: ComparedBy = "name", short_names: bool = False) -> pd.DataFrame:
        """Operators added, removed, grown and shrunk, by count and time; schema `frames.DIFF`.

        Parameters
        ----------
        by : {"name", "shape", "module", "annotation", "phase"}
            Shapes are those of inputs, without types.
        short_names : bool, default=False
            Join names that differ only in template arguments and parameters.
        """
        return self._compared(op_diff, by=by, short_names=short_names)

    @answers(DIFF)
    def kernels(self, *, by: ComparedBy = "name", short_names: bool = False) -> pd.DataFrame:
        """Kernels added, removed, grown and shrunk; schema `frames.DIFF`, options as of `ops`.

        Where two devices or precisions run other kernels, ``by="shape"`` compares what their
        operators have to do.
        """
        return self._compared(kernel_diff, by=by, short_names=short_names)

    def _compared(self, of: Callable[..., pd.DataFrame], **options: object) -> pd.DataFrame:
        """Differences of some work in both windows."""
        windows = {"before_window": self.before.interval, "after_window": self.after.interval}
        return of(self.before.dag, self.after.dag, **windows, **options)

    @answers(PATH_DIFF)
    def critical_path(self, *, by: BreakdownKey = "bound") -> pd.DataFrame:
        """Change of the critical path by group; it adds up to the difference of the windows.

        Parameters
        ----------
        by : {"bound", "kind", "name", "op", "track", "rule", "step"}

        Returns
        -------
        DataFrame, schema `frames.PATH_DIFF`, indexed by group
            The largest change first.
        """
        before, after = (
            graph.critical_path().breakdown(by=by) for graph in (self.before, self.after)
        )
        return path_diff(before, after, delta_ns=self.delta_ns)

    @cached_property
    def runs(self) -> RunDiff:
        """The comparison of their steps, with noise; of the windows if they have no steps."""
        return RunDiff(graph_profile(self.before), graph_profile(self.after))

    def verdict(self) -> str:
        """What changed, by how much, and why, in a sentence or two."""
        return self.runs.verdict()

    def to_perfetto(self, out: str | Path) -> Path:
        """Write both runs, one below the other, for the Perfetto UI.

        Both windows begin at the same time; tracks name their run, and each has its critical path.

        Parameters
        ----------
        out : str or Path
            ``.pftrace``, or ``.pftrace.gz`` to compress.

        Raises
        ------
        OutputError
            If the file cannot be written.
        """
        runs = {"before": self.before.critical_path(), "after": self.after.critical_path()}
        lead_ns = max(path.start_ns - path.origin_ns for path in runs.values())
        return write_runs(out, runs, [path.start_ns - lead_ns for path in runs.values()])

    def __repr__(self) -> str:
        """Say what changed."""
        return f"GraphDiff({self.verdict()})"
