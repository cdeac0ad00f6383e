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

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.algorithms.passing_on import pass_on
from htagraph.errors import GraphError
from htagraph.job.lateness import CAUSE_KEY, waits_counted_once
from htagraph.job.wait_comparisons import WaitComparisons
from htagraph.model.job_answers import DELAY_COSTS

__all__ = ["charged_waits", "delay_costs"]

I64 = npt.NDArray[np.int64]

_NOTHING_LONGER = "(nothing took longer)"
_UNREAD = "(rank not read)"
_WHICH = ["late", "came", "ready"]


def _times(compared: WaitComparisons, times: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """The contents of rank segments, how much of each was waiting, and the row of the wait."""
    columns = ["rank_segment", *CAUSE_KEY, "dur_ns", "waited_ns", "to", "for_rank"]
    parts = [part.assign(rank=np.int64(rank)) for rank, part in times.items() if len(part)]
    if not parts:
        return pd.DataFrame(columns=columns)
    places = compared.places
    waiting = places.loc[places["wait"] >= 0, ["rank", "event"]].rename_axis("place").reset_index()
    table = pd.concat(parts, ignore_index=True).merge(waiting, on=["rank", "event"], how="left")
    place = table["place"].fillna(-1).to_numpy(np.int64)
    to = gather(places["wait"].to_numpy(np.int64), place)
    until_ns = gather(places["start_ns"].to_numpy(np.int64), place, 0)
    until_ns += gather(compared.waits["wait_ns"].to_numpy(np.int64), to, 0)
    start_ns, dur_ns = (table[name].to_numpy(np.int64) for name in ("start_ns", "dur_ns"))
    waited_ns = np.where(to >= 0, np.clip(until_ns - start_ns, 0, dur_ns), 0)
    for_rank = gather(compared.waits["last_rank"].to_numpy(np.int64), to)
    return table.assign(to=to, waited_ns=waited_ns, for_rank=for_rank)[columns]


def _looked_up(waits: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The contents of the rank segments of each wait: one row per wait, segment and cause."""
    asked = waits[[*_WHICH, "last_rank"]].rename_axis("wait").reset_index()
    asked = asked.melt(["wait", "last_rank"], var_name="which", value_name="rank_segment")
    found = asked.merge(table, on="rank_segment")
    # A wait that ends after another one has not led to it.
    waited_ns = found["waited_ns"].where(found["to"] < found["wait"], 0)
    did_ns = found["dur_ns"] - waited_ns
    # A rank that waited for the late rank was not delayed by anything of its own.
    for_late = (found["which"] != "late") & (found["for_rank"] == found["last_rank"])
    return found.assign(waited_ns=waited_ns.mask(for_late, 0), did_ns=did_ns)


def _excess(found: pd.DataFrame, by: list[str], column: str) -> pd.DataFrame:
    """What took the late rank longer than both stretches of the other one."""
    sums = found.pivot_table(column, by, "which", "sum", fill_value=0, observed=True)
    sums = sums.reindex(columns=_WHICH, fill_value=0)
    weight = sums["late"] - sums[["came", "ready"]].max(axis=1)
    return weight[weight > 0].rename("weight").reset_index()


def _parts(compared: WaitComparisons, times: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """What each wait is due to, by weight: causes, earlier waits, or why none is charged."""
    waits, table = compared.waits, _times(compared, times)
    unread = ~waits[["rank", "last_rank"]].isin(times.keys()).all(axis=1)
    why = waits["why_not"].mask((waits["why_not"] == "") & unread, _UNREAD)
    found = _looked_up(waits[why == ""], table)
    did = _excess(found, ["wait", *CAUSE_KEY], "did_ns")
    did = did.assign(rank=waits["last_rank"].to_numpy()[did["wait"]], to=-1)
    waited = found[(found["which"] == "late") & (found["waited_ns"] > 0)]
    longer = _excess(found, ["wait"], "waited_ns").set_index("wait")["weight"]
    whole = waited.groupby("wait")["waited_ns"].transform("sum")
    passed = waited[["wait", "to"]].assign(
        weight=waited["waited_ns"] / whole * waited["wait"].map(longer)
    )
    known = pd.concat([did, passed.dropna()])
    rest = waits["wait_ns"].sub(known.groupby("wait")["weight"].sum(), fill_value=0)
    nobody = why.mask(why == "", _NOTHING_LONGER)
    left = pd.DataFrame({"wait": waits.index, "name": nobody, "weight": rest, "to": -1})
    parts = pd.concat([known, left[rest > 0]])
    parts = parts.fillna({"rank": -1, **dict.fromkeys(CAUSE_KEY, "")})
    return parts.sort_values(["wait", "to", *CAUSE_KEY], ignore_index=True)


def charged_waits(compared: WaitComparisons, times: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """Each wait, charged to what made ranks late: a row per wait and cause."""
    waits, parts = compared.waits, _parts(compared, times)
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
    return charged[charged["delay_ns"] > 0]


def delay_costs(
    charged: pd.DataFrame, collectives: pd.DataFrame, part: pd.Series[str] | None = None
) -> pd.DataFrame:
    """Waits of all ranks by cause, and by late rank or its `part`: `job_answers.DELAY_COSTS`.

    Raises
    ------
    GraphError
        If the costs do not add up to the waits: a defect of this package.
    """
    parts = "" if part is None else charged["rank"].map(part).fillna("")
    charged = charged.assign(part=parts)
    key = ["rank" if part is None else "part", *CAUSE_KEY]
    by_rank = charged.groupby(["part", "rank", *CAUSE_KEY], as_index=False).agg(
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
    return DELAY_COSTS.frame({name: costs[name] for name in DELAY_COSTS.columns})
