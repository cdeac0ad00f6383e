"""Scenario: a changed run, predicted from the graph, with its error bar."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import overload

import pandas as pd

from htagraph.comparison.graph_diff import GraphDiff
from htagraph.findings.path import BreakdownKey, CriticalPath, write_runs
from htagraph.job.job import Job
from htagraph.job.scenario import JobScenario
from htagraph.model.units import human_duration
from htagraph.queries.cost import trials_on
from htagraph.queries.quality import unknown_in_words
from htagraph.replay.changes import Change
from htagraph.replay.excerpt import retimed
from htagraph.replay.predictions import Trials
from htagraph.replay.rehearsal import HOLD_OUT_LIMIT, HoldOut, Rehearsal, Saving
from htagraph.run.graph import TraceGraph


@dataclass(frozen=True, repr=False)
class Scenario:
    """A window of a run under changes; made by `what_if`.

    Parameters
    ----------
    before : TraceGraph
        The recorded window.
    changes : tuple of Change
        Applied in order, throughout the trace.
    rehearsal : Rehearsal
    """

    before: TraceGraph
    changes: tuple[Change, ...]
    rehearsal: Rehearsal

    @property
    def dur_ns(self) -> int:
        """Length of the changed window."""
        return self.graph.dur_ns

    @cached_property
    def saves_ns(self) -> Saving | None:
        """Time that the changes save, as an interval: it covers what the trace leaves open.

        None if the prediction is withheld.
        """
        if self.withheld:
            return None
        match self.changes:
            case (Change(name="without", args=(str(cause),), rank=None),):
                return self._trials.cost(cause, self._path_before.attributed_labels)
        return self.rehearsal.saving(self._trials.made(self.changes))

    @cached_property
    def _path_before(self) -> CriticalPath:
        return self.before.critical_path()

    @cached_property
    def _trials(self) -> Trials[Rehearsal]:
        path = self._path_before
        return trials_on(path.dag, path.window, path.coded, path.attributed)

    @property
    def hold_out(self) -> HoldOut:
        """How well steps of the trace predict each other."""
        return self.rehearsal.hold_out

    @cached_property
    def withheld(self) -> str:
        """Why the prediction is withheld; empty if it is not."""
        if self.hold_out.is_too_large:
            return f"{self.hold_out}: above {HOLD_OUT_LIMIT:.0%}, nothing is predicted"
        return unknown_in_words(self._path_before.unknown_share)

    @cached_property
    def graph(self) -> TraceGraph:
        """The graph of the changed run in the same window; it answers every question."""
        run = self.rehearsal.run(self._trials.made(self.changes))
        dag = retimed(self.before.dag, run.replay, run.lag_ns, run.times_ns)
        window = self.rehearsal.replay.window_in(run.times_ns, self.before.interval)
        return replace(self.before, dag=dag, asked=window)

    def critical_path(self) -> CriticalPath:
        """The critical path of the changed run; it tiles its window."""
        return self.graph.critical_path()

    def breakdown(self, *, by: BreakdownKey = "bound") -> pd.DataFrame:
        """What limits the changed run; as `CriticalPath.breakdown`."""
        return self.critical_path().breakdown(by=by)

    def diff(self) -> GraphDiff:
        """The recorded run compared with the changed one."""
        return GraphDiff(self.before, self.graph)

    def to_perfetto(self, out: str | Path) -> Path:
        """Write the recorded run and the changed run below it, for the Perfetto UI.

        Both begin at the same time, and each has its critical path; tracks name their run.

        Parameters
        ----------
        out : str or Path
            ``.pftrace``, or ``.pftrace.gz`` to compress.

        Raises
        ------
        OutputError
            If the file cannot be written.
        QueryError
            If a change names nothing in the trace.
        """
        changes = ", ".join(map(str, self.changes))
        before, after = self._path_before, self.critical_path()
        origin_ns = min(before.origin_ns, after.origin_ns)
        runs = {"as it was": before, f"what if: {changes}": after}
        return write_runs(out, runs, [origin_ns, origin_ns])

    def __repr__(self) -> str:
        """The changes, the window, and the saving."""
        changes = ", ".join(map(str, self.changes)) or "as it was"
        where = f"{self._path_before.window_name}, {changes}"
        if self.saves_ns is None:
            return f"Scenario({where}: withheld, as {self.withheld})"
        return (
            f"Scenario({where}: {human_duration(self.before.dur_ns)} -> "
            f"{human_duration(self.dur_ns)}, saves {self.saves_ns})"
        )


@overload
def what_if(run: TraceGraph, *changes: Change) -> Scenario: ...


@overload
def what_if(run: Job, *changes: Change) -> JobScenario: ...


def what_if(run: TraceGraph | Job, *changes: Change) -> Scenario | JobScenario:
    """Predict a run under changes from its graph.

    Parameters
    ----------
    run : TraceGraph or Job
        In its window.
    *changes : Change
        `scale`, `remove`, `no_wait`, `insert`, `overlap`, `fuse`, `graphed`, `bandwidth`,
        `prefetch`, `at_roof`, `without`, `reweigh`, and of a job `equalise`; applied in order,
        throughout the trace. In a job they apply to every rank that has what they name;
        ``change.on_rank(3)`` to one.

    Returns
    -------
    Scenario or JobScenario

    Raises
    ------
    QueryError
        When the prediction is made, if a change names nothing in the trace.

    Examples
    --------
    >>> import htagraph as hg
    >>> graph = hg.load(hg.demo_trace("dataloader")).compile()
    >>> what_if(graph, hg.scale("enumerate(DataLoader)*", by=0.5))
    Scenario(3 steps, scale('enumerate(DataLoader)*', by=0.5): ...)
    """
    if isinstance(run, Job):
        return JobScenario(run, changes)
    return Scenario(run, changes, Rehearsal(run.dag, run.interval))
