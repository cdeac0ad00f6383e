"""Stragglers: who keeps the others waiting, why, and whose kernels run slower."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from htagraph.arrays.intervals import Cover
from htagraph.job.lateness import CAUSE_KEY, waits_counted_once
from htagraph.model.job_answers import PIPELINE_BUBBLES, STRAGGLERS
from htagraph.model.labels import distinct_names

_MIN_EXCESS = 0.05
"""Share of a rank's kernel time above the median rank's from which its device counts as slow.
Chosen above what equal devices differ by. Pinned by test_lateness."""


def _causes(late: pd.DataFrame, excess: pd.DataFrame) -> pd.DataFrame:
    """What took each late rank longer by most, for each of its late arrivals."""
    most = (
        excess.sort_values("late_ns", ascending=False, kind="stable")
        .drop_duplicates("arrival")
        .set_index("arrival")
    )
    joined = late.join(most, how="inner")
    return joined.assign(late_ns=np.minimum(joined["late_ns"], joined["wait_ns"]))


def _dearest_causes(late: pd.DataFrame, excess: pd.DataFrame) -> pd.DataFrame:
    """The cause that cost the others most, by late rank."""
    cost = (
        _causes(late, excess)
        .groupby(["rank", *CAUSE_KEY], as_index=False)
        .agg(cost_ns=("wait_ns", "sum"), n_cause=("match", "size"), cause_ns=("late_ns", "sum"))
    )
    dearest = cost.sort_values(
        ["cost_ns", "n_cause"], ascending=False, kind="stable"
    ).drop_duplicates("rank")
    return (
        dearest.rename(columns={name: f"cause_{name}" for name in CAUSE_KEY})
        .set_index("rank")
        .drop(columns="cost_ns")
    )


def summarize_stragglers(
    collectives: pd.DataFrame, late: pd.DataFrame, excess: pd.DataFrame, ranks: list[int]
) -> pd.DataFrame:
    """How often each rank arrived last, what that cost the others, and the costliest cause."""
    cost = late.groupby("rank").agg(
        n_certain=("is_certain", "sum"),
        caused_wait_ns=("wait_ns", "sum"),
        longest_wait_ns=("longest_wait_ns", "max"),
    )
    once = collectives.assign(once_ns=waits_counted_once(collectives))
    own = once.groupby("rank").agg(
        own_wait_ns=("once_ns", "sum"), transfer_ns=("transfer_ns", "sum")
    )
    every = pd.DataFrame({"rank": ranks}).set_index("rank")
    waited = collectives[
        (collectives["wait_ns"] > 0) & ~collectives["is_partial"] & (collectives["overrun_ns"] == 0)
    ]
    n_last = waited[["match", "last_rank"]].drop_duplicates().groupby("last_rank").size()
    joined = every.join([cost, own, n_last.rename("n_last"), _dearest_causes(late, excess)])
    joined["part"] = ""
    joined["n_collectives"] = collectives["match"].nunique()
    joined["is_recurring"] = joined["n_cause"] > 1
    texts = [f"cause_{name}" for name in CAUSE_KEY]
    joined[texts] = joined[texts].fillna("")
    joined = joined.fillna(0).reset_index()
    order = np.lexsort((joined["rank"], -joined["caused_wait_ns"].to_numpy(np.int64)))
    frame = STRAGGLERS.frame({name: joined[name].to_numpy() for name in STRAGGLERS.columns})
    return frame.iloc[order].reset_index(drop=True)


def by_part(stragglers: pd.DataFrame, part: pd.Series[str]) -> pd.DataFrame:
    """Stragglers by the part of the layout that ranks are of; `job_answers.STRAGGLERS`.

    Counts and times are sums of its ranks; rank and cause are those of the costliest one.
    """
    sums = ["n_last", "n_certain", "caused_wait_ns", "own_wait_ns", "transfer_ns"]
    known = stragglers.assign(part=part.to_numpy())
    known = known[known["part"] != ""].sort_values("caused_wait_ns", ascending=False, kind="stable")
    grouped = known.groupby("part", sort=False)
    found = known.drop_duplicates("part").set_index("part")
    found[sums] = grouped[sums].sum()
    found["longest_wait_ns"] = grouped["longest_wait_ns"].max()
    found = found.reset_index().sort_values("caused_wait_ns", ascending=False, kind="stable")
    return STRAGGLERS.frame({name: found[name].to_numpy() for name in STRAGGLERS.columns})


def pipeline_bubbles(collectives: pd.DataFrame, blocked: Mapping[int, Cover]) -> pd.DataFrame:
    """How long each rank waited in receives for the sender: `job_answers.PIPELINE_BUBBLES`.

    Of ranks of which it is known when they were `blocked`, only that: a receive may be posted long
    before its result is needed.
    """
    receives = collectives[collectives["operation"] == "recv"]
    start, wait = (receives[name].to_numpy(np.int64).copy() for name in ("start_ns", "wait_ns"))
    for rank, cover in blocked.items():
        own = np.flatnonzero(receives["rank"] == rank)
        until = start[own] + wait[own]
        own = own[np.argsort(until, kind="stable")]
        # What several receives wait for at once counts once.
        until = start[own] + wait[own]
        since = np.maximum(start[own], np.append(start[own][:1], until[:-1]))
        wait[own] = cover.within(np.minimum(since, until), until)
    receives = receives.assign(wait_ns=wait)
    totals = receives.groupby(["rank", "group"], as_index=False).agg(
        n_receives=("match", "size"), wait_ns=("wait_ns", "sum"), transfer_ns=("transfer_ns", "sum")
    )
    return PIPELINE_BUBBLES.frame({name: totals[name] for name in PIPELINE_BUBBLES.columns})


def against_median_rank(frame: pd.DataFrame) -> pd.DataFrame:
    """Kernels and copies of each rank, with the ratio of their mean duration to the median rank's.

    Without kernels that only one rank runs, and without communication, which takes as long as a
    rank waits. This needs no common clock.
    """
    own = frame[frame["class"] != "communication"]
    means = own.groupby("group")["mean_ns"]
    compared: pd.DataFrame = own.assign(ratio=own["mean_ns"] / means.transform("median"))
    return compared[means.transform("size") > 1]


def slow_device(frame: pd.DataFrame, rank: int) -> str:
    """Sentence on a rank whose kernels are slower than the median rank's; empty if they are not."""
    compared = against_median_rank(frame)
    mine = compared[compared["rank"] == rank]
    if mine.empty:
        return ""
    excess_ns = mine["sum_ns"] * (1 - 1 / mine["ratio"])
    if excess_ns.sum() < _MIN_EXCESS * mine["sum_ns"].sum():
        return ""
    most = mine.iloc[int(excess_ns.to_numpy().argmax())]
    name = distinct_names([str(most["group"])])[str(most["group"])]
    return f"rank {rank} runs {name} {most['ratio']:.2f} times as long as the median rank"
