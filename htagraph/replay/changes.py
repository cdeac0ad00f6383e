"""Changes to a run: the base class, and changes to the time of named events.

Token surplus: time that ranks spend on more tokens than the mean, and a run without it.

A change of edges themselves: other weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.clocks import Clock
from htagraph.arrays.codes import gather
from htagraph.arrays.retime import DROPPED
from htagraph.errors import QueryError, one_of
from htagraph.model.api_calls import WAITING_CALLS, call_meanings
from htagraph.model.arrays import F64, I64
from htagraph.model.kinds import Cause, EdgeKind, among
from htagraph.model.rules import Rule
from htagraph.model.units import human_count
from htagraph.replay.assumptions import Assumption
from htagraph.replay.draft import Draft, Events, Parts
from htagraph.replay.host_code import Code, share_of_code

MOST = 1e6
"""Largest factor, and largest seconds, of a change. Chosen so that times of long traces stay far
below the limit of int64; test_changes tries both sides."""


def written(chosen: object) -> str:
    """Events as written in a call."""
    return repr(getattr(chosen, "pattern", chosen))


class Change(ABC):
    """A change to a run. ``str`` gives the call that makes it."""

    # Whether it saves what is possible at most, as at a roof that kernels come near to
    is_most: ClassVar[bool] = False

    @abstractmethod
    def apply(self, draft: Draft) -> None:
        """Make the change to a draft."""

    def on_rank(self, rank: int) -> OnRank:
        """The change on one rank of a job only."""
        return OnRank(self, rank)


@dataclass(frozen=True)
class OnRank(Change):
    """A change on one rank of a job."""

    change: Change
    rank: int

    def apply(self, draft: Draft) -> None:
        """Apply it if the draft is of that rank."""
        if draft.members is None or draft.members.rank != self.rank:
            hint = "on_rank needs a job: give the folder with its ranks, or a Job."
            raise QueryError(f"there is no rank {self.rank} to change.", hint=hint)
        self.change.apply(draft)

    def __str__(self) -> str:
        """Write it."""
        return f"{self.change}.on_rank({self.rank})"


@dataclass(frozen=True)
class Scale(Change):
    """Events take longer or shorter by a factor; host events with all nested in them."""

    chosen: Events | Code
    by: float

    def apply(self, draft: Draft) -> None:
        """Scale the chosen events' own time.

        At the least, nested calls that wait for the device take as long as before.
        """
        draft.scale(draft.once(self.chosen, partial(self._parts, draft)), self.by)

    def _parts(self, draft: Draft) -> Parts:
        """The chosen events' own time."""
        if isinstance(self.chosen, Code):
            return Parts.of(share_of_code(draft.dag, draft.replay, self.chosen))
        chosen = draft.events(self.chosen)
        found = draft.share(draft.nested(chosen))
        if draft.assumption is Assumption.RIGID:
            waits = np.isin(call_meanings(draft.dag.events), WAITING_CALLS) & ~chosen
            return found.where(~gather(waits, draft.replay.owner[found.row], default=False))
        return found

    def __str__(self) -> str:
        """Write it."""
        return f"scale({written(self.chosen)}, by={self.by:g})"


