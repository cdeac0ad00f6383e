"""SOURCE, inferred: the device still runs work from before the profile.

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

from htagraph.algorithms.gather import gather
from htagraph.algorithms.intervals import union
from htagraph.compiler.late_starts import LateStarts, late_starts
from htagraph.compiler.structure import Structure, start_node
from htagraph.model.api_calls import CallMeaning
from htagraph.model.edges import EdgeTable
from htagraph.model.inference import Inferred
from htagraph.model.kinds import among
from htagraph.model.rules import Rule

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
