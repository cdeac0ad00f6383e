"""SYNC: a stream waits for work of another stream.

::

    thread 1   [launch][record]       [wait][launch]
    stream 7       [kernel A     ]
    stream 20                    '------------>[kernel B]

Profilers record these waits only if configured to. Without them a path goes wrong silently: it
takes a gap on one stream for overhead, where the stream waited for another. So there are kinds of
evidence, the weaker only where the stronger is missing: a record of the profiler; the order of
event records and stream waits among the calls of one thread, which is inferred, and labelled so
(`Rule.evidence`); and time alone (`htagraph.compiler.ended_right_before`).
"""

from __future__ import annotations

import numpy as np

from htagraph.algorithms.codes import is_in
from htagraph.algorithms.matching import last_before
from htagraph.compiler.late_ends import most_overlap, stream_wait_edges_from
from htagraph.compiler.structure import Structure
from htagraph.compiler.sync_records import SyncRecords, recorded_targets, sync_records
from htagraph.model.api_calls import CallMeaning
from htagraph.model.arrays import I8, I64
from htagraph.model.edges import EdgeTable
from htagraph.model.rules import Rule


def _recorded_stream_waits(structure: Structure, records: SyncRecords) -> tuple[I64, I64]:
    """Device event before each event record, and the first one after each stream wait."""
    events = structure.events
    rows = np.flatnonzero(records.meaning == CallMeaning.STREAM_WAIT)
    target = recorded_targets(structure, records, rows)
    record, call = records.record[rows], records.call[rows]
    queue = structure.find_queue(events.device[record].astype(np.int64), events.stream[record])
    waiter = structure.first_after(queue, events.ts_ns[call])
    known = (target >= 0) & (waiter >= 0)
    return target[known], waiter[known]


def _inferred_stream_waits(structure: Structure, meanings: I8, known: I64) -> tuple[I64, I64]:
    """The same for waits without a record, by the order of calls on one thread.

    The wait follows the latest event record of its thread. The record is on the stream of the last
    launch before it, the wait on the stream of the next launch after it. Only pairs that cross
    streams forward in time are kept.
    """
    events = structure.events
    launches = np.flatnonzero(structure.is_launch)

    def sequence(rows: I64) -> I64:
        return rows[np.lexsort((events.ts_ns[rows], events.lane[rows]))]

    waits = np.flatnonzero(meanings == CallMeaning.STREAM_WAIT)
    waits = sequence(waits[~is_in(waits, known)])
    marks = sequence(np.flatnonzero(meanings == CallMeaning.EVENT_RECORD))
    launches = sequence(launches)
    lane = events.lane
    mark = last_before(lane[marks], events.ts_ns[marks], lane[waits], events.ts_ns[waits])
    waits, mark = waits[mark >= 0], marks[mark[mark >= 0]]
    before = last_before(lane[launches], events.ts_ns[launches], lane[mark], events.ts_ns[mark])
    after = (
        last_before(lane[launches], events.ts_ns[launches], lane[waits], events.ts_ns[waits]) + 1
    )
    inside = (before >= 0) & (after < len(launches))
    waits, mark, before, after = waits[inside], mark[inside], before[inside], after[inside]
    inside = lane[launches[after]] == lane[waits]
    mark, before, after = mark[inside], launches[before[inside]], launches[after[inside]]
    first_work = np.full(len(events), -1, dtype=np.int32)
    queue = structure.queue[structure.launch[structure.queue] >= 0]
    by_start = queue[np.lexsort((events.ts_ns[queue],))][::-1]
    first_work[structure.launch[by_start]] = by_start
    source_queue, waiter = structure.queue_id[first_work[before]], first_work[after]
    target = structure.covered(source_queue, events.ts_ns[mark])
    kept = (target >= 0) & (structure.queue_id[waiter] != source_queue)
    kept &= events.end_ns[target] <= events.ts_ns[waiter] + most_overlap(structure)
    return target[kept], waiter[kept]


def stream_wait_edges(structure: Structure) -> EdgeTable:
    """Edges from the work that a stream waited for to the first work after the wait."""
    records = sync_records(structure)
    recorded = _recorded_stream_waits(structure, records)
    known = records.call[records.meaning == CallMeaning.STREAM_WAIT]
    ordered = _inferred_stream_waits(structure, structure.meanings, known)
    rules = (Rule.SYNC_RECORD, Rule.RECORD_AND_WAIT_ORDER)
    return EdgeTable.concat(
        stream_wait_edges_from(structure, rule, source, waiter)
        for (source, waiter), rule in zip((recorded, ordered), rules, strict=True)
    )
