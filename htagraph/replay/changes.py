"""Changes to a run: what one is, and changes to events, causes, edges and collectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.clocks import Clock
from htagraph.arrays.codes import gather
from htagraph.arrays.retime import DROPPED
from htagraph.errors import QueryError, one_of
from htagraph.explain.segment_pieces import with_part_of
from htagraph.model.api_calls import WAITING_CALLS, call_meanings
from htagraph.model.arrays import F64, I64
from htagraph.model.kinds import Cause, EdgeKind, KernelClass, among
from htagraph.model.rules import Rule
from htagraph.model.units import human_count
from htagraph.replay.assumptions import Assumption
from htagraph.replay.draft import Code, Draft, Events, Parts, share_of_code

MOST = 1e6
"""Largest factor, and largest seconds, of a change. Chosen so that times of long traces stay far
below the limit of int64; test_changes tries both sides."""


def written(chosen: object) -> str:
    """Events as written in a call."""
    return repr(getattr(chosen, "pattern", chosen))


@dataclass(frozen=True, repr=False)
class Change:
    """A change to a run: a function of a draft, with its arguments; written as its call."""

    call: str  # The call that makes the change, without its rank
    make: Callable[..., None]
    args: tuple[object, ...] = ()
    rank: int | None = None  # The only rank of a job to change

    @property
    def name(self) -> str:
        """The function that is called."""
        return self.call.partition("(")[0]

    @property
    def is_most(self) -> bool:
        """Whether it saves what is possible at most, as at a roof that kernels come near to."""
        return self.name in {"at_roof", "allow_tf32"}

    def apply(self, draft: Draft) -> None:
        """Make the change to a draft."""
        is_other = draft.members is None or draft.members.rank != self.rank
        if self.rank is not None and is_other:
            hint = "on_rank needs a job: give the folder with its ranks, or a Job."
            raise QueryError(f"there is no rank {self.rank} to change.", hint=hint)
        self.make(draft, *self.args)

    def on_rank(self, rank: int) -> Change:
        """The change on one rank of a job only."""
        return replace(self, rank=rank)

    def __repr__(self) -> str:
        return self.call if self.rank is None else f"{self.call}.on_rank({self.rank})"


def scale(chosen: Events | Code, *, by: float) -> Change:
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
    Change

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
    return Change(f"scale({written(chosen)}, by={by:g})", _scale, (chosen, by))


def _scale(draft: Draft, chosen: Events | Code, by: float) -> None:
    """Scale the chosen events' own time; host events with all nested in them."""
    draft.scale(draft.once(chosen, partial(_own_time, draft, chosen)), by)


def _own_time(draft: Draft, chosen: Events | Code) -> Parts:
    """The chosen events' own time.

    At the least, nested calls that wait for the device take as long as before.
    """
    if isinstance(chosen, Code):
        return Parts.of(share_of_code(draft.dag, draft.replay, chosen))
    events = draft.events(chosen)
    found = draft.share(draft.nested(events))
    if draft.assumption is Assumption.RIGID:
        waits = np.isin(call_meanings(draft.dag.events), WAITING_CALLS) & ~events
        return found.where(~gather(waits, draft.replay.owner[found.row], default=False))
    return found


def remove(chosen: Events | Code) -> Change:
    """Change: events are gone, with all that is nested in them or launched from them.

    Parameters
    ----------
    chosen : str, re.Pattern, Selection or Code
        Host events, Python frames, device work, or `code`. Also the label of an `EdgeKind` or a
        rule: ``"sync"`` (no call waits for the device), ``"queue"``, ``"synchronous copy"``.

    Returns
    -------
    Change

    Examples
    --------
    >>> print(remove("aten::item"))
    remove('aten::item')
    """
    return Change(f"remove({written(chosen)})", _remove, (chosen,))


def _remove(draft: Draft, chosen: Events | Code) -> None:
    """Remove events, or all edges of a kind or rule."""
    if isinstance(chosen, Code):
        draft.spare(Parts.of(share_of_code(draft.dag, draft.replay, chosen)))
        return
    edges = draft.is_labelled(chosen) if isinstance(chosen, str) else None
    if edges is not None:
        draft.no_waits(edges)
    else:
        draft.take_out(draft.launched(draft.events(chosen)))


def no_wait(chosen: Events) -> Change:
    """Change: calls do not wait for the device; they take as long as calls that need not wait.

    Parameters
    ----------
    chosen : str, re.Pattern or Selection
        The calls, or operators around them.

    Returns
    -------
    Change

    Examples
    --------
    >>> print(no_wait("aten::item"))
    no_wait('aten::item')
    """
    return Change(f"no_wait({written(chosen)})", _no_wait, (chosen,))


def _no_wait(draft: Draft, chosen: Events) -> None:
    """Drop the waits of the chosen calls and of those nested in them, and of gaps before them."""
    within, replay = draft.nested(draft.events(chosen)), draft.replay
    waits = np.flatnonzero(among(replay.kind, (EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC)))
    head = replay.node[replay.head[waits]] >> 1
    draft.no_waits(waits[within[head] & draft.dag.events.is_host[head]])


