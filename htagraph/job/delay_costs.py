"""Delay costs: the waits of all ranks, charged to what made ranks late.

A late rank is charged with what took it longer than the rank that waited. If it was late because
it had waited in another collective itself, that part of the cost passes on to the rank it waited
for there, and so on. This is the delay analysis of Scalasca (Böhme et al. 2010), with its direct
and propagated costs, and causes by bound, name and operator instead of call paths.

::

    rank 0   --load-----------[A]
    rank 1   ------[A: waits    ]------[B]     B: 1 is late, as it waited in A for 0
    rank 2   -----------------[B: waits  ]     so the wait of 2 is due to the load of 0

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

from htagraph.arrays.clocks import Clock
from htagraph.arrays.codes import gather
from htagraph.arrays.delays import pass_on
from htagraph.errors import GraphError
from htagraph.job.lateness import CauseName, RankTimes, Times, waits_counted_once
from htagraph.job.rank_segments import RankEnds, RankSegment
from htagraph.lookup.collectives import Readiness
from htagraph.model.arrays import I64
from htagraph.model.job_answers import DELAY_COSTS

_NEVER = np.iinfo(np.int64).max

MOST_COMPARED = 100_000
"""Longest waits that are compared: each takes about 5 kB of tables in one process. Documented in
`docs/limits.md`; `tests/hostile/test_damage.py` compares."""


@dataclass(frozen=True)
class WaitComparisons:
    """All waits of a job, and the rank segments to compare for each."""

    # By their ends. Columns ``match``, ``rank``, ``last_rank``, ``wait_ns``, ``once_ns`` (counted
    # once), ``met_ns``; ``why_not``, in words, if no rank can be charged, else empty; ``late``,
    # ``came`` and ``ready``: positions of rank segments, -1 for none.
    waits: pd.DataFrame
    # The collectives of all ranks: ``rank``, ``event``, ``start_ns`` on the clock of the rank, and
    # ``wait``, the row of `waits`, -1 where it did not wait
    places: pd.DataFrame
    rank_segments: tuple[RankSegment, ...]  # Distinct


class _Places:
    """The collectives of all ranks as one table: where each rank's part is, and when it left."""

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


_NOTHING_LONGER = "(nothing took longer)"
_UNREAD = "(rank not read)"
_WHICH = ["late", "came", "ready"]
_LATE = 0
_PASSED = "", "", ""


def _times(compared: WaitComparisons, table: pd.DataFrame) -> pd.DataFrame:
    """The contents of rank segments, how much of each was waiting, and the row of the wait."""
    places = compared.places
    waiting = places.loc[places["wait"] >= 0, ["rank", "event"]].rename_axis("place").reset_index()
    table = table.merge(waiting, on=["rank", "event"], how="left")
    place = table["place"].fillna(-1).to_numpy(np.int64)
    to = gather(places["wait"].to_numpy(np.int64), place)
    until_ns = gather(places["start_ns"].to_numpy(np.int64), place, 0)
    until_ns += gather(compared.waits["wait_ns"].to_numpy(np.int64), to, 0)
    start_ns, dur_ns = (table[name].to_numpy(np.int64) for name in ("start_ns", "dur_ns"))
    waited_ns = np.where(to >= 0, np.clip(until_ns - start_ns, 0, dur_ns), 0)
    for_rank = gather(compared.waits["last_rank"].to_numpy(np.int64), to)
    found = table[["rank_segment", "cause", "dur_ns"]]
    return found.assign(waited_ns=waited_ns, to=to, for_rank=for_rank)


