"""SYNC, inferred from time alone: all that another stream had been given before had just ended.

::

    stream 7    [A    ][B    ]
    stream 20                 '->[C    ]     ready since its launch, which came after that of B

That is what an event recorded on the other stream and waited for does. The work must start within
what is usual after that end, and within a small part of its wait: that is the chance level.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.gather import gather
from htagraph.compiler.late_ends import stream_wait_edges_from
from htagraph.compiler.late_starts import ends_before, late_starts
from htagraph.compiler.structure import Structure
from htagraph.model.edges import EdgeTable
from htagraph.model.inference import Inferred
from htagraph.model.rules import Rule

__all__ = ["ended_right_before"]

I64 = npt.NDArray[np.int64]

_PART_OF_WAIT = 8
"""The end must lie in as small a part of the wait: at any other instant it would say nothing."""


def _covering(structure: Structure, queue: int, late: I64, ready_ns: I64) -> I64:
    """Work of a stream that ended last before each late work and ran for half of the wait.

    For late work whose launch is not known, so that what the stream had been given then is not
    known either.
    """
    events, late_end_ns = structure.events, structure.calibration.late_end_ns
    other = ends_before(structure, queue, events.ts_ns[late] + late_end_ns, 1)[0]
    alone_ns = np.maximum(events.ts_ns[other] - ready_ns, 0)
    covers = (other >= 0) & (alone_ns <= (events.ts_ns[late] - ready_ns) // 2)
    return np.where(covers, other, -1)


def _inside_replay(structure: Structure, late: I64) -> npt.NDArray[np.bool_]:
    """Whether other work of the same replayed graph began before each late work.

    Then its graph says what it waits for, not what the streams had been given before.
    """
    events, launch = structure.events, structure.launch
    device = structure.queue[launch[structure.queue] >= 0]
    first_ns = np.full(len(events), np.iinfo(np.int64).max)
    np.minimum.at(first_ns, launch[device], events.ts_ns[device])
    in_replay: npt.NDArray[np.bool_] = gather(structure.replays, launch[late], default=False)
    in_replay &= events.ts_ns[late] > gather(first_ns, launch[late], np.iinfo(np.int64).max)
    return in_replay


def ended_right_before(structure: Structure, known: EdgeTable) -> Inferred:
    """Edges to late work from what ended right before, on the stream where that ended last."""
    events, calibration = structure.events, structure.calibration
    usual = max(calibration.launch_usual_ns, 2 * calibration.stream_usual_ns)
    late = late_starts(structure, known)
    late = late.take((late.wait_ns > usual) & ~_inside_replay(structure, late.event))
    start_ns, most = events.ts_ns[late.event], np.minimum(usual, late.wait_ns // _PART_OF_WAIT)
    is_launched = structure.launch[late.event] >= 0
    found = np.full(len(late.event), -1, dtype=np.int64)
    latest = np.full(len(late.event), np.iinfo(np.int64).min)
    queue_device = events.device[structure.queue[structure.queue_starts]]
    for queue in range(len(queue_device)):
        given = structure.covered_on(queue, structure.launch_time_ns[late.event])
        covering = _covering(structure, queue, late.event, late.ready_ns)
        other = np.where(is_launched, given, covering)
        gap = start_ns - events.end_ns[other]
        fits = (other >= 0) & (structure.queue_id[late.event] != queue)
        fits &= events.device[late.event] == queue_device[queue]
        fits &= (gap >= -calibration.late_end_ns) & (gap <= most)
        fits &= (events.end_ns[other] > latest) & (events.ts_ns[other] < start_ns)
        found[fits], latest[fits] = other[fits], events.end_ns[other[fits]]
    rows = found >= 0
    return Inferred(
        stream_wait_edges_from(structure, Rule.ENDED_RIGHT_BEFORE, found[rows], late.event[rows])
    )
