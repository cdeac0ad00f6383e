"""JobPath: the critical path of a job, across its ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.clocks import Clock
from htagraph.errors import GraphError
from htagraph.explain.breakdown import sum_by
from htagraph.job.lateness import blame_late_ranks
from htagraph.job.rank_segments import RankSegment, rank_segments_frame
from htagraph.job.ranks import Attributed
from htagraph.model.frames import BREAKDOWN, JOB_ATTRIBUTED_TIME, JOB_SEGMENTS, SEGMENTS
from htagraph.model.kinds import Bound, Cause, EdgeKind
from htagraph.model.schema import labelled
from htagraph.model.units import human_count, human_duration

if TYPE_CHECKING:
    from htagraph.job.job import Job

__all__ = ["JobBreakdownKey", "JobPath"]

JobBreakdownKey = Literal["rank", "bound", "kind", "name", "op", "track", "rule"]
"""What the time of a job's path can be grouped by."""

I64 = npt.NDArray[np.int64]

_TOP = 3


@dataclass(frozen=True, repr=False)
class JobPath:
    """The critical path of a job: segments that tile its window in common time, each on one rank.

    Parameters
    ----------
    segments : DataFrame, schema `frames.JOB_SEGMENTS`
    parts : tuple of RankSegment
        The path by rank: where it stays and where it hops.
    start_ns, end_ns : int, unit=ns
        The window, in common time.
    name : str
    job : Job
    """

    segments: pd.DataFrame
    parts: tuple[RankSegment, ...]
    start_ns: int
    end_ns: int
    name: str
    job: Job

    @classmethod
    def of(
        cls,
        rank_segments: Sequence[RankSegment],
        expanded: Mapping[int, pd.DataFrame],
        *,
        start_ns: int,
        name: str,
        job: Job,
    ) -> JobPath:
        """Return the path that rank segments and their segments on each rank make.

        Raises
        ------
        GraphError
            If they do not tile the window: a defect of this package.
        """
        timing = _SegmentTimes.of(rank_segments)
        parts = [
            _in_common_time(part, rank, timing, job.clock(rank)) for rank, part in expanded.items()
        ]
        first = rank_segments[0]
        if first.start_ns > start_ns:
            parts.insert(0, _unknown(start_ns, first.start_ns, first.rank))
        columns = list(JOB_SEGMENTS.columns)
        segments = pd.concat(parts, ignore_index=True)
        segments = segments.sort_values(
            ["rank_segment", "start_ns"], kind="stable", ignore_index=True
        )[columns]
        segments = _from(segments, start_ns)
        segments["kind"] = labelled(segments["kind"], EdgeKind.labels())
        segments["bound"] = labelled(segments["bound"], Bound.labels())
        path = cls(segments, tuple(rank_segments), start_ns, rank_segments[-1].end_ns, name, job)
        path._check(segments)
        return path

    def _check(self, pieces: pd.DataFrame) -> None:
        """Raise unless pieces tile the window."""
        start = pieces["start_ns"].to_numpy()
        end = start + pieces["dur_ns"].to_numpy()
        tiles = not len(start) and self.dur_ns == 0
        if len(start):
            tiles = (
                start[0] == self.start_ns
                and end[-1] == self.end_ns
                and bool((start[1:] == end[:-1]).all())
            )
        if not tiles:
            raise GraphError(
                "the job's critical path does not tile its window.", hint="please report it."
            )

    @cached_property
    def rank_segments(self) -> pd.DataFrame:
        """The path by rank: where it stays and where it hops, schema `frames.RANK_SEGMENTS`."""
        rank_segments = rank_segments_frame(list(self.parts))
        return _since(rank_segments, self.start_ns)

    @cached_property
    def attributed_time(self) -> pd.DataFrame:
        """Which cause claims which part of the path, schema `frames.JOB_ATTRIBUTED_TIME`: adjacent, disjoint, together the window.

        What a late rank did for longer than the runner-up is claimed by its lateness.

        Raises
        ------
        RankFailedError
            If a rank that the path visits cannot be read any more.
        """
        timing = _SegmentTimes.of(self.parts)
        by_rank = self.job.on_rank_segments(self.parts, Attributed)
        moved = [
            _moved(part, timing, self.job.clock(rank)).assign(rank=rank)
            for rank, part in by_rank.items()
        ]
        first = self.parts[0]
        if first.start_ns > self.start_ns:
            moved.insert(
                0,
                _unknown(self.start_ns, first.start_ns, first.rank).assign(
                    cause=Cause.UNEXPLAINED, segment=0, step="", frame=""
                ),
            )
        joined = pd.concat(
            [part.assign(bound=part["bound"].astype(object)) for part in moved], ignore_index=True
        )
        joined = _since(
            joined.sort_values(["rank_segment", "start_ns"], kind="stable", ignore_index=True),
            self.start_ns,
        )
        joined["segment"] = (
            np.searchsorted(self.segments["start_ns"], joined["start_ns"], side="right") - 1
        )
        blamed = blame_late_ranks(
            joined,
            self.segments,
            self.job.late_arrivals,
            self.job.excess_times,
            self.job.collectives(),
        )
        blamed["bound"] = labelled(blamed["bound"], Bound.labels())
        self._check(blamed)
        return JOB_ATTRIBUTED_TIME.frame(
            {name: blamed[name].to_numpy() for name in JOB_ATTRIBUTED_TIME.columns}
        )

    @property
    def dur_ns(self) -> int:
        """Length of the path, which is the length of the job's window."""
        return self.end_ns - self.start_ns

    def breakdown(self, *, by: JobBreakdownKey = "rank") -> pd.DataFrame:
        """Return the time of the path by group; it adds up to the window.

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

    def to_perfetto(self, out: str | Path) -> Path:
        """Write all ranks on the common clock with the job's path on top, for the Perfetto UI.

        Parameters
        ----------
        out : str or Path
            ``.pftrace``, or ``.pftrace.gz`` to compress.

        Raises
        ------
        OutputError
            If the file cannot be written.
        """
        from htagraph.job.perfetto import write_job_trace  # noqa: PLC0415

        return write_job_trace(out, self)

    def __repr__(self) -> str:
        """Say how long the path is, where it ran and what bounds it."""
        top = [
            f"rank {rank} {share:.0%}"
            for rank, share in self.breakdown(by="rank")["share"].head(_TOP).items()
        ]
        bounds = [
            f"{str(bound).replace('_', ' ')} {share:.0%}"
            for bound, share in self.breakdown(by="bound")["share"].head(_TOP).items()
        ]
        return (
            f"JobPath({self.name}, {human_duration(self.dur_ns)}, {human_count(len(self.segments), 'segment')}: "
            f"{', '.join(top)}; {', '.join(bounds)})"
        )


@dataclass(frozen=True)
class _SegmentTimes:
    """Where each rank segment begins in common time, and whether the path came there from another rank."""

    start_ns: I64
    hops: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, rank_segments: Sequence[RankSegment]) -> _SegmentTimes:
        """Return the times of rank segments."""
        return cls(
            np.array([rank_segment.start_ns for rank_segment in rank_segments], dtype=np.int64),
            np.array([rank_segment.hops for rank_segment in rank_segments], dtype=bool),
        )


def _moved(pieces: pd.DataFrame, timing: _SegmentTimes, clock: Clock) -> pd.DataFrame:
    """Return a rank's pieces of the path on the common clock, with what was waited before a hop cut off."""
    start = pieces["start_ns"].to_numpy(np.int64)
    common_end = clock.to_common(start + pieces["dur_ns"].to_numpy(np.int64))
    not_before = timing.start_ns[pieces["rank_segment"].to_numpy(np.int64)]
    common_start = np.minimum(np.maximum(clock.to_common(start), not_before), common_end)
    return pieces.assign(start_ns=common_start, dur_ns=common_end - common_start)


