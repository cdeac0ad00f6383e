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

_RECURRING_SHARE = 0.3


def late_ranks(meetings: pd.DataFrame) -> pd.DataFrame:
    """Return one row per meeting in which somebody certainly waited: who came last, and what it cost.

    Parameters
    ----------
    meetings : DataFrame, schema `frames.MEETINGS`

    Returns
    -------
    DataFrame
        Columns ``meeting``, ``rank`` and ``collective`` of the last one, ``longest_wait_ns``, ``wait_ns`` of all others.
    """
    waits = meetings[meetings["is_certain"] & (meetings["overrun_ns"] == 0)]
    by_meeting = waits.groupby(["meeting", "last_rank"], as_index=False).agg(
        longest_wait_ns=("wait_ns", "max"), wait_ns=("wait_ns", "sum")
    )
    last = meetings[["meeting", "rank", "collective"]].rename(columns={"rank": "last_rank"})
    return by_meeting.merge(last, on=["meeting", "last_rank"]).rename(columns={"last_rank": "rank"})


def delay_windows(
    late: pd.DataFrame, tables: Mapping[int, pd.DataFrame], starts_ns: Mapping[int, int]
) -> dict[int, list[Leg]]:
    """Return, by late rank, the parts of its own path that lead to the collectives it came late to; in order of `late`."""
    windows: dict[int, list[Leg]] = {}
    for rank, rows in late.groupby("rank", sort=True):
        table = tables[int(rank)]
        legs = []
        for row in rows.itertuples(index=False):
            own = table.iloc[row.collective]
            start_ns = int(own["start_ns"])
            # No further back than the longest wait and half as much again: what came before delayed nobody here.
            since_ns = max(start_ns - row.longest_wait_ns - row.longest_wait_ns // 2, starts_ns[int(rank)])
            if own["after"] >= 0:
                since_ns = max(since_ns, int(table.iloc[int(own["after"])]["end_ns"]))
            legs.append(Leg(int(rank), 0, 0, min(since_ns, start_ns), start_ns, 2 * int(own["event"])))
        windows[int(rank)] = legs
    return windows


def _causes(late: pd.DataFrame, segments: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """Return for each late arrival the longest part of the path that led to it."""
    out = []
    for rank, rows in late.groupby("rank", sort=True):
        part = segments.get(int(rank))
        if part is None or not len(part):
            continue
        key = part.assign(bound=part["bound"].astype(object))
        time = key.groupby(["leg", "bound", "name", "op"], as_index=False)["dur_ns"].sum()
        longest = time.loc[time.groupby("leg")["dur_ns"].idxmax()].set_index("leg")
        chosen = rows.reset_index(drop=True).join(longest, how="left")
        out.append(chosen.assign(rank=int(rank)))
    columns = [*late.columns, "bound", "name", "op", "dur_ns"]
    return pd.concat(out, ignore_index=True) if out else pd.DataFrame(columns=columns)


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
    causes = _causes(late, segments)
    n_meetings = meetings["meeting"].nunique()
    rows = []
    for rank in ranks:
        own = causes[causes["rank"] == rank]
        mine = meetings[meetings["rank"] == rank]
        cost = own.groupby(["bound", "name", "op"], as_index=False, dropna=False).agg(
            cost_ns=("wait_ns", "sum"), n=("meeting", "size"), dur_ns=("dur_ns", "sum")
        )
        top = cost.sort_values(["cost_ns", "n"], ascending=False).iloc[0] if len(cost) else None
        rows.append(
            {
                "rank": rank,
                "n_last": int((late["rank"] == rank).sum()),
                "n_meetings": int(n_meetings),
                "caused_wait_ns": int(late.loc[late["rank"] == rank, "wait_ns"].sum()),
                "longest_wait_ns": int(late.loc[late["rank"] == rank, "longest_wait_ns"].max() if len(own) else 0),
                "own_wait_ns": int(mine["wait_ns"].sum()),
                "transfer_ns": int(mine["transfer_ns"].sum()),
                "cause_bound": "" if top is None else str(top["bound"]),
                "cause_name": "" if top is None else str(top["name"]),
                "cause_op": "" if top is None else str(top["op"]),
                "cause_ns": 0 if top is None else int(top["dur_ns"]),
                "n_cause": 0 if top is None else int(top["n"]),
                "is_recurring": top is not None and bool(top["n"] > 1),
            }
        )
    frame = STRAGGLERS.frame({name: [row[name] for row in rows] for name in STRAGGLERS.columns})
    order = np.lexsort((frame["rank"], -frame["caused_wait_ns"]))
    return frame.iloc[order].reset_index(drop=True)


def pipeline_bubbles(meetings: pd.DataFrame) -> pd.DataFrame:
    """Return how long each rank waited in receives for the sender; schema `frames.BUBBLES`."""
    waits = meetings[meetings["operation"].isin(("recv", "send_recv"))]
    totals = waits.groupby(["rank", "group"], as_index=False).agg(
        n_receives=("meeting", "size"), wait_ns=("wait_ns", "sum"), transfer_ns=("transfer_ns", "sum")
    )
    return BUBBLES.frame({name: totals[name] for name in BUBBLES.columns})
