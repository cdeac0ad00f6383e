"""Collectives matched across ranks: who took part, who was last and who waited.

Each communicator is matched by sequence number; else by operation, size and type in their order;
if counts differ, by common runs of that sequence. Sends and receives are matched per sender and
receiver. A matched collective that misses a rank of the communicator is partial: no rank is blamed
in it. Kernels of libraries that record nothing are matched by order (`in_kernel_order`), or not at
all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from htagraph.arrays.clocks import ONE_HOST_NS
from htagraph.job.clocks import Clocks
from htagraph.job.evidence import matched_by_evidence
from htagraph.job.groups import (
    INFERRED_RULES,
    contradicted,
    in_kernel_order,
    is_inferred,
)
from htagraph.job.rank_segments import RankEnds
from htagraph.job.windows import StepStart
from htagraph.model.arrays import I64, Bools
from htagraph.model.collective_names import FROM_ROOT, POINT_TO_POINT, TO_ROOT
from htagraph.model.job_answers import MATCHED_COLLECTIVES
from htagraph.model.schema import labelled
from htagraph.queries.communication import HOST_RANGE

_RULES = ("sequence number", "order", "evidence", *INFERRED_RULES)
_NEVER = np.iinfo(np.int64).min

_UNEXPLAINED = 0.1
"""Share of a wait by which a collective may end late for a rank that is missing. Chosen:
test_evidence."""

_PART_OF_TRANSFER = 2
"""Ranks leave a collective in the last half of its transfer, at the earliest. Measured on NCCL:
ends of 168 collectives differ by 0.28 of the shortest kernel at most for all-reduces, 0.59 (but
within 100 us of that) for reduce-scatters. Pinned by test_lateness."""

_LEAST_SKEW_NS = 100_000
"""But their ends may differ by this: all-gathers may leave some hops, each of some latency, early.
Measured on NCCL: 132 us for all-gathers of 70 us and more. Pinned by test_lateness."""


@dataclass(frozen=True)
class Matching:
    """The collectives of a job, matched."""

    # Columns of `answers.COLLECTIVES`, and ``rank``, ``arrived_ns`` (when others stopped waiting
    # for it, on the rank's clock), ``is_on_host``, ``match``, ``matched_by``, ``is_partial``,
    # ``waits`` (for others), ``is_awaited`` (by others). Only rendezvous, rooted and point-to-point
    # operations; at least two members each.
    members: pd.DataFrame
    # Columns ``communicator`` and ``rank``: who takes part in what, matched or not
    takers: pd.DataFrame
    unmatched: tuple[str, ...] = ()  # Which collectives could not be matched, and why, in sentences


def step_names(starts: Mapping[int, Sequence[StepStart]]) -> dict[int, str]:
    """The names of the steps of all ranks, by number."""
    return dict(enumerate({one.name: 0 for several in starts.values() for one in several}))


def _steps(
    tables: Mapping[int, pd.DataFrame], starts: Mapping[int, Sequence[StepStart]]
) -> dict[int, I64]:
    """The step in which each collective was launched, as the number of its name; -1 for none."""
    number = {name: at for at, name in step_names(starts).items()}
    found = {}
    for rank, table in tables.items():
        several = starts.get(rank, ())
        first = np.array([one.collective for one in several], dtype=np.int64)
        names = np.array([*(number[one.name] for one in several), -1], dtype=np.int64)
        found[rank] = names[np.searchsorted(first, np.arange(len(table)), side="right") - 1]
    return found


def _stacked(
    tables: Mapping[int, pd.DataFrame], starts: Mapping[int, Sequence[StepStart]]
) -> pd.DataFrame:
    """The collectives of all ranks in which ranks wait, with rank, step and communicator."""
    steps, parts = _steps(tables, starts), []
    for rank, table in sorted(tables.items()):
        start, arrival = (table[name].to_numpy(np.int64) for name in ("start_ns", "arrival"))
        arrived_ns = np.where(arrival >= 0, start[arrival], start) if len(table) else start
        parts.append(table.assign(rank=np.int64(rank), arrived_ns=arrived_ns, step=steps[rank]))
    table = pd.concat(parts, ignore_index=True)
    paired = table["operation"].isin(POINT_TO_POINT)
    rooted = table["operation"].isin((*FROM_ROOT, *TO_ROOT))
    table = table[table["is_rendezvous"] | rooted | (paired & (table["peer"] >= 0))].reset_index(
        drop=True
    )
    paired, sends = table["operation"].isin(POINT_TO_POINT), table["operation"] == "send"
    sender = table["rank"].where(sends, table["peer"]).where(paired, -1)
    receiver = table["peer"].where(sends, table["rank"]).where(paired, -1)
    codes, groups = pd.factorize(table["group"], sort=True)
    is_on_host = (table["found_by"] == HOST_RANGE).to_numpy(dtype=bool)
    pairs = pd.DataFrame(
        {"on_host": is_on_host, "group": codes, "sender": sender, "receiver": receiver}
    )
    return table.assign(
        is_on_host=is_on_host,
        # One string object for all ranks: names of large groups are long.
        group=np.asarray(groups, dtype=object)[codes],
        communicator=pairs.groupby(list(pairs.columns)).ngroup(),
    )


def _symbols(table: pd.DataFrame, columns: tuple[str, ...]) -> I64:
    """A number for each distinct combination of columns."""
    operation = table["operation"].where(~table["operation"].isin(POINT_TO_POINT), "send_recv")
    keys = table.assign(operation=operation).groupby(list(columns), sort=False, dropna=False)
    return np.asarray(keys.ngroup(), dtype=np.int64)


def _instances(table: pd.DataFrame, hosts: Mapping[int, str]) -> tuple[I64, str]:
    """The instance of each row of a communicator, and the rule; none if ranks differ."""
    seq, rank = table["seq"].to_numpy(np.int64), table["rank"].to_numpy(np.int64)
    if (seq >= 0).all() and not table.duplicated(["rank", "seq"]).any():
        return seq, _RULES[0]
    n_ranks = len(np.unique(rank))
    if _are_equal(table, n_ranks) and _agree(table, n_ranks, hosts):
        return np.tile(np.arange(len(table) // n_ranks), n_ranks), _RULES[1]
    return seq, ""


def _are_equal(table: pd.DataFrame, n_ranks: int) -> bool:
    """Whether all ranks of a communicator have the same operations in one order, of any sizes."""
    counts = np.unique(table["rank"].to_numpy(np.int64), return_counts=True)[1]
    if len(set(counts.tolist())) > 1:
        return False
    ordered = _symbols(table, ("operation",)).reshape(n_ranks, -1)
    return bool((ordered == ordered[0]).all())


def _agree(table: pd.DataFrame, n_ranks: int, hosts: Mapping[int, str]) -> bool:
    """Whether nothing contradicts that equal places are one collective.

    Ranks may lack different ones and have equal numbers. Then steps have other names, or, on one
    host, one ends before another begins.
    """
    step, start, end = (
        table[name].to_numpy(np.int64).reshape(n_ranks, -1)
        for name in ("step", "start_ns", "end_ns")
    )
    known = step >= 0
    least = np.where(known, step, np.iinfo(np.int64).max).min(axis=0)
    if (known & (step != least)).any():
        return False
    of = {hosts.get(rank, "") for rank in table["rank"].unique().tolist()}
    if len(of) > 1 or "" in of or not table["is_on_host"].all():
        return True
    meets = table["is_rendezvous"].to_numpy(dtype=bool).reshape(n_ranks, -1)[0]
    return bool((start.max(axis=0) <= end.min(axis=0) + ONE_HOST_NS)[meets].all())


def _usual(table: pd.DataFrame, hosts: Mapping[int, str]) -> I64:
    """Place of each row in a communicator whose ranks differ, if most ranks are like its rank.

    Else -1. Of equally many, ranks with more collectives count.
    """
    symbol, step = _symbols(table, ("operation",)), table["step"].to_numpy(np.int64)
    rank = table["rank"].to_numpy(np.int64)
    ranks, first, counts = np.unique(rank, return_index=True, return_counts=True)
    alike: dict[bytes, list[int]] = {}
    for one, at, n in zip(ranks.tolist(), first.tolist(), counts.tolist(), strict=True):
        alike.setdefault(np.r_[symbol[at : at + n], step[at : at + n]].tobytes(), []).append(one)
    most = max(alike, key=lambda one: (len(alike[one]), len(one), -alike[one][0]))
    chosen = alike[most]
    if len(chosen) > 1 and not _agree(table[np.isin(rank, chosen)], len(chosen), hosts):
        chosen = chosen[:1]
    return np.where(np.isin(rank, chosen), table.groupby("rank").cumcount(), -1)


def _roles(matched: pd.DataFrame) -> tuple[Bools, Bools]:
    """Who waits for others, and who is waited for.

    At a rendezvous every member does both. Elsewhere only a recorded root or peer is waited for.
    """
    operation, peer, rank = matched["operation"], matched["peer"], matched["rank"]
    is_root, known = peer == rank, peer >= 0
    away, back = operation.isin(FROM_ROOT) & known, operation.isin(TO_ROOT) & known
    waits = matched["is_rendezvous"] | (away & ~is_root) | (back & is_root) | (operation == "recv")
    awaited = (
        matched["is_rendezvous"] | (away & is_root) | (back & ~is_root) | (operation == "send")
    )
    return waits.to_numpy(dtype=bool), awaited.to_numpy(dtype=bool)


def match_collectives(
    tables: Mapping[int, pd.DataFrame],
    hosts: Mapping[int, str],
    starts: Mapping[int, Sequence[StepStart]],
    lost_ns: Mapping[int, int],
) -> Matching:
    """Match the collectives of all ranks, schema `answers.COLLECTIVES`; `hosts` may be empty."""
    table = _stacked(tables, starts)
    certain: list[pd.DataFrame] = []
    inferred: list[pd.DataFrame] = []
    different: list[pd.DataFrame] = []
    unclear = pd.concat([table[table["arrival"] < 0] for table in tables.values()])
    why = "whether they send, receive or do both is not recorded"
    unmatched = [_not_matched(part, why) for _, part in unclear.groupby("group", sort=True)]
    unmatched += _unknown_peers(tables)
    for _, part in table.groupby("communicator", sort=True):
        if part["rank"].nunique() < 2:
            continue
        if is_inferred(part)[0]:
            instance, rule = in_kernel_order(part)
            if rule in INFERRED_RULES:
                inferred.append(_matched(part, instance, rule))
            else:
                unmatched.append(_not_matched(part, rule))
            continue
        instance, rule = _instances(part, hosts)
        if rule:
            certain.append(_matched(part, instance, rule))
        else:
            different.append(part.assign(usual=_usual(part, hosts)))
    if different:
        found, doubts = _by_evidence(different, certain, hosts, lost_ns)
        certain += found
        unmatched += doubts
    none = _matched(table.iloc[:0], np.empty(0, dtype=np.int64), "")
    known = pd.concat(certain or [none])
    whys = [contradicted(part, known, hosts) for part in inferred]
    judged = list(zip(inferred, whys, strict=True))
    unmatched += [_not_matched(part, why) for part, why in judged if why]
    matched = certain + [part for part, why in judged if not why]
    takers = table[["communicator", "rank"]].drop_duplicates()
    return Matching(_numbered(matched or [none]), takers, tuple(unmatched))


def _matched(part: pd.DataFrame, instance: I64, rule: str) -> pd.DataFrame:
    """The members of a communicator whose instance has two at least."""
    _, match = np.unique(instance, return_inverse=True)
    n_members = np.bincount(match, minlength=1)[match]
    found = part.assign(match=match, matched_by=rule, is_partial=n_members < part["rank"].nunique())
    return found[(instance >= 0) & (n_members >= 2)]


def _numbered(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The members of all communicators, with roles, and a number for each match."""
    joined = pd.concat(parts, ignore_index=True)
    joined["match"] = joined.groupby(["communicator", "match"]).ngroup()
    joined = joined.sort_values(["match", "rank"], ignore_index=True)
    waits, is_awaited = _roles(joined)
    return joined.assign(waits=waits, is_awaited=is_awaited)


