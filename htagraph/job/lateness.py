"""Late arrivals at collectives: who kept the others waiting, and what took it longer.

What a rank did last says little about why it is late: the last stretch before a collective is the
same on all ranks, and the difference may lie seconds before it. So the late rank is compared with
the runner-up since both last left a collective together. Both had the same time until the runner-up
arrived; what took the late rank longer made it late. This is the delay analysis of Scalasca
(Böhme et al. 2010), which charges a wait to the excess of the late process since the last
synchronization, with causes by bound, name and operator instead of call paths.

::

    runner-up   ...together]--load-------compute---[collective: waits     ]
    late           ...together]--load-----------------------compute----[collective]
                                    excess: load

Machines: hosts whose ranks are late together, in whatever group they meet others. Stragglers: who
is late how often, what that costs the others, and whose kernels run slower.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple, Self

import numpy as np
import pandas as pd

from htagraph.arrays.intervals import Cover
from htagraph.explain.breakdown import PathSums
from htagraph.explain.segment_pieces import with_part_of
from htagraph.lookup.steps import without_numbers
from htagraph.model.arrays import I64, Texts
from htagraph.model.collective_names import POINT_TO_POINT
from htagraph.model.job_answers import PIPELINE_BUBBLES, STRAGGLERS
from htagraph.model.kinds import Cause
from htagraph.model.labels import distinct_names

_EVER = np.iinfo(np.int64).min

CAUSE_KEY = ["bound", "name", "op"]
"""Columns by which times are compared."""

CauseName = tuple[str, str, str]
"""Values of `CAUSE_KEY`."""


RankTimes = tuple[PathSums, list[CauseName]]
"""What a rank did in some rank segments, whose numbers are its windows; and the causes."""


class Times(NamedTuple):
    """What ranks did in rank segments."""

    # Columns ``rank``, ``rank_segment``, ``cause`` (a row of `causes`), ``event`` (only of
    # communication, else -1), ``start_ns`` (when it began there), ``dur_ns``
    table: pd.DataFrame
    # Values of `CAUSE_KEY`, ascending: numbers are compared as their texts are
    causes: list[CauseName]

    @classmethod
    def of(cls, by_rank: Mapping[int, RankTimes], more: Iterable[CauseName] = ()) -> Self:
        """Of all ranks, and of causes that none of them has."""
        causes = sorted({*more, *(cause for _, own in by_rank.values() for cause in own)})
        number = {cause: place for place, cause in enumerate(causes)}
        parts = [
            {
                "rank": np.full(len(sums.window), rank, dtype=np.int64),
                "rank_segment": sums.window,
                "cause": np.array([number[one] for one in own], dtype=np.int32)[sums.cause],
                "event": sums.event,
                "start_ns": sums.start_ns,
                "dur_ns": sums.dur_ns,
            }
            for rank, (sums, own) in {-1: (PathSums.empty(0), []), **by_rank}.items()
        ]
        table = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return cls(pd.DataFrame(table, copy=False), causes)

    def named(self, cause: pd.Series[int]) -> dict[str, Texts]:
        """Causes by their number, as columns."""
        texts = np.array(self.causes, dtype=object).reshape(-1, len(CAUSE_KEY))
        return dict(zip(CAUSE_KEY, texts[cause.to_numpy(np.int64)].T, strict=True))


def waits_counted_once(collectives: pd.DataFrame) -> I64:
    """Each member's wait, less what its rank was already waiting in an earlier collective.

    Collectives that overlap on a rank, on several streams or worker threads, cost it time once.
    """
    rank, start, wait = (
        collectives[name].to_numpy(np.int64) for name in ("rank", "start_ns", "wait_ns")
    )
    order = np.lexsort((start, rank))
    until = pd.Series((start + wait)[order])
    of = rank[order]
    before = until.groupby(of).cummax().groupby(of).shift(fill_value=_EVER).to_numpy(np.int64)
    once = np.empty(len(rank), dtype=np.int64)
    once[order] = np.maximum(until.to_numpy(np.int64) - np.maximum(start[order], before), 0)
    return once


def late_arrivals(
    collectives: pd.DataFrame,
    stages: Mapping[int, int],
    late_hosts: Mapping[int, str],
) -> pd.DataFrame:
    """The last arrival at each matched collective in which a rank certainly waited.

    Ranks of one stage do the same work, ranks of different stages do not. So of all that waited,
    the last of the late rank's own stage is the runner-up; if there is none, no rank is blamed.
    `stages`: stage of each rank in a pipeline, -1 if unknown. `late_hosts`: ranks of hosts that are
    late, and their host: they are compared with other hosts. By rank, then by time. Columns
    ``match``; ``rank`` and ``collective`` of the last one; ``runner_up``, the rank before it;
    ``shared``, the last matched collective that both had left, -1 for none; ``came_ns`` and
    ``lead_ns``, when the last one arrived and how long the runner-up had waited;
    ``longest_wait_ns``, ``wait_ns`` of all others, counted once; ``is_certain``, whether the clocks
    tell who was last; and ``is_blamed``: not if they do not, nor in a point-to-point transfer,
    where a receiver waits for the sender by design, nor if only other stages waited.
    """
    waiting = collectives[
        (collectives["wait_ns"] > 0) & (collectives["overrun_ns"] == 0) & ~collectives["is_partial"]
    ]
    own, last_one = (
        waiting[name].map(stages).fillna(-1).to_numpy(np.int64) for name in ("rank", "last_rank")
    )
    is_other = (own != last_one) & (own >= 0) & (last_one >= 0)
    is_apart = np.zeros(len(waiting), dtype=bool)
    if late_hosts:
        host, host_of_last = (waiting[name].map(late_hosts) for name in ("rank", "last_rank"))
        is_other |= (host == host_of_last).to_numpy(dtype=bool)
        # Which rank of a late host is the last one does not matter.
        is_apart = (host_of_last.notna() & (waiting["wait_ns"] > waiting["error_ns"])).to_numpy()
    by_wait = waiting.assign(is_other=is_other, is_apart=is_apart & ~is_other)
    by_wait = by_wait.sort_values(["is_other", "wait_ns"], kind="stable")
    lead = by_wait.groupby("match").agg(
        runner_up=("rank", "first"),
        lead_ns=("wait_ns", "first"),
        is_other=("is_other", "first"),
        is_apart=("is_apart", "first"),
    )
    sure = waiting[waiting["wait_ns"] > waiting["error_ns"]]
    sure = sure.assign(once_ns=waits_counted_once(sure))
    late = sure.groupby(["match", "last_rank"], as_index=False).agg(
        longest_wait_ns=("wait_ns", "max"),
        wait_ns=("once_ns", "sum"),
        is_certain=("is_certain", "any"),
    )
    last = collectives[["match", "rank", "collective", "operation", "arrived_ns"]]
    found = (
        late.rename(columns={"last_rank": "rank"})
        .merge(last, on=["match", "rank"])
        .join(lead, on="match")
    )
    found = found.rename(columns={"arrived_ns": "came_ns"}).sort_values(
        ["rank", "came_ns"], ignore_index=True
    )
    is_paired = found["operation"].isin(POINT_TO_POINT)
    found["is_certain"] |= found["is_apart"]
    found["is_blamed"] = found["is_certain"] & ~is_paired & ~found["is_other"]
    found["shared"] = _last_shared(collectives, found)
    return pd.DataFrame(found.drop(columns=["operation", "is_other", "is_apart"]))


def _last_shared(collectives: pd.DataFrame, late: pd.DataFrame) -> I64:
    """The last matched collective that a late rank and the runner-up had both left, or -1."""
    shared = np.empty(len(late), dtype=np.int64)
    own: dict[Hashable, pd.Series[int]] = {
        rank: part.set_index("match")["end_ns"] for rank, part in collectives.groupby("rank")
    }
    for pair, part in late.groupby(["rank", "runner_up"]):
        first, second = (own[rank] for rank in pair)
        first, second = first.align(second, join="inner")
        left = np.maximum(first.to_numpy(np.int64), second.to_numpy(np.int64))
        order = np.argsort(left, kind="stable")
        runner_up_came = (part["came_ns"] - part["lead_ns"]).to_numpy(np.int64)
        before = np.searchsorted(left[order], runner_up_came, side="right") - 1
        found = np.append(first.index.to_numpy(np.int64)[order], -1)  # -1 is the last
        shared[part.index.to_numpy()] = found[before]
    return shared


def excess_times(late: pd.DataFrame, times: Mapping[int, RankTimes]) -> pd.DataFrame:
    """What took each late rank longer than the runner-up; it adds up to its lead at most.

    `times`: by rank, of the rank segments of `compare_late_arrivals`. By ``arrival``, a row of
    `late`, and `CAUSE_KEY`.
    """
    found = Times.of(times)
    # Rank segments come in pairs: of the late rank, which counts, and of the runner-up, which does
    # not.
    segment, dur_ns = (found.table[name].to_numpy(np.int64) for name in ("rank_segment", "dur_ns"))
    signed = found.table[["cause"]].assign(
        arrival=segment // 2, dur_ns=np.where(segment % 2 == 0, dur_ns, -dur_ns)
    )
    more = signed.groupby(["arrival", "cause"], as_index=False)["dur_ns"].sum()
    more = more[more["dur_ns"] > 0].reset_index(drop=True)
    whole = more.groupby("arrival")["dur_ns"].transform("sum")
    lead_ns = late["lead_ns"].to_numpy(np.int64)[more["arrival"]]
    scale = np.minimum(lead_ns / whole, 1.0)
    return pd.DataFrame(
        {
            "arrival": more["arrival"],
            **found.named(more["cause"]),
            "late_ns": np.floor(more["dur_ns"] * scale).astype(np.int64),
        }
    )


def _blamed_windows(late: pd.DataFrame, left_ns: pd.Series[int]) -> pd.DataFrame:
    """The time in which each blamed rank became late: since it and the runner-up left a collective.

    But not before its last late arrival: that time is charged already.
    """
    blamed = late[late["is_blamed"]].copy()
    blamed["arrival"] = blamed.index
    since = left_ns.reindex(blamed["shared"], fill_value=_EVER).to_numpy(np.int64)
    before = blamed.groupby("rank")["came_ns"].shift(fill_value=_EVER).to_numpy(np.int64)
    return blamed.assign(since_ns=np.maximum(since, before))[
        ["rank", "arrival", "since_ns", "came_ns"]
    ]


def blame_late_ranks(
    attributed_time: pd.DataFrame,
    segments: pd.DataFrame,
    late: pd.DataFrame,
    excess: pd.DataFrame,
    collectives: pd.DataFrame,
) -> pd.DataFrame:
    """Charge to lateness what made ranks late, and cut pieces where that begins and ends."""
    if not len(attributed_time):
        return attributed_time
    left_ns = collectives.groupby("match")["end_ns"].max()
    cut, arrival = _cut_at(attributed_time, _blamed_windows(late, left_ns))
    did = segments.iloc[cut["segment"]].set_axis(cut.index)
    keys = pd.DataFrame(
        {
            "arrival": arrival,
            "bound": did["bound"].astype(object),
            "name": without_numbers(did["name"]),
            "op": without_numbers(did["op"]),
        }
    )
    dur = cut["dur_ns"].to_numpy(np.int64)
    allowed = (
        keys.merge(excess, on=["arrival", *CAUSE_KEY], how="left")["late_ns"]
        .fillna(0)
        .to_numpy(np.int64)
    )
    named = _spent(allowed, dur, keys[["arrival", *CAUSE_KEY]])
    lead = np.append(late["lead_ns"].to_numpy(np.int64), 0)[arrival]
    rest = lead - pd.Series(named).groupby(arrival).transform("sum").to_numpy(np.int64)
    # The path may run along other work of the rank than what made it late; its end was late, too.
    other = _spent(rest[::-1], (dur - named)[::-1], pd.DataFrame({"arrival": arrival[::-1]}))[::-1]
    what = {name: did[name] for name in ("name", "op", "event")}
    return with_part_of(cut, named + other, cause=Cause.LATE_RANK, **what)


def _spent(allowed: I64, dur: I64, keys: pd.DataFrame) -> I64:
    """The part of each duration within the allowance of its group, in order."""
    before = (
        pd.Series(dur).groupby([keys[name].to_numpy() for name in keys.columns]).cumsum().to_numpy()
        - dur
    )
    spent: I64 = np.clip(allowed - before, 0, dur)
    return spent


def _cut_at(attributed_time: pd.DataFrame, windows: pd.DataFrame) -> tuple[pd.DataFrame, I64]:
    """Pieces cut at the windows of their rank, and the arrival of each one's window, or -1."""
    begin, rank = (attributed_time[name].to_numpy(np.int64) for name in ("start_ns", "rank"))
    end_ns = int(begin[-1] + attributed_time["dur_ns"].iloc[-1])
    edges = np.clip(windows[["since_ns", "came_ns"]].to_numpy(np.int64), begin[0], end_ns)
    of_rank = windows[["rank"]].to_numpy(np.int64)
    inside = rank[np.searchsorted(begin, edges, side="right") - 1] == of_rank
    cuts = np.unique(np.concatenate([begin, edges[inside]]))
    source = np.searchsorted(begin, cuts, side="right") - 1
    arrival = np.full(len(cuts), -1, dtype=np.int64)
    for one, own in windows.groupby("rank"):
        mine = np.flatnonzero(rank[source] == one)
        before = np.searchsorted(own["since_ns"].to_numpy(np.int64), cuts[mine], side="right") - 1
        came = np.append(own["came_ns"].to_numpy(np.int64), _EVER)  # -1 is the last
        late = own["arrival"].to_numpy(np.int64)[before]
        arrival[mine] = np.where(cuts[mine] < came[before], late, -1)
    cut = attributed_time.iloc[source].reset_index(drop=True)
    return cut.assign(start_ns=cuts, dur_ns=np.diff(np.append(cuts, end_ns))), arrival


