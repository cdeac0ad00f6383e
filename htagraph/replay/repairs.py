"""What repairing a cause of a critical path would change.

Each cause has the change that its advice amounts to. Where there is none that names events, the
time that the path spends on the cause goes, and no other: what then binds is found by re-timing.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.model.kinds import Cause, EdgeKind, KernelClass
from htagraph.replay.changes import Change, Remove, Scale, Spare
from htagraph.replay.collective_changes import Bandwidth, Equalise
from htagraph.replay.device_changes import NoGaps, Overlap
from htagraph.replay.event_groups import COPIES_THAT_BLOCK, HOST_WAITS, LOADERS, of_class, of_topic
from htagraph.replay.host_changes import Graphed

__all__ = ["OF_CAUSE", "repairs", "spared"]

OF_CAUSE: dict[Cause, tuple[Change, ...]] = {
    Cause.COMPUTE: (Scale(of_class(KernelClass.COMPUTE), 0.5),),
    Cause.COMMUNICATION: (Overlap(of_class(KernelClass.COMMUNICATION)), Bandwidth(2.0)),
    Cause.COPIES: (Overlap(of_class(KernelClass.MEMORY)),),
    Cause.DATA_LOADING: (Scale(LOADERS, 0.0),),
    Cause.FULL_QUEUE: (Remove(EdgeKind.QUEUE.label),),
    Cause.DEVICE_FULL: (Remove(EdgeKind.CONTENTION.label),),
    Cause.DEVICE_GAPS: (NoGaps(),),
    Cause.HOST: (Graphed(),),
    Cause.HOST_WAIT: (Remove(HOST_WAITS),),
    Cause.BLOCKING_COPY: (Remove(COPIES_THAT_BLOCK),),
    Cause.COMPILATION: (Remove(of_topic(Cause.COMPILATION)),),
    Cause.RECOMPILATION: (Remove(of_topic(Cause.RECOMPILATION)),),
    Cause.AUTOTUNING: (Remove(of_topic(Cause.AUTOTUNING)),),
}
"""Alternatives for causes whose advice is about events."""


def repairs(segments: pd.DataFrame, part: pd.DataFrame) -> list[tuple[Change, ...]]:
    """What could be tried about a cause: alternatives, each some changes made together.

    Parameters
    ----------
    segments : DataFrame, schema `frames.SEGMENTS` or `frames.JOB_SEGMENTS`
        Of the path.
    part : DataFrame, schema `frames.ATTRIBUTED_TIME` or `frames.JOB_ATTRIBUTED_TIME`
        What of the path is charged to one cause, or to one late rank.

    Returns
    -------
    list of tuple of Change
        The last one always can be made: the time itself goes.
    """
    cause = Cause(str(part["cause"].iloc[0]))
    rest = spared(segments, part, str(cause))
    if cause is Cause.LATE_RANK:
        return [(Equalise().on_rank(int(part["rank"].iloc[0])),), (rest,)]
    return [*((change,) for change in OF_CAUSE.get(cause, ())), (rest,)]


def spared(segments: pd.DataFrame, part: pd.DataFrame, name: str) -> Spare:
    """The change by which some attributed time goes."""
    at = part["segment"].to_numpy(np.int64)
    edge = segments["edge"].to_numpy(np.int64)[at]
    dur_ns = part["dur_ns"].to_numpy(np.int64)
    alone = np.full(len(segments), -1, dtype=np.int64)
    rank = (segments["rank"].to_numpy(np.int64) if "rank" in segments else alone)[at]
    known = edge >= 0
    return Spare(edge[known], dur_ns[known], name, rank[known])