def scale(chosen: Events | Code, *, by: float) -> Scale:
    """Change: events take longer or shorter by a factor.

    Parameters
    ----------
    chosen : str, re.Pattern, Selection or Code
        Host events and Python frames are scaled with all that is nested in them, device work by
        itself. `code` names untraced code.
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
    if not 0 <= by <= MOST:
        hint = "by=0.5 is twice as fast."
        raise QueryError(f"scale: by must be between 0 and 1,000,000, not {by:g}.", hint=hint)
    return Scale(chosen, by)


@dataclass(frozen=True)
class Remove(Change):
    """Events are gone with all under them, or all edges of a kind or rule are."""

    chosen: Events | Code

    def apply(self, draft: Draft) -> None:
        """Remove events or edges."""
        if isinstance(self.chosen, Code):
            draft.spare(Parts.of(share_of_code(draft.dag, draft.replay, self.chosen)))
            return
        if isinstance(self.chosen, str):
            edges = draft.is_labelled(self.chosen)
            if edges is not None:
                draft.no_waits(edges)
                return
        draft.take_out(draft.launched(draft.events(self.chosen)))

    def __str__(self) -> str:
        """Write it."""
        return f"remove({written(self.chosen)})"


def remove(chosen: Events | Code) -> Remove:
    """Change: events are gone, with all that is nested in them or launched from them.

    Parameters
    ----------
    chosen : str, re.Pattern, Selection or Code
        Host events, Python frames, device work, or `code`. Also the label of an `EdgeKind` or a
        rule: ``"sync"`` (no call waits for the device), ``"queue"``, ``"synchronous copy"``.

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
    """Calls, and gaps before them, do not wait for the device."""

    chosen: Events

    def apply(self, draft: Draft) -> None:
        """Drop the waits of the chosen calls and of those nested in them."""
        chosen, replay = draft.nested(draft.events(self.chosen)), draft.replay
        waits = np.flatnonzero(among(replay.kind, (EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC)))
        head = replay.node[replay.head[waits]] >> 1
        draft.no_waits(waits[chosen[head] & draft.dag.events.is_host[head]])

    def __str__(self) -> str:
        """Write it."""
        return f"no_wait({written(self.chosen)})"


def no_wait(chosen: Events) -> NoWait:
    """Change: calls do not wait for the device; they take as long as calls that need not wait.

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
    """Parts of edges take no time: the time that a path charges to a cause."""

    # row, dur_ns: rows of the edge table, and the time to remove from each
    row: I64
    dur_ns: I64
    name: str  # The cause
    rank: I64  # The rank whose edge table it is; -1 of a single trace

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


def slug(cause: str) -> str:
    """A cause as the command line takes it."""
    return cause.lower().replace(" ", "-")


@dataclass(frozen=True)
class Without(Change):
    """A cause takes no time on any thread, stream or rank: `Trials.gone` has the changes.

    Parameters
    ----------
    cause : str
        See `slug`.
    """

    cause: str

    def apply(self, draft: Draft) -> None:
        """Raise: which time is charged to a cause depends on the critical path of a window."""
        del draft
        raise QueryError(f"{self} needs a window.", hint="pass it to what_if.")

    def __str__(self) -> str:
        """Write it."""
        return f"without({written(self.cause)})"


def without(cause: str) -> Without:
    """Change: the time of a cause of the verdict is gone, on every thread, stream and rank.

    It saves the cost of the cause: at most the time that the critical path charges to it. What no
    longer waits may also run ahead, so that the changed run may be shorter than that.

    Parameters
    ----------
    cause : str
        As findings call it, ``"data loading"`` or ``"late rank 2"``, or with dashes.

    Returns
    -------
    Without

    Raises
    ------
    QueryError
        When it is applied, if the run loses nothing to such a cause.

    Examples
    --------
    >>> import htagraph as hg
    >>> graph = hg.load(hg.demo_trace("dataloader")).compile()
    >>> hg.what_if(graph, without("data loading"))
    Scenario(3 steps, without('data-loading'): ...)
    """
    return Without(slug(cause))


@dataclass(frozen=True)
class Insert(Change):
    """Each of some events is followed by more time."""

    after: Events
    dur_ns: int

    def apply(self, draft: Draft) -> None:
        """Lengthen the code after host events, and device work itself."""
        chosen, replay = draft.events(self.after), draft.replay
        tail = replay.node[replay.tail]
        hands_off = np.isin(replay.rule, (Rule.HANDOFF, Rule.WORKER_CALLED))
        follows = ((replay.kind == EdgeKind.THREAD) | hands_off) & (tail & 1 == 1)
        follows &= chosen[tail >> 1] & draft.dag.events.is_host[tail >> 1]
        runs = (replay.kind == EdgeKind.SPAN) & gather(chosen, replay.event, default=False)
        draft.lag_ns[follows | runs] += self.dur_ns
        if (frames := draft.frames(chosen)) is not None:
            draft.lag_ns += self.dur_ns * frames.ends_in(replay)

    def __str__(self) -> str:
        """Write it."""
        return f"insert(after={written(self.after)}, dur_ns={self.dur_ns})"


def insert(*, after: Events, dur_ns: int) -> Insert:
    """Change: after each of some events, its thread or stream is busy for longer.

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
        If the time is negative or above a million seconds.
    """
    if not 0 <= dur_ns <= MOST * 1e9:
        hint = "dur_ns=50_000 is 50 us."
        raise QueryError(f"insert: dur_ns must be between 0 and 1e15, not {dur_ns}.", hint=hint)
    return Insert(after, dur_ns)


@dataclass(frozen=True)
class TokenSurplus:
    """The part of each rank's time that goes to tokens beyond the mean."""

    # times_ns, sums_ns: by rank: times, ascending, and the surplus until then; it grows evenly in
    # between
    times_ns: Mapping[int, I64] = field(default_factory=dict)
    sums_ns: Mapping[int, F64] = field(default_factory=dict)

    def moved(self, clocks: Mapping[int, Clock]) -> TokenSurplus:
        """The same in common time."""
        times_ns = {rank: clocks[rank].to_common(one) for rank, one in self.times_ns.items()}
        return TokenSurplus(times_ns, self.sums_ns)

    def within(self, rank: int, start_ns: I64, end_ns: I64) -> I64:
        """The surplus of a rank in each of some intervals."""
        times = self.times_ns.get(rank)
        if times is None:
            return np.zeros(len(start_ns), dtype=np.int64)
        low, high = (
            np.interp(at - times[0], times - times[0], self.sums_ns[rank])
            for at in (start_ns, end_ns)
        )
        found: I64 = np.clip(np.floor(high - low), 0, end_ns - start_ns).astype(np.int64)
        return found

    def charged(self, attributed_time: pd.DataFrame, rank: int) -> pd.DataFrame:
        """Pieces of a rank, cut into what goes to the surplus and the rest."""
        start_ns, dur_ns = (
            attributed_time[name].to_numpy(np.int64) for name in ("start_ns", "dur_ns")
        )
        part_ns = self.within(rank, start_ns, start_ns + dur_ns)
        if not part_ns.any():
            return attributed_time
        rest = attributed_time.assign(
            start_ns=start_ns + part_ns,
            dur_ns=dur_ns - part_ns,
            cause=attributed_time["cause"].astype(object),
        )
        surplus = rest.assign(start_ns=start_ns, dur_ns=part_ns, cause=str(Cause.EXPERT_IMBALANCE))
        both = pd.concat([surplus, rest])
        return both[both["dur_ns"] > 0].sort_values("start_ns", kind="stable", ignore_index=True)


