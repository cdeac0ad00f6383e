"""Predictions: candidate changes, replayed and sorted by what they save."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import pandas as pd

from htagraph.errors import QueryError
from htagraph.model.answers import OPPORTUNITIES
from htagraph.model.kinds import Cause
from htagraph.model.progress import counted
from htagraph.model.window import Window
from htagraph.replay.assumptions import Assumption
from htagraph.replay.candidates import TWICE_AS_FAST, Candidate
from htagraph.replay.changes import Change, OnRank, Without, slug
from htagraph.replay.charges import Charges, EdgeTimes
from htagraph.replay.rehearsal import Saving

__all__ = ["Rehearsed", "Trials"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_N_COMBINED = 10
"""Changes that are also replayed together, and whose next bottleneck is found; of a kernel only at
twice the speed. Chosen to bound the time of a report: test_predictions counts them."""
_N_PAIRED = 6
"""Changes among them that are replayed in pairs, to find which share their savings. Chosen:
test_predictions counts them."""
_NOT_ADDITIVE = 0.9
"""Two changes share their savings if together they save less than this part of the sum. Chosen:
test_predictions has 85% and 95%."""
_WORTH = 0.002
"""Share of the window below which a saving is replayed by the expected reading only. Chosen:
test_predictions has one either side."""


class Rehearsed(Protocol):
    """A window of a trace or of a job that can be replayed under changes."""

    @property
    def window(self) -> Window:
        """The window."""

    @property
    def clock_error_ns(self) -> int:
        """Error of the clocks in every saving."""

    @property
    def run_to_run_ns(self) -> int:
        """By how much every saving may differ in another run."""

    def saved_ns(self, changes: Sequence[Change]) -> int:
        """Expected saving of changes."""

    def saved_together_ns(self, changes: Iterable[Sequence[Change]]) -> list[int]:
        """Expected saving of the first of several changes, of the first two, and so on."""

    def saving(self, changes: Sequence[Change]) -> Saving:
        """Saving by every reading."""

    def path_after(self, changes: Sequence[Change]) -> EdgeTimes:
        """The critical path of the changed run, as time of edges."""


Replayer = TypeVar("Replayer", bound=Rehearsed)


class _Prediction(NamedTuple):
    """A candidate with what it saves."""

    candidate: Candidate
    saving: Saving

    @property
    def change(self) -> str:
        """The calls that make the change."""
        return " + ".join(map(str, self.candidate.changes))


@dataclass(frozen=True)
class Trials(Generic[Replayer]):
    """Changes to a window, each replayed once: to its causes, and to all that may help.

    A verdict asks for causes only, which are a fraction of all.

    Parameters
    ----------
    of_charges : callable
        The causes of all time; made when it is asked for.
    of_causes, of_parts : callable
        Candidates, made when they are asked for.
    n_threads : int, default=1
        How many are replayed at once.
    """

    rehearsal: Replayer
    of_charges: Callable[[], Charges]
    of_causes: Callable[[Charges], Iterable[Candidate]]
    of_parts: Callable[[], Iterable[Candidate]]
    n_threads: int = 1

    @cached_property
    def causes(self) -> pd.DataFrame:
        """What each cause costs, as `OPPORTUNITIES`, the largest first.

        The last two columns are left empty.
        """
        return _frame(self.rehearsal, self._causes, {})

    @cached_property
    def charges(self) -> Charges:
        """The causes of all time of the run."""
        return self.of_charges()

    def changes_of(self, cause: str, rank: int = -1) -> Sequence[Change]:
        """The changes that make a cause, or the lateness of a rank, take no time.

        Raises
        ------
        QueryError
            If no time of the run is charged to it.
        """
        for one in self._causes:
            if (one.candidate.cause, one.candidate.rank) == (cause, rank):
                return one.candidate.changes
        gone = self.charges.without(Cause(cause))
        if not len(gone.row):
            raise QueryError(f"no time of the run is charged to {cause}.", hint="see verdict().")
        return (gone,)

    def next_causes(self, cause: str, rank: int = -1) -> dict[Cause, int]:
        """Time of the path by cause in the run without a cause, most first."""
        return self.charges.along(self.rehearsal.path_after(self.changes_of(cause, rank)))

    @cached_property
    def opportunities(self) -> pd.DataFrame:
        """What each candidate saves, as `OPPORTUNITIES`, without those that do not apply."""
        rehearsal, n_threads = self.rehearsal, self.n_threads
        found = _sorted([*self._causes, *_replayed(rehearsal, self.of_parts(), n_threads)])
        rows = _combined(found)
        shared = _shared(rehearsal, found, rows[:_N_PAIRED])
        together_ns = _together(rehearsal, found, rows)
        shares_with = [shared.get(one.change, -1) for one in found]
        return _frame(rehearsal, found, {"together_ns": together_ns, "shares_with": shares_with})

    def made(self, changes: Iterable[Change]) -> tuple[Change, ...]:
        """What is replayed for some changes: for `without` a cause, what makes it go.

        Raises
        ------
        QueryError
            If the run loses nothing to such a cause.
        """
        made: list[Change] = []
        for one in changes:
            inner = one.change if isinstance(one, OnRank) else one
            alone = self._named(inner.cause).changes if isinstance(inner, Without) else (inner,)
            made += (each.on_rank(one.rank) for each in alone) if isinstance(one, OnRank) else alone
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


def _frame(
    rehearsal: Rehearsed, found: Sequence[_Prediction], also: dict[str, object]
) -> pd.DataFrame:
    """Predictions as `OPPORTUNITIES`; columns that were not asked are those of a change alone."""
    savings = [one.saving for one in found]
    expected = np.array([saving.expected_ns for saving in savings], dtype=np.int64)
    return OPPORTUNITIES.frame(
        {
            "kind": [one.candidate.kind for one in found],
            "target": [one.candidate.target for one in found],
            "change": [one.change for one in found],
            "left_share": [one.candidate.left for one in found],
            "cause": [one.candidate.cause for one in found],
            "late_rank": [one.candidate.rank for one in found],
            "saves_ns": expected,
            "low_ns": [saving.low_ns for saving in savings],
            "high_ns": [saving.high_ns for saving in savings],
            "saves_share": expected / max(rehearsal.window.dur_ns, 1),
            "alone_ns": [_alone_ns(saving) for saving in savings],
            "together_ns": expected,
            "shares_with": [-1] * len(found),
        }
        | also
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


def _alone_ns(saving: Saving) -> int:
    """Saving if other ranks do not change."""
    return dict(saving.readings).get(Assumption.OTHERS_LATE, saving.expected_ns)


def _combined(found: Sequence[_Prediction]) -> list[int]:
    """Rows of the first changes that one can make, each once."""
    rows: dict[str, int] = {}
    for row, one in enumerate(found):
        if one.candidate.kind == "cause":
            continue
        if one.candidate.kind != "kernel" or one.candidate.left == TWICE_AS_FAST:
            rows.setdefault(one.change, row)
    return list(rows.values())[:_N_COMBINED]


def _together(rehearsal: Rehearsed, found: Sequence[_Prediction], rows: Sequence[int]) -> list[int]:
    """Saving of each row together with those above it."""
    made: dict[str, Candidate] = {}
    place: list[int] = []
    for row, one in enumerate(found):
        if row in rows:
            made.setdefault(one.candidate.target, one.candidate)
        place.append(len(made))
    asked = counted("changes together", [one.changes for one in made.values()])
    saved_ns = [0, *rehearsal.saved_together_ns(asked)]
    return [saved_ns[number] for number in place]


def _shared(
    rehearsal: Rehearsed, found: Sequence[_Prediction], rows: Sequence[int]
) -> dict[str, int]:
    """By change, the first row above with which it is not additive."""
    shared: dict[str, int] = {}
    for place, row in enumerate(counted("pair of changes", rows)):
        own = found[row]
        for other in rows[:place]:
            both = [*found[other].candidate.changes, *own.candidate.changes]
            apart_ns = found[other].saving.expected_ns + own.saving.expected_ns
            if apart_ns > 0 and rehearsal.saved_ns(both) < _NOT_ADDITIVE * apart_ns:
                shared[own.change] = other
                break
    return shared
