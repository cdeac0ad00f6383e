"""Scenario: the run as it would have been, predicted from the graph, with its error bar."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import pandas as pd

from htagraph.comparison import GraphDiff, diff
from htagraph.graph import TraceGraph
from htagraph.model.units import human_duration
from htagraph.path import BreakdownKey, CriticalPath, write_path_trace
from htagraph.replay.changes import Change
from htagraph.replay.rehearsal import Rehearsal, Saving
from htagraph.replay.retimed import retimed
from htagraph.writers.joined import write_joined

__all__ = ["Scenario", "what_if"]


@dataclass(frozen=True, repr=False)
class Scenario:
    """A window of a run under changes; made by `what_if`.

    Parameters
    ----------
    before : TraceGraph
        The window as it was.
    changes : tuple of Change
        Made one after the other, throughout the trace.
    rehearsal : Rehearsal
    """

    before: TraceGraph
    changes: tuple[Change, ...]
    rehearsal: Rehearsal

    @property
    def dur_ns(self) -> int:
        """Length that the window would have had."""
        return self.graph.dur_ns

    @cached_property
    def saves_ns(self) -> Saving:
        """Time that the changes save: an interval; its ends are what the trace cannot tell."""
        return self.rehearsal.saving(self.changes)

    @cached_property
    def graph(self) -> TraceGraph:
        """The graph of the changed run, in the same window: every question can be asked of it."""
        run = self.rehearsal.run(self.changes)
        dag = retimed(self.before.dag, run.replay, run.lag_ns, run.times_ns)
        window = self.rehearsal.replay.window_in(run.times_ns, self.before.interval)
        return replace(self.before, dag=dag, interval=window)

    def critical_path(self) -> CriticalPath:
        """The critical path of the changed run; it tiles its window."""
        return self.graph.critical_path()

    def breakdown(self, *, by: BreakdownKey = "bound") -> pd.DataFrame:
        """What bounds the changed run; as `CriticalPath.breakdown`."""
        return self.critical_path().breakdown(by=by)

    def diff(self) -> GraphDiff:
        """The run as it was against the changed one."""
        return diff(self.before, self.graph)

    def to_perfetto(self, out: str | Path) -> Path:
        """Write the run as it was, and as it would have been below it, for the Perfetto UI.

        Both begin at one time and have a critical path of their own; tracks name their run.

        Parameters
        ----------
        out : str or Path
            ``.pftrace``, or ``.pftrace.gz`` to compress.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        OutputError
            If the file cannot be written.
        QueryError
            If a change names nothing that is there.
        """
        said = ", ".join(map(str, self.changes))
        runs = {"as it was": self.before, f"what if: {said}": self.graph}
        firsts = [int(run.dag.events.ts_ns.min()) for run in runs.values() if len(run.dag.events)]
        parts = [
            partial(
                write_path_trace,
                graph.critical_path(),
                run=run,
                place=place,
                origin_ns=min(firsts, default=None),
            )
            for place, (run, graph) in enumerate(runs.items(), start=1)
        ]
        return write_joined(out, parts)

    def __repr__(self) -> str:
        """Say what is changed and what it saves."""
        said = ", ".join(map(str, self.changes)) or "as it was"
        return (
            f"Scenario({said}: {human_duration(self.before.dur_ns)} -> "
            f"{human_duration(self.dur_ns)}, saves {self.saves_ns})"
        )


def what_if(graph: TraceGraph, *changes: Change) -> Scenario:
    """The run as it would have been under changes, predicted from its graph.

    Parameters
    ----------
    graph : TraceGraph
        Of the whole trace, or of a window of it.
    *changes : Change
        `scale`, `remove`, `insert`, `overlap`, `fuse`, `graphed`, `bandwidth`, `prefetch`; made one
        after the other, throughout the trace.

    Returns
    -------
    Scenario

    Examples
    --------
    >>> import htagraph as hg
    >>> rank = hg.synth.simulate(hg.synth.training_rank(fault="dataloader"))
    >>> graph = hg.Trace.from_events(rank.events).compile()
    >>> what_if(graph, hg.scale("enumerate(DataLoader)*", by=0.5))
    Scenario(scale('enumerate(DataLoader)*', by=0.5): ...)
    """
    return Scenario(graph, changes, Rehearsal(graph.dag, graph.interval))
