"""Changes to device work: no gaps, overlap, and fusion."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from htagraph.errors import QueryError
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EdgeKind, EventKind
from htagraph.model.rules import Rule
from htagraph.replay.assumptions import Assumption
from htagraph.replay.changes import Change, written
from htagraph.replay.draft import Draft, Events


@dataclass(frozen=True)
class NoGaps(Change):
    """Queued device work starts right after the work before it."""

    def apply(self, draft: Draft) -> None:
        """Clear usual gaps; longer ones may have another cause."""
        stream = (draft.replay.kind == EdgeKind.STREAM) & (draft.replay.rule == Rule.STREAM_ORDER)
        usual = draft.extra_ns <= draft.dag.calibration.stream_usual_ns
        draft.clear(np.flatnonzero(stream & usual))

    def __str__(self) -> str:
        """Write it."""
        return "without gaps between queued work"


@dataclass(frozen=True)
class Overlap(Change):
    """Device work runs on a stream of its own, and nothing on the device waits for it."""

    chosen: Events

    def apply(self, draft: Draft) -> None:
        """Drop the waits for the chosen work, and order the rest of its stream without it."""
        dag, replay = draft.dag, draft.replay
        events = dag.events
        chosen = draft.events(self.chosen) & events.is_device
        if not chosen.any():
            hint = "name kernels, as the question kernel_breakdown lists them by name."
            raise QueryError(f"{written(self.chosen)} matches no device work.", hint=hint)
        head, tail = (replay.node[end] >> 1 for end in (replay.head, replay.tail))
        on_device = events.is_device[head] & events.is_device[tail] & (head != tail)
        awaited = on_device & np.isin(replay.kind, (EdgeKind.STREAM, EdgeKind.SYNC))
        awaited &= chosen[tail] & ~chosen[head]
        rest = np.flatnonzero(events.is_device & ~chosen)
        rest = rest[np.lexsort((events.ts_ns[rest], events.stream[rest], events.device[rest]))]
        same = (events.stream[rest][1:] == events.stream[rest][:-1]) & (
            events.device[rest][1:] == events.device[rest][:-1]
        )
        before, after = rest[:-1][same], rest[1:][same]
        gap_ns = np.full(len(events), -1, dtype=np.int64)
        order = awaited & (replay.kind == EdgeKind.STREAM)
        gap_ns[head[order]] = (draft.lag_ns + draft.extra_ns)[order]
        gap, kept = gap_ns[after], gap_ns[after] >= 0
        kept &= events.end_ns[before] <= events.ts_ns[after]
        draft.drop(awaited)
        draft.add(
            EdgeTable.of(
                Rule.STREAM_ORDER,
                2 * before[kept] + 1,
                2 * after[kept],
                lag_ns=gap[kept],
                event=after[kept],
            )
        )

    def __str__(self) -> str:
        """Write it."""
        return f"overlap({written(self.chosen)})"


def overlap(chosen: Events) -> Overlap:
    """Change: device work runs on a stream of its own, and nothing on the device waits for it.

    It still waits for the same work, and host calls and the end of the run still wait for it.

    Parameters
    ----------
    chosen : str, re.Pattern or Selection

    Returns
    -------
    Overlap
    """
    return Overlap(chosen)


class _Fused(NamedTuple):
    """Members but the first of each run, and the edges that go with them.

    Parameters
    ----------
    later : ndarray, dtype=int64
        The members.
    launches, gaps : ndarray, dtype=int64
        Edges from their launches, and from the work before them.
    calls : ndarray, dtype=int64
        Edges of the host that only launched them.
    queue : ndarray, dtype=int64
        Edges by which these launches waited for room.
    """

    later: I64
    launches: I64
    gaps: I64
    calls: I64
    queue: I64


@dataclass(frozen=True)
class Fuse(Change):
    """Each run of kernels becomes one: only the first launch stays, and no gaps."""

    chosen: tuple[Events, ...]

    def apply(self, draft: Draft) -> None:
        """Join later members to the first, and remove their launches."""
        found = draft.once(self, partial(self._find, draft))
        draft.drop(found.launches)
        draft.clear(found.gaps)
        draft.release(found.later)
        draft.clear(found.calls)
        draft.drop(found.queue)

    def _find(self, draft: Draft) -> _Fused:
        """What is gone."""
        dag, replay = draft.dag, draft.replay
        streams = replay.once("streams", partial(_streams, dag))
        later = _later_members(*streams, *(draft.events(one) for one in self.chosen))
        if not later.any():
            hint = "the question kernel_patterns lists sequences that recur."
            raise QueryError(f"{self}: no such kernels follow each other.", hint=hint)
        into = draft.into(later)
        into = into[replay.node[replay.head[into]] & 1 == 0]
        calls = np.zeros(len(dag.events), dtype=bool)
        launch = dag.launch[later]
        calls[launch[launch >= 0]] = True
        if draft.assumption is not Assumption.RIGID:
            calls |= _only_launching(dag, later)
        gone = draft.nested(calls)
        waits = draft.into(gone)
        return _Fused(
            np.flatnonzero(later),
            into[replay.kind[into] == EdgeKind.LAUNCH],
            into[replay.kind[into] == EdgeKind.STREAM],
            replay.rows_owned(gone),
            waits[replay.kind[waits] == EdgeKind.QUEUE],
        )

    def __str__(self) -> str:
        """Write it."""
        return f"fuse({', '.join(written(one) for one in self.chosen)})"


def fuse(*chosen: Events) -> Fuse:
    """Change: kernels that follow each other on a stream become one.

    The parts take as long as before; the gaps between them, and all launches but the first, are
    gone. The interval covers whether the operators that only launched the others are gone, too.

    Parameters
    ----------
    *chosen : str, re.Pattern or Selection
        Names of the kernels in order; or one set of kernels, whose runs are fused.

    Returns
    -------
    Fuse
    """
    if not chosen:
        raise QueryError("fuse needs at least one name.", hint="fuse('add', 'mul').")
    return Fuse(chosen)


def _streams(dag: Dag) -> tuple[I64, Bools]:
    """Device work by stream, and whether each runs on the stream of the one before."""
    events = dag.events
    work = np.flatnonzero(events.is_device)
    work = work[np.lexsort((events.ts_ns[work], events.stream[work], events.device[work]))]
    same = np.zeros(len(work), dtype=bool)
    same[1:] = (events.stream[work[1:]] == events.stream[work[:-1]]) & (
        events.device[work[1:]] == events.device[work[:-1]]
    )
    return work, same


def _later_members(work: I64, same: Bools, *members: Bools) -> Bools:
    """Members of each run of kernels but the first, which would take them in.

    Of one mask, a run is chosen work in a row on one stream; of several, work in the masks' order.
    Runs of a sequence do not overlap.
    """
    later = np.zeros_like(members[0])
    if len(members) == 1:
        chosen = members[0][work]
        chosen[1:] &= chosen[:-1] & same[1:]
        chosen[:1] = False
        later[work] = chosen
        return later
    n, length = len(work), len(members)
    if n < length:
        return later
    begins = np.ones(n - length + 1, dtype=bool)
    for place, mask in enumerate(members):
        begins &= mask[work[place : n - length + 1 + place]]
        if place:
            begins &= same[place : n - length + 1 + place]
    taken = -1
    for first in np.flatnonzero(begins).tolist():  # one step per occurrence
        if first > taken:
            later[work[first + 1 : first + length]] = True
            taken = first + length - 1
    return later


def _only_launching(dag: Dag, work: Bools) -> Bools:
    """Whether each event is an operator that launches nothing but chosen work."""
    n_all, n_chosen = (np.zeros(len(dag.events), dtype=np.int64) for _ in range(2))
    launched = np.flatnonzero(dag.launch >= 0)
    above, chosen = dag.launch[launched].astype(np.int64), work[launched]
    while len(above):
        np.add.at(n_all, above, 1)
        np.add.at(n_chosen, above[chosen], 1)
        above = dag.parent[above].astype(np.int64)
        going = above >= 0
        above, chosen = above[going], chosen[going]
    found: Bools = (n_chosen > 0) & (n_chosen == n_all) & (dag.events.kind == EventKind.OP)
    return found
