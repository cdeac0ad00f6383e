"""Collectives matched across ranks: who took part, who was last and who waited.

Each communicator is matched by sequence number; else by operation, size and type in their order;
if counts differ, by common runs of that sequence. Sends and receives are matched per sender and
receiver. A matched collective that misses a rank of the communicator is partial: no rank is blamed
in it. Kernels of libraries that record nothing are matched by order (`library_matching`), or not at
all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.sequence_matching import align
from htagraph.job.clocks import Clocks
from htagraph.job.library_matching import (
    INFERRED_RULES,
    contradicted,
    in_kernel_order,
    is_inferred,
)
from htagraph.model.collective_operations import FROM_ROOT, POINT_TO_POINT, TO_ROOT
from htagraph.model.job_answers import MATCHED_COLLECTIVES
from htagraph.model.schema import labelled
from htagraph.queries.collectives import HOST_RANGE

__all__ = ["Matching", "match_collectives", "measure_waits"]

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_RULES = ("sequence number", "order", "common runs", *INFERRED_RULES)
_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Matching:
    """The collectives of a job, matched.

    Parameters
    ----------
    members : DataFrame
        Columns of `answers.COLLECTIVES`, and ``rank``, ``arrived_ns`` (when others stopped waiting
        for it, on the rank's clock), ``is_on_host``, ``match``, ``matched_by``, ``is_partial``,
        ``waits`` (for others), ``is_awaited`` (by others). Only rendezvous, rooted and
        point-to-point operations; at least two members each.
    unmatched : tuple of str
        Which kernels of libraries could not be matched, and why, in sentences.
    """

    members: pd.DataFrame
    unmatched: tuple[str, ...] = ()


def _with_arrivals(table: pd.DataFrame, rank: int) -> pd.DataFrame:
    """The collectives of a rank, with the rank and the times of arrival."""
    start, arrival = (table[name].to_numpy(np.int64) for name in ("start_ns", "arrival"))
    arrived_ns = np.where(arrival >= 0, start[arrival], start) if len(table) else start
    return table.assign(rank=np.int64(rank), arrived_ns=arrived_ns)


def _stacked(tables: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """The collectives of all ranks in which ranks wait, with rank and communicator."""
    parts = [_with_arrivals(table, rank) for rank, table in sorted(tables.items())]
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


def _by_order(table: pd.DataFrame) -> tuple[I64, str]:
    """The place of each row of a communicator in the common sequence, or -1, and the rule."""
    cuts = np.flatnonzero(np.diff(table["rank"].to_numpy())) + 1
    # Sizes may differ between ranks (uneven splits), so the order of operations is tried, too.
    exact, loose = (
        np.split(_symbols(table, columns), cuts)
        for columns in (("operation", "n_elements", "dtype"), ("operation",))
    )
    for sequences in (exact, loose):
        if all(np.array_equal(sequence, sequences[0]) for sequence in sequences[1:]):
            return np.concatenate([np.arange(len(sequence)) for sequence in sequences]), _RULES[1]
    return np.concatenate(align(loose)), _RULES[2]


def _instances(table: pd.DataFrame) -> tuple[I64, str]:
    """The instance of each row of a communicator, -1 for none, and the rule."""
    seq = table["seq"].to_numpy(np.int64)
    if (seq >= 0).all() and not table.duplicated(["rank", "seq"]).any():
        return seq, _RULES[0]
    return _by_order(table)


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
    tables: Mapping[int, pd.DataFrame], hosts: Mapping[int, str] | None = None
) -> Matching:
    """Match the collectives of all ranks, schema `answers.COLLECTIVES`; hosts may be empty."""
    table = _stacked(tables)
    certain: list[pd.DataFrame] = []
    inferred: list[pd.DataFrame] = []
    unmatched = [*_unclear_halves(tables)]
    next_match = 0
    for _, part in table.groupby("communicator", sort=True):
        n_ranks = part["rank"].nunique()
        if n_ranks < 2:
            continue
        by_kernels = bool(is_inferred(part)[0])
        instance, rule = in_kernel_order(part) if by_kernels else _instances(part)
        if by_kernels and rule not in INFERRED_RULES:
            unmatched.append(_not_matched(part, rule))
            continue
        number, match = np.unique(instance, return_inverse=True)
        n_members = np.bincount(match)[match]
        found = part.assign(
            match=np.where(instance >= 0, next_match + match, -1),
            matched_by=rule,
            is_partial=n_members < n_ranks,
        )
        (inferred if by_kernels else certain).append(found[(instance >= 0) & (n_members >= 2)])
        next_match += len(number)
    none = table.iloc[:0].assign(match=np.int64(-1), matched_by="", is_partial=False)
    known = pd.concat(certain or [none])
    whys = [contradicted(part, known, hosts) for part in inferred]
    judged = list(zip(inferred, whys, strict=True))
    unmatched += [_not_matched(part, why) for part, why in judged if why]
    matched = certain + [part for part, why in judged if not why]
    joined = pd.concat(matched or [none], ignore_index=True)
    joined = joined.sort_values(["match", "rank"], ignore_index=True)
    waits, is_awaited = _roles(joined)
    return Matching(joined.assign(waits=waits, is_awaited=is_awaited), tuple(unmatched))


def _not_matched(part: pd.DataFrame, why: str) -> str:
    return f"{part['group'].iloc[0]} kernels are not matched across ranks: {why}."


def _unclear_halves(tables: Mapping[int, pd.DataFrame]) -> Iterator[str]:
    """Yield a sentence on kernels that may send, receive, or do both."""
    unclear = pd.concat([table[table["arrival"] < 0] for table in tables.values()])
    for _, part in unclear.groupby("group", sort=True):
        yield _not_matched(part, "whether they send, receive or do both is not recorded")


def measure_waits(matched: pd.DataFrame, clocks: Clocks) -> pd.DataFrame:
    """Split each member's time in a matched collective into wait and transfer.

    The wait ends when the last member that it needs has started. The rest moves data, as fast as
    size and network allow (latency plus size over bandwidth: Hockney 1994), however early other
    ranks arrive.

    Returns
    -------
    DataFrame, schema `job_answers.MATCHED_COLLECTIVES`
        ``wait_ns + transfer_ns`` is the duration of the kernel. Waits within the error of the
        clocks (``wait_ns <= error_ns``) and partial collectives blame no rank. If the clocks leave
        open who was last, the wait is sure but ``is_certain`` is False.
    """
    if not len(matched):
        return MATCHED_COLLECTIVES.empty()
    rank, match = matched["rank"].to_numpy(np.int64), matched["match"].to_numpy(np.int64)
    start = clocks.to_common(rank, matched["start_ns"].to_numpy(np.int64))
    end = clocks.to_common(rank, matched["end_ns"].to_numpy(np.int64))
    arrived = clocks.to_common(rank, matched["arrived_ns"].to_numpy(np.int64))
    waits, awaited = (
        matched["waits"].to_numpy(dtype=bool),
        matched["is_awaited"].to_numpy(dtype=bool),
    )
    arrival = pd.Series(np.where(awaited, arrived, _NEVER)).groupby(match)
    last_row = arrival.idxmax().reindex(match).to_numpy()
    latest = np.where(waits, np.maximum(arrival.transform("max").to_numpy(), start), start)
    met = np.clip(latest, start, end)
    last_rank = np.where(met > start, rank[last_row], rank)
    low_ns, high_ns = clocks.errors(rank)
    # Both clocks may be off: the last one may have started earlier, this one later.
    error_ns = np.where(met > start, high_ns - low_ns[last_row], 0)
    is_other = awaited & (np.arange(len(rank)) != last_row)
    runner_up = (
        pd.Series(np.where(is_other, arrived + high_ns, _NEVER))
        .groupby(match)
        .transform("max")
        .to_numpy()
    )
    is_last = (arrived + low_ns)[last_row] > runner_up
    is_partial = matched["is_partial"].to_numpy(dtype=bool)
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