def _by_evidence(
    different: Sequence[pd.DataFrame],
    certain: Sequence[pd.DataFrame],
    hosts: Mapping[int, str],
    lost_ns: Mapping[int, int],
) -> tuple[list[pd.DataFrame], list[str]]:
    """The members of communicators whose ranks differ, and a sentence on each rank in doubt."""
    table = pd.concat(different, ignore_index=True)
    waits, is_awaited = _roles(table)
    table = table.assign(
        waits=waits,
        is_awaited=is_awaited,
        symbol=_symbols(table, ("communicator", "operation")),
        size=_symbols(table, ("n_elements", "dtype")),
    )
    usual = [_matched(part, part["usual"].to_numpy(np.int64), "") for part in different]
    place, doubtful = matched_by_evidence(table, _numbered([*certain, *usual]), hosts, lost_ns)
    rows = table.groupby("communicator").indices.values()
    found = [_matched(table.iloc[own], place[own], _RULES[2]) for own in rows]
    n_all = table["rank"].value_counts().to_dict()
    n_doubtful = table.loc[doubtful, "rank"].value_counts().sort_index().to_dict()
    doubts = [
        f"{n:,} of {n_all[rank]:,} collectives of rank {rank} are not matched: ranks recorded "
        "different ones, and these fit nowhere, or at several places. No rank is blamed for them."
        for rank, n in n_doubtful.items()
    ]
    return found, doubts