@dataclass(frozen=True)
class Balance(Change):
    """No rank works on more tokens than the mean of its group: it has that much less to do."""

    surplus: TokenSurplus  # In common time

    def apply(self, draft: Draft) -> None:
        """Shorten all edges in the work on tokens by one factor; transfers stay."""
        replay = draft.replay
        begin, end = replay.ts_ns[replay.tail], replay.ts_ns[replay.head]
        spared = self.surplus.within(draft.rank, begin, np.maximum(begin, end))
        spared[draft.transfers.row] = 0
        rows = np.flatnonzero((spared > 0) & (draft.lag_ns != DROPPED))
        left = 1 - spared[rows] / (end - begin)[rows]
        for part in (draft.lag_ns, draft.extra_ns):
            part[rows] = np.rint(part[rows] * left).astype(np.int64)

    def __str__(self) -> str:
        """Write it."""
        return "balance(tokens)"


@dataclass(frozen=True, eq=False)
class EdgeRows:
    """Edges by their rows, with the events at their ends, which tell whose rows they are."""

    row: I64
    tail: npt.NDArray[np.integer]
    head: npt.NDArray[np.integer]

    def __repr__(self) -> str:
        """Count them."""
        return human_count(len(self.row), "edge")


@dataclass(frozen=True)
class Reweigh(Change):
    """Edges have other weights."""

    chosen: str | EdgeRows
    by: float | None = None
    lag_ns: int = 0

    def apply(self, draft: Draft) -> None:
        """Weigh the chosen edges anew, unknown waits on them included."""
        rows = self._rows(draft)
        rows = rows[draft.lag_ns[rows] != DROPPED]
        if self.by is None:
            draft.lag_ns[rows], draft.extra_ns[rows] = self.lag_ns, 0
            return
        for part in (draft.lag_ns, draft.extra_ns):
            part[rows] = np.rint(part[rows] * self.by).astype(np.int64)

    def _rows(self, draft: Draft) -> I64:
        """The chosen edges, in the replay."""
        if isinstance(self.chosen, EdgeRows):
            return self._at_rows(draft, self.chosen)
        found = draft.is_labelled(self.chosen)
        if found is None:
            hint = one_of(self.chosen, EdgeKind.labels(), "the kinds are")
            raise QueryError(f"no kind of edge, and no rule, is {self.chosen!r}.", hint=hint)
        if not found.any():
            raise QueryError(
                f"no edge is of {self.chosen!r}.", hint="`edges` of the graph lists all."
            )
        return np.flatnonzero(found)

    @staticmethod
    def _at_rows(draft: Draft, chosen: EdgeRows) -> I64:
        """The rows of the edge table, in the replay."""
        edges, row = draft.dag.edges, chosen.row
        inside = bool(len(row)) and row.min() >= 0 and row.max() < len(edges)
        if not (
            inside
            and np.array_equal(edges.tail[row] >> 1, chosen.tail)
            and np.array_equal(edges.head[row] >> 1, chosen.head)
        ):
            hint = "take them from `edges` of the graph that you pass to what_if."
            raise QueryError(f"the graph does not have these {chosen}.", hint=hint)
        return np.flatnonzero(np.isin(draft.replay.row, row))

    def __str__(self) -> str:
        """Write it."""
        how = f"lag_ns={self.lag_ns}" if self.by is None else f"by={self.by:g}"
        return f"reweigh({self.chosen!r}, {how})"


