"""JobScenario: a job as it would have been, predicted from its ranks, with its error bar."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from htagraph.arrays.codes import gather
from htagraph.explain.differences import path_diff
from htagraph.job.executors import Workers
from htagraph.job.job import Job
from htagraph.job.path import JobBreakdownKey, JobPath
from htagraph.job.ranks import RankGraphs, RankSummary, rank_ends
from htagraph.job.rehearsal import JobRehearsal, JobRun, RankReplay
from htagraph.job.timeline import Timeline
from htagraph.lookup.collectives import first_anchor
from htagraph.lookup.find_window import WHOLE
from htagraph.model.archive import pack
from htagraph.model.dag import Dag
from htagraph.model.frames import PATH_DIFF, RANK_LENGTHS
from htagraph.model.units import human_duration
from htagraph.model.window import Window
from htagraph.queries.quality import unknown_in_words
from htagraph.replay.changes import Change
from htagraph.replay.excerpt import retimed
from htagraph.replay.rehearsal import Run, Saving
from htagraph.replay.replay import Members, transfers
from htagraph.run.cache import Entry
from htagraph.run.graph import TraceGraph
from htagraph.writers.answering import answers
from htagraph.writers.output_file import OwnFolder


@dataclass(frozen=True, repr=False)
class JobScenario:
    """A window of a job under changes; made by `what_if`.

    Parameters
    ----------
    before : Job
        The window as it was.
    changes : tuple of Change
        Made one after the other, throughout the traces, on every rank that has what they name.

    Examples
    --------
    >>> import htagraph as hg
    >>> hg.what_if(hg.load_job(hg.demo_trace("job")), hg.equalise())
    JobScenario(equalise(): ... ms -> ... ms, saves 2... ms)
    """

    before: Job
    changes: tuple[Change, ...]

    @property
    def rehearsal(self) -> JobRehearsal:
        """The replays of all ranks, which are kept with the job."""
        return self.before.rehearsal

    @cached_property
    def _run(self) -> JobRun:
        return self.rehearsal.run(self.before.trials.made(self.changes))

    @property
    def dur_ns(self) -> int:
        """Length that the window would have had."""
        return self.rehearsal.dur_ns(self._run)

    @cached_property
    def saves_ns(self) -> Saving | None:
        """Time that the changes save: an interval, as wide as the traces leave it open.

        None where the prediction is withheld.
        """
        if self.withheld:
            return None
        trials = self.before.trials
        match self.changes:
            case (Change(name="without", args=(str(cause),), rank=None),):
                return trials.cost(cause, self.path_before.attributed_time)
        return self.rehearsal.saving(trials.made(self.changes))

    @cached_property
    def withheld(self) -> str:
        """Why there is no prediction; empty if there is one."""
        if len(self.before) > 1 and self.before.collectives().empty:
            return "no collectives were matched between ranks whose clocks agree"
        return unknown_in_words(self.path_before.unknown_share)

    @property
    @answers(RANK_LENGTHS)
    def ranks(self) -> pd.DataFrame:
        """How long each rank's own window would have been, schema `frames.RANK_LENGTHS`."""
        before = {rank: one.window.dur_ns for rank, one in self.rehearsal.ranks.items()}
        after = [window.dur_ns for window in self.rehearsal.windows(self._run).values()]
        return RANK_LENGTHS.frame(
            {"rank": list(before), "before_ns": list(before.values()), "dur_ns": after}
        )

    @cached_property
    def job(self) -> Job:
        """The changed run as a job in common time, which answers every question.

        Its window on each rank is that of `before`. Its graphs are files of a temporary folder.
        """
        rehearsal, graphs = self.rehearsal, self.before.graphs
        folder = OwnFolder()
        windows = rehearsal.windows(self._run)
        summaries = {
            rank: _summary(
                graphs.summaries[rank],
                _graph(one, self._run[rank], rehearsal.merged.members[rank], windows[rank], rank),
                Entry(folder.path, str(rank)),
            )
            for rank, one in rehearsal.ranks.items()
        }
        n_bytes = sum(one.graph.path.stat().st_size for one in summaries.values())
        workers = Workers(n_tasks=len(summaries), n_bytes=n_bytes)  # others may not see the folder
        changed = RankGraphs(summaries, workers, graphs.reading, graphs.on_error, folder)
        timeline = Timeline(changed, self.before.timeline.fitted.moved())
        return replace(self.before, timeline=timeline, asked_window=WHOLE)

    @cached_property
    def path_before(self) -> JobPath:
        """The critical path of the window as it was."""
        return self.before.critical_path()

    @cached_property
    def _path(self) -> JobPath:
        return self.job.critical_path()

    def critical_path(self) -> JobPath:
        """The critical path of the changed run, which tiles its window."""
        return self._path

    def breakdown(self, *, by: JobBreakdownKey = "rank") -> pd.DataFrame:
        """The time of that path by group; as `JobPath.breakdown`."""
        return self.critical_path().breakdown(by=by)

    @answers(PATH_DIFF)
    def path_diff(self, *, by: JobBreakdownKey = "rank") -> pd.DataFrame:
        """Time that the path gains and loses by group; it adds up to the difference.

        Parameters
        ----------
        by : {"rank", "bound", "kind", "name", "op", "track", "rule"}

        Returns
        -------
        DataFrame, schema `frames.PATH_DIFF`, indexed by group
            The largest change first.
        """
        delta_ns = self.dur_ns - self.rehearsal.window.dur_ns
        return path_diff(
            self.path_before.breakdown(by=by), self.breakdown(by=by), delta_ns=delta_ns
        )

    def __repr__(self) -> str:
        said = ", ".join(map(str, self.changes)) or "as it was"
        if self.saves_ns is None:
            return f"JobScenario({said}: withheld, as {self.withheld})"
        return (
            f"JobScenario({said}: {human_duration(self.rehearsal.window.dur_ns)} -> "
            f"{human_duration(self.dur_ns)}, saves {self.saves_ns})"
        )


def _graph(one: RankReplay, run: Run, members: Members, window: Window, rank: int) -> TraceGraph:
    """The graph of a rank in a run; a collective lasts as long as it did there, wait included."""
    row, _ = transfers(run.replay, members)
    lag = run.lag_ns.copy()
    lag[row] = run.times_ns[run.replay.head[row]] - run.times_ns[run.replay.tail[row]]
    dag = retimed(one.dag, run.replay, lag, run.times_ns)
    return TraceGraph(dag, window, rank)


def _summary(before: RankSummary, graph: TraceGraph, kept: Entry) -> RankSummary:
    """The summary of a rank of the changed run, whose graph is kept."""
    kept.write(pack(graph.dag, rank=graph.rank, origin=graph.origin))
    return replace(
        before,
        graph=kept,
        first_ns=int(graph.dag.events.ts_ns.min(initial=graph.interval.start_ns)),
        collectives=_collectives(before.collectives, graph.dag),
        ends=rank_ends(graph).later(before.n_left_out),
    )


def _collectives(before: pd.DataFrame, dag: Dag) -> pd.DataFrame:
    """The collectives of a rank at the times of a graph."""
    event = before["event"].to_numpy(np.int64)
    place = np.full(len(dag.events), -1, dtype=np.int64)
    place[event] = np.arange(len(event))
    return before.assign(
        start_ns=dag.events.ts_ns[event],
        end_ns=dag.events.end_ns[event],
        after=gather(place, first_anchor(dag, event)[2 * event] >> 1),
    )