def _not_matched(part: pd.DataFrame, why: str) -> str:
    return f"{part['group'].iloc[0]} kernels are not matched across ranks: {why}."


def _unknown_peers(tables: Mapping[int, pd.DataFrame]) -> Iterator[str]:
    """Yield a sentence on sends and receives of the host, if their peers are not known."""
    parts = [table[table["found_by"] == HOST_RANGE] for table in tables.values()]
    passed = pd.concat([part[part["operation"].isin(("send", "recv"))] for part in parts])
    n_unknown = int((passed["peer"] < 0).sum())
    if n_unknown and len(tables) > 1:
        yield (
            f"{n_unknown:,} of {len(passed):,} sends and receives are not matched: their peers are "
            "not recorded (record_shapes=True records them), and do not follow from a pipeline."
        )


def _misses_one(
    partial: pd.DataFrame, takers: pd.DataFrame, clocks: Clocks, ends: Mapping[int, RankEnds]
) -> Bools:
    """Whether a rank was being recorded that a partial collective lacks, of each member."""
    rank = takers["rank"].to_numpy(np.int64)
    begin, end = (
        clocks.to_common(rank, np.array([getattr(ends[one], name) for one in rank.tolist()]))
        for name in ("start_ns", "end_ns")
    )
    spans = takers.assign(begin=begin, end=end)
    members = partial.merge(spans, on=["communicator", "rank"], how="left").set_axis(partial.index)
    came = members["came_ns"]
    is_recorded = (members["begin"] <= came) & (came <= members["end"])
    n_members = is_recorded.groupby(partial["match"]).transform("sum").to_numpy(np.int64)
    n_recorded = np.zeros(len(partial), dtype=np.int64)
    of_communicator = spans.groupby("communicator")
    for communicator, rows in partial.groupby("communicator").indices.items():
        own, ns = of_communicator.get_group(communicator), came.to_numpy(np.int64)[rows]
        begun = np.searchsorted(np.sort(own["begin"].to_numpy(np.int64)), ns, side="right")
        n_recorded[rows] = begun - np.searchsorted(np.sort(own["end"].to_numpy(np.int64)), ns)
    return n_recorded > n_members


