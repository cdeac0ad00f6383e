"""Waits, and the stretches of two ranks whose comparison says what each wait is due to.

The late rank is followed back along what held it up. Its stretch begins with the last matched
collective that both ranks had left before the other came: on that path, or on the path of the other
to where it was ready. In between may lie collectives in which the late rank itself waited.

::

    waits   A]--work--(ready)  (came)[B: waits                 ]
    late    A]--work------load------[C: waits  ]--work---------[B]
              from A to B, the wait in C included

What the other one did is looked at twice: until it came, which includes what it waited for itself,
and until it was ready to come, which includes what it did while a collective held up the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.clocks import Clock
from htagraph.algorithms.gather import gather
from htagraph.job.lateness import waits_counted_once
from htagraph.job.rank_segments import RankEnds, RankSegment
from htagraph.lookup.readiness import Readiness

__all__ = ["MOST_COMPARED", "WaitComparisons", "compare_waits"]

I64 = npt.NDArray[np.int64]

_NEVER = np.iinfo(np.int64).max
_RECORDED = ["event", "start_ns", "end_ns", "after", "arrival"]
_LINKS = ["after", "arrival", "ready_after"]

MOST_COMPARED = 100_000
"""Waits that are compared, the longest: each is about 5 kB of tables, which come to one process."""


@dataclass(frozen=True)
class WaitComparisons:
    """All waits of a job, and the rank segments that are to be compared for each.

    Parameters
    ----------
    waits : DataFrame
        By when they end. Columns ``match``, ``rank``, ``last_rank``, ``wait_ns``, ``once_ns``
        (counted once), ``met_ns``; ``why_not``, in words, where nobody can be charged, else empty;
        ``late``, ``came`` and ``ready``: positions of rank segments, -1 for none.
    places : DataFrame
        The collectives of all ranks: ``rank``, ``event``, ``start_ns`` on the clock of the rank,
        and ``wait``, the row of `waits`, -1 where it did not wait.
    rank_segments : tuple of RankSegment
        Each but once.
    """

    waits: pd.DataFrame
    places: pd.DataFrame
    rank_segments: tuple[RankSegment, ...]


def _places(
    collectives: pd.DataFrame,
    tables: Mapping[int, pd.DataFrame],
    ready: Mapping[int, Readiness],
) -> pd.DataFrame:
    """The collectives of all ranks, one after the other; links are rows of this table."""
    sizes = [len(table) for table in tables.values()]
    first = dict(zip(tables, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
    column = {
        name: np.concatenate([table[name].to_numpy(np.int64) for table in tables.values()])
        for name in _RECORDED
    }
    column |= {
        name: np.concatenate([getattr(ready[rank], name) for rank in tables])
        for name in Readiness._fields
    }
    before = np.repeat(list(first.values()), sizes)
    column |= {name: np.where(column[name] < 0, -1, column[name] + before) for name in _LINKS}
    match, left_ns = np.full((2, len(before)), -1, dtype=np.int64)
    at = collectives["rank"].map(first).to_numpy(np.int64) + collectives["collective"].to_numpy()
    match[at], left_ns[at] = collectives["match"], collectives["end_ns"]
    rank = np.repeat(np.array(list(tables), dtype=np.int64), sizes)
    return pd.DataFrame({**column, "rank": rank, "match": match, "left_ns": left_ns})


class _Members:
    """Where the parts of ranks in matched collectives are, and when they left them.

    Parameters
    ----------
    places : DataFrame
        As `_places` returns it.
    """

    def __init__(self, places: pd.DataFrame) -> None:
        columns = ("rank", "match", "left_ns")
        rank, self._match, self._left_ns = (places[name].to_numpy(np.int64) for name in columns)
        self._n_ranks = int(rank.max(initial=0)) + 1
        matched = np.flatnonzero(self._match >= 0)
        key = self._match[matched] * self._n_ranks + rank[matched]
        order = np.argsort(key, kind="stable")
        self._key, self._place = key[order], matched[order]

    def places(self, match: I64, rank: I64) -> I64:
        """Where each rank's part in a matched collective is, -1 if it has none."""
        key = np.where(match >= 0, match * self._n_ranks + rank, -1)
        at = np.minimum(np.searchsorted(self._key, key), len(self._key) - 1)
        return np.where(self._key[at] == key, self._place[at], -1)

    def left_together(self, place: I64, after: I64, other: I64, until_ns: I64) -> tuple[I64, I64]:
        """The first collective on the way back that another rank had left, too, by some time.

        Parameters
        ----------
        place : ndarray of shape (n,), dtype=int64
            Where the way begins.
        after : ndarray of shape (n_places,), dtype=int64
            Where it goes on from each place, -1 for nowhere.
        other : ndarray of shape (n,), dtype=int64
        until_ns : ndarray of shape (n,), dtype=int64, unit=ns

        Returns
        -------
        match, left_ns : ndarray of shape (n,), dtype=int64
            The collective, -1 for none, and when both had left it.
        """
        found, both_ns = np.full(len(place), -1), np.full(len(place), -_NEVER)
        place = after[place]
        while (rows := np.flatnonzero(place >= 0)).size:
            here = place[rows]
            there = self.places(self._match[here], other[rows])
            left_ns = np.maximum(self._left_ns[here], gather(self._left_ns, there, _NEVER))
            is_found = left_ns <= until_ns[rows]
            found[rows[is_found]] = self._match[here[is_found]]
            both_ns[rows[is_found]] = left_ns[is_found]
            place[rows] = np.where(is_found, -1, after[here])
        return found, both_ns


