"""Changes to a run: what would be done about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.gather import gather
from htagraph.algorithms.retime import DROPPED
from htagraph.errors import QueryError
from htagraph.lookup.attribution import DATA_LOADING
from htagraph.lookup.compiled_work import graph_launches
from htagraph.lookup.selecting import under_mask
from htagraph.lookup.steps import find_steps, step_at
from htagraph.model.api_calls import WAITING_CALLS, CallMeaning, call_meanings
from htagraph.model.dag import Dag
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EdgeKind, EventKind
from htagraph.model.rules import Rule
from htagraph.replay.assumptions import Assumption
from htagraph.replay.draft import Draft, Events
from htagraph.replay.fusion import later_members, only_launching
from htagraph.replay.host_code import Code, share_of_code

__all__ = [
    "Change",
    "Fuse",
    "Graphed",
    "Insert",
    "NoGaps",
    "NoWait",
    "OnRank",
    "Overlap",
    "Prefetch",
    "Remove",
    "Scale",
    "Spare",
    "fuse",
    "graphed",
    "insert",
    "no_wait",
    "overlap",
    "prefetch",
    "remove",
    "scale",
]

Bools = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]

_MOST = 1e6
"""Largest factor, and seconds, of a change: times stay far below what int64 holds."""
_CODE_OF_A_LAUNCH_NS, _LAUNCHING_NS = 100_000, 1_000_000
"""What code between two operators, and a stretch within one, take at most where they only launch
(PyTorch: 5 to 50 us)."""
_REPLAY_NS = 10_000
"""What a graph launch costs where none was recorded (measured on H100: 6 to 15 us)."""


def _said(chosen: object) -> str:
    """Events as they are written."""
    return repr(getattr(chosen, "pattern", chosen))


class Change(ABC):
    """Something that would be done about a run. ``str`` gives how it is written."""

    @abstractmethod
    def apply(self, draft: Draft) -> None:
        """Make the change to a draft.

        Raises
        ------
        QueryError
            Before anything is changed: if the graph has nothing of what the change names. In a job
            it is enough that one rank has it.
        """

    def on_rank(self, rank: int) -> OnRank:
        """The change, made on one rank of a job only.

        Examples
        --------
        >>> print(scale("aten::unique", by=0.5).on_rank(3))
        scale('aten::unique', by=0.5).on_rank(3)
        """
        return OnRank(self, rank)


@dataclass(frozen=True)
class OnRank(Change):
    """A change of one rank of a job."""

    change: Change
    rank: int

    def apply(self, draft: Draft) -> None:
        """Make it, if the draft is of that rank."""
        if draft.members is None or draft.members.rank != self.rank:
            hint = "hg.what_if(job, …) has the ranks of the job."
            raise QueryError(f"there is no rank {self.rank} to change.", hint=hint)
        self.change.apply(draft)

    def __str__(self) -> str:
        """Write it."""
        return f"{self.change}.on_rank({self.rank})"


@dataclass(frozen=True)
class Scale(Change):
    """Events take some times as long: host events with all nested in them, work by itself."""

    chosen: Events | Code
    by: float

    def apply(self, draft: Draft) -> None:
        """Scale the time that the chosen events themselves take.

        Calls within them that wait for the device may take as long as before.
        """
        if isinstance(self.chosen, Code):
            draft.scale(share_of_code(draft.dag, draft.replay, self.chosen), self.by)
            return
        chosen = draft.events(self.chosen)
        share = draft.share(draft.nested(chosen))
        if draft.assumption is Assumption.RIGID:
            waits = np.isin(call_meanings(draft.dag.events), WAITING_CALLS)
            share[draft.own_time(waits & ~chosen)] = 0
        draft.scale(share, self.by)

    def __str__(self) -> str:
        """Write it."""
        return f"scale({_said(self.chosen)}, by={self.by:g})"


def scale(chosen: Events | Code, *, by: float) -> Scale:
    """Change: events take some times as long.

    Parameters
    ----------
    chosen : str, re.Pattern, Selection or Code
        Host events and Python frames take their time with all that is nested in them; device work
        its own. `code` names what no operator covers.
    by : float
        0.5 is twice as fast.

    Returns
    -------
    Scale

    Raises
    ------
    QueryError
        If the factor is negative, or above a million.

    Examples
    --------
    >>> print(scale("*gemm*", by=0.5))
    scale('*gemm*', by=0.5)
    """
    if not 0 <= by <= _MOST:
        raise QueryError(f"nothing takes {by} times as long.", hint="by=0.5 is twice as fast.")
    return Scale(chosen, by)


@dataclass(frozen=True)
class Remove(Change):
    """Events with all under them are not there, or edges of a kind or rule are not."""

    chosen: Events | Code

    def apply(self, draft: Draft) -> None:
        """Take out events, or edges."""
        if isinstance(self.chosen, Code):
            draft.spare(share_of_code(draft.dag, draft.replay, self.chosen))
            return
        if isinstance(self.chosen, str):
            edges = draft.is_labelled(self.chosen)
            if edges is not None:
                draft.no_waits(edges)
                return
        draft.take_out(draft.launched(draft.events(self.chosen)))

    def __str__(self) -> str:
        """Write it."""
        return f"remove({_said(self.chosen)})"


def remove(chosen: Events | Code) -> Remove:
    """Change: events are not there, nor what is nested in them or launched from there.

    Parameters
    ----------
    chosen : str, re.Pattern, Selection or Code
        Host events, Python frames, device work, or `code`. Also the label of an `EdgeKind` or a
        rule: ``"sync"`` (no call waits for the device), ``"queue"``, ``"blocking copy"``.

    Returns
    -------
    Remove

    Examples
    --------
    >>> print(remove("aten::item"))
    remove('aten::item')
    """
    return Remove(chosen)


@dataclass(frozen=True)
class NoWait(Change):
    """Calls do not wait for the device; nor do gaps before them."""

    chosen: Events

    def apply(self, draft: Draft) -> None:
        """Take away what the chosen calls, and those within them, wait for."""
        chosen, replay = draft.nested(draft.events(self.chosen)), draft.replay
        head = replay.node[replay.head] >> 1
        waits = np.isin(replay.kind, (EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC))
        draft.no_waits(waits & chosen[head] & draft.dag.events.is_host[head])

    def __str__(self) -> str:
        """Write it."""
        return f"no_wait({_said(self.chosen)})"


def no_wait(chosen: Events) -> NoWait:
    """Change: calls do not wait for the device, and take as long as those that need not.

    Parameters
    ----------
    chosen : str, re.Pattern or Selection
        The calls, or operators around them.

    Returns
    -------
    NoWait

    Examples
    --------
    >>> print(no_wait("aten::item"))
    no_wait('aten::item')
    """
    return NoWait(chosen)


@dataclass(frozen=True, eq=False)
class Spare(Change):
    """Parts of edges take no time: what of a path is charged to some cause.

    Parameters
    ----------
    row, dur_ns : ndarray of shape (n,), dtype=int64
        Rows of the edge table, and how much of each goes.
    name : str
        What takes that time.
    rank : ndarray of shape (n,), dtype=int64
        Of a job, whose edge table; -1 of one trace.
    """

    row: I64
    dur_ns: I64
    name: str
    rank: I64

    def apply(self, draft: Draft) -> None:
        """Shorten the edges, the residual first."""
        spared = np.zeros(len(draft.dag.edges) + 1, dtype=np.int64)
        mine = self.rank == draft.rank
        np.add.at(spared, self.row[mine], self.dur_ns[mine])
        spared[-1] = 0
        less, there = spared[draft.replay.row], draft.lag_ns != DROPPED
        residual = np.minimum(less, draft.extra_ns)
        draft.extra_ns -= residual
        draft.lag_ns[there] = np.maximum(draft.lag_ns - (less - residual), 0)[there]

    def __str__(self) -> str:
        """Write it."""
        return f"without {self.name}"


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
class Insert(Change):
    """Events are followed by as much more time."""

    after: Events
    dur_ns: int

    def apply(self, draft: Draft) -> None:
        """Lengthen what follows host events on their thread, and device work itself."""
        chosen, replay = draft.events(self.after), draft.replay
        tail = replay.node[replay.tail]
        hands_over = np.isin(replay.rule, (Rule.HAND_OVER, Rule.WORKER_CALLED))
        follows = ((replay.kind == EdgeKind.THREAD) | hands_over) & (tail & 1 == 1)
        follows &= chosen[tail >> 1] & draft.dag.events.is_host[tail >> 1]
        runs = (replay.kind == EdgeKind.SPAN) & gather(chosen, replay.event, default=False)
        draft.lag_ns[follows | runs] += self.dur_ns
        if (frames := draft.frames(chosen)) is not None:
            draft.lag_ns += self.dur_ns * frames.ends_in(replay)

    def __str__(self) -> str:
        """Write it."""
        return f"insert(after={_said(self.after)}, dur_ns={self.dur_ns})"


def insert(*, after: Events, dur_ns: int) -> Insert:
    """Change: after each of some events, its thread or stream does something more.

    Parameters
    ----------
    after : str, re.Pattern or Selection
    dur_ns : int, unit=ns

    Returns
    -------
    Insert

    Raises
    ------
    QueryError
        If the time is negative, or above a million seconds.
    """
    if not 0 <= dur_ns <= _MOST * 1e9:
        raise QueryError(f"nothing takes {dur_ns} ns.", hint="0 <= dur_ns <= 1e15.")
    return Insert(after, dur_ns)


@dataclass(frozen=True)
class Overlap(Change):
    """Device work runs beside the rest of its stream, and no other stream waits for it."""

    chosen: Events

    def apply(self, draft: Draft) -> None:
        """Let nothing on the device wait for the chosen work, and join what lies around it."""
        dag, replay = draft.dag, draft.replay
        events = dag.events
        chosen = draft.events(self.chosen) & events.is_device
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
        return f"overlap({_said(self.chosen)})"


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
        if len(self.chosen) == 1 and not isinstance(self.chosen[0], str):
            later = later_members(dag, draft.events(self.chosen[0]))
        else:
            later = later_members(dag, *(draft.events(one) for one in self.chosen))
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
        return f"fuse({', '.join(_said(one) for one in self.chosen)})"


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


@dataclass(frozen=True)
class Graphed(Change):
    """The host replays graphs in place of launching work by work."""

    def apply(self, draft: Draft) -> None:
        """Take host time of operators and launches out; the first launch of each step stays.

        What takes long by itself is no work of launching: it stays, but in the loosest reading. So
        does all code between operators, in the tightest.
        """
        dag, replay = draft.dag, draft.replay
        if not (dag.launch >= 0).any():
            raise QueryError(
                "nothing was launched, so there is nothing to replay as a graph.",
                hint="record device work: ProfilerActivity.CUDA.",
            )
        events = dag.events
        meanings = call_meanings(events)
        loads = events.is_host & events.named(events.symbols.searched(DATA_LOADING))
        waits = np.isin(
            meanings,
            (CallMeaning.DEVICE_SYNC, CallMeaning.STREAM_SYNC, CallMeaning.EVENT_SYNC),
        )
        gone = events.is_host & ~draft.nested(loads) & ~waits
        rows = replay.rule == Rule.PROGRAM_ORDER
        if draft.assumption is Assumption.RIGID:
            rows &= draft.own_time(gone & (events.kind != EventKind.ANNOTATION))
        else:
            rows &= (replay.owner < 0) | draft.own_time(gone)
            rows &= dag.is_work[replay.node[replay.head] >> 1]
        if draft.assumption is not Assumption.LOOSE:
            is_gap = (replay.owner < 0) | ~draft.own_time(events.kind != EventKind.ANNOTATION)
            rows &= draft.lag_ns <= np.where(is_gap, _CODE_OF_A_LAUNCH_NS, _LAUNCHING_NS)
        draft.clear(rows)
        usual = draft.extra_ns <= dag.calibration.stream_usual_ns
        draft.extra_ns[usual & (replay.kind == EdgeKind.STREAM)] = 0
        first = _first_launches(dag)
        cost = np.flatnonzero(graph_launches(dag))
        cost_ns = int(np.median(events.dur_ns[cost])) if len(cost) else _REPLAY_NS
        at_end = (replay.kind == EdgeKind.THREAD) & first[replay.node[replay.head] >> 1]
        at_end &= replay.node[replay.head] & 1 == 1
        draft.lag_ns[at_end] += cost_ns

    def __str__(self) -> str:
        """Write it."""
        return "graphed()"


def _first_launches(dag: Dag) -> Bools:
    """Whether each event is the first launch of a step."""
    events = dag.events
    calls = np.unique(dag.launch[dag.launch >= 0]).astype(np.int64)
    calls = calls[np.argsort(events.ts_ns[calls], kind="stable")]
    step = step_at(find_steps(events), events.ts_ns[calls]) if len(calls) else calls
    _, at = np.unique(step, return_index=True)
    first = np.zeros(len(events), dtype=bool)
    first[calls[at]] = True
    return first


def graphed() -> Graphed:
    """Change: each step is one replay of a graph, as far as it does not wait or load data.

    Operators and launches take no host time. Whether code between operators goes, too, is a part of
    the interval.

    Returns
    -------
    Graphed

    Raises
    ------
    QueryError
        When it is made, if nothing was launched.
    """
    return Graphed()


@dataclass(frozen=True)
class Prefetch(Change):
    """Data is loaded beside the step: while one batch is used, the next is loaded."""

    def apply(self, draft: Draft) -> None:
        """Take loading off its thread; a batch is there as long after the one before as it took."""
        dag = draft.dag
        events = dag.events
        loads = events.is_host & events.named(events.symbols.searched(DATA_LOADING))
        if not loads.any():
            raise QueryError(
                "no host range that loads data was recorded.",
                hint="torch's DataLoader makes them; or name yours data_loading.",
            )
        outer = np.flatnonzero(loads & ~under_mask(dag, loads))
        outer = outer[np.lexsort((events.ts_ns[outer], events.lane[outer]))]
        draft.clear(draft.own_time(draft.nested(loads)))
        same = events.lane[outer][1:] == events.lane[outer][:-1]
        before, after = outer[:-1][same], outer[1:][same]
        draft.add(
            EdgeTable.of(
                Rule.PROGRAM_ORDER,
                2 * before + 1,
                2 * after + 1,
                lag_ns=events.dur_ns[after],
                event=after,
            )
        )
        first = np.setdiff1d(outer, after)
        rows = np.flatnonzero(
            (draft.replay.kind == EdgeKind.THREAD)
            & np.isin(draft.replay.node[draft.replay.head], 2 * first + 1)
        )
        event = draft.replay.node[draft.replay.head[rows]] >> 1
        draft.lag_ns[rows] = events.dur_ns[event]

    def __str__(self) -> str:
        """Write it."""
        return "prefetch()"


def prefetch() -> Prefetch:
    """Change: data is loaded beside the step, one batch ahead.

    The first batch of each thread that loads is still waited for.

    Returns
    -------
    Prefetch
    """
    return Prefetch()
