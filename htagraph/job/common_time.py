"""Pieces of ranks' paths on the common clock, where together they tile the window of the job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.clocks import Clock
from htagraph.job.rank_segments import RankSegment
from htagraph.model.kinds import EdgeKind
from htagraph.model.rules import Rule

__all__ = ["SegmentTimes", "in_common_time", "moved", "segments_since", "since"]

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SegmentTimes:
    """Where each rank segment begins, and whether the path came there from another rank.

    Parameters
    ----------
    start_ns : ndarray of shape (n_rank_segments,), dtype=int64, unit=ns
        In common time.
    hops : ndarray of shape (n_rank_segments,), dtype=bool
    """

    start_ns: I64
    hops: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, rank_segments: Sequence[RankSegment]) -> SegmentTimes:
        """The times of rank segments."""
        return cls(
            np.array([one.start_ns for one in rank_segments], dtype=np.int64),
            np.array([one.hops for one in rank_segments], dtype=bool),
        )


def moved(pieces: pd.DataFrame, timing: SegmentTimes, clock: Clock) -> pd.DataFrame:
    """A rank's pieces of the path on the common clock, without what was waited before a hop."""
    start = pieces["start_ns"].to_numpy(np.int64)
    common_end = clock.to_common(start + pieces["dur_ns"].to_numpy(np.int64))
    not_before = timing.start_ns[pieces["rank_segment"].to_numpy(np.int64)]
    common_start = np.minimum(np.maximum(clock.to_common(start), not_before), common_end)
    return pieces.assign(start_ns=common_start, dur_ns=common_end - common_start)


def in_common_time(
    segments: pd.DataFrame, rank: int, timing: SegmentTimes, clock: Clock
) -> pd.DataFrame:
    """A rank's segments on the common clock; those after a hop are of the collective."""
    common = moved(segments, timing, clock)
    hops = timing.hops[segments["rank_segment"].to_numpy(np.int64)]
    lag_ns = np.minimum(common["lag_ns"], common["dur_ns"])
    return common.assign(
        rank=np.int64(rank),
        lag_ns=lag_ns,
        residual_ns=common["dur_ns"] - lag_ns,
        bound=segments["bound"].astype(object),
        kind=np.where(hops, EdgeKind.COLLECTIVE.label, segments["kind"].astype(object)),
        rule=np.where(hops, Rule.RENDEZVOUS.label, segments["rule"].astype(object)),
    )


def since(pieces: pd.DataFrame, start_ns: int) -> pd.DataFrame:
    """What of the pieces is not before a time."""
    end_ns = pieces["start_ns"] + pieces["dur_ns"]
    begin_ns = np.maximum(pieces["start_ns"], start_ns)
    kept = pieces.assign(start_ns=begin_ns, dur_ns=end_ns - begin_ns)
    return pd.DataFrame(kept[kept["dur_ns"] > 0]).reset_index(drop=True)


def segments_since(segments: pd.DataFrame, start_ns: int) -> pd.DataFrame:
    """What of the segments is not before a time; what is cut off was lag first."""
    kept = since(segments.assign(lag_end_ns=segments["start_ns"] + segments["lag_ns"]), start_ns)
    lag_ns = np.clip(kept.pop("lag_end_ns") - kept["start_ns"], 0, kept["dur_ns"])
    return kept.assign(lag_ns=lag_ns, residual_ns=kept["dur_ns"] - lag_ns)
