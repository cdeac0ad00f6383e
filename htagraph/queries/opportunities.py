"""What would help, and by how much: candidate changes, each replayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.errors import QueryError
from htagraph.explain.attributed_time import attributed_time
from htagraph.explain.critical_path import critical_path
from htagraph.model.answers import OPPORTUNITIES
from htagraph.model.dag import Dag
from htagraph.model.window import Window
from htagraph.queries.kernel_patterns import kernel_patterns
from htagraph.replay.assumptions import Assumption
from htagraph.replay.candidates import TWICE_AS_FAST, Candidate, candidates
from htagraph.replay.changes import Change
from htagraph.replay.rehearsal import Rehearsal, Saving

__all__ = ["opportunities"]

_N_LOOKED_AT = 10
"""Changes of which it is said what bounds the run then, and what they save together.

Of a kernel, that is twice as fast; its other speeds are points of a curve.
"""
_N_PAIRED = 6
"""Those of them that are replayed in pairs, to see which share what they save."""
_LONGEST = 8
_NOT_ADDITIVE = 0.9
"""Two changes that together save less than this share of their sum are not additive."""
_WORTH = 0.002
"""Share of the window below which only what is expected is replayed."""


class _Asked(NamedTuple):
    """A candidate with what it saves."""

    candidate: Candidate
    saving: Saving

    @property
    def change(self) -> str:
        """What is changed, as it is written."""
        return " + ".join(map(str, self.candidate.changes))


def opportunities(dag: Dag, window: Window) -> pd.DataFrame:
    """Changes that would make a window shorter, each with what it saves.

    Every row is a prediction: the graph is replayed with the change made throughout the trace. The
    interval is what the trace leaves open (`htagraph.replay.assumptions`). Rows do not add up.

    Parameters
    ----------
    dag : Dag
    window : Window

    Returns
    -------
    DataFrame, schema `answers.OPPORTUNITIES`
        Largest expected saving first. Empty where replays of steps miss by so much that nothing
        should be predicted (`htagraph.replay.hold_out`).
    """
    rehearsal = Rehearsal(dag, window)
    if rehearsal.hold_out.is_too_large:
        return OPPORTUNITIES.empty()
    segments = critical_path(dag, window)
    attributed, sequences = attributed_time(dag, segments), _sequences(dag, window)
    asked = candidates(segments, attributed, sequences, n_edges=len(dag.edges))
    found = _best_of_each([one for each in asked if (one := _ask(rehearsal, each)) is not None])
    found.sort(key=lambda one: (-one.saving.expected_ns, one.candidate.kind != "repair"))
    looked_at = _looked_at(found)
    then = {found[row].change: _then_bound(rehearsal, found[row]) for row in looked_at}
    shared = _shared(rehearsal, found, looked_at[:_N_PAIRED])
    savings = [one.saving for one in found]
    expected = np.array([saving.expected_ns for saving in savings], dtype=np.int64)
    return OPPORTUNITIES.frame(
        {
            "kind": [one.candidate.kind for one in found],
            "target": [one.candidate.target for one in found],
            "change": [one.change for one in found],
            "left_share": [one.candidate.left for one in found],
            "cause": [one.candidate.cause for one in found],
            "saves_ns": expected,
            "low_ns": [saving.low_ns for saving in savings],
            "high_ns": [saving.high_ns for saving in savings],
            "saves_share": expected / max(window.dur_ns, 1),
            "alone_ns": [_alone_ns(saving) for saving in savings],
            "then_bound": [then.get(one.change, "") for one in found],
            "together_ns": _together(rehearsal, found, looked_at),
            "shares_with": [shared.get(one.change, -1) for one in found],
        }
    )


def _sequences(dag: Dag, window: Window) -> list[tuple[str, ...]]:
    """Sequences of kernels that recur on a stream, those with most idle time between first."""
    found = kernel_patterns(dag, window, max_length=_LONGEST, rank_by="gap_ns", top=8)
    return [tuple(names) for names in found.loc[found["gap_ns"] > 0, "pattern"]]


def _ask(rehearsal: Rehearsal, candidate: Candidate) -> _Asked | None:
    """What a candidate saves, by all readings where it is worth it; None if it is not there."""
    window_ns = rehearsal.window.dur_ns
    try:
        saved = window_ns - rehearsal.dur_ns(rehearsal.run(candidate.changes).times_ns)
    except QueryError:
        return None
    if saved < _WORTH * window_ns and not candidate.cause:
        return _Asked(candidate, Saving.of([(Assumption.AS_BOUND, saved)]))
    return _Asked(candidate, rehearsal.saving(candidate.changes))


def _best_of_each(found: Sequence[_Asked]) -> list[_Asked]:
    """Of alternative repairs of a cause the best; of other changes those that save anything."""
    best: dict[tuple[str, str, float], _Asked] = {}
    repaired = {
        one.candidate.target
        for one in found
        if one.candidate.cause and not one.candidate.is_last_resort
    }
    for one in found:
        if one.candidate.is_last_resort and one.candidate.target in repaired:
            continue
        key = (one.candidate.kind, one.candidate.target, one.candidate.left)
        if key not in best or one.saving.expected_ns > best[key].saving.expected_ns:
            best[key] = one
    return [one for one in best.values() if one.candidate.cause or one.saving.expected_ns > 0]


def _alone_ns(saving: Saving) -> int:
    """What is saved if other ranks do not change."""
    return dict(saving.readings).get(Assumption.OTHERS_LATE, saving.expected_ns)


def _then_bound(rehearsal: Rehearsal, one: _Asked) -> str:
    """What most of the critical path is bound by afterwards."""
    bounds = rehearsal.bounds_of(rehearsal.run(one.candidate.changes))
    return next(iter(bounds)).label if bounds else ""


def _looked_at(found: Sequence[_Asked]) -> list[int]:
    """Rows of the first changes, each once."""
    rows: dict[str, int] = {}
    for row, one in enumerate(found):
        if one.candidate.kind != "kernel" or one.candidate.left == TWICE_AS_FAST:
            rows.setdefault(one.change, row)
    return list(rows.values())[:_N_LOOKED_AT]


def _together(rehearsal: Rehearsal, found: Sequence[_Asked], looked_at: Sequence[int]) -> list[int]:
    """What each row saves with those above it."""
    together: list[int] = []
    made: dict[str, Candidate] = {}
    saved_ns = 0
    for row, one in enumerate(found):
        if row in looked_at and one.candidate.target not in made:
            made[one.candidate.target] = one.candidate
            saved_ns = _saved(
                rehearsal, [change for each in made.values() for change in each.changes]
            )
        together.append(saved_ns)
    return together


def _saved(rehearsal: Rehearsal, changes: Sequence[Change]) -> int:
    """What changes save by the first reading."""
    return rehearsal.window.dur_ns - rehearsal.dur_ns(rehearsal.run(changes).times_ns)


def _shared(rehearsal: Rehearsal, found: Sequence[_Asked], rows: Sequence[int]) -> dict[str, int]:
    """By change: the first row above with which it is not additive."""
    shared: dict[str, int] = {}
    for place, row in enumerate(rows):
        own = found[row]
        for other in rows[:place]:
            both = [*found[other].candidate.changes, *own.candidate.changes]
            apart_ns = found[other].saving.expected_ns + own.saving.expected_ns
            if apart_ns > 0 and _saved(rehearsal, both) < _NOT_ADDITIVE * apart_ns:
                shared[own.change] = other
                break
    return shared
