"""Changes to device work: what runs beside it, joined to it, or right behind it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from htagraph.errors import QueryError
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EdgeKind
from htagraph.model.rules import Rule
from htagraph.replay.assumptions import Assumption
from htagraph.replay.changes import Change, said
from htagraph.replay.draft import Draft, Events
from htagraph.replay.fusion import later_members, only_launching

__all__ = ["Fuse", "NoGaps", "Overlap", "fuse", "overlap"]


@dataclass(frozen=True)
class NoGaps(Change):
    """Queued device work follows the work before it at once."""

    def apply(self, draft: Draft) -> None:
        """Clear the gaps of streams as far as they are usual."""
        stream = (draft.replay.kind == EdgeKind.STREAM) & (draft.replay.rule == Rule.STREAM_ORDER)
        usual = draft.extra_ns <= draft.dag.calibration.stream_usual_ns
        draft.clear(stream & usual)

    def __str__(self) -> str:
        """Write it."""
        return "without gaps between queued work"


@dataclass(frozen=True)
class Overlap(Change):
    """Device work runs beside the rest of its stream, and no other stream waits for it."""

    chosen: Events

    def apply(self, draft: Draft) -> None:
        """Let nothing on the device wait for the chosen work, and join what lies around it."""
        dag, replay = draft.dag, draft.replay
        events = dag.events
        chosen = draft.events(self.chosen) & events.is_device
        if not chosen.any():
            raise QueryError(
                f"no device work is {said(self.chosen)}.",
                hint="kernels by name, or graph.select(name=…).follow('LAUNCH').",
            )
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
        return f"overlap({said(self.chosen)})"


def overlap(chosen: Events) -> Overlap:
    """Change: device work runs on a stream of its own, and nothing on the device waits for it.

    It still waits for what it waited for; calls of the host, and the end of the run, for it.

    Parameters
    ----------
    chosen : str, re.Pattern or Selection

    Returns
    -------
    Overlap
    """
    return Overlap(chosen)


@dataclass(frozen=True)
class Fuse(Change):
    """Runs of kernels become one each: gaps and launches but the first go."""

    chosen: tuple[Events, ...]

    def apply(self, draft: Draft) -> None:
        """Join later members to the first, and take out their launches."""
        dag, replay = draft.dag, draft.replay
        later = later_members(dag, *(draft.events(one) for one in self.chosen))
        if not later.any():
            raise QueryError(
                f"no kernels follow each other as {self} wants.",
                hint="graph.kernel_patterns() has the sequences that recur.",
            )
        into = draft.into(later) & replay.into_start_of(later)
        draft.drop(into & (replay.kind == EdgeKind.LAUNCH))
        draft.clear(into & (replay.kind == EdgeKind.STREAM))
        draft.release(later)
        calls = np.zeros(len(dag.events), dtype=bool)
        launch = dag.launch[later]
        calls[launch[launch >= 0]] = True
        if draft.assumption is not Assumption.RIGID:
            calls |= only_launching(dag, later)
        gone = draft.nested(calls)
        draft.clear(draft.own_time(gone))
        draft.drop(draft.into(gone) & (replay.kind == EdgeKind.QUEUE))

    def __str__(self) -> str:
        """Write it."""
        return f"fuse({', '.join(said(one) for one in self.chosen)})"


def fuse(*chosen: Events) -> Fuse:
    """Change: kernels that follow each other on a stream become one.

    The parts take as long as before; gaps between them and launches but the first go. Whether the
    operators go that only launched the others, is a part of the interval.

    Parameters
    ----------
    *chosen : str, re.Pattern or Selection
        Names of the kernels in their order; or one set of kernels, whose runs are fused.

    Returns
    -------
    Fuse
    """
    if not chosen:
        raise QueryError("nothing was given to be fused.", hint="fuse('add', 'mul').")
    return Fuse(chosen)
