"""Late starts: device work that begins later than all edges so far explain.

Passes of inference look for what it waited for. What they find makes it late no more, so each sees
only what those before it left.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.compiler.structure import Structure
from htagraph.model.arrays import I64, Bools
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EdgeKind

_NEVER = np.iinfo(np.int64).min // 4
_MOST_STREAMS = 64
"""A limit of time: streams searched for the cause of late starts; each is a pass over them."""


class LateStarts(NamedTuple):
    """Device work, and since when it could have started by all that is known.

    Parameters
    ----------
    event : ndarray of shape (n,), dtype=int64
        In order of time.
    ready_ns : ndarray of shape (n,), dtype=int64, unit=ns
        Latest arrival of the edges into its start.
    wait_ns : ndarray of shape (n,), dtype=int64, unit=ns
        From then to its start; more than is usual for the edge that arrives last.
    """

    event: I64
    ready_ns: I64
    wait_ns: I64

    def take(self, rows: I64 | Bools) -> LateStarts:
        """Some of them, by positions or a mask."""
        return LateStarts(self.event[rows], self.ready_ns[rows], self.wait_ns[rows])


def late_starts(structure: Structure, known: EdgeTable) -> LateStarts:
    """Device work that began later than usual after the last of the edges into its start.

    Found once for the same edges: most passes find none.

    Parameters
    ----------
    known : EdgeTable
        All edges into starts of device work so far; those that run backward count for nothing.
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
