"""SYNC, inferred from time alone: work starts right after work of another stream ended.

::

    stream 7    [A    ][B    ]
    stream 20                 '->[C    ]     ready since its launch, after that of B

If B is all that the other stream had been given before C was launched, once is enough: waiting for
an event recorded there has just that effect. C must start within the usual gap after that end, and
within a small part of its wait: that is the chance level.

In a replayed graph the launch is long past, so what was given before it is no evidence. But the
dependency recurs: whenever C is late, it starts right after B
(see `htagraph.compiler.recurrences`).

SOURCE, inferred: the device still runs work from before the profile.

::

    thread 1   |[launch]                    |[launch] …
    stream 2   |    [copy]                  |
    stream 7   |      (nothing recorded)    [first kernel]

The first work recorded on a device starts long after its own launch, and nothing that was recorded
there explains why. It waits for work that the capture did not see. A few tiny copies on another
stream do not change that; a wait for the device that returned in between does: the device was idle
then. Work that was launched late is left out: the host accounts for most of the time before it.
"""

from __future__ import annotations

import numpy as np

from htagraph.arrays.codes import gather
from htagraph.arrays.intervals import union
from htagraph.compiler.late_starts import (
    LateStarts,
    ended_before,
    late_starts,
    most_overlap,
    most_used_streams,
    stream_wait_edges_from,
    usual_overlap,
    work_label,
    work_places,
)
from htagraph.compiler.recurrences import Candidates, Sources, Waits, learnt_pairs, recurring
from htagraph.compiler.structure import Structure, end_node, start_node
from htagraph.model.api_calls import CallMeaning
from htagraph.model.arrays import I64, Bools
from htagraph.model.edges import EdgeTable, Inferred, Support
from htagraph.model.kinds import among
from htagraph.model.rules import Rule

_PART_OF_WAIT = 8
"""The end must lie in as small a part of the wait: at any other instant it would say nothing."""


