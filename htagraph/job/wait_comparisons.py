"""Waits, and the stretches of two ranks whose comparison shows what each wait is due to.

The late rank is followed back along what held it up. Its stretch begins with the last matched
collective that both ranks had left before the other one arrived: on that path, or on the path of
the other one to where it was ready. In between, the late rank may have waited in collectives.

::

    waits   A]--work--(ready)  (came)[B: waits                 ]
    late    A]--work------load------[C: waits  ]--work---------[B]
              from A to B, including the wait in C

The other rank has two stretches: until it arrived, which includes its own waits, and until it was
ready to, which includes what it did while a collective held up the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from htagraph.algorithms.clocks import Clock
from htagraph.algorithms.gather import gather
from htagraph.job.lateness import waits_counted_once
from htagraph.job.rank_segments import RankEnds, RankSegment
from htagraph.lookup.readiness import Readiness
from htagraph.model.arrays import I64

_NEVER = np.iinfo(np.int64).max

MOST_COMPARED = 100_000
"""Longest waits that are compared: each takes about 5 kB of tables in one process.

Documented in `docs/limits.md`; `tests/hostile/test_limits.py` compares.
"""


@dataclass(frozen=True)
class WaitComparisons:
    """All waits of a job, and the rank segments to compare for each.

    Parameters
    ----------
    waits : DataFrame
        By their ends. Columns ``match``, ``rank``, ``last_rank``, ``wait_ns``, ``once_ns`` (counted
        once), ``met_ns``; ``why_not``, in words, if no rank can be charged, else empty; ``late``,
        ``came`` and ``ready``: positions of rank segments, -1 for none.
    places : DataFrame
        The collectives of all ranks: ``rank``, ``event``, ``start_ns`` on the clock of the rank,
        and ``wait``, the row of `waits`, -1 where it did not wait.
    rank_segments : tuple of RankSegment
        Distinct.
    """

    waits: pd.DataFrame
    places: pd.DataFrame
    rank_segments: tuple[RankSegment, ...]


class _Places:
    """The collectives of all ranks as one table: where each rank's part is, and when it left.

    Columns of tables that number a rank's own collectives are moved to rows of this one.
    """

    def __init__(self, collectives: pd.DataFrame, tables: Mapping[int, pd.DataFrame]) -> None:
        self._tables = tables
        sizes = [len(table) for table in tables.values()]
        first = dict(zip(tables, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
        self._before = np.repeat(list(first.values()), sizes)
        self.rank = np.repeat(np.array(list(tables), dtype=np.int64), sizes)
        self.event, self.start_ns, self.end_ns = map(self._column, ("event", "start_ns", "end_ns"))
        self.after, self.arrival = (self.rows(self._column(name)) for name in ("after", "arrival"))
        self.match, self.left_ns = np.full((2, len(self.rank)), -1, dtype=np.int64)
        at = collectives["rank"].map(first).to_numpy(np.int64) + collectives["collective"]
        self.match[at], self.left_ns[at] = collectives["match"], collectives["end_ns"]
        self._n_ranks = int(self.rank.max(initial=0)) + 1
        matched = np.flatnonzero(self.match >= 0)
        key = self.match[matched] * self._n_ranks + self.rank[matched]
        order = np.argsort(key, kind="stable")
        self._key, self._place = key[order], matched[order]

    def _column(self, name: str) -> I64:
        return np.concatenate([one[name].to_numpy(np.int64) for one in self._tables.values()])

    def rows(self, own: I64) -> I64:
        """Rows of this table, from the numbers that ranks give their own collectives."""
        return np.where(own < 0, -1, own + self._before)

    def places(self, match: I64, rank: I64) -> I64:
        """Row of each rank's part in a matched collective, -1 if it has none."""
        key = np.where(match >= 0, match * self._n_ranks + rank, -1)
        at = np.minimum(np.searchsorted(self._key, key), len(self._key) - 1)
        return np.where(self._key[at] == key, self._place[at], -1)

    def left_together(self, place: I64, after: I64, other: I64, until_ns: I64) -> tuple[I64, I64]:
        """The first collective on the way back that another rank had left, too, by some time.

        The way begins at `place`; `after` leads on from each place, -1 at its end. Returns the
        collective, -1 for none, and when both had left it.
        """
        found, both_ns = np.full(len(place), -1), np.full(len(place), -_NEVER)
        place = after[place]
        while (rows := np.flatnonzero(place >= 0)).size:
            here = place[rows]
            there = self.places(self.match[here], other[rows])
            left_ns = np.maximum(self.left_ns[here], gather(self.left_ns, there, _NEVER))
            is_found = left_ns <= until_ns[rows]
            found[rows[is_found]] = self.match[here[is_found]]
            both_ns[rows[is_found]] = left_ns[is_found]
            place[rows] = np.where(is_found, -1, after[here])
        return found, both_ns


