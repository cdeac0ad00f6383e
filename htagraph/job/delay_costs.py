"""Delay costs: the waits of all ranks, charged to what made ranks late.

A late rank is charged with what took it longer than the rank that waited. If it was late because
it had waited in another collective itself, that part of the cost passes on to the rank it waited
for there, and so on. This is the delay analysis of Scalasca (Böhme et al. 2010), with its direct
and propagated costs, and causes by bound, name and operator instead of call paths.

::

    rank 0   --load-----------[A]
    rank 1   ------[A: waits    ]------[B]     B: 1 is late, as it waited in A for 0
    rank 2   -----------------[B: waits  ]     so the wait of 2 is due to the load of 0
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.algorithms.passing_on import pass_on
from htagraph.errors import GraphError
from htagraph.job.lateness import CauseName, RankTimes, Times, waits_counted_once
from htagraph.job.wait_comparisons import WaitComparisons
from htagraph.model.job_answers import DELAY_COSTS

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


class ChargedWaits(NamedTuple):
    """Each wait, charged to what made ranks late.

    Parameters
    ----------
    rows : DataFrame
        One per wait and cause, which is a row of the causes of `times`.
    times : Times
        What ranks did until then.
    """

    rows: pd.DataFrame
    times: Times


def charged_waits(compared: WaitComparisons, by_rank: Mapping[int, RankTimes]) -> ChargedWaits:
    """Each wait, charged to what made ranks late."""
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
    return ChargedWaits(charged[charged["delay_ns"] > 0], times)


def delay_costs(
    waits: ChargedWaits, collectives: pd.DataFrame, part: pd.Series[str] | None = None
) -> pd.DataFrame:
    """Waits of all ranks by cause, and by late rank or its `part`: `job_answers.DELAY_COSTS`.

    Raises
    ------
    GraphError
        If the costs do not add up to the waits: a defect of this package.
    """
    charged = waits.rows
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
    costs = costs.assign(**waits.times.named(costs["cause"]))
    return DELAY_COSTS.frame({name: costs[name] for name in DELAY_COSTS.columns})