def _in_common_time(
    segments: pd.DataFrame, rank: int, timing: _SegmentTimes, clock: Clock
) -> pd.DataFrame:
    """Return a rank's segments on the common clock; those after a hop are of the collective."""
    moved = _moved(segments, timing, clock)
    hops = timing.hops[segments["rank_segment"].to_numpy(np.int64)]
    lag_ns = np.minimum(moved["lag_ns"], moved["dur_ns"])
    return moved.assign(
        rank=np.int64(rank),
        lag_ns=lag_ns,
        residual_ns=moved["dur_ns"] - lag_ns,
        bound=segments["bound"].astype(object),
        kind=np.where(hops, EdgeKind.COLLECTIVE.label, segments["kind"].astype(object)),
        rule=np.where(hops, "rendezvous", segments["rule"].astype(object)),
    )


def _since(pieces: pd.DataFrame, start_ns: int) -> pd.DataFrame:
    """Return what of the pieces is not before a time."""
    end_ns = pieces["start_ns"] + pieces["dur_ns"]
    begin_ns = np.maximum(pieces["start_ns"], start_ns)
    kept = pieces.assign(start_ns=begin_ns, dur_ns=end_ns - begin_ns)
    return pd.DataFrame(kept[kept["dur_ns"] > 0]).reset_index(drop=True)


def _from(segments: pd.DataFrame, start_ns: int) -> pd.DataFrame:
    """Return what of the segments is not before a time; what is cut off was lag first."""
    kept = _since(segments.assign(lag_end_ns=segments["start_ns"] + segments["lag_ns"]), start_ns)
    lag_ns = np.clip(kept.pop("lag_end_ns") - kept["start_ns"], 0, kept["dur_ns"])
    return kept.assign(lag_ns=lag_ns, residual_ns=kept["dur_ns"] - lag_ns)


def _unknown(start_ns: int, end_ns: int, rank: int) -> pd.DataFrame:
    """Return the time before the first rank of the path began: nothing says what it waited for."""
    row: dict[str, object] = dict.fromkeys(SEGMENTS.columns, "")
    row |= {
        "name": "(unexplained)",
        "bound": Bound.UNEXPLAINED.label,
        "kind": EdgeKind.SOURCE.label,
    }
    row |= {"rule": "window start", "start_ns": start_ns, "dur_ns": end_ns - start_ns, "lag_ns": 0}
    row |= {
        "residual_ns": end_ns - start_ns,
        "event": -1,
        "edge": -1,
        "rank": rank,
        "rank_segment": -1,
    }
    return pd.DataFrame([row])
