"""Predictions: changes picked from the critical path, replayed and sorted by what they save."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from htagraph.errors import QueryError
from htagraph.lookup.programs import Loading
from htagraph.model.answers import OPPORTUNITIES
from htagraph.model.kinds import Bound, Cause, EdgeKind, KernelClass
from htagraph.model.progress import counted
from htagraph.replay.assumptions import Assumption
from htagraph.replay.changes import Change, bandwidth, equalise, no_wait, remove, scale, slug, spare
from htagraph.replay.charges import Charges
from htagraph.replay.device_changes import fuse, overlap
from htagraph.replay.draft import (
    ALLOCATIONS,
    COPIES_THAT_BLOCK,
    HOST_WAITS,
    code,
    of_class,
    of_topic,
    waits_at,
)
from htagraph.replay.host_changes import graphed, prefetch
from htagraph.replay.rehearsal import Rehearsed, Saving

TWICE_AS_FAST = 0.5
"""Share of its time left to whatever is made twice as fast."""
SPEEDS = (0.9, 0.75, TWICE_AS_FAST, 0.0)
"""Shares of its time left to a kernel: chosen, test_slack lists them."""

_N_NAMES = 10
_N_NAMES_OF_LARGE = 4
"""Kernels and operators to try; of a large graph fewer, since each costs several replays. Chosen to
bound the time of a report: test_assumptions counts them."""
_N_SITES = 8
"""Places of code, and of waits, to try. Chosen like the names: test_assumptions counts them."""
_MIN_SHARE = 0.001
"""Share of the path below which a part is not tried. Chosen: test_assumptions has one either side.
"""
_ON_DEVICE = (Bound.COMPUTE, Bound.COMMUNICATION, Bound.MEMORY)
_ON_HOST = (Bound.HOST, Bound.DATA_LOADING)


class Candidate(NamedTuple):
    """Changes made together, and what they are about."""

    kind: str  # ``cause`` (the run without it), ``kernel``, ``operator``, ``wait`` …
    target: str  # What is changed, for people
    changes: tuple[Change, ...]
    left: float = 0.0  # Share of its time left to the target
    cause: str = ""  # Cause that is gone, or empty
    rank: int = -1  # Rank that is not late, else -1
    is_last_resort: bool = False  # Used only if no other change of its kind applies to the target


def of_parts(
    segments: pd.DataFrame,
    attributed: pd.DataFrame,
    sequences: Iterable[tuple[str, ...]] = (),
    functions: Iterable[str] = (),
    *,
    is_large: bool = False,
    done: Collection[str] = (),
) -> Iterator[Candidate]:
    """Yield what is worth trying on parts of a path, but what is `done`; some may not apply.

    `functions`: frames of functions to go, with all that they call.
    """
    yield from _of_names(segments, _N_NAMES_OF_LARGE if is_large else _N_NAMES)
    yield from (Candidate("function", frame, (remove(frame),)) for frame in functions)
    yield from _of_host_code(segments, attributed)
    yield from _of_waits(attributed)
    yield from (one for one in _OF_THE_WHOLE if one.kind not in done)
    for names in sequences:
        yield Candidate("fusion", " + ".join(names), (fuse(*names),))


def kinds_done(*, can_capture: bool, loading: Loading) -> tuple[str, ...]:
    """Kinds of change that the run has already, or cannot have: graphs, or workers that load."""
    by_workers = loading not in {"", "in process"}
    had = {"launches": not can_capture, "data loading": by_workers}
    return tuple(kind for kind, is_done in had.items() if is_done)


def of_causes(
    segments: pd.DataFrame,
    attributed: pd.DataFrame,
    charges: Charges,
    *,
    balance: Change | None = None,
    machines: Mapping[int, str] | None = None,
) -> Iterator[Candidate]:
    """Yield the run without each cause, or without each late rank's delay.

    A rank with too many tokens would still be last if it were not late for another reason.
    `charges` has the causes of all time, on the path or not. `machines`: ranks of machines that are
    late, and their machine: they are repaired together.
    """
    machines = machines or {}
    late, overfull = pd.Series(-1, index=attributed.index), set[int]()
    if "rank" in attributed:
        is_late = attributed["cause"] == Cause.LATE_RANK
        late = attributed["rank"].where(is_late, -1).replace(together(machines))
        is_overfull = attributed["cause"] == Cause.EXPERT_IMBALANCE
        overfull = set(attributed.loc[is_overfull, "rank"].tolist())
    both = pd.DataFrame({"cause": attributed["cause"], "late": late}).drop_duplicates()
    for name, late_rank in zip(both["cause"].tolist(), both["late"].tolist(), strict=True):
        cause, rank = Cause(str(name)), int(late_rank)
        if cause in UNRANKED:
            continue
        if cause is Cause.LATE_RANK:
            mine = attributed[(attributed["cause"] == cause) & (late == rank)]
            same = [one for one in machines if machines[one] == machines.get(rank)]
            changes: tuple[Change, ...] = (
                (_spared(segments, mine, f"lateness of rank {rank}"),)
                if rank in overfull
                else tuple(equalise().on_rank(one) for one in same or [rank])
            )
            yield Candidate("cause", f"{cause} {rank}", changes, 0.0, cause, rank)
            continue
        if cause is Cause.EXPERT_IMBALANCE and balance is not None:
            yield Candidate("cause", str(cause), (balance,), 0.0, cause)
        if cause in REMOVALS:
            yield Candidate("cause", str(cause), (REMOVALS[cause],), 0.0, cause)
        gone = charges.of_cause(cause).gone(str(cause))
        yield Candidate("cause", str(cause), (gone,), 0.0, cause, is_last_resort=True)


def together(machines: Mapping[int, str]) -> dict[int, int]:
    """By rank of a late machine, the first rank of that machine."""
    first: dict[str, int] = {}
    return {rank: first.setdefault(machine, rank) for rank, machine in machines.items()}


def _spared(segments: pd.DataFrame, part: pd.DataFrame, name: str) -> Change:
    """The change that removes some attributed time from the edges of a path."""
    at = part["segment"].to_numpy(np.int64)
    edge = segments["edge"].to_numpy(np.int64)[at]
    dur_ns = part["dur_ns"].to_numpy(np.int64)
    alone = np.full(len(segments), -1, dtype=np.int64)
    rank = (segments["rank"].to_numpy(np.int64) if "rank" in segments else alone)[at]
    known = edge >= 0
    return spare(name, edge[known], dur_ns[known], rank[known])


def _largest(segments: pd.DataFrame, by: str, n: int) -> list[str]:
    """The groups with the most path time, if that is not negligible."""
    times = segments.groupby(by, observed=True, sort=False)["dur_ns"].sum()
    total_ns = max(int(segments["dur_ns"].sum()), 1)
    times = times[times >= _MIN_SHARE * total_ns]
    return [str(name) for name in times.sort_values(ascending=False, kind="stable").index[:n]]


def _of_names(segments: pd.DataFrame, n_names: int) -> Iterator[Candidate]:
    """Yield kernels by name at several speeds, and operators."""
    on_device = segments["bound"].isin([bound.label for bound in _ON_DEVICE])
    for name in _largest(segments[on_device], "name", n_names):
        for left in SPEEDS:
            yield Candidate("kernel", name, (scale(name, by=left),), left)
    on_host = segments["bound"].isin([bound.label for bound in _ON_HOST])
    host = segments[on_host & (segments["event"] >= 0)]
    for name in _largest(host, "name", n_names):
        yield Candidate("operator", name, (scale(name, by=TWICE_AS_FAST),), TWICE_AS_FAST)


def _of_host_code(segments: pd.DataFrame, attributed: pd.DataFrame) -> Iterator[Candidate]:
    """Yield untraced code that no frame names, by the operators around it."""
    is_code = (attributed["cause"] == Cause.HOST_CODE) & (attributed["frame"] == "")
    in_code = attributed[is_code]
    number, ops = pd.factorize(in_code["op"].to_numpy(object))
    inside = ("in " + ops)[number]  # each text once: a name may have megabytes
    named = in_code.assign(where=np.where(in_code["place"] != "", in_code["place"], inside))
    for place in _largest(named, "where", _N_SITES):
        part = named[named["where"] == place]
        is_named = bool((part["place"] != "").any())
        change = remove(code(place)) if is_named else _spared(segments, part, f"code {place}")
        yield Candidate("Python code", place, (change,))


def _of_waits(attributed: pd.DataFrame) -> Iterator[Candidate]:
    """Yield the sites at which the host waits: calls within an operator."""
    waits = attributed[attributed["cause"].isin([str(cause) for cause in _WAITS])]
    site = waits[["cause", "name", "op"]].astype(object)
    sites = waits["dur_ns"].groupby([site[name] for name in site], sort=False).sum()
    for cause, name, op in sites.sort_values(ascending=False, kind="stable").index[:_N_SITES]:
        group = waits_at(str(name), str(op))
        kind = "synchronous copy" if cause == Cause.SYNCHRONOUS_COPIES else "wait"
        yield Candidate(kind, group.name, (no_wait(group),))


_WAITS = (Cause.GPU_SYNCHRONIZATION, Cause.UNRECORDED_WAIT, Cause.SYNCHRONOUS_COPIES)
_OF_THE_WHOLE = (
    Candidate("communication", "twice the bandwidth", (bandwidth(2.0),), 0.5),
    Candidate(
        "overlap",
        "overlap all communication",
        (overlap(of_class(KernelClass.COMMUNICATION)),),
    ),
    Candidate("data loading", "prefetch one batch ahead", (prefetch(),)),
    Candidate("launches", "each step captured as a graph", (graphed(),)),
    Candidate("allocation", "no allocation during the run", (remove(ALLOCATIONS),)),
)
"""Changes to the whole run."""
UNRANKED = (Cause.UNKNOWN_WAITS, Cause.WORK_FROM_BEFORE_THE_PROFILE)
"""Causes that nothing in the run can be blamed for."""
REMOVALS: dict[Cause, Change] = {
    Cause.FULL_QUEUE: remove(EdgeKind.QUEUE.label),
    Cause.WAITING_FOR_SMS: remove(EdgeKind.CONTENTION.label),
    Cause.GPU_SYNCHRONIZATION: remove(HOST_WAITS),
    Cause.SYNCHRONOUS_COPIES: remove(COPIES_THAT_BLOCK),
    Cause.ALLOCATION: remove(ALLOCATIONS),
    Cause.COMPILATION: remove(of_topic(Cause.COMPILATION)),
    Cause.RECOMPILATION: remove(of_topic(Cause.RECOMPILATION)),
    Cause.AUTOTUNING: remove(of_topic(Cause.AUTOTUNING)),
}
"""What goes with a cause that waits, or that makes others wait. Other causes are time only."""


Item = TypeVar("Item")
Answer = TypeVar("Answer")

_WORTH = 0.002
"""Share of the window below which a saving is replayed by the expected reading only. Chosen:
test_assumptions has one either side."""


Replayer = TypeVar("Replayer", bound=Rehearsed)


class _Prediction(NamedTuple):
    """A candidate with what it saves."""

    candidate: Candidate
    saving: Saving


@dataclass(frozen=True)
class Trials(Generic[Replayer]):
    """Changes to a window, each replayed once: to its causes, and to all that may help.

    A verdict asks for causes only, which are a fraction of all.
    """

    rehearsal: Replayer
    of_charges: Callable[[], Charges]
    of_causes: Callable[[Charges], Iterable[Candidate]]
    of_parts: Callable[[], Iterable[Candidate]]
    n_threads: int = 1  # How many are replayed at once

    @cached_property
    def causes(self) -> pd.DataFrame:
        """What each cause costs, as `OPPORTUNITIES`, the largest first."""
        return _frame(self.rehearsal, self._causes)

    @cached_property
    def charges(self) -> Charges:
        """The causes of all time of the run."""
        return self.of_charges()

    def changes_of(self, cause: str, rank: int = -1) -> Sequence[Change]:
        """The changes that make a cause, or the lateness of a rank, take no time."""
        for one in self._causes:
            if (one.candidate.cause, one.candidate.rank) == (cause, rank):
                return one.candidate.changes
        charged = self.charges.of_cause(Cause(cause))
        if not len(charged.row):
            raise QueryError(f"no time of the run is charged to {cause}.", hint="see verdict().")
        return (charged.gone(cause),)

    def next_causes(self, cause: str, rank: int = -1) -> dict[Cause, int]:
        """Time of the path by cause in the run without a cause, most first."""
        return self.charges.along(self.rehearsal.path_after(self.changes_of(cause, rank)))

    @cached_property
    def opportunities(self) -> pd.DataFrame:
        """What each candidate saves, as `OPPORTUNITIES`, without those that do not apply."""
        found = _replayed(self.rehearsal, self.of_parts(), self.n_threads)
        return _frame(self.rehearsal, _sorted([*self._causes, *found]))

    def made(self, changes: Iterable[Change]) -> tuple[Change, ...]:
        """What is replayed for some changes: for `without` a cause, what makes it go."""
        made: list[Change] = []
        for one in changes:
            alone = self._named(str(one.args[0])).changes if one.name == "without" else (one,)
            made += alone if one.rank is None else (each.on_rank(one.rank) for each in alone)
        return tuple(made)

    def cost(self, cause: str, charged: pd.DataFrame) -> Saving:
        """What the window loses to a cause: at most the time that its path charges to it."""
        gone = self._named(cause)
        saved_ns = self.rehearsal.saved_ns(gone.changes)
        own_ns = int(charged.loc[charged["cause"] == gone.cause, "dur_ns"].sum())
        cost_ns = min(max(saved_ns, 0), saved_ns if gone.rank >= 0 else own_ns)
        return Saving(cost_ns, cost_ns, cost_ns, ((Assumption.AS_BOUND, cost_ns),))

    def _named(self, cause: str) -> Candidate:
        """The run without a cause, or without the delay of a late rank, by its `slug`."""
        causes = {slug(one.candidate.target): one.candidate for one in self._causes}
        if cause not in causes:
            told = ", ".join(causes) or "nothing"
            raise QueryError(f"the run loses no time to {cause!r}.", hint=f"it does to: {told}.")
        return causes[cause]

    @cached_property
    def _causes(self) -> Sequence[_Prediction]:
        return _sorted(_replayed(self.rehearsal, self.of_causes(self.charges), self.n_threads))


def _frame(rehearsal: Rehearsed, found: Sequence[_Prediction]) -> pd.DataFrame:
    """Predictions as `OPPORTUNITIES`."""
    savings = [one.saving for one in found]
    expected = np.array([saving.expected_ns for saving in savings], dtype=np.int64)
    return OPPORTUNITIES.frame(
        {
            "kind": [one.candidate.kind for one in found],
            "target": [one.candidate.target for one in found],
            "change": [" + ".join(map(str, one.candidate.changes)) for one in found],
            "left_share": [one.candidate.left for one in found],
            "cause": [one.candidate.cause for one in found],
            "late_rank": [one.candidate.rank for one in found],
            "saves_ns": expected,
            "low_ns": [saving.low_ns for saving in savings],
            "high_ns": [saving.high_ns for saving in savings],
            "saves_share": expected / max(rehearsal.window.dur_ns, 1),
            # If other ranks do not change
            "alone_ns": [
                dict(one.readings).get(Assumption.OTHERS_LATE, one.expected_ns) for one in savings
            ],
        }
    )


def _each(
    doing: str, ask: Callable[[Item], Answer], items: Sequence[Item], n_threads: int
) -> list[Answer]:
    """The answer for each item, several at a time, since replays release the GIL."""
    if n_threads == 1:
        return [ask(item) for item in counted(doing, items)]
    with ThreadPoolExecutor(n_threads) as pool:
        waited_for = [pool.submit(ask, item) for item in items]
        try:
            return [each.result() for each in counted(doing, waited_for)]
        finally:
            pool.shutdown(cancel_futures=True)


def _replayed(
    rehearsal: Rehearsed, asked: Iterable[Candidate], n_threads: int
) -> list[_Prediction]:
    """The cost of each cause, and other changes that save anything."""
    alike: dict[tuple[str, str], list[Candidate]] = {}
    for one in asked:
        alike.setdefault(one[:2], []).append(one)
    found = _each("change", partial(_best, rehearsal), list(alike.values()), n_threads)
    return [one for group in found for one in group]


def _best(rehearsal: Rehearsed, alike: Sequence[Candidate]) -> list[_Prediction]:
    """The best of candidates about the same, of each speed, with its interval."""
    best: dict[float, tuple[int, Candidate]] = {}
    for candidate in sorted(alike, key=lambda one: one.is_last_resort):
        if best and candidate.is_last_resort:
            break
        with suppress(QueryError):
            saved_ns = rehearsal.saved_ns(candidate.changes)
            known_ns, _ = best.get(candidate.left, (saved_ns - 1, candidate))
            if saved_ns > known_ns:
                best[candidate.left] = saved_ns, candidate
    return [
        _predicted(rehearsal, candidate, saved_ns)
        for saved_ns, candidate in best.values()
        if candidate.cause or saved_ns > 0
    ]


def _predicted(rehearsal: Rehearsed, candidate: Candidate, saved_ns: int) -> _Prediction:
    """The saving of a candidate: by all readings if that is worth it."""
    if candidate.kind == "cause":  # what a cause costs claims no change that one could make
        found = Saving(min(saved_ns, 0), saved_ns, saved_ns)
    elif saved_ns < _WORTH * rehearsal.window.dur_ns:
        found = Saving.of(
            [(Assumption.AS_BOUND, saved_ns)],
            clock_error_ns=rehearsal.clock_error_ns,
            run_to_run_ns=rehearsal.run_to_run_ns,
        )
    else:
        found = rehearsal.saving(candidate.changes)
    return _Prediction(candidate, found)


def _sorted(found: Iterable[_Prediction]) -> list[_Prediction]:
    """The largest expected saving first."""
    return sorted(found, key=lambda one: -one.saving.expected_ns)
