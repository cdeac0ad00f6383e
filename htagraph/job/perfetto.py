"""One Perfetto trace of a whole job: all ranks on one clock, and the job's path on top of them.

The file is a concatenation: the path of the job, then each rank with its part of the path. Ids are
disjoint; only the arrows of hops, where the path goes from one rank to another, have one id in two
parts.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.clocks import Clock
from htagraph.job.timeline import Timeline
from htagraph.lookup.links import work_links
from htagraph.model.events import EventTable, LaneTable
from htagraph.model.symbols import SymbolTable
from htagraph.writers.joined import write_joined
from htagraph.writers.pftrace import write_pftrace

__all__ = ["write_job_trace"]

I64 = npt.NDArray[np.int64]

_ABOUT = (
    "Critical path of the job, in common time. Segments tile the window: every instant is on "
    "exactly one rank. Where a rank waited in a collective, the path hops to the rank that came "
    "last; below, the same path by rank."
)
_PART = (
    "The part of the job's critical path that is on this rank. Arrows lead to where the path goes "
    "on, on another rank."
)


def _no_events() -> EventTable:
    """A table without events."""
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


def _on_common_clock(events: EventTable, clock: Clock) -> EventTable:
    """Events in common time."""
    start, end = clock.to_common(events.ts_ns), clock.to_common(events.end_ns)
    return replace(events, ts_ns=start, dur_ns=end - start)


def _hop_ids(segments: pd.DataFrame) -> tuple[I64, I64]:
    """The segments before and after each hop to another rank, and the hop's number, from 1 on."""
    before = np.flatnonzero(np.diff(segments["rank"].to_numpy(np.int64)) != 0)
    ids = np.arange(1, len(before) + 1, dtype=np.int64)
    return np.concatenate([before, before + 1]), np.concatenate([ids, ids])


def _write_rank(
    part: Path, segments: pd.DataFrame, timeline: Timeline, rank: int, origin_ns: int
) -> Path:
    """Write one rank, with its part of the path."""
    dag = timeline.graphs.open(rank).dag
    rows = np.flatnonzero(segments["rank"] == rank)
    ends, ids = _hop_ids(segments)
    here = np.isin(ends, rows)
    own = segments.iloc[rows].drop(columns="rank").reset_index(drop=True)
    about = own["event"].to_numpy(np.int64)
    return write_pftrace(
        part,
        _on_common_clock(dag.events, timeline.clocks[rank]),
        rank=rank,
        place=rank + 2,
        segments=own,
        links=work_links(dag),
        critical_events=np.unique(about[about >= 0]),
        description=_PART,
        moved_by=dag.calibration.moved_by,
        origin_ns=origin_ns,
        hops=(np.searchsorted(rows, ends[here]).astype(np.int64), ids[here]),
    )


def write_job_trace(
    out: str | Path, segments: pd.DataFrame, timeline: Timeline, *, start_ns: int
) -> Path:
    """Write all aligned ranks of a job, its critical path on top, as one Perfetto trace.

    Parameters
    ----------
    out : str or Path
        ``.pftrace``, or ``.pftrace.gz`` to compress.
    segments : DataFrame, schema `frames.JOB_SEGMENTS`
        Of the path.
    timeline : Timeline
    start_ns : int, unit=ns
        Start of the path, in common time.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    OutputError
        If the file cannot be written.

    Notes
    -----
    One rank is in memory at a time; the parts lie beside the file until it is whole.
    """
    summaries = timeline.graphs.summaries
    firsts = [
        int(timeline.clocks[rank].to_common(summaries[rank].first_ns)) for rank in timeline.aligned
    ]
    origin_ns = min([start_ns, *firsts])
    whole = segments.assign(event=np.int64(-1))

    def write_path(part: Path) -> Path:
        """Write the path of the job."""
        return write_pftrace(
            part, _no_events(), segments=whole, description=_ABOUT, origin_ns=origin_ns
        )

    ranks = [
        partial(_write_rank, segments=segments, timeline=timeline, rank=rank, origin_ns=origin_ns)
        for rank in timeline.aligned
    ]
    return write_joined(out, [write_path, *ranks])