def spare(name: str, row: I64, dur_ns: I64, rank: I64) -> Change:
    """Change: parts of edges take no time, such as the time that a path charges to a cause.

    `row`, `dur_ns`: rows of the edge table of `rank` (-1 of a single trace), and the time to remove
    from each.
    """
    return Change(f"without {name}", partial(_spare, row=row, dur_ns=dur_ns, rank=rank))


def _spare(draft: Draft, row: I64, dur_ns: I64, rank: I64) -> None:
    """Shorten the edges, the residual first."""
    spared = np.zeros(len(draft.dag.edges) + 1, dtype=np.int64)
    mine = rank == draft.rank
    np.add.at(spared, row[mine], dur_ns[mine])
    spared[-1] = 0
    less, there = spared[draft.replay.row], draft.lag_ns != DROPPED
    residual = np.minimum(less, draft.extra_ns)
    draft.extra_ns -= residual
    draft.lag_ns[there] = np.maximum(draft.lag_ns - (less - residual), 0)[there]


def slug(cause: str) -> str:
    """A cause as the command line takes it."""
    return cause.lower().replace(" ", "-")


def without(cause: str) -> Change:
    """Change: the time of a cause of the verdict is gone, on every thread, stream and rank.

    It saves the cost of the cause: at most the time that the critical path charges to it. What no
    longer waits may also run ahead, so that the changed run may be shorter than that.

    Parameters
    ----------
    cause : str
        As findings call it, ``"data loading"`` or ``"late rank 2"``, or with dashes.

    Returns
    -------
    Change

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
    return Change(f"without({written(slug(cause))})", _without, (slug(cause),))


def _without(draft: Draft, cause: str) -> None:
    """Raise: what goes depends on the critical path of a window, see `Trials.made`."""
    del draft
    raise QueryError(f"without({written(cause)}) needs a window.", hint="pass it to what_if.")


def insert(*, after: Events, dur_ns: int) -> Change:
    """Change: after each of some events, its thread or stream is busy for longer.

    Parameters
    ----------
    after : str, re.Pattern or Selection
    dur_ns : int, unit=ns

    Returns
    -------
    Change

    Raises
    ------
    QueryError
        If the time is negative or above a million seconds.
    """
    if not 0 <= dur_ns <= MOST * 1e9:
        hint = "dur_ns=50_000 is 50 us."
        raise QueryError(f"insert: dur_ns must be between 0 and 1e15, not {dur_ns}.", hint=hint)
    call = f"insert(after={written(after)}, dur_ns={dur_ns})"
    return Change(call, _insert, (after, dur_ns))


def _insert(draft: Draft, after: Events, dur_ns: int) -> None:
    """Lengthen the code after host events, and device work itself."""
    chosen, replay = draft.events(after), draft.replay
    tail = replay.node[replay.tail]
    hands_off = np.isin(replay.rule, (Rule.HANDOFF, Rule.WORKER_CALLED))
    follows = ((replay.kind == EdgeKind.THREAD) | hands_off) & (tail & 1 == 1)
    follows &= chosen[tail >> 1] & draft.dag.events.is_host[tail >> 1]
    runs = (replay.kind == EdgeKind.SPAN) & gather(chosen, replay.event, default=False)
    draft.lag_ns[follows | runs] += dur_ns
    if (frames := draft.frames(chosen)) is not None:
        draft.lag_ns += dur_ns * frames.ends_in(replay)


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
        return with_part_of(attributed_time, part_ns, cause=str(Cause.EXPERT_IMBALANCE))


def balance(surplus: TokenSurplus) -> Change:
    """Change of a job: no rank works on more tokens than the mean of its group."""
    return Change("balance(tokens)", _balance, (surplus,))


def _balance(draft: Draft, surplus: TokenSurplus) -> None:
    """Shorten all edges in the work on tokens by one factor; transfers stay."""
    replay = draft.replay
    begin, end = replay.ts_ns[replay.tail], replay.ts_ns[replay.head]
    draft.shorten(surplus.within(draft.rank, begin, np.maximum(begin, end)))


@dataclass(frozen=True, eq=False)
class EdgeRows:
    """Edges by their rows, with the events at their ends, which tell whose rows they are."""

    row: I64
    tail: npt.NDArray[np.integer]
    head: npt.NDArray[np.integer]

    def __repr__(self) -> str:
        return human_count(len(self.row), "edge")


def reweigh(
    edges: str | pd.DataFrame, *, by: float | None = None, lag_ns: int | None = None
) -> Change:
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
    Change

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
    how = f"lag_ns={lag_ns}" if by is None else f"by={by:g}"
    if isinstance(edges, str):
        chosen: str | EdgeRows = edges.lower()
    elif {"edge", "tail_event"} <= {*getattr(edges, "columns", ())}:
        ends = (edges[name].to_numpy(np.int64) for name in ("edge", "tail_event", "head_event"))
        chosen = EdgeRows(*ends)
    else:
        raise QueryError(
            "reweigh: these are no edges.", hint="give a kind of edge, or rows of graph.edges."
        )
    return Change(f"reweigh({chosen!r}, {how})", _reweigh, (chosen, by, lag_ns or 0))


def _reweigh(draft: Draft, chosen: str | EdgeRows, by: float | None, lag_ns: int) -> None:
    """Weigh the chosen edges anew, unknown waits on them included."""
    if isinstance(chosen, EdgeRows):
        rows = _at_rows(draft, chosen)
    else:
        found = draft.is_labelled(chosen)
        if found is None:
            hint = one_of(chosen, EdgeKind.labels(), "the kinds are")
            raise QueryError(f"no kind of edge, and no rule, is {chosen!r}.", hint=hint)
        if not found.any():
            raise QueryError(f"no edge is of {chosen!r}.", hint="`edges` of the graph lists all.")
        rows = np.flatnonzero(found)
    rows = rows[draft.lag_ns[rows] != DROPPED]
    if by is None:
        draft.lag_ns[rows], draft.extra_ns[rows] = lag_ns, 0
    else:
        draft.multiply(rows, by)


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


_LATENCY_NS = 10_000
"""Latency of a collective at most, half of it expected (NCCL on one host: 5 to 20 us);
test_changes has both."""


def _latencies_ns(draft: Draft, rows: I64) -> F64:
    """Latency of the transfer of each edge: as fitted, give or take its error, else assumed."""
    assumed = {Assumption.RIGID: _LATENCY_NS, Assumption.LOOSE: 0}
    found = np.full(len(rows), float(assumed.get(draft.assumption, _LATENCY_NS // 2)))
    if draft.members is None:
        return found
    met, member = draft.transfers
    alpha, error = draft.members.latency_ns[member], draft.members.latency_error[member]
    more = {Assumption.RIGID: 1.0, Assumption.LOOSE: -1.0}.get(draft.assumption, 0.0)
    known = np.isfinite(alpha) & np.isin(met, rows)
    fitted = np.maximum(alpha * (1 + more * error), 0)
    found[np.searchsorted(rows, met[known])] = fitted[known]
    return found


def bandwidth(by: float) -> Change:
    """Change: collectives move data faster by a factor; their latency stays.

    This is the alpha-beta model: latency plus size over bandwidth (Hockney 1994). In a job whose
    collectives have sizes, the latency is that of ``job.bandwidths()``, if there is a fit; else 5
    us, and between 0 and 10 us by other readings.

    Parameters
    ----------
    by : float
        2 is twice the bandwidth.

    Returns
    -------
    Change

    Raises
    ------
    QueryError
        If it is not above 0.
    """
    if not by > 0:
        hint = "2 is twice the bandwidth."
        raise QueryError(f"bandwidth: by must be above 0, not {by:g}.", hint=hint)
    return Change(f"bandwidth({by:g})", _faster, (by,))


def _faster(draft: Draft, by: float) -> None:
    """Shorten the transfer part of each collective: all but its latency.

    Matched ranks have known transfers, and a fitted latency if sizes were recorded; else it is
    assumed. One rank alone does not know how long a collective waited: at the least, the fastest of
    its name did not.
    """
    dag, replay = draft.dag, draft.replay
    met, _ = draft.transfers
    communicates = dag.classification.kernel_class == KernelClass.COMMUNICATION
    runs = (replay.kind == EdgeKind.SPAN) & gather(communicates, replay.event, default=False)
    rows = np.union1d(np.flatnonzero(runs), met)
    rows = rows[draft.lag_ns[rows] != DROPPED]
    if not len(rows):
        hint = "the question collectives lists what is recorded."
        raise QueryError("no collective was recorded.", hint=hint)
    name = dag.events.name[replay.node[replay.head[rows]] >> 1]
    lag = draft.lag_ns[rows]
    least = np.full(len(dag.events.symbols), np.iinfo(np.int64).max)
    np.minimum.at(least, name, lag)
    waits = np.isin(rows, met, invert=True) & (draft.assumption is Assumption.RIGID)
    moves = np.where(waits, np.minimum(lag, least[name]), lag)
    transfer = np.maximum(moves - _latencies_ns(draft, rows), 0)
    draft.lag_ns[rows] = lag - transfer + np.rint(transfer / by).astype(np.int64)


def equalise() -> Change:
    """Change of a job: no rank arrives at a collective later than the median rank.

    Everything a late rank did since its previous collective is shortened by one factor. Of an even
    number of ranks, the median is the earlier of the two in the middle.

    Returns
    -------
    Change
    """
    return Change("equalise()", _on_time)


def _on_time(draft: Draft) -> None:
    """Shorten all edges since the rank's last arrival by one factor, until it is not late.

    At the least, it still arrives with the last of the others.
    """
    members, replay = draft.members, draft.replay
    if members is None:
        hint = "give the folder with its ranks, or a Job."
        raise QueryError("equalise needs a job: one rank alone is never late.", hint=hint)
    rigid = draft.assumption is Assumption.RIGID
    earlier_ns = members.earlier_ns(replay.ts_ns, at_least=rigid)
    draft.shorten(earlier_ns[replay.head] - earlier_ns[replay.tail])
