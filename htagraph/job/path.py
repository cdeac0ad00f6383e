"""JobPath: the critical path of a job, across its ranks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Self

import numpy as np
import pandas as pd

from htagraph.arrays.clocks import Clock
from htagraph.arrays.intervals import check_tiling
from htagraph.explain.breakdown import sum_by
from htagraph.explain.segments import main_causes, with_causes
from htagraph.findings.verdict import cause_label
from htagraph.job.lateness import blame_late_ranks
from htagraph.job.perfetto import job_waits, write_job_trace
from htagraph.job.rank_segments import RankSegment
from htagraph.job.rank_work import attributed_in, on_rank_segments, path_in
from htagraph.job.timeline import Timeline
from htagraph.model.arrays import I64
from htagraph.model.frames import BREAKDOWN, JOB_ATTRIBUTED_TIME, JOB_SEGMENTS, RANK_SEGMENTS
from htagraph.model.kinds import Bound, Cause, EdgeKind, bound_in_words
from htagraph.model.labels import track_name
from htagraph.model.rules import Rule
from htagraph.model.schema import labelled
from htagraph.model.units import human_count, human_duration
from htagraph.writers.answering import answer_of, answers
from htagraph.writers.notebook_cell import path_html
from htagraph.writers.path_outline import Column, Outline, path_outline
from htagraph.writers.path_tracks import DrawnPath, late_rank

WHOLE_JOB = "job"
"""Name of a window that is all of a job."""

_ABOUT = (
    "Segments tile the window: every instant is on exactly one rank. Where a rank waited in a "
    "collective, the path hops to the rank that arrived last."
)

JobBreakdownKey = Literal["rank", "bound", "kind", "name", "op", "track", "rule"]
"""What the time of a job's path can be grouped by."""

_TOP = 3
"""Ranks and bounds that `repr` shows. A limit of the screen: `JobPath.breakdown` has all. Pinned by
test_path."""


@dataclass(frozen=True)
class JobRoute:
    """Where the path of a job runs: known from the collectives, before any rank is opened."""

    rank_segments: tuple[RankSegment, ...]  # In order of time
    start_ns: int  # Of the window, in common time
    name: str
    n_steps: int = 0

    @property
    def end_ns(self) -> int:
        """End of the window, in common time."""
        return self.rank_segments[-1].end_ns

    def moved(self, pieces: pd.DataFrame, clock: Clock) -> pd.DataFrame:
        """A rank's pieces of the path in common time, without what was waited before a hop."""
        start = pieces["start_ns"].to_numpy(np.int64)
        common_end = clock.to_common(start + pieces["dur_ns"].to_numpy(np.int64))
        starts_ns = np.array([one.start_ns for one in self.rank_segments], dtype=np.int64)
        not_before = starts_ns[pieces["rank_segment"].to_numpy(np.int64)]
        common_start = np.minimum(np.maximum(clock.to_common(start), not_before), common_end)
        return pieces.assign(start_ns=common_start, dur_ns=common_end - common_start)

    def moved_segments(self, segments: pd.DataFrame, rank: int, clock: Clock) -> pd.DataFrame:
        """A rank's segments in common time; those after a hop belong to the collective."""
        common = self.moved(segments, clock)
        hops = np.array([one.hops for one in self.rank_segments], dtype=bool)
        after_hop = hops[segments["rank_segment"].to_numpy(np.int64)]
        kind, rule = (segments[name].astype(object) for name in ("kind", "rule"))
        return common.assign(
            rank=np.int64(rank),
            lag_ns=np.minimum(common["lag_ns"], common["dur_ns"]),
            bound=segments["bound"].astype(object),
            kind=np.where(after_hop, EdgeKind.COLLECTIVE.label, kind),
            rule=np.where(after_hop, Rule.RENDEZVOUS.label, rule),
        )