_OFTEN = 0.5
"""Part of the waiting in a rank's collectives with other hosts that is for all of its host. Chosen:
test_machines."""

_MOST = 0.75
"""Part of a host's ranks of which that holds, for the host to be late. Chosen: test_machines."""


def late_hosts(
    collectives: pd.DataFrame, hosts: Mapping[int, str], stages: Mapping[int, int]
) -> dict[int, str]:
    """The ranks of hosts that are late, and their host.

    A host is late in a collective if all its members there come after all others, beyond the error
    of the clocks. Collectives of several stages do not count: stages differ by design. Hosts may be
    unknown (empty), and stages (-1).
    """
    if len(set(filter(None, hosts.values()))) < 2 or "" in hosts.values():
        return {}
    met = collectives[~collectives["is_partial"] & ~collectives["operation"].isin(POINT_TO_POINT)]
    met = met.assign(host=met["rank"].map(hosts), stage=met["rank"].map(stages))
    several = met.groupby("match")[["host", "stage"]].transform("nunique")
    met = met[(several["host"] > 1) & (several["stage"] == 1)]
    if met.empty:
        return {}
    in_order = met.sort_values("arrived_ns", kind="stable")
    last = in_order.groupby("match")["host"].last()
    met = met.assign(
        is_of_last=met["host"] == met["match"].map(last),
        since_ns=met["arrived_ns"] - met["arrived_ns"].min(),
        waited_ns=_waited_between(collectives, met),
    )
    (own, own_wait), (others, other_wait) = (
        [met[name].where(chosen).groupby(met["match"]) for name in ("since_ns", "waited_ns")]
        for chosen in (met["is_of_last"], ~met["is_of_last"])
    )
    of_match = met.groupby("match")[["wait_ns", "error_ns"]].transform("max")
    # A host that waited longer than the others for somebody else is late because of that.
    more_ns = (own_wait.transform("max") - other_wait.transform("min")).clip(lower=0)
    is_apart = own.transform("min") - others.transform("max") - more_ns > of_match["error_ns"]
    waited = of_match["wait_ns"].groupby(met["rank"]).sum()
    for_it = of_match["wait_ns"].where(met["is_of_last"] & is_apart, 0).groupby(met["rank"]).sum()
    is_late = ((for_it >= _OFTEN * waited) & (for_it > 0)).reindex([*hosts], fill_value=False)
    by_host = is_late.groupby(pd.Series(hosts))
    found = by_host.mean()[(by_host.mean() >= _MOST) & (by_host.size() > 1)]
    return {rank: host for rank, host in hosts.items() if host in set(found.index)}


