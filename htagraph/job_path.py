"""JobPath: the critical path of a job, across its ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.clocks import Clock
from htagraph.errors import GraphError
from htagraph.model.frames import BREAKDOWN, JOB_SEGMENTS, SEGMENTS, categorical
from htagraph.model.kinds import Bound, EdgeKind
from htagraph.model.units import human_count, human_duration
from htagraph.queries.breakdown import sum_by
from htagraph.queries.legs import Leg, legs_frame

if TYPE_CHECKING:
    from htagraph.job import Job

__all__ = ["JobBreakdownKey", "JobPath"]

JobBreakdownKey = Literal["rank", "bound", "kind", "name", "op", "lane", "rule"]
"""What the time of a job's path can be grouped by."""

I64 = npt.NDArray[np.int64]

_TOP = 3


@dataclass(frozen=True, repr=False)
class JobPath:
    """The critical path of a job: segments that tile its window in common time, each on one rank.

    Parameters
    ----------
    segments : DataFrame, schema `frames.JOB_SEGMENTS`
    legs : DataFrame, schema `frames.LEGS`
        The path by rank: where it stays and where it hops.
    start_ns, end_ns : int, unit=ns
        The window, in common time.
    name : str
    job : Job
    """

    segments: pd.DataFrame
    legs: pd.DataFrame
    start_ns: int
    end_ns: int
    name: str
    job: Job

    @classmethod
    def of(
        cls,
        legs: list[Leg],
        expanded: Mapping[int, pd.DataFrame],
        clocks: Mapping[int, Clock],
        *,
        start_ns: int,
        name: str,
        job: Job,
    ) -> JobPath:
        """Return the path that legs and their segments on each rank make.

        Raises
        ------
        GraphError
            If they do not tile the window: a defect of this package.
        """
        leg_start_ns = np.array([leg.start_ns for leg in legs], dtype=np.int64)
        leg_hops = np.array([leg.hops for leg in legs], dtype=bool)
        parts = [_in_common_time(expanded[rank], rank, leg_start_ns, leg_hops, clocks[rank]) for rank in expanded]
        first = legs[0]
        if first.start_ns > start_ns:
            parts.insert(0, _unknown(start_ns, first.start_ns, first.rank))
        columns = list(JOB_SEGMENTS.columns)
        segments = pd.concat(parts, ignore_index=True)
        segments = segments.sort_values(["leg", "start_ns"], kind="stable", ignore_index=True)[columns]
        segments = _from(segments, start_ns)
        segments["kind"] = categorical(segments["kind"].map(EdgeKind.labels().index), EdgeKind.labels())
        segments["bound"] = categorical(segments["bound"].map(Bound.labels().index), Bound.labels())
        path = cls(segments, legs_frame(legs), start_ns, legs[-1].end_ns, name, job)
        path._check()
        return path

    def _check(self) -> None:
        start = self.segments["start_ns"].to_numpy()
        end = start + self.segments["dur_ns"].to_numpy()
        tiles = not len(start) and self.dur_ns == 0
        if len(start):
            tiles = start[0] == self.start_ns and end[-1] == self.end_ns and bool((start[1:] == end[:-1]).all())
        if not tiles:
            raise GraphError("the job's critical path does not tile its window.", hint="please report it.")

    @property
    def dur_ns(self) -> int:
        """Length of the path, which is the length of the job's window."""
        return self.end_ns - self.start_ns

    def breakdown(self, *, by: JobBreakdownKey = "rank") -> pd.DataFrame:
        """Return the time of the path by group; it adds up to the window.

        Parameters
        ----------
        by : {"rank", "bound", "kind", "name", "op", "lane", "rule"}

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
        from htagraph.job_trace import write_job_trace  # noqa: PLC0415

        return write_job_trace(out, self)

    def __repr__(self) -> str:
        """Say how long the path is, where it ran and what bounds it."""
        top = [f"rank {rank} {share:.0%}" for rank, share in self.breakdown(by="rank")["share"].head(_TOP).items()]
        bounds = [
            f"{str(bound).replace('_', ' ')} {share:.0%}"
            for bound, share in self.breakdown(by="bound")["share"].head(_TOP).items()
        ]
        return (
            f"JobPath({self.name}, {human_duration(self.dur_ns)}, {human_count(len(self.segments), 'segment')}: "
            f"{', '.join(top)}; {', '.join(bounds)})"
        )


def _in_common_time(
    segments: pd.DataFrame, rank: int, leg_start_ns: I64, leg_hops: npt.NDArray[np.bool_], clock: Clock
) -> pd.DataFrame:
    """Return a rank's segments on the common clock, with what was waited before a hop cut off."""
    start = segments["start_ns"].to_numpy(np.int64)
    number = segments["leg"].to_numpy(np.int64)
    common_start = clock.to_common(start)
    common_end = clock.to_common(start + segments["dur_ns"].to_numpy(np.int64))
    common_start = np.minimum(np.maximum(common_start, leg_start_ns[number]), common_end)
    dur_ns = common_end - common_start
    hops = leg_hops[number]
    lag_ns = np.minimum(segments["lag_ns"].to_numpy(np.int64), dur_ns)
    return segments.assign(
        rank=np.int64(rank),
        start_ns=common_start,
        dur_ns=dur_ns,
        lag_ns=lag_ns,
        residual_ns=dur_ns - lag_ns,
        bound=segments["bound"].astype(object),
        kind=np.where(hops, EdgeKind.COLLECTIVE.label, segments["kind"].astype(object)),
        rule=np.where(hops, "rendezvous", segments["rule"].astype(object)),
    )


def _from(segments: pd.DataFrame, start_ns: int) -> pd.DataFrame:
    """Return what of the segments is not before a time."""
    end_ns = segments["start_ns"] + segments["dur_ns"]
    cut_ns = np.clip(start_ns - segments["start_ns"], 0, None)
    dur_ns = np.clip(segments["dur_ns"] - cut_ns, 0, None)
    lag_ns = np.minimum(np.clip(segments["lag_ns"] - cut_ns, 0, None), dur_ns)
    kept: pd.DataFrame = segments.assign(
        start_ns=end_ns - dur_ns, dur_ns=dur_ns, lag_ns=lag_ns, residual_ns=dur_ns - lag_ns
    )
    return pd.DataFrame(kept[dur_ns > 0]).reset_index(drop=True)


def _unknown(start_ns: int, end_ns: int, rank: int) -> pd.DataFrame:
    """Return the time before the first rank of the path began: nothing says what it waited for."""
    row: dict[str, object] = dict.fromkeys(SEGMENTS.columns, "")
    row |= {"name": "(unexplained)", "bound": Bound.UNEXPLAINED.label, "kind": EdgeKind.SOURCE.label}
    row |= {"rule": "window start", "start_ns": start_ns, "dur_ns": end_ns - start_ns, "lag_ns": 0}
    row |= {"residual_ns": end_ns - start_ns, "event": -1, "edge": -1, "rank": rank, "leg": -1}
    return pd.DataFrame([row])