@dataclass(frozen=True, repr=False)
class JobPath:
    """The critical path of a job: segments that tile its window in common time, each on one rank.

    Parameters
    ----------
    segments : DataFrame, schema `frames.JOB_SEGMENTS`
    route : JobRoute
    timeline : Timeline
        The ranks of the job on one clock.
    """

    segments: pd.DataFrame
    route: JobRoute
    timeline: Timeline

    @classmethod
    def along(cls, route: JobRoute, timeline: Timeline) -> Self:
        """Find the path along a route; only ranks that it visits are opened.

        Raises
        ------
        GraphError
            If segments do not tile the window: a defect of this package.
        RankFailedError
            If a rank that the path visits cannot be read any more.
        """
        asked = on_rank_segments(path_in, route.rank_segments)
        by_rank = timeline.graphs.ask(asked, on_error="raise")
        parts = [
            route.moved_segments(part, rank, timeline.clocks[rank])
            for rank, part in by_rank.items()
        ]
        segments = _in_order(parts)[list(JOB_SEGMENTS.columns)]
        lag_end_ns = segments["start_ns"] + segments["lag_ns"]
        segments = _since(segments.assign(lag_end_ns=lag_end_ns), route.start_ns)
        lag_ns = np.clip(segments.pop("lag_end_ns") - segments["start_ns"], 0, segments["dur_ns"])
        segments = segments.assign(lag_ns=lag_ns, residual_ns=segments["dur_ns"] - lag_ns)
        segments["kind"] = labelled(segments["kind"], EdgeKind.labels())
        segments["bound"] = labelled(segments["bound"], Bound.labels())
        path = cls(answer_of(segments, JOB_SEGMENTS), route, timeline)
        path._check(segments)
        return path

    def _check(self, pieces: pd.DataFrame) -> None:
        """Raise unless pieces tile the window."""
        start_ns = pieces["start_ns"].to_numpy(np.int64)
        end_ns = start_ns + pieces["dur_ns"].to_numpy(np.int64)
        check_tiling("the job's critical path", start_ns, end_ns, (self.start_ns, self.end_ns))

    @property
    def name(self) -> str:
        """Name of the window."""
        return self.route.name

    @property
    def window_name(self) -> str:
        """Name of the window, in a sentence."""
        return "the job" if self.name == WHOLE_JOB else f"{self.name} of the job"

    @property
    def start_ns(self) -> int:
        """Start of the window, in common time."""
        return self.route.start_ns

    @property
    def end_ns(self) -> int:
        """End of the window, in common time."""
        return self.route.end_ns

    @property
    def dur_ns(self) -> int:
        """Length of the path, which is the length of the job's window."""
        return self.end_ns - self.start_ns

    @property
    def n_steps(self) -> int:
        """Whole steps that the window consists of, 0 if it is not made of steps."""
        return self.route.n_steps

    @property
    def step_ns(self) -> float:
        """Step time: the mean length of these steps; 0 if there are none."""
        return self.dur_ns / self.n_steps if self.n_steps else 0.0

    @property
    def unknown_share(self) -> float:
        """Share of the path whose wait no recorded dependency explains."""
        is_unexplained = self.segments["bound"] == Bound.UNKNOWN_WAITS.label
        return float(self.segments.loc[is_unexplained, "dur_ns"].sum()) / max(self.dur_ns, 1)

    def segments_at(self, rows: I64) -> pd.DataFrame:
        """Some of the segments, by their rows, which are the index."""
        return self.segments.iloc[rows]

    @cached_property
    @answers(RANK_SEGMENTS)
    def rank_segments(self) -> pd.DataFrame:
        """The path by rank: where it stays and where it hops, schema `frames.RANK_SEGMENTS`."""
        parts = self.route.rank_segments
        frame = RANK_SEGMENTS.frame(
            {
                "rank": [one.rank for one in parts],
                "start_ns": [one.start_ns for one in parts],
                "dur_ns": [one.end_ns - one.start_ns for one in parts],
                "collective": [one.collective for one in parts],
            }
        )
        return _since(frame, self.start_ns)

    @cached_property
    @answers(JOB_ATTRIBUTED_TIME)
    def attributed_time(self) -> pd.DataFrame:
        """Every nanosecond of the path with its one cause, schema `frames.JOB_ATTRIBUTED_TIME`.

        What took a late rank longer than the runner-up is charged to its lateness; what experts do
        with tokens beyond the mean of the ranks, to their imbalance.

        Raises
        ------
        RankFailedError
            If a rank that the path visits cannot be read any more.
        """
        route, timeline = self.route, self.timeline
        asked = on_rank_segments(attributed_in, route.rank_segments)
        surplus = timeline.token_surplus
        parts = [
            route.moved(surplus.charged(part, rank), timeline.clocks[rank]).assign(rank=rank)
            for rank, part in timeline.graphs.ask(asked, on_error="raise").items()
        ]
        joined = _in_order([part.assign(bound=part["bound"].astype(object)) for part in parts])
        joined = _since(joined, self.start_ns)
        after = np.searchsorted(self.segments["start_ns"], joined["start_ns"], side="right")
        joined["segment"] = after - 1
        blamed = blame_late_ranks(
            joined,
            self.segments,
            timeline.expert_work.without_overfull(timeline.late_arrivals),
            timeline.excess_times,
            timeline.collectives,
        )
        blamed["bound"] = labelled(blamed["bound"], Bound.labels())
        self._check(blamed)
        columns = {name: blamed[name].to_numpy() for name in JOB_ATTRIBUTED_TIME.columns}
        return JOB_ATTRIBUTED_TIME.frame(columns)

    @answers(BREAKDOWN)
    def breakdown(self, *, by: JobBreakdownKey = "rank") -> pd.DataFrame:
        """The time of the path by group; it adds up to the window.

        Parameters
        ----------
        by : {"rank", "bound", "kind", "name", "op", "track", "rule"}

        Returns
        -------
        DataFrame, schema `frames.BREAKDOWN`, indexed by group

        Raises
        ------
        QueryError
            If `by` is none of these.
        """
        return sum_by(self.segments, by, self.dur_ns, BREAKDOWN)

    @property
    def origin_ns(self) -> int:
        """Time 0 of the file that `to_perfetto` writes: the first event of any rank."""
        clocks, summaries = self.timeline.clocks, self.timeline.graphs.summaries
        firsts = (
            int(clocks[rank].to_common(summaries[rank].first_ns)) for rank in self.timeline.aligned
        )
        return min(self.start_ns, *firsts)

    def to_perfetto(
        self,
        out: str | Path,
        *,
        findings: Mapping[str, str] | None = None,
        ranks: Collection[int] | None = None,
    ) -> Path:
        """Write the ranks on one clock, with findings, path and waits on top, for Perfetto's UI.

        A rank whose lateness is the first finding comes first, then those that wait for it.

        Parameters
        ----------
        out : str or Path
            ``.pftrace``, or ``.pftrace.gz`` to compress.
        findings : mapping of str to str, optional
            Title of each cause, and arguments on further lines as ``name: text``, such as
            `Verdict.by_cause`. ``htagraph view`` opens the file at the first.
        ranks : collection of int, optional
            Ranks to write with the path; all by default.

        Raises
        ------
        OutputError
            If the file cannot be written.
        """
        shown = self.timeline.aligned if ranks is None else ranks
        return write_job_trace(
            out,
            self.drawn(findings or {}, shown),
            self.timeline,
            origin_ns=self.origin_ns,
            ranks=shown,
        )

    @cached_property
    def outline(self) -> Outline:
        """What `to_dot` draws."""
        columns = {name: pd.factorize(self.segments[name]) for name in ("rank", "track", "name")}
        (rank, ranks), (track, tracks), (name, names) = columns.values()
        lanes = [f"rank {one} · {track_name(two)}" for one in ranks for two in tracks]
        bound, kind = (self.segments[name].cat.codes.to_numpy() for name in ("bound", "kind"))
        return path_outline(
            Column(rank * len(tracks) + track, lanes),
            bound,
            Column(name, names.tolist()),
            kind,
            self.segments["dur_ns"].to_numpy(np.int64),
        )

    def to_dot(self, out: str | Path | None = None) -> str:
        """Path as a DOT graph of one slide, with lanes by rank; see `CriticalPath.to_dot`.

        Raises
        ------
        OutputError
            If the file cannot be written.
        """
        from htagraph.writers.dot import path_dot  # noqa: PLC0415  deferred: few need it

        return path_dot(self.outline, out=out, title=f"Critical path of {self.window_name}")

    def drawn(self, findings: Mapping[str, str], ranks: Collection[int] | None = None) -> DrawnPath:
        """What `to_perfetto` draws on top of the ranks."""
        charged, first = self._labelled_time, next(iter(findings), "")
        shown = self.timeline.aligned if ranks is None else ranks
        return DrawnPath(
            with_causes(self.segments, charged),
            main_causes(charged),
            findings,
            f"Critical path of {self.window_name}, in common time. {_ABOUT}",
            job_waits(self.timeline, shown, late_rank(first)),
        )

    @property
    def _labelled_time(self) -> pd.DataFrame:
        """Attributed time in which each late rank is a cause of its own."""
        charged = self.attributed_time
        late = np.flatnonzero(charged["cause"] == Cause.LATE_RANK)
        labels = charged["cause"].to_numpy(dtype=object, copy=True)
        labels[late] = [
            cause_label(Cause.LATE_RANK, rank) for rank in charged["rank"].iloc[late].tolist()
        ]
        return charged.assign(cause=labels)

    def __repr__(self) -> str:
        """Say how long the path is, where it ran and what limits it."""
        ranks = self.breakdown(by="rank")["share"].head(_TOP).items()
        shares = self.breakdown(by="bound")["share"].head(_TOP).items()
        bounds = [f"{bound_in_words(bound)} {share:.0%}" for bound, share in shares]
        each = f"{human_duration(self.step_ns)} a step, " if self.n_steps > 1 else ""
        return (
            f"JobPath({self.name}, {human_duration(self.dur_ns)}, {each}"
            f"{human_count(len(self.segments), 'segment')}: "
            f"{', '.join(f'rank {rank} {share:.0%}' for rank, share in ranks)}; "
            f"{', '.join(bounds)})"
        )

    def _repr_html_(self) -> str:
        """The path by bound, for a notebook."""
        title = f"Critical path of {self.window_name} ({human_duration(self.dur_ns)})"
        return path_html(title, self.breakdown(by="bound"))


def _in_order(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Pieces of several ranks in the order of the path."""
    joined = pd.concat(parts, ignore_index=True)
    return joined.sort_values(["rank_segment", "start_ns"], kind="stable", ignore_index=True)


def _since(pieces: pd.DataFrame, start_ns: int) -> pd.DataFrame:
    """The parts of pieces from a time on."""
    end_ns = pieces["start_ns"] + pieces["dur_ns"]
    begin_ns = np.maximum(pieces["start_ns"], start_ns)
    kept = pieces.assign(start_ns=begin_ns, dur_ns=end_ns - begin_ns)
    return pd.DataFrame(kept[kept["dur_ns"] > 0]).reset_index(drop=True)