def reweigh(
    edges: str | pd.DataFrame, *, by: float | None = None, lag_ns: int | None = None
) -> Reweigh:
    """Change: edges take longer or shorter, by a factor, or a time of their own.

    The weight of an edge is its lag, with the unknown wait on it. The critical path of the changed
    graph is that of ``hg.what_if(graph, change)``.

    Parameters
    ----------
    edges : str or DataFrame
        The label of an `EdgeKind` or a rule, such as ``"launch"``; or rows of ``graph.edges``, or
        of ``path.edges``.
    by : float, optional
        0.5 is half the time.
    lag_ns : int, optional, unit=ns
        New weight of each.

    Returns
    -------
    Reweigh

    Raises
    ------
    QueryError
        If not exactly one of `by` and `lag_ns` is given, or it is negative or above a million (a
        million seconds); when it is applied, if the graph has no such edge.

    Examples
    --------
    >>> import htagraph as hg
    >>> graph = hg.load(hg.demo_trace("serving")).compile()
    >>> hg.what_if(graph, reweigh("stream", by=0)).critical_path()
    CriticalPath(...)
    """
    if (by is None) == (lag_ns is None):
        raise QueryError("reweigh: give by or lag_ns.", hint="by=0.5 is half the time.")
    if by is not None and not 0 <= by <= MOST:
        hint = "by=0.5 is half the time."
        raise QueryError(f"reweigh: by must be between 0 and 1,000,000, not {by:g}.", hint=hint)
    if lag_ns is not None and not 0 <= lag_ns <= MOST * 1e9:
        hint = "lag_ns=5_000 is 5 us."
        raise QueryError(f"reweigh: lag_ns must be between 0 and 1e15, not {lag_ns}.", hint=hint)
    if isinstance(edges, str):
        return Reweigh(edges.lower(), by, lag_ns or 0)
    if not {"edge", "tail_event"} <= {*getattr(edges, "columns", ())}:
        raise QueryError(
            "reweigh: these are no edges.", hint="give a kind of edge, or rows of graph.edges."
        )
    columns = (edges[name].to_numpy(np.int64) for name in ("edge", "tail_event", "head_event"))
    return Reweigh(EdgeRows(*columns), by, lag_ns or 0)