def _looked_up(waits: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The contents of the rank segments of each wait: one row per wait, segment and cause."""
    n_ways = len(_WHICH)
    asked = pd.DataFrame(
        {
            "wait": np.tile(waits.index.to_numpy(np.int64), n_ways),
            "last_rank": np.tile(waits["last_rank"].to_numpy(np.int64), n_ways),
            "which": np.repeat(np.arange(n_ways), len(waits)),
            "rank_segment": waits[_WHICH].to_numpy(np.int64).ravel(order="F"),
        }
    )
    found = asked.merge(table, on="rank_segment")
    # A wait that ends after another one has not led to it.
    waited_ns = found["waited_ns"].where(found["to"] < found["wait"], 0)
    did_ns = found["dur_ns"] - waited_ns
    # A rank that waited for the late rank was not delayed by anything of its own.
    for_late = (found["which"] != _LATE) & (found["for_rank"] == found["last_rank"])
    return found.assign(waited_ns=waited_ns.mask(for_late, 0), did_ns=did_ns)


def _excess(found: pd.DataFrame, by: list[str], column: str) -> pd.DataFrame:
    """What took the late rank longer than both stretches of the other one."""
    sums = found.pivot_table(column, by, "which", "sum", fill_value=0, observed=True)
    sums = sums.reindex(columns=range(len(_WHICH)), fill_value=0)
    weight = sums[_LATE] - sums.drop(columns=_LATE).max(axis=1)
    return weight[weight > 0].rename("weight").reset_index()


def _parts(compared: WaitComparisons, times: Times, why: pd.Series[str]) -> pd.DataFrame:
    """What each wait is due to, by weight: causes, earlier waits, or why none is charged."""
    waits, table = compared.waits, _times(compared, times.table)
    found = _looked_up(waits[why == ""], table)
    did = _excess(found, ["wait", "cause"], "did_ns")
    did = did.assign(rank=waits["last_rank"].to_numpy()[did["wait"]], to=-1)
    waited = found[(found["which"] == _LATE) & (found["waited_ns"] > 0)]
    longer = _excess(found, ["wait"], "waited_ns").set_index("wait")["weight"]
    whole = waited.groupby("wait")["waited_ns"].transform("sum")
    passed = waited[["wait", "to"]].assign(
        weight=waited["waited_ns"] / whole * waited["wait"].map(longer)
    )
    passed = passed.dropna().assign(cause=times.causes.index(_PASSED), rank=-1)
    known = pd.concat([did, passed])
    rest = waits["wait_ns"].sub(known.groupby("wait")["weight"].sum(), fill_value=0)
    number = {text: times.causes.index(_unknown(text)) for text in why.unique()}
    nobody = [number[text] for text in why.tolist()]
    left = pd.DataFrame({"wait": waits.index, "cause": nobody, "weight": rest, "to": -1})
    parts = pd.concat([known, left[rest > 0].assign(rank=-1)])
    return parts.sort_values(["wait", "to", "cause"], ignore_index=True)


def _unknown(why: str) -> CauseName:
    """The cause of a wait that no rank is charged with."""
    return "", why or _NOTHING_LONGER, ""


def charged_waits(
    compared: WaitComparisons, by_rank: Mapping[int, RankTimes]
) -> tuple[pd.DataFrame, Times]:
    """Each wait, charged to what made ranks late, and what they did until then.

    One row per wait and cause, which is a row of the causes of the second.
    """
    waits = compared.waits
    unread = ~waits[["rank", "last_rank"]].isin(by_rank.keys()).all(axis=1)
    why = waits["why_not"].mask((waits["why_not"] == "") & unread, _UNREAD)
    times = Times.of(by_rank, (_PASSED, *map(_unknown, why.unique())))
    parts = _parts(compared, times, why)
    row = parts["wait"].to_numpy(np.int64)
    first = np.searchsorted(row, np.arange(len(waits) + 1))
    own, passed = pass_on(
        waits["once_ns"].to_numpy(np.int64),
        first,
        parts["weight"].to_numpy(np.float64),
        parts["to"].to_numpy(np.int64),
    )
    charged: pd.DataFrame = parts.assign(
        direct_ns=own,
        propagated_ns=passed,
        delay_ns=own + passed,
        match=waits["match"].to_numpy()[row],
        waited=waits["rank"].to_numpy()[row],
    )
    return charged[charged["delay_ns"] > 0], times


def delay_costs(
    charged: pd.DataFrame,
    times: Times,
    collectives: pd.DataFrame,
    part: pd.Series[str] | None = None,
) -> pd.DataFrame:
    """Waits of all ranks by cause, and by late rank or its `part`: `job_answers.DELAY_COSTS`."""
    parts = "" if part is None else charged["rank"].map(part).fillna("")
    charged = charged.assign(part=parts)
    key = ["rank" if part is None else "part", "cause"]
    by_rank = charged.groupby(["part", "rank", "cause"], as_index=False).agg(
        delay_ns=("delay_ns", "sum")
    )
    dearest = by_rank.sort_values("delay_ns", ascending=False, kind="stable").drop_duplicates(key)
    costs = (
        charged.groupby(key, as_index=False)
        .agg(
            direct_ns=("direct_ns", "sum"),
            propagated_ns=("propagated_ns", "sum"),
            delay_ns=("delay_ns", "sum"),
            n_collectives=("match", "nunique"),
            n_ranks=("waited", "nunique"),
        )
        .merge(dearest.drop(columns="delay_ns"), on=key)
    )
    waited_ns, charged_ns = int(waits_counted_once(collectives).sum()), int(costs["delay_ns"].sum())
    if waited_ns != charged_ns:
        raise GraphError(
            f"ranks waited for {waited_ns:,} ns, and {charged_ns:,} ns are charged to causes."
        )
    costs["share"] = costs["delay_ns"] / max(waited_ns, 1)
    costs = costs.sort_values("delay_ns", ascending=False, kind="stable", ignore_index=True)
    costs = costs.assign(**times.named(costs["cause"]))
    return DELAY_COSTS.frame({name: costs[name] for name in DELAY_COSTS.columns})
