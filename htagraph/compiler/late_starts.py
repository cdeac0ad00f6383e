"""Late starts: device work that begins later than all edges so far explain.

Passes of inference look for what it waited for. What they find makes it late no more, so each sees
only what those before it left.

Late ends: device work that is recorded as running when what waited for it has begun.

Profilers take the time of an end a little late, by up to about two microseconds, or round it. A
dependency is then hidden: by the clock, its head starts first. Every rule that needs work to have
ended allows for a part of the launch latency. The edge hangs on the start of the source, and what
ran until then is its lag::

    stream 7    [A         ]
                |==========>|          the recorded end of A lies behind the start of B
    stream 20              [B      ]

Places: where in a program a piece of device work is, the same in every step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.compiler.structure import Structure, end_node, start_node
from htagraph.model.arrays import I64, Bools
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EdgeKind
from htagraph.model.rules import Rule

_NEVER = np.iinfo(np.int64).min // 4
_MOST_STREAMS = 64
"""A limit of time: streams searched for the cause of late starts; each is a pass over them."""


class LateStarts(NamedTuple):
    """Device work, and since when it could have started by all that is known."""

    event: I64  # In order of time
    ready_ns: I64  # Latest arrival of the edges into its start
    wait_ns: I64  # From then to its start; more than is usual for the edge that arrives last

    def take(self, rows: I64 | Bools) -> LateStarts:
        """Some of them, by positions or a mask."""
        return LateStarts(self.event[rows], self.ready_ns[rows], self.wait_ns[rows])


def late_starts(structure: Structure, known: EdgeTable) -> LateStarts:
    """Device work that began later than usual after the last of the edges into its start.

    Found once for the same edges: most passes find none. `known`: all edges into starts of device
    work so far; those that run backward count for nothing.
    """
    made: dict[str, LateStarts] = vars(known)
    if "late_starts" not in made:
        made["late_starts"] = _late_starts(structure, known)
    return made["late_starts"]


def _late_starts(structure: Structure, known: EdgeTable) -> LateStarts:
    events, calibration = structure.events, structure.calibration
    times, device = events.node_ts_ns, structure.queue
    tail_ns = times[known.tail]
    is_forward, is_queued = tail_ns <= times[known.head], known.kind == EdgeKind.STREAM
    ready = np.full((2, len(device)), _NEVER)
    for row, chosen in enumerate((is_forward & ~is_queued, is_forward & is_queued)):
        place = structure.queue_place[known.head[chosen] >> 1]
        np.maximum.at(ready[row], place, tail_ns[chosen] + known.lag_ns[chosen])
    latest = ready.max(axis=0)
    usual = np.where(ready[1] >= ready[0], calibration.stream_usual_ns, calibration.launch_usual_ns)
    wait = events.ts_ns[device] - latest
    late = np.flatnonzero((latest > _NEVER) & (wait > usual))
    late = late[np.lexsort((device[late], events.ts_ns[device[late]]))]
    return LateStarts(device[late], latest[late], wait[late])


def most_used_streams(structure: Structure) -> I64:
    """Streams that others may wait for; of very many, those with most work."""
    n_work = np.diff(structure.enqueued_bounds)
    return np.sort(np.argsort(-n_work, kind="stable")[:_MOST_STREAMS])


def ended_before(structure: Structure, queue: int, until_ns: I64) -> tuple[I64, I64]:
    """Work of a stream that ended last at or before each time, -1 for none; and its end."""
    work, end_ns = _by_end(structure, queue)
    position = np.searchsorted(end_ns, until_ns, side="right")
    return np.append(-1, work)[position], np.append(_NEVER, end_ns)[position]


def running_at(structure: Structure, queue: int, at_ns: I64) -> tuple[I64, I64]:
    """Work of a stream that runs at each time, or begins next and ends first; and its end.

    -1 for none, which ends last.
    """
    work, end_ns = _by_end(structure, queue)
    position = np.searchsorted(end_ns, at_ns, side="left")
    return np.append(work, -1)[position], np.append(end_ns, np.iinfo(np.int64).max)[position]


def _by_end(structure: Structure, queue: int) -> tuple[I64, I64]:
    """The work of a stream, by its end, and when each ends."""
    work = structure.by_end[slice(*structure.enqueued_bounds[queue : queue + 2])]
    return work, structure.events.end_ns[work]


_MOST_FACTOR = 2
"""Part of the launch latency by which an end can be late; longer overlaps are real (chosen)."""
_USUAL_FACTOR = 4
"""Part of the launch latency by which ends usually are late (chosen)."""


def most_overlap(structure: Structure) -> int:
    """Most by which an end can be late, in ns."""
    return structure.calibration.launch_latency_ns // _MOST_FACTOR


def usual_overlap(structure: Structure) -> int:
    """How late ends usually are, in ns: at least the resolution of the times, if that is short."""
    usual = structure.calibration.launch_latency_ns // _USUAL_FACTOR
    return max(usual, min(structure.resolution_ns, most_overlap(structure)))


def stream_wait_edges_from(structure: Structure, rule: Rule, source: I64, waiter: I64) -> EdgeTable:
    """Edges from the work that a stream waited for to the work that waited.

    They run from its end; from its start if the end is late. Ends that are later than that run
    backward, and are set aside with their skew.
    """
    events = structure.events
    overlap = events.end_ns[source] - events.ts_ns[waiter]
    late = (
        (overlap > 0)
        & (overlap <= most_overlap(structure))
        & (events.ts_ns[source] <= events.ts_ns[waiter])
    )
    return EdgeTable.of(
        rule,
        np.where(late, start_node(source), end_node(source)),
        start_node(waiter),
        lag_ns=np.where(late, events.ts_ns[waiter] - events.ts_ns[source], 0),
        event=np.where(late, source, waiter),
    )


def work_places(structure: Structure) -> I64:
    """Number of each device event's stream and name, -1 for other events; shape (n_events,)."""
    device, n_names = structure.queue, len(structure.events.symbols)
    out = np.full(len(structure.events), -1, dtype=np.int64)
    keys = structure.queue_id[device].astype(np.int64) * n_names + structure.events.name[device]
    out[device] = np.unique(keys, return_inverse=True)[1]
    return out


def work_label(structure: Structure, event: int) -> str:
    """Name and stream of a piece of device work, as a person reads them."""
    events = structure.events
    return f"{events.symbols.texts[events.name[event]]} ({stream_label(structure, event)})"


def stream_label(structure: Structure, event: int) -> str:
    """Stream of a piece of device work, as a person reads it."""
    return f"stream {structure.events.stream[event]}"