def _waits(collectives: pd.DataFrame) -> pd.DataFrame:
    """All waits, by their ends, and why some cannot be charged to a rank."""
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
    """Find the rank segments to compare for each wait."""
    places, waits = _Places(collectives, tables), _waits(collectives)
    ready_ns, ready_node, ready_after = map(
        np.concatenate, zip(*map(ready.get, tables), strict=True)
    )
    match, rank, late = (waits[name].to_numpy(np.int64) for name in ("match", "rank", "last_rank"))
    waiting = places.places(match, rank)
    came = places.arrival[places.places(match, late)]
    until_ns = waits["start_ns"].to_numpy(np.int64)
    on_late, late_ns = places.left_together(came, places.after, rank, until_ns)
    ready_way = places.rows(ready_after)
    on_other, other_ns = places.left_together(waiting, ready_way, late, until_ns)
    since = np.where(late_ns >= other_ns, on_late, on_other)
    since_late, since_other = (
        np.where(
            since >= 0,
            gather(places.end_ns, places.places(since, one)),
            _both_recorded(one, other, ends, clocks),
        )
        for one, other in ((late, rank), (rank, late))
    )
    start_ns, event = places.start_ns, places.event
    ways = (
        (late, since_late, start_ns[came], 2 * event[came]),
        (rank, since_other, start_ns[waiting], 2 * event[waiting]),
        (rank, since_other, ready_ns[waiting], ready_node[waiting]),
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
    place_of = np.full(len(event), -1, dtype=np.int64)
    place_of[waiting] = np.arange(len(waits))
    return WaitComparisons(
        waits.assign(late=late_at, came=came_at, ready=ready_at),
        pd.DataFrame({"rank": places.rank, "event": event, "start_ns": start_ns, "wait": place_of}),
        tuple(
            RankSegment(one, 0, 0, begin_ns, end_ns, node)
            for one, begin_ns, end_ns, node in distinct.tolist()
        ),
    )


def _both_recorded(
    rank: I64, other: I64, ends: Mapping[int, RankEnds], clocks: Mapping[int, Clock]
) -> I64:
    """When the captures of each rank and another one overlap first, on the clock of the first."""
    local_ns = pd.Series({one: end.start_ns for one, end in ends.items()})
    begun_ns = pd.Series({one: clocks[one].to_common(end.start_ns) for one, end in ends.items()})
    ahead = begun_ns.reindex(other).to_numpy(np.int64) - begun_ns.reindex(rank).to_numpy(np.int64)
    since: I64 = local_ns.reindex(rank).to_numpy(np.int64) + np.maximum(ahead, 0)
    return since


def compare_late_arrivals(
    late: pd.DataFrame,
    collectives: pd.DataFrame,
    tables: Mapping[int, pd.DataFrame],
    ends: Mapping[int, RankEnds],
    clocks: Mapping[int, Clock],
) -> list[RankSegment]:
    """The rank segments to compare, two per late arrival: the late rank's, and the runner-up's."""
    places = _Places(collectives, tables)
    pairs = late[["rank", "runner_up"]].to_numpy(np.int64)
    rank, other = pairs.ravel(), pairs[:, ::-1].ravel()
    match, shared = (np.repeat(late[name].to_numpy(np.int64), 2) for name in ("match", "shared"))
    came = places.arrival[places.places(match, rank)]
    until_ns, left = places.start_ns[came], places.places(shared, rank)
    begun_ns = _both_recorded(rank, other, ends, clocks)
    since_ns = np.where(left >= 0, gather(places.end_ns, left), begun_ns)
    columns = (rank, np.minimum(since_ns, until_ns), until_ns, 2 * places.event[came])
    return [
        RankSegment(one, 0, 0, begin_ns, end_ns, node)
        for one, begin_ns, end_ns, node in zip(*(each.tolist() for each in columns), strict=True)
    ]
