"""Who keeps the others waiting: how often each rank is last, what it costs them, and what it did meanwhile.

The cause is looked for on the late rank alone, between the end of the collective that its lateness goes back to and the
start of the one to which it came late: the part of its own path that is longest there.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from htagraph.model.frames import BUBBLES, STRAGGLERS
from htagraph.queries.legs import Leg

__all__ = ["delay_windows", "late_ranks", "pipeline_bubbles", "summarize_stragglers"]

_CAUSE = ["bound", "name", "op"]


def late_ranks(meetings: pd.DataFrame) -> pd.DataFrame:
    """Return one row per meeting in which somebody certainly waited: who came last, and what it cost.

    Parameters
    ----------
    meetings : DataFrame, schema `frames.MEETINGS`

    Returns
    -------
    DataFrame
        Columns ``meeting``, ``rank`` and ``collective`` of the last one, ``longest_wait_ns``, ``wait_ns`` of all others,
        and whether it ``is_certain`` who was last; if not, others came as late, as far as the clocks are known.
    """
    is_sound = (meetings["overrun_ns"] == 0) & ~meetings["is_partial"]
    waits = meetings[(meetings["wait_ns"] > meetings["error_ns"]) & is_sound]
    by_meeting = waits.groupby(["meeting", "last_rank"], as_index=False).agg(
        longest_wait_ns=("wait_ns", "max"), wait_ns=("wait_ns", "sum"), is_certain=("is_certain", "any")
    )
    last = meetings[["meeting", "rank", "collective"]].rename(columns={"rank": "last_rank"})
    return by_meeting.merge(last, on=["meeting", "last_rank"]).rename(columns={"last_rank": "rank"})


def delay_windows(
    late: pd.DataFrame, tables: Mapping[int, pd.DataFrame], starts_ns: Mapping[int, int]
) -> dict[int, list[Leg]]:
    """Return, by late rank, the parts of its own path that lead to the collectives it came late to; in order of `late`."""
    windows: dict[int, list[Leg]] = {}
    for rank, rows in late.groupby("rank", sort=True):
        number, table = int(str(rank)), tables[int(str(rank))]
        own = rows["collective"].to_numpy(np.int64)
        start_ns, event, after = (table[name].to_numpy(np.int64)[own] for name in ("start_ns", "event", "after"))
        # No further back than the longest wait and half as much again: what came before delayed nobody here.
        longest_ns = rows["longest_wait_ns"].to_numpy(np.int64)
        since_ns = np.maximum(start_ns - longest_ns - longest_ns // 2, starts_ns[number])
        met_ns = np.where(after >= 0, table["end_ns"].to_numpy(np.int64)[after], since_ns)
        since_ns = np.minimum(np.maximum(since_ns, met_ns), start_ns)
        windows[number] = [
            Leg(number, 0, 0, since, start, 2 * kernel)
            for since, start, kernel in zip(since_ns.tolist(), start_ns.tolist(), event.tolist(), strict=True)
        ]
    return windows


def _causes(late: pd.DataFrame, segments: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """Return for each late arrival the longest part of the path that led to it."""
    out = []
    for rank, rows in late.groupby("rank", sort=True):
        part = segments.get(int(str(rank)))
        if part is None or not len(part):
            continue
        key = part.assign(bound=part["bound"].astype(object))
        time = key.groupby(["leg", *_CAUSE], as_index=False)["dur_ns"].sum()
        longest = time.loc[time.groupby("leg")["dur_ns"].idxmax()].set_index("leg")
        out.append(rows.reset_index(drop=True).join(longest, how="inner"))
    return pd.concat(out, ignore_index=True) if out else pd.DataFrame(columns=[*late.columns, *_CAUSE, "dur_ns"])


def _dearest_causes(late: pd.DataFrame, segments: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """Return for each late rank the cause that cost the others most, indexed by rank."""
    cost = (
        _causes(late, segments)
        .groupby(["rank", *_CAUSE], as_index=False)
        .agg(cost_ns=("wait_ns", "sum"), n_cause=("meeting", "size"), cause_ns=("dur_ns", "sum"))
    )
    dearest = cost.sort_values(["cost_ns", "n_cause"], ascending=False, kind="stable").drop_duplicates("rank")
    return dearest.rename(columns={name: f"cause_{name}" for name in _CAUSE}).set_index("rank").drop(columns="cost_ns")


def _times_last(meetings: pd.DataFrame) -> pd.Series[int]:
    """Return how often each rank came last, by the clocks as they are estimated."""
    waited = meetings[(meetings["wait_ns"] > 0) & ~meetings["is_partial"] & (meetings["overrun_ns"] == 0)]
    return waited[["meeting", "last_rank"]].drop_duplicates().groupby("last_rank").size()


def summarize_stragglers(
    meetings: pd.DataFrame, late: pd.DataFrame, segments: Mapping[int, pd.DataFrame], ranks: list[int]
) -> pd.DataFrame:
    """Return one row per rank: how often it came last, what that cost, and the commonest costly cause.

    Parameters
    ----------
    meetings : DataFrame, schema `frames.MEETINGS`
    late : DataFrame
        As `late_ranks` returns it.
    segments : mapping of int to DataFrame
        Of the parts that `delay_windows` returned, with the number of the part in ``leg``.
    ranks : list of int

    Returns
    -------
    DataFrame, schema `frames.STRAGGLERS`
    """
    cost = late.groupby("rank").agg(
        n_certain=("is_certain", "sum"), caused_wait_ns=("wait_ns", "sum"), longest_wait_ns=("longest_wait_ns", "max")
    )
    own = meetings.groupby("rank").agg(own_wait_ns=("wait_ns", "sum"), transfer_ns=("transfer_ns", "sum"))
    every = pd.DataFrame({"rank": ranks}).set_index("rank")
    joined = every.join([cost, own, _times_last(meetings).rename("n_last"), _dearest_causes(late, segments)])
    joined["n_meetings"] = meetings["meeting"].nunique()
    joined["is_recurring"] = joined["n_cause"] > 1
    texts = [f"cause_{name}" for name in _CAUSE]
    joined[texts] = joined[texts].fillna("")
    joined = joined.fillna(0).reset_index()
    order = np.lexsort((joined["rank"], -joined["caused_wait_ns"].to_numpy(np.int64)))
    frame = STRAGGLERS.frame({name: joined[name].to_numpy() for name in STRAGGLERS.columns})
    return frame.iloc[order].reset_index(drop=True)


def pipeline_bubbles(meetings: pd.DataFrame) -> pd.DataFrame:
    """Return how long each rank waited in receives for the sender; schema `frames.BUBBLES`."""
    receives = meetings[meetings["operation"] == "recv"]
    totals = receives.groupby(["rank", "group"], as_index=False).agg(
        n_receives=("meeting", "size"), wait_ns=("wait_ns", "sum"), transfer_ns=("transfer_ns", "sum")
    )
    return BUBBLES.frame({name: totals[name] for name in BUBBLES.columns})