def _waited_between(collectives: pd.DataFrame, met: pd.DataFrame) -> pd.Series[int]:
    """What the rank of each member waited since the one before, wherever it waited."""
    every = collectives.assign(once_ns=waits_counted_once(collectives))
    every = every.sort_values(["rank", "arrived_ns"], kind="stable")
    own_ns = every["once_ns"]
    before = (own_ns.groupby(every["rank"]).cumsum() - own_ns).reindex(met.index)
    in_order = met.sort_values(["rank", "arrived_ns"], kind="stable").index
    ordered = before.loc[in_order]
    last = ordered.groupby(met["rank"].loc[in_order]).shift(fill_value=0)
    return (ordered - last).reindex(met.index)


_MIN_EXCESS = 0.05
"""Share of a rank's kernel time above the median rank's from which its device counts as slow.
Chosen above what equal devices differ by. Pinned by test_lateness."""


def _dearest_causes(late: pd.DataFrame, excess: pd.DataFrame) -> pd.DataFrame:
    """The cause that cost the others most, by late rank.

    Of each late arrival, what took the late rank longer by most.
    """
    by_length = excess.sort_values("late_ns", ascending=False, kind="stable")
    most = late.join(by_length.drop_duplicates("arrival").set_index("arrival"), how="inner")
    cost = (
        most.assign(late_ns=np.minimum(most["late_ns"], most["wait_ns"]))
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
