"""One Perfetto trace of a job: all ranks on one clock, with the job's path on top.

The file concatenates the path of the job and each rank. Ids are disjoint, except those of arrows
from segments of the path to events of a rank, which both parts have.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from htagraph.algorithms.clocks import Clock
from htagraph.explain.counter_tracks import counter_tracks
from htagraph.explain.roof_arguments import roof_arguments
from htagraph.job.timeline import Timeline
from htagraph.lookup.edges import work_links
from htagraph.model.arrays import I64
from htagraph.model.events import EventTable, LaneTable
from htagraph.model.supplement import recorded_facts
from htagraph.model.symbols import SymbolTable
from htagraph.writers.output_file import write_joined
from htagraph.writers.pftrace import write_pftrace

__all__ = ["write_job_trace"]

_ABOUT = (
    "Critical path of the job, in common time. Segments tile the window: every instant is on "
    "exactly one rank. Where a rank waited in a collective, the path hops to the rank that arrived "
    "last."
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
    return write_pftrace(
        part,
        _on_common_clock(dag.events, clock),
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


def write_job_trace(
    out: str | Path,
    segments: pd.DataFrame,
    timeline: Timeline,
    *,
    window: str,
    origin_ns: int,
    findings: Mapping[str, str],
    opens_at_ns: int | None = None,
    ranks: Collection[int] | None = None,
) -> Path:
    """Write the aligned ranks of a job as one Perfetto trace; see `JobPath.to_perfetto`.

    One rank is in memory at a time. Ranks of a pipeline are in the order of their stages.

    Parameters
    ----------
    segments : DataFrame, schema `frames.JOB_SEGMENTS`
        Of the path; with the ``cause`` and ``code`` of each.
    origin_ns : int, unit=ns
        Time 0 of the file, in common time.
    opens_at_ns : int, unit=ns, optional
        Time of the segment at which ``htagraph view`` opens the file.
    """
    without_events = segments.assign(event=np.int64(-1))

    def write_path(part: Path) -> Path:
        """Write the path of the job."""
        return write_pftrace(
            part,
            _no_events(),
            segments=without_events,
            window=window,
            description=_ABOUT,
            findings=findings,
            opens_at_ns=opens_at_ns,
            origin_ns=origin_ns,
            segment_ends=_arrow_ends(segments),
        )

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
        for place, rank in timeline.places
        if ranks is None or rank in ranks
    ]
    return write_joined(out, [write_path, *writers])
