"""Experts: which rank receives how many tokens, how long it works on them, what balance would save.

An expert layer is two all-to-alls: the dispatch sends each token to the rank of its expert, and the
combine returns what came of it. So the combine mirrors the dispatch on every rank: each receives as
many rows as it had sent. Other all-to-alls do not, or have even splits: embeddings receive the same
number of rows on every rank, attention over parts of a sequence splits evenly.

Work takes longer on a rank with more tokens. The slope of that, over all layers, tells how much of
its time is due to tokens beyond the mean: moving tokens conserves work, so the mean is what balance
can reach. A rank that is slow for another reason has no such slope.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from htagraph.model.arrays import F64
from htagraph.model.job_answers import EXPERTS
from htagraph.replay.changes import TokenSurplus

_EXPLAINED = 0.5
"""Part of the spread of work times that tokens must explain: less may be chance. Chosen:
test_experts."""


@dataclass(frozen=True)
class ExpertWork:
    """The work between dispatch and combine, of each rank in each expert layer."""

    # By layer, then by rank. Columns ``layer`` (the number of the pair within its step), ``step``
    # (number of its name), ``pair``, ``rank``, ``group``, ``dispatch`` and ``combine`` (their
    # matches), ``start_ns`` and ``end_ns`` of the work on the rank's clock, ``n_received``,
    # ``counts_rows``, ``load`` (over the mean of the ranks), ``dispatch_bytes`` and
    # ``combine_bytes`` (sent), ``surplus_ns`` (what tokens beyond the mean take; negative below).
    rows: pd.DataFrame
    # How much longer one more takes; 0 if tokens do not explain how long ranks work
    ns_per_token: float = 0.0

    @property
    def work_ns(self) -> F64:
        """Time between dispatch and combine."""
        start_ns, end_ns = (self.rows[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
        found: F64 = np.maximum(end_ns - start_ns, 0).astype(np.float64)
        return found

    def without_overfull(self, late: pd.DataFrame) -> pd.DataFrame:
        """Late arrivals, of which those that are late because of their tokens are not blamed."""
        pair = self.rows["pair"].to_numpy()
        more_ns = self.work_ns - pd.Series(self.work_ns).groupby(pair).transform("mean")
        surplus_ns = self.rows["surplus_ns"].to_numpy()
        overfull = self.rows[(surplus_ns > 0) & (surplus_ns >= _EXPLAINED * more_ns.to_numpy())]
        known = pd.MultiIndex.from_frame(overfull[["combine", "rank"]])
        is_overfull = pd.MultiIndex.from_frame(late[["match", "rank"]]).isin(known)
        return late.assign(is_blamed=late["is_blamed"] & ~is_overfull)

    def in_words(self, rank: int) -> str:
        """How many tokens a rank gets, or the fullest one if that is not always the same."""
        rows = self.rows
        most = rows.groupby("pair")["load"].transform("max")
        mine = rows[(rows["rank"] == rank) & (rows["load"] == most)]
        pairs = rows[rows["pair"].isin(rows.loc[rows["rank"] == rank, "pair"])]["pair"].nunique()
        if len(mine) > pairs / 2:
            own = rows[rows["rank"] == rank]
            load = own["n_received"].sum() / (own["n_received"] / own["load"]).sum()
            return f"Rank {rank} gets {load:.1f} times the mean of tokens"
        return f"One rank or another gets {most.mean():.1f} times the mean of tokens"

    def frame(
        self, collectives: pd.DataFrame, steps: Mapping[int, str], capacity: float
    ) -> pd.DataFrame:
        """The answer `job_answers.EXPERTS`; `capacity`: tokens of a rank at most, over the mean."""
        rows, pair = self.rows, self.rows["pair"]
        n = rows["n_received"].to_numpy(np.float64)
        of_pair = rows.assign(n=n).groupby(pair.to_numpy())["n"]
        least, most, mean = (of_pair.transform(name).to_numpy() for name in ("min", "max", "mean"))
        is_fullest = (n == most) & (most > mean)
        first, last = (
            is_one & ~rows.assign(is_one=is_one)[["pair", "is_one"]].duplicated().to_numpy()
            for is_one in (n == most, n == least)
        )
        halfway = np.where(first, (most - least) / 2, np.where(last, (least - most) / 2, 0.0))
        transfer = collectives.set_index(["match", "rank"])["transfer_ns"]
        took = {
            name: transfer.reindex(pd.MultiIndex.from_frame(rows[[name, "rank"]])).to_numpy()
            for name in ("dispatch", "combine")
        }
        of_layer = [rows[name] for name in ("group", "layer", "rank")]
        then_ns = {
            "balanced": rows["surplus_ns"].to_numpy(),
            "capped": np.maximum(n - capacity * mean, 0.0) * self.ns_per_token,
            "duplicated": halfway * self.ns_per_token,
        }
        return EXPERTS.frame(
            {
                "step": rows["step"].map(lambda at: steps.get(at, "")).to_numpy(object),
                "layer": rows["layer"].to_numpy(),
                "rank": rows["rank"].to_numpy(),
                "group": rows["group"].to_numpy(object),
                "n_tokens": np.where(rows["counts_rows"].astype(bool), n, -1),
                "load": rows["load"].to_numpy(),
                "imbalance": rows.groupby("pair")["load"].transform("max").to_numpy(),
                "n_steps_fullest": pd.Series(is_fullest).groupby(of_layer).transform("sum"),
                "work_ns": self.work_ns,
                "dispatch_bytes": rows["dispatch_bytes"].to_numpy(),
                "dispatch_ns": took["dispatch"],
                "combine_bytes": rows["combine_bytes"].to_numpy(),
                "combine_ns": took["combine"],
                **{f"{name}_saves_ns": self.saved_ns(one) for name, one in then_ns.items()},
            }
        )

    def saved_ns(self, surplus_ns: F64) -> F64:
        """How much earlier the last rank of each layer is done, on its row; 0 on other rows."""
        pair, work_ns = self.rows["pair"], self.work_ns
        last = pd.Series(work_ns).groupby(pair.to_numpy()).transform("max").to_numpy()
        then = pd.Series(work_ns - surplus_ns).groupby(pair.to_numpy()).transform("max").to_numpy()
        is_last = (work_ns == last) & ~pd.DataFrame({"pair": pair, "w": work_ns}).duplicated()
        return np.where(is_last, np.floor(np.maximum(last - then, 0)), 0.0)


def find_expert_work(
    members: pd.DataFrame, exchanges: Mapping[int, pd.DataFrame], *, embeds: bool
) -> ExpertWork:
    """Pair the all-to-alls of a job that dispatch tokens to experts with those that combine them.

    `members`: `Matching.members`. `exchanges`: by rank, `exchanges_of`. `embeds`: the job looks up
    embeddings: its all-to-alls are those of embeddings.
    """
    known = pd.concat([one.assign(rank=np.int64(rank)) for rank, one in exchanges.items()])
    if embeds or known.empty:
        return _none()
    ours = members[~members["is_partial"]].merge(known, on=["rank", "event"])
    pairs = _pairs(ours)
    if pairs.empty:
        return _none()
    rows = (
        pairs.merge(ours, left_on="dispatch", right_on="match")
        .merge(
            ours[["match", "rank", "arrived_ns", "n_sent", "row_bytes"]],
            left_on=["combine", "rank"],
            right_on=["match", "rank"],
            suffixes=("", "_back"),
        )
        .sort_values(["pair", "rank"], ignore_index=True)
    )
    mean = rows.groupby("pair")["n_received"].transform("mean")
    rows = rows.assign(
        start_ns=rows["end_ns"],
        end_ns=np.maximum(rows["arrived_ns_back"], rows["end_ns"]),
        load=rows["n_received"] / np.maximum(mean, 1),
        dispatch_bytes=rows["n_sent"] * rows["row_bytes"],
        combine_bytes=rows["n_sent_back"] * rows["row_bytes_back"],
    )
    found = ExpertWork(rows.assign(surplus_ns=0.0)[list(_COLUMNS)])
    more = (rows["n_received"] - mean).to_numpy(np.float64)
    work = pd.Series(found.work_ns)
    longer = (work - work.groupby(rows["pair"]).transform("mean")).to_numpy()
    both, spread, tokens = (longer * more).sum(), (longer**2).sum(), (more**2).sum()
    if both <= 0 or both**2 < _EXPLAINED * spread * tokens:
        return found
    return ExpertWork(found.rows.assign(surplus_ns=more * both / tokens), both / tokens)


_COLUMNS: dict[str, type[np.generic | object]] = {
    "pair": np.int64,
    "layer": np.int64,
    "step": np.int64,
    "rank": np.int64,
    "group": object,
    "dispatch": np.int64,
    "combine": np.int64,
    "start_ns": np.int64,
    "end_ns": np.int64,
    "n_received": np.int64,
    "counts_rows": np.bool_,
    "load": np.float64,
    "dispatch_bytes": np.int64,
    "combine_bytes": np.int64,
    "surplus_ns": np.float64,
}


def _none() -> ExpertWork:
    """No work of experts; made when asked for, as pandas takes longer to load than to answer."""
    return ExpertWork(pd.DataFrame({name: np.empty(0, kind) for name, kind in _COLUMNS.items()}))


def _pairs(ours: pd.DataFrame) -> pd.DataFrame:
    """Dispatches and their combines: the next all-to-all of the group that returns all rows.

    In one step, and of a group with splits that were given, or are uneven.
    """
    uneven = ours.groupby("match")["n_received"].transform("nunique") > 1
    given = (ours["is_split"] | uneven).groupby(ours["communicator"]).transform("any")
    ours = ours[given].sort_values(["match", "rank"], kind="stable")
    open_ones: dict[tuple[object, ...], int] = {}
    found: list[tuple[int, int, int, int, int]] = []
    layers: dict[int, int] = {}
    first_ns = ours.groupby("match")["start_ns"].min().sort_values(kind="stable")
    by_match = dict(iter(ours.groupby("match")))
    for match in first_ns.index.tolist():
        part = by_match[match]
        sent, received = part["n_sent"].to_numpy(), part["n_received"].to_numpy()
        step = int(part["step"].iloc[0])
        of = (step, *part[["communicator", "row_bytes"]].iloc[0].tolist())
        mirrored = open_ones.pop((*of, received.tobytes(), sent.tobytes()), None)
        if mirrored is None:
            open_ones[(*of, sent.tobytes(), received.tobytes())] = match
            continue
        layer = layers.get(step, 0)
        layers[step] = layer + 1
        found.append((len(found), layer, step, mirrored, match))
    return pd.DataFrame(
        np.array(found, dtype=np.int64).reshape(-1, 5),
        columns=["pair", "layer", "step_of_pair", "dispatch", "combine"],
    )


def token_surplus(work: ExpertWork) -> TokenSurplus:
    """The time that ranks with more tokens than the mean spend on those beyond it."""
    table = work.rows.assign(work_ns=work.work_ns)
    table = table[(table["surplus_ns"] > 0) & (table["work_ns"] > 0)]
    times_ns, sums_ns = {}, {}
    for rank in table["rank"].unique().tolist():
        part = table[table["rank"] == rank].sort_values("start_ns", kind="stable")
        end_ns = np.maximum.accumulate(part["end_ns"].to_numpy(np.int64))
        before = np.append(np.iinfo(np.int64).min, end_ns[:-1])
        start_ns = np.maximum(part["start_ns"].to_numpy(np.int64), before)
        share = np.minimum(part["surplus_ns"] / part["work_ns"], 1.0).to_numpy()
        until = np.cumsum(share * np.maximum(end_ns - start_ns, 0))
        times_ns[rank] = np.stack([start_ns, end_ns], axis=1).reshape(-1)
        sums_ns[rank] = np.stack([np.append(0.0, until[:-1]), until], axis=1).reshape(-1)
    return TokenSurplus(times_ns, sums_ns)
