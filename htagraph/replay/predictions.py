"""Predictions: candidate changes, replayed and sorted by what they save."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import pandas as pd

from htagraph.errors import QueryError
from htagraph.model.answers import OPPORTUNITIES
from htagraph.model.progress import counted
from htagraph.model.window import Window
from htagraph.replay.assumptions import Assumption
from htagraph.replay.candidates import TWICE_AS_FAST, Candidate
from htagraph.replay.changes import Change
from htagraph.replay.rehearsal import Saving

__all__ = ["Rehearsed", "predictions"]

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

    def saving(self, changes: Sequence[Change]) -> Saving:
        """Saving by every reading."""

    def then_bound(self, changes: Sequence[Change]) -> str:
        """What most of the changed critical path is bound by; empty if unknown."""


class _Prediction(NamedTuple):
    """A candidate with what it saves."""

    candidate: Candidate
    saving: Saving

    @property
    def change(self) -> str:
        """The calls that make the change."""
        return " + ".join(map(str, self.candidate.changes))


def predictions(
    rehearsal: Rehearsed, asked: Iterable[Candidate], *, n_threads: int = 1
) -> pd.DataFrame:
    """What each candidate saves, as `OPPORTUNITIES`, without those that do not apply.

    Parameters
    ----------
    n_threads : int, default=1
        How many are replayed at once.
    """
    answers = _each("change", partial(_predict, rehearsal), list(asked), n_threads)
    found = _best_of_each([one for one in answers if one is not None])
    found.sort(key=lambda one: (-one.saving.expected_ns, one.candidate.kind != "repair"))
    rows = _combined(found)
    causes = [row for row, one in enumerate(found) if one.candidate.kind == "cause"]
    bounding = [*rows, *causes]
    changes = [found[row].candidate.changes for row in bounding]
    bounds = _each("bound of a changed run", rehearsal.then_bound, changes, n_threads)
    then = dict(zip((found[row].change for row in bounding), bounds, strict=True))
    shared = _shared(rehearsal, found, rows[:_N_PAIRED])
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
            "then_bound": [then.get(one.change, "") for one in found],
            "together_ns": _together(rehearsal, found, rows, n_threads),
            "shares_with": [shared.get(one.change, -1) for one in found],
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


def _predict(rehearsal: Rehearsed, candidate: Candidate) -> _Prediction | None:
    """What a candidate saves, by all readings if that is worth it; None if it does not apply."""
    try:
        saved = rehearsal.saved_ns(candidate.changes)
    except QueryError:
        return None
    if candidate.kind == "cause":  # nobody makes all of it go: what it costs is a limit
        error_ns = min(rehearsal.clock_error_ns, abs(saved) // 2)
        return _Prediction(candidate, Saving(min(saved, 0), saved, saved + error_ns))
    if saved < _WORTH * rehearsal.window.dur_ns and candidate.kind != "repair":
        found = Saving.of(
            [(Assumption.AS_BOUND, saved)],
            clock_error_ns=rehearsal.clock_error_ns,
            run_to_run_ns=rehearsal.run_to_run_ns,
        )
        return _Prediction(candidate, found)
    return _Prediction(candidate, rehearsal.saving(candidate.changes))


def _best_of_each(found: Sequence[_Prediction]) -> list[_Prediction]:
    """The drag and the best repair of each cause, and other changes that save anything."""
    best: dict[tuple[str, str, float], _Prediction] = {}
    made = {one.candidate[:2] for one in found if not one.candidate.is_last_resort}
    for one in found:
        key = (one.candidate.kind, one.candidate.target, one.candidate.left)
        if one.candidate.is_last_resort and one.candidate[:2] in made:
            continue
        if key not in best or one.saving.expected_ns > best[key].saving.expected_ns:
            best[key] = one
    return [one for one in best.values() if one.candidate.cause or one.saving.expected_ns > 0]


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


def _together(
    rehearsal: Rehearsed, found: Sequence[_Prediction], rows: Sequence[int], n_threads: int
) -> list[int]:
    """Saving of each row together with those above it."""
    made: dict[str, Candidate] = {}
    asked: list[list[Change]] = []
    place: list[int] = []
    for row, one in enumerate(found):
        if row in rows and one.candidate.target not in made:
            made[one.candidate.target] = one.candidate
            asked.append([change for each in made.values() for change in each.changes])
        place.append(len(asked))
    saved_ns = [0, *_each("changes together", rehearsal.saved_ns, asked, n_threads)]
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
