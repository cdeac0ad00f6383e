"""JobPath: the critical path of a job across its ranks; JobWhy: that to one event of a rank.

As one Perfetto trace: all ranks on one clock; findings, path and waits on top. The file
concatenates what is on top and each rank. Ids are disjoint, except those of arrows from segments of
the path to events of a rank, which both parts have.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Literal, Self

import numpy as np
import pandas as pd

from htagraph.arrays.clocks import Clock
from htagraph.arrays.intervals import check_tiling
from htagraph.explain.breakdown import sum_by
from htagraph.explain.counter_tracks import counter_tracks, roof_arguments
from htagraph.explain.segments import main_causes, with_causes
from htagraph.explain.waited_for import MOST_STRETCHES, Stretch, told
from htagraph.findings.verdict import cause_label
from htagraph.job.lateness import blame_late_ranks
from htagraph.job.rank_segments import RankEnds, RankSegment, find_rank_segments
from htagraph.job.rank_work import attributed_in, on_rank_segments, path_in, told_in
from htagraph.job.timeline import Timeline
from htagraph.lookup.windowed import work_links
from htagraph.model.arrays import I64
from htagraph.model.events import EventTable, LaneTable
from htagraph.model.frames import BREAKDOWN, JOB_ATTRIBUTED_TIME, JOB_SEGMENTS, RANK_SEGMENTS
from htagraph.model.kinds import Bound, Cause, EdgeKind, bound_in_words
from htagraph.model.labels import track_name
from htagraph.model.perfetto_fields import recorded_facts
from htagraph.model.rules import Rule
from htagraph.model.schema import labelled
from htagraph.model.symbols import SymbolTable
from htagraph.model.units import human_count, human_duration
from htagraph.run.why import Why
from htagraph.writers.answering import answer_of, answers
from htagraph.writers.notebook_cell import path_html, table_html
from htagraph.writers.output_file import write_joined
from htagraph.writers.path_outline import Column, Outline, path_outline
from htagraph.writers.path_tracks import WAITS, DrawnPath, late_rank
from htagraph.writers.pftrace import write_pftrace


def _no_events() -> EventTable:
    wide, narrow, tiny = (
        np.empty(0, dtype=np.int64),
        np.empty(0, dtype=np.int32),
        np.empty(0, dtype=np.int8),
    )
    return EventTable(
        ts_ns=wide,
        dur_ns=wide,
        kind=tiny,
        name=narrow,
        category=narrow,
        lane=narrow,
        device=narrow,
        stream=wide,
        correlation=wide,
        external_id=wide,
        symbols=SymbolTable.intern([])[0],
        lanes=LaneTable(),
    )


def _arrow_ends(segments: pd.DataFrame, rank: int | None = None) -> tuple[I64, I64]:
    """Segments that have an event, of all ranks or of one, and the id of the arrow of each."""
    about = segments["event"] >= 0
    rows = np.flatnonzero(about if rank is None else about & (segments["rank"] == rank))
    return rows.astype(np.int64), rows.astype(np.int64) + 1


def _write_rank(
    part: Path,
    *,
    segments: pd.DataFrame,
    timeline: Timeline,
    rank: int,
    place: int,
    origin_ns: int,
    taken: set[int],
) -> Path:
    """Write one rank, with the ends of the arrows from the path to its events."""
    graph, clock = timeline.graphs.open(rank), timeline.clocks[rank]
    dag = graph.dag
    rows, ids = _arrow_ends(segments, rank)
    critical = segments["event"].to_numpy(np.int64)[rows]
    start, end = clock.to_common(dag.events.ts_ns), clock.to_common(dag.events.end_ns)
    return write_pftrace(
        part,
        replace(dag.events, ts_ns=start, dur_ns=end - start),
        rank=rank,
        place=place + 2,
        links=work_links(dag),
        critical_events=critical,
        computed=roof_arguments(dag),
        counters=[
            replace(counter, ts_ns=clock.to_common(counter.ts_ns))
            for counter in counter_tracks(dag)
        ],
        moved_by=dag.calibration.moved_by,
        origin_ns=origin_ns,
        event_ends=(critical, ids),
        taken=taken,
        recorded=recorded_facts(dag, rank, graph.origin),
        recorded_ns=(dag.recorded_ns, dag.events.dur_ns),
    )


def job_waits(timeline: Timeline, ranks: Collection[int], late: int = -1) -> pd.DataFrame:
    """Collectives of some ranks, waits and late arrivals, as `wait_tracks.WAITS`.

    Ranks are in their places; a late one and those that wait longest for it come first.
    """
    members, arrivals = timeline.collectives, timeline.late_arrivals
    met_ns = members["start_ns"] + members["wait_ns"]
    waiting = members[members["wait_ns"] > 0]
    last_rank = waiting["last_rank"].where(waiting["is_certain"], -1)
    waiting = waiting.assign(dur_ns=waiting["wait_ns"], last_rank=last_rank, operation="")
    n_waiting = waiting.groupby(["match", "last_rank"]).size().rename("n_waiting")
    blamed = arrivals[arrivals["is_blamed"]].join(n_waiting, on=["match", "rank"], how="inner")
    blamed = blamed.rename(columns={"lead_ns": "dur_ns"})
    parts = [
        members.assign(start_ns=met_ns, dur_ns=members["transfer_ns"], last_rank=-1, n_waiting=-1),
        waiting.assign(n_waiting=-1),
        blamed.assign(start_ns=blamed["came_ns"] - blamed["dur_ns"], last_rank=-1, operation=""),
    ]
    found = pd.concat([part[list(WAITS)] for part in parts], ignore_index=True)
    found = found[found["rank"].isin(ranks)]
    for_late = found[found["last_rank"] == late].groupby("rank")["dur_ns"].sum()
    places = {rank: place for place, rank in timeline.places}
    order = pd.DataFrame(
        {
            "is_not": found["rank"] != late,
            "less_ns": -found["rank"].map(for_late).fillna(0) * (late >= 0),
            "place": found["rank"].map(places),
        }
    )
    return found.loc[order.sort_values([*order], kind="stable").index]


def write_job_trace(
    out: str | Path, drawn: DrawnPath, timeline: Timeline, *, origin_ns: int, ranks: Collection[int]
) -> Path:
    """Write the aligned ranks of a job as one Perfetto trace; see `JobPath.to_perfetto`.

    One rank is in memory at a time. Ranks are in the order of their waits, then in their places:
    those of a pipeline by stage. `origin_ns`: time 0 of the file, in common time.
    """
    segments = drawn.segments
    above = replace(drawn, segments=segments.assign(event=np.int64(-1)))

    def write_path(part: Path) -> Path:
        """Write the path of the job."""
        return write_pftrace(
            part,
            _no_events(),
            path=above,
            origin_ns=origin_ns,
            segment_ends=_arrow_ends(segments),
        )

    waiting = [] if drawn.waits is None else drawn.waits["rank"].unique().tolist()
    order = dict.fromkeys([*waiting, *(rank for _, rank in timeline.places)])
    taken: set[int] = set()
    writers = [
        partial(
            _write_rank,
            segments=segments,
            timeline=timeline,
            rank=rank,
            place=place,
            origin_ns=origin_ns,
            taken=taken,
        )
        for place, rank in enumerate(rank for rank in order if rank in ranks)
    ]
    return write_joined(out, [write_path, *writers])


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


@dataclass(frozen=True, repr=False)
class JobWhy(JobPath):
    """Why an event of a rank started, or ended, only then: the chain that leads to it.

    It is a path of the job, of the time up to the event, with all that such a path has; its
    segments tile that time.

    Parameters
    ----------
    asked, since : str
        What it leads to, in a sentence, and what it begins with.
    """

    asked: str = ""
    since: str = ""

    @property
    def window_name(self) -> str:
        """Name of what it leads to, in a sentence."""
        return self.name

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The chain in words: what held the event, and what held that, back in time."""
        return tuple(told(self.asked, self._stretches, self.segments, self.since))

    @cached_property
    def _stretches(self) -> list[Stretch]:
        """The last stretches of the chain, latest first."""
        route = self.route.rank_segments
        last = route[-MOST_STRETCHES:]
        clipped = [self._clipped(one) for one in last]
        found = self.timeline.graphs.ask(on_rank_segments(told_in, clipped), on_error="raise")
        parts: list[Stretch] = []
        for number, one in reversed([*enumerate(last)]):
            if len(parts) >= MOST_STRETCHES:  # whole ones: what is earlier begins where they end
                break
            moved = self._in_common_time(one, found[one.rank][number])
            if moved and one.hops:
                late = route[len(route) - len(last) + number - 1].rank
                came_ns = self.timeline.clocks[one.rank].to_common(one.local_start_ns)
                waited_ns = one.start_ns - int(came_ns)
                why = f"rank {one.rank} waited {human_duration(waited_ns)} for rank {late}"
                moved[-1] = moved[-1]._replace(reason=why)
            parts += moved
        return parts

    def _clipped(self, one: RankSegment) -> RankSegment:
        """A rank segment on its rank's clock, without what was waited before a hop."""
        dur_ns = one.end_ns - max(one.start_ns, self.start_ns)
        return replace(one, local_start_ns=one.local_end_ns - dur_ns)

    def _in_common_time(self, one: RankSegment, parts: list[Stretch]) -> list[Stretch]:
        """Stretches of a rank segment, with their rank."""
        clock, moved = self.timeline.clocks[one.rank], []
        for part in parts:
            start_ns, end_ns = clock.to_common([part.start_ns, part.end_ns]).tolist()
            where = f"rank {one.rank}, {part.where}"
            moved.append(part._replace(start_ns=start_ns, end_ns=end_ns, where=where))
        return moved

    def __repr__(self) -> str:
        return f"JobWhy({self.name}, {human_duration(self.dur_ns)}: {self.asked})"

    def _repr_html_(self) -> str:
        """The sentences, for a notebook."""
        first, *rest = self.sentences
        return table_html([(said,) for said in rest], title=first)


def job_why(
    timeline: Timeline, ends: Mapping[int, RankEnds], rank: int, own: RankEnds, found: Why
) -> JobWhy:
    """The chain to an event of a rank across ranks; `own`: where that of the rank alone runs."""
    begun = {number: RankEnds(one.start_ns, one.start_ns, -1, -1) for number, one in ends.items()}
    whole = {**begun, rank: replace(own, start_ns=ends[rank].start_ns)}
    tables = {number: timeline.tables[number] for number in ends}
    matched = timeline.collectives[timeline.collectives["rank"].isin(ends)]
    parts = find_rank_segments(tables, whole, matched, timeline.clocks)
    begins = [one.common(timeline.clocks[number])[0] for number, one in ends.items()]
    start_ns = max(own.common(timeline.clocks[rank])[0], *begins)
    kept = tuple(one for one in parts if one.end_ns > start_ns) or tuple(parts[-1:])
    route = JobRoute(kept, min(start_ns, kept[-1].end_ns), f"{found.window.name}, rank {rank}")
    path = JobWhy.along(route, timeline)
    first, since = found.sentences[0], f"{found.since} of rank {rank}"
    return replace(path, asked=f"Rank {rank}: {first}", since=since)
