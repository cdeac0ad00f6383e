"""Who keeps the others waiting: how often, at what cost to them, and what made it late."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.job.lateness import CAUSE_KEY, waits_counted_once
from htagraph.model.job_answers import PIPELINE_BUBBLES, STRAGGLERS

__all__ = ["pipeline_bubbles", "summarize_stragglers"]


def _causes(late: pd.DataFrame, excess: pd.DataFrame) -> pd.DataFrame:
    """What each late rank did for longer by most, for each of its late arrivals."""
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


def _times_last(collectives: pd.DataFrame) -> pd.Series[int]:
    """How often each rank came last, by the clocks as they are estimated."""
    waited = collectives[
        (collectives["wait_ns"] > 0) & ~collectives["is_partial"] & (collectives["overrun_ns"] == 0)
    ]
    return waited[["match", "last_rank"]].drop_duplicates().groupby("last_rank").size()


def summarize_stragglers(
    collectives: pd.DataFrame, late: pd.DataFrame, excess: pd.DataFrame, ranks: list[int]
) -> pd.DataFrame:
    """How often each rank came last, what that cost the others, and the costliest cause.

    Parameters
    ----------
    late, excess : DataFrame
        As `lateness.late_arrivals` and `lateness.excess_times` return them.
    """
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
    joined = every.join(
        [cost, own, _times_last(collectives).rename("n_last"), _dearest_causes(late, excess)]
    )
    joined["n_collectives"] = collectives["match"].nunique()
    joined["is_recurring"] = joined["n_cause"] > 1
    texts = [f"cause_{name}" for name in CAUSE_KEY]
    joined[texts] = joined[texts].fillna("")
    joined = joined.fillna(0).reset_index()
    order = np.lexsort((joined["rank"], -joined["caused_wait_ns"].to_numpy(np.int64)))
    frame = STRAGGLERS.frame({name: joined[name].to_numpy() for name in STRAGGLERS.columns})
    return frame.iloc[order].reset_index(drop=True)


def pipeline_bubbles(collectives: pd.DataFrame) -> pd.DataFrame:
    """How long each rank waited in receives for the sender: `job_answers.PIPELINE_BUBBLES`."""
    receives = collectives[collectives["operation"] == "recv"]
    totals = receives.groupby(["rank", "group"], as_index=False).agg(
        n_receives=("match", "size"), wait_ns=("wait_ns", "sum"), transfer_ns=("transfer_ns", "sum")
    )
    return PIPELINE_BUBBLES.frame({name: totals[name] for name in PIPELINE_BUBBLES.columns})