def _waits(collectives: pd.DataFrame) -> pd.DataFrame:
    """All waits, by when they end, and why nobody can be charged with some."""
    waited = collectives.assign(once_ns=waits_counted_once(collectives))
    waited = waited[waited["wait_ns"] > 0]
    why = np.select(
        [waited["overrun_ns"] > 0, waited["is_partial"], waited["wait_ns"] <= waited["error_ns"]],
        ["(clocks contradict)", "(ranks missing)", "(within clock uncertainty)"],
        default="",
    ).astype(object)
    chargeable = np.flatnonzero(why == "")
    by_length = np.argsort(-waited["wait_ns"].to_numpy(np.int64)[chargeable], kind="stable")
    left_out = f"(not among the {MOST_COMPARED:,} longest waits)"
    why[chargeable[by_length[MOST_COMPARED:]]] = left_out
    waited = waited.assign(met_ns=waited["start_ns"] + waited["wait_ns"], why_not=why)
    return waited.sort_values(["met_ns", "match", "rank"], ignore_index=True)


def compare_waits(
    collectives: pd.DataFrame,
    tables: Mapping[int, pd.DataFrame],
    ready: Mapping[int, Readiness],
    ends: Mapping[int, RankEnds],
    clocks: Mapping[int, Clock],
) -> WaitComparisons:
    """Find out what is to be compared for each wait.

    Parameters
    ----------
    tables : mapping of int to DataFrame
        Schema `answers.COLLECTIVES`, by rank.
    ready : mapping of int to Readiness
        Of these.
    """
    places, waits = _places(collectives, tables, ready), _waits(collectives)
    column = {name: places[name].to_numpy(np.int64) for name in places.columns}
    members = _Members(places)
    match, rank, late = (waits[name].to_numpy(np.int64) for name in ("match", "rank", "last_rank"))
    waiting = members.places(match, rank)
    came = column["arrival"][members.places(match, late)]
    until_ns = waits["start_ns"].to_numpy(np.int64)
    on_late, late_ns = members.left_together(came, column["after"], rank, until_ns)
    on_other, other_ns = members.left_together(waiting, column["ready_after"], late, until_ns)
    since = np.where(late_ns >= other_ns, on_late, on_other)
    since_late, since_other = (
        np.where(
            since >= 0,
            gather(column["end_ns"], members.places(since, one)),
            _both_recorded(one, other, ends, clocks),
        )
        for one, other in ((late, rank), (rank, late))
    )
    start_ns, event = column["start_ns"], column["event"]
    ways = (
        (late, since_late, start_ns[came], 2 * event[came]),
        (rank, since_other, start_ns[waiting], 2 * event[waiting]),
        (rank, since_other, column["ready_ns"][waiting], column["ready_node"][waiting]),
    )
    stretches = np.concatenate([np.column_stack(way) for way in ways])
    chargeable = np.tile((waits["why_not"] == "").to_numpy(dtype=bool), len(ways))
    can = chargeable & (stretches[:, 1] < stretches[:, 2])
    distinct, of = np.unique(stretches[can], axis=0, return_inverse=True)
    number = np.full(len(stretches), -1, dtype=np.int64)
    number[can] = of.reshape(-1)
    late_at, came_at, ready_at = np.split(number, len(ways))
    no_common = (waits["why_not"] == "") & ((late_at < 0) | (came_at < 0)) & (since < 0)
    waits["why_not"] = waits["why_not"].mask(no_common, "(before both were recorded)")
    place_of = np.full(len(places), -1, dtype=np.int64)
    place_of[waiting] = np.arange(len(waits))
    return WaitComparisons(
        waits.assign(late=late_at, came=came_at, ready=ready_at),
        places[["rank", "event", "start_ns"]].assign(wait=place_of),
        tuple(
            RankSegment(one, 0, 0, begin_ns, end_ns, node)
            for one, begin_ns, end_ns, node in distinct.tolist()
        ),
    )


def _both_recorded(
    rank: I64, other: I64, ends: Mapping[int, RankEnds], clocks: Mapping[int, Clock]
) -> I64:
    """Since when each rank and another one are both recorded, on the clock of the first."""
    local_ns = pd.Series({one: end.start_ns for one, end in ends.items()})
    begun_ns = pd.Series({one: clocks[one].to_common(end.start_ns) for one, end in ends.items()})
    ahead = begun_ns.reindex(other).to_numpy(np.int64) - begun_ns.reindex(rank).to_numpy(np.int64)
    since: I64 = local_ns.reindex(rank).to_numpy(np.int64) + np.maximum(ahead, 0)
    return since