def _explains_the_end(matched: pd.DataFrame, wait_ns: I64, transfer_ns: I64) -> Bools:
    """Whether a collective ended after its last arrival about as soon as one of all ranks does.

    What remains is little of the longest wait. `transfer_ns` is the time from then to the end of
    the rank that arrived last.
    """
    alike = matched.groupby(["communicator", "operation", "n_elements", "dtype"], dropna=False)
    whole = pd.Series(transfer_ns).where(~matched["is_partial"].to_numpy(dtype=bool), 0)
    longest = whole.groupby(alike.ngroup().to_numpy()).transform("max").to_numpy()
    longest_wait = pd.Series(wait_ns).groupby(matched["match"].to_numpy()).transform("max")
    explains: Bools = transfer_ns - longest <= longest_wait.to_numpy() * _UNEXPLAINED
    return explains


def _errors_by_ends(matched: pd.DataFrame, end: I64, end_of_last: I64) -> I64:
    """By how much a member may have come later, against the last one, as both left together.

    The length of a kernel needs no clock: what it is longer than that of the last one, it waited,
    up to the skew of their ends. That skew is empirical, not rigorous: after the last arrival a
    ring needs many hops, and ranks leave during the second half of them. A kernel that has no such
    end (of the host, of a library that records nothing, of an all-to-all) has no such bound.
    """
    leaves = matched["is_rendezvous"] & ~matched["is_on_host"] & ~is_inferred(matched)
    leaves &= matched["operation"] != "all_to_all"
    shortest = (matched["end_ns"] - matched["start_ns"]).groupby(matched["match"]).transform("min")
    skew = np.maximum(shortest.to_numpy(np.int64) // _PART_OF_TRANSFER, _LEAST_SKEW_NS)
    return np.where(leaves, np.abs(end_of_last - end) + skew, np.iinfo(np.int64).max)


def measure_waits(
    matched: pd.DataFrame,
    clocks: Clocks,
    takers: pd.DataFrame,
    ends: Mapping[int, RankEnds],
) -> pd.DataFrame:
    """Split each member's time in a matched collective into wait and transfer.

    The wait ends when the last member that it needs has started. The rest moves data, as fast as
    size and network allow (latency plus size over bandwidth: Hockney 1994), however early other
    ranks arrive. A rank that was not being recorded counts as one whose trace is missing: how late
    it came is communication. One that was, and lacks the collective, may have been last. Then the
    last member is blamed only if the collective ended as soon after it as others of its kind do.
    `matched`, `takers`: of `Matching`, of aligned ranks. `ends`: of the whole traces. ``wait_ns +
    transfer_ns`` is the duration of the kernel. Waits within the error of the clocks (``wait_ns <=
    error_ns``) and partial collectives blame no rank. If the clocks leave open who was last, the
    wait is sure but ``is_certain`` is False.
    """
    if not len(matched):
        return MATCHED_COLLECTIVES.empty()
    rank, match = matched["rank"].to_numpy(np.int64), matched["match"].to_numpy(np.int64)
    start, end, arrived = (
        clocks.to_common(rank, matched[name].to_numpy(np.int64))
        for name in ("start_ns", "end_ns", "arrived_ns")
    )
    waits, awaited = (matched[name].to_numpy(dtype=bool) for name in ("waits", "is_awaited"))
    arrival = pd.Series(np.where(awaited, arrived, _NEVER)).groupby(match)
    last_row = arrival.idxmax().reindex(match).to_numpy()
    latest = np.where(waits, np.maximum(arrival.transform("max").to_numpy(), start), start)
    met = np.clip(latest, start, end)
    last_rank = np.where(met > start, rank[last_row], rank)
    # Both clocks may be off: the last one may have started earlier, this one later.
    may_differ = np.minimum(
        clocks.errors(rank, rank[last_row]), _errors_by_ends(matched, end, end[last_row])
    )
    error_ns = np.where(met > start, may_differ, 0)
    is_other = awaited & (np.arange(len(rank)) != last_row)
    runner_up = pd.Series(np.where(is_other, arrived + may_differ, _NEVER)).groupby(match)
    is_last = arrived[last_row] > runner_up.transform("max").to_numpy()
    is_partial = matched["is_partial"].to_numpy(dtype=bool, copy=True)
    if rows := np.flatnonzero(is_partial).tolist():
        came = np.where(arrived[last_row] > start, arrived[last_row], start)
        partial = matched.iloc[rows].assign(came_ns=came[rows])
        explains = _explains_the_end(matched, met - start, end[last_row] - arrived[last_row])
        is_partial[rows] = _misses_one(partial, takers, clocks, ends) & ~explains[rows]
    return MATCHED_COLLECTIVES.frame(
        {
            "match": match,
            "rank": rank,
            "collective": matched["collective"].to_numpy(),
            "event": matched["event"].to_numpy(),
            "operation": matched["operation"].to_numpy(),
            "group": matched["group"].to_numpy(),
            "start_ns": start,
            "arrived_ns": arrived,
            "end_ns": end,
            "wait_ns": met - start,
            "transfer_ns": end - met,
            "last_rank": last_rank,
            "error_ns": error_ns,
            "is_certain": ((met - start) > error_ns) & is_last & ~is_partial,
            "is_partial": is_partial,
            "overrun_ns": np.maximum(latest - end, 0),
            "matched_by": labelled(matched["matched_by"], _RULES),
        }
    )
