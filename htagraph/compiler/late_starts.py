"""Late starts: device work that begins later than all edges so far explain.

Passes of inference look for what it waited for. What they find makes it late no more, so each sees
only what those before it left.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.compiler.structure import Structure
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EdgeKind

__all__ = ["LateStarts", "ends_before", "late_starts", "most_used_streams", "running_at"]

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

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
    into = np.flatnonzero(times[known.tail] <= times[known.head])
    is_queued = known.kind[into] == EdgeKind.STREAM
    ready = np.full((2, len(device)), _NEVER)
    for row, chosen in enumerate((into[~is_queued], into[is_queued])):
        arrival = times[known.tail[chosen]] + known.lag_ns[chosen]
        np.maximum.at(ready[row], structure.queue_place[known.head[chosen] >> 1], arrival)
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


def ends_before(structure: Structure, queue: int, until_ns: I64, count: int) -> I64:
    """Work of a stream that ended last at or before each time, and what ended before that.

    Returns
    -------
    ndarray of shape (count, n), dtype=int64
        The latest first, -1 for none.
    """
    rows = structure.by_end[slice(*structure.enqueued_bounds[queue : queue + 2])]
    last = np.searchsorted(structure.events.end_ns[rows], until_ns, side="right") - 1
    position = last - np.arange(count)[:, None]
    found: I64 = np.where(position >= 0, rows[np.maximum(position, 0)], -1)
    return found


def running_at(structure: Structure, queue: int, at_ns: I64) -> I64:
    """Work of a stream that runs at each time, or begins next and ends first; -1 for none."""
    events = structure.events
    rows = structure.by_end[slice(*structure.enqueued_bounds[queue : queue + 2])]
    position = np.searchsorted(events.end_ns[rows], at_ns, side="left")
    found: I64 = np.where(position < len(rows), rows[np.minimum(position, len(rows) - 1)], -1)
    return found