def _covering(structure: Structure, other: I64, late: I64, ready_ns: I64) -> I64:
    """The work that ended last before each late work, if it ran for half of the wait, else -1.

    For late work whose launch is not known, so that what the stream had been given then is not
    known either.
    """
    events = structure.events
    alone_ns = np.maximum(events.ts_ns[other] - ready_ns, 0)
    return np.where(alone_ns <= (events.ts_ns[late] - ready_ns) // 2, other, -1)


def _inside_replay(structure: Structure, late: I64) -> Bools:
    """Whether other work of the same replayed graph began before each late work.

    Then its graph decides what it waits for, not what the streams had been given before.
    """
    events, launch = structure.events, structure.launch
    device = structure.queue[gather(structure.replays, launch[structure.queue], default=False)]
    first_ns = np.full(len(events), np.iinfo(np.int64).max)
    np.minimum.at(first_ns, launch[device], events.ts_ns[device])
    first = gather(first_ns, launch[late], np.iinfo(np.int64).max)
    in_replay: Bools = events.ts_ns[late] > first
    return in_replay


def ended_right_before(structure: Structure, known: EdgeTable) -> Inferred:
    """Edges to late work from what ended right before, on the stream where that ended last."""
    events, usual = structure.events, structure.calibration.launch_usual_ns
    late = late_starts(structure, known)
    late = late.take((late.wait_ns > usual) & ~_inside_replay(structure, late.event))
    start_ns, most = events.ts_ns[late.event], np.minimum(usual, late.wait_ns // _PART_OF_WAIT)
    launched_ns = structure.launched_ns(late.event)
    found = np.full(len(late.event), -1, dtype=np.int64)
    latest = np.full(len(late.event), np.iinfo(np.int64).min)
    queue_device = events.device[structure.queue[structure.queue_starts]]
    for queue in range(len(queue_device)):
        last, end_ns = ended_before(structure, queue, start_ns + usual_overlap(structure))
        rows = np.flatnonzero(start_ns - end_ns <= most)
        work = late.event[rows]
        other = structure.covered_on(queue, launched_ns[rows])
        unknown = np.flatnonzero(structure.launch[work] < 0)
        other[unknown] = _covering(
            structure, last[rows[unknown]], work[unknown], late.ready_ns[rows[unknown]]
        )
        end_ns = events.end_ns[other]
        gap = start_ns[rows] - end_ns
        fits = (other >= 0) & (gap >= -usual_overlap(structure)) & (gap <= most[rows])
        fits &= (structure.queue_id[work] != queue) & (events.device[work] == queue_device[queue])
        fits &= (end_ns > latest[rows]) & (events.ts_ns[other] < start_ns[rows])
        found[rows[fits]], latest[rows[fits]] = other[fits], end_ns[fits]
    ended = np.flatnonzero(found >= 0)
    return Inferred(
        stream_wait_edges_from(structure, Rule.ENDED_RIGHT_BEFORE, found[ended], late.event[ended])
    )


def _just_ended(structure: Structure, late: LateStarts) -> Candidates:
    """What ended last on each other stream, right before a late start and launched before it."""
    events, usual = structure.events, structure.calibration.launch_usual_ns
    start_ns, launched_ns = events.ts_ns[late.event], structure.launched_ns
    device = events.device[structure.queue[structure.queue_starts]]
    none = np.empty(0, dtype=np.int64)
    parts = [(none, none)]
    for queue in most_used_streams(structure).tolist():
        other, end_ns = ended_before(structure, queue, start_ns + most_overlap(structure))
        rows = np.flatnonzero((start_ns - end_ns <= usual) & (end_ns > late.ready_ns))
        other, work = other[rows], late.event[rows]
        fits = (structure.queue_id[work] != queue) & (events.device[work] == device[queue])
        fits &= (events.ts_ns[other] < start_ns[rows]) & (launched_ns(other) <= launched_ns(work))
        parts.append((rows[fits], other[fits]))
    row, work = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Candidates(row, end_node(work), start_ns[row] - events.end_ns[work])


def recurring_waits(structure: Structure, known: EdgeTable) -> Inferred:
    """Edges from work of one stream to late work of another that always starts right after it."""
    late = late_starts(structure, known)
    found = _just_ended(structure, late)
    if not len(found.wait):
        return Inferred()
    events, device, place = structure.events, structure.queue, work_places(structure)
    rule, source = Rule.RECURRING_IN_REPLAYS, place[found.source >> 1]
    start_ns = events.ts_ns[late.event]
    waits = Waits(start_node(late.event), late.ready_ns, start_ns, place[late.event])
    support: tuple[Support, ...] = ()

    def label(node: int) -> str:
        return work_label(structure, node >> 1)

    if structure.learnt is None:
        sources = Sources.of(events.end_ns[device], place[device])
        found, support = recurring(rule, waits, found, (sources.only, source), label)
    else:
        found = learnt_pairs(waits, found, source, label, structure.learnt.keys)
    edges = stream_wait_edges_from(structure, rule, found.source >> 1, late.event[found.wait])
    return Inferred(edges, support)


_TINY = 0.1
"""Part of the wait for which the device may have been busy with what was recorded before."""
_DRAINS = (CallMeaning.DEVICE_SYNC, CallMeaning.STREAM_SYNC)


def _busy_before_ns(structure: Structure, event: int) -> int:
    """Time for which recorded work kept the device of an event busy before it."""
    events, device = structure.events, structure.queue
    start_ns = events.ts_ns[event]
    rows = device[
        (events.device[device] == events.device[event]) & (events.ts_ns[device] < start_ns)
    ]
    busy = union(
        np.zeros(len(rows), dtype=np.int64),
        events.ts_ns[rows],
        np.minimum(events.end_ns[rows], start_ns),
    )
    return int((busy.end - busy.start).sum())


def _late_launches(structure: Structure, known: EdgeTable) -> LateStarts:
    """Of each device, the first work that is late though nothing recorded ran before its launch.

    Late since its launch returned: a slow call is the host's time, not a wait.
    """
    events = structure.events
    late = late_starts(structure, known)
    launch = structure.launch[late.event]
    # A call may stage what it copies; its work can begin later than launches do.
    returned = gather(events.end_ns, launch, np.iinfo(np.int64).max) <= events.ts_ns[late.event]
    late, launch = late.take(returned), launch[returned]
    since = np.maximum(late.ready_ns, gather(events.end_ns, launch, np.iinfo(np.int64).min))
    _, first = np.unique(events.device[late.event], return_index=True)
    return LateStarts(late.event, since, events.ts_ns[late.event] - since).take(first)


def _drained(structure: Structure, until_ns: int) -> bool:
    """Whether a wait for a stream or a device returned before a time."""
    events = structure.events
    waits = among(structure.meanings, _DRAINS)
    return bool((events.end_ns[waits] <= until_ns).any())


def first_device_work(structure: Structure, known: EdgeTable) -> Inferred:
    """Edges from the first host event to the first work of a device that waits for unseen work."""
    events = structure.events
    late = _late_launches(structure, known)
    host = structure.host[structure.is_work[structure.host]]
    if not len(late.event) or not len(host):
        return Inferred()
    first = host[events.ts_ns[host] == events.ts_ns[host].min()]
    begin = first[np.argmax(events.dur_ns[first])]
    waits = [
        2 * wait_ns >= events.ts_ns[event] - events.ts_ns[begin] > 0
        and _busy_before_ns(structure, event) <= _TINY * wait_ns
        and not _drained(structure, int(events.ts_ns[event]))
        for event, wait_ns in zip(late.event.tolist(), late.wait_ns.tolist(), strict=True)
    ]
    work = late.event[np.array(waits, dtype=bool)]
    return Inferred(
        EdgeTable.of(
            Rule.FIRST_DEVICE_WORK,
            np.full(len(work), start_node(np.array([begin]))[0]),
            start_node(work),
            lag_ns=events.ts_ns[work] - events.ts_ns[begin],
            event=work,
        )
    )
