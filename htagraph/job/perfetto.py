"""One Perfetto trace of a job: all ranks on one clock; its findings, path and waits on top.

The file concatenates what is on top and each rank. Ids are disjoint, except those of arrows
from segments of the path to events of a rank, which both parts have.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from htagraph.explain.counter_tracks import counter_tracks, roof_arguments
from htagraph.job.timeline import Timeline
from htagraph.lookup.windowed import work_links
from htagraph.model.arrays import I64
from htagraph.model.events import EventTable, LaneTable
from htagraph.model.perfetto_fields import recorded_facts
from htagraph.model.symbols import SymbolTable
from htagraph.writers.output_file import write_joined
from htagraph.writers.path_tracks import WAITS, DrawnPath
from htagraph.writers.pftrace import write_pftrace


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
