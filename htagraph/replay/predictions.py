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
from htagraph.replay.candidates import Candidate
from htagraph.replay.changes import Change, slug
from htagraph.replay.charges import Charges, EdgeTimes
from htagraph.replay.rehearsal import Saving

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_WORTH = 0.002
"""Share of the window below which a saving is replayed by the expected reading only. Chosen:
test_assumptions has one either side."""


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

    def saving(self, changes: Sequence[Change]) -> Saving:
        """Saving by every reading."""

    def path_after(self, changes: Sequence[Change]) -> EdgeTimes:
        """The critical path of the changed run, as time of edges."""


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
