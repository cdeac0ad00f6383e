"""Collectives of many ranks, matched: who met whom, on which clock, who was last and who waited.

The ladder of matching, per communicator: by sequence number; else by operation, size and type in their order; where
counts differ, by common runs of that sequence. Members that no clock can bring together are flagged, not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.clocks import Clock, ClockFit, fit_clock
from htagraph.algorithms.sequence_matching import align
from htagraph.model.frames import CLOCKS, MEETINGS, categorical

__all__ = ["Clocks", "fit_clocks", "match_collectives", "measure_meetings"]

I64 = npt.NDArray[np.int64]

_RULES = ("sequence number", "order", "common runs")


def _communicator_members(tables: Mapping[int, pd.DataFrame]) -> dict[str, list[int]]:
    """Return the ranks that have collectives of each communicator."""
    members: dict[str, list[int]] = {}
    for rank, table in sorted(tables.items()):
        for group in table["group"].unique().tolist():
            members.setdefault(str(group), []).append(rank)
    return members


def _match_group(parts: Mapping[int, pd.DataFrame]) -> list[tuple[int, I64, I64, str]]:
    """Return (rank, rows, instance of each row, rule) for one communicator; instance -1 for what has no partner."""
    ranks = list(parts)
    if all((part["seq"] >= 0).all() and part["seq"].is_unique for part in parts.values()):
        return [
            (rank, part.index.to_numpy(), part["seq"].to_numpy(np.int64), _RULES[0]) for rank, part in parts.items()
        ]
    texts = [
        part["operation"].astype(str) + "|" + part["n_elements"].astype(str) + "|" + part["dtype"].astype(str)
        for part in parts.values()
    ]
    codes, _ = pd.factorize(pd.concat(texts, ignore_index=True))
    sequences = np.split(codes, np.cumsum([len(text) for text in texts])[:-1])
    if any(len(sequence) != len(sequences[0]) or (sequence != sequences[0]).any() for sequence in sequences[1:]):
        # Sizes may differ between ranks (uneven splits): order by operation alone before giving up on order.
        operations, _ = pd.factorize(pd.concat([part["operation"] for part in parts.values()], ignore_index=True))
        by_operation = np.split(operations, np.cumsum([len(text) for text in texts])[:-1])
        equal = all(np.array_equal(sequence, by_operation[0]) for sequence in by_operation[1:])
        sequences, rule = by_operation, _RULES[1] if equal else _RULES[2]
    else:
        rule = _RULES[1]
    return [
        (rank, parts[rank].index.to_numpy(), place, rule) for rank, place in zip(ranks, align(sequences), strict=True)
    ]


def match_collectives(tables: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """Return the collectives of all ranks with the number of the meeting that each belongs to.

    Parameters
    ----------
    tables : mapping of int to DataFrame
        Schema `frames.COLLECTIVES`, by rank.

    Returns
    -------
    DataFrame
        Columns of `frames.COLLECTIVES`, and ``rank``, ``meeting`` (-1 for none), ``matched_by``. Only rendezvous and point
        to point operations are matched. A meeting has at least two members.
    """
    matched = []
    next_meeting = 0
    for group, ranks in sorted(_communicator_members(tables).items()):
        parts = {rank: tables[rank][(tables[rank]["group"] == group) & _can_meet(tables[rank])] for rank in ranks}
        parts = {rank: part for rank, part in parts.items() if len(part)}
        if not parts:
            continue
        found = _match_group(parts)
        instances = np.unique(np.concatenate([instance for _, _, instance, _ in found]))
        for rank, rows, instance, rule in found:
            meeting = np.where(instance >= 0, next_meeting + np.searchsorted(instances, instance), -1)
            matched.append(parts[rank].loc[rows].assign(rank=rank, meeting=meeting, matched_by=rule))
        next_meeting += len(instances)
    columns = [*next(iter(tables.values())).columns, "rank", "meeting", "matched_by"] if tables else []
    if not matched:
        return pd.DataFrame(columns=columns)
    frame = pd.concat(matched, ignore_index=True)
    size = frame.groupby("meeting")["rank"].transform("size")
    return frame[(frame["meeting"] >= 0) & (size >= 2)].sort_values(["meeting", "rank"], ignore_index=True)[columns]


def _can_meet(table: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Return which collectives are rendezvous, or wait for a root or a sender."""
    rooted = table["operation"].isin(("broadcast", "reduce", "send", "recv", "gather", "scatter"))
    return (table["is_rendezvous"] | rooted).to_numpy(dtype=bool)


@dataclass(frozen=True)
class Clocks:
    """The clock of every rank against the reference rank.

    Parameters
    ----------
    reference : int
    fits : mapping of int to ClockFit
        Against the rank's parent in `parents`, in common time; ranks that meet nobody have no meetings.
    parents : mapping of int to int
        The rank that each was aligned with; -1 for the reference and for ranks that meet nobody.
    """

    reference: int
    fits: Mapping[int, ClockFit]
    parents: Mapping[int, int]

    def clock(self, rank: int) -> Clock:
        """Return the clock of a rank."""
        return self.fits[rank].clock

    def frame(self) -> pd.DataFrame:
        """Return the clocks as a table, schema `frames.CLOCKS`."""
        ranks = sorted(self.fits)
        fits = [self.fits[rank] for rank in ranks]
        return CLOCKS.frame(
            {
                "rank": ranks,
                "aligned_with": [self.parents[rank] for rank in ranks],
                "offset_ns": [fit.clock.offset_ns for fit in fits],
                "drift_ppb": [fit.clock.drift_ppb for fit in fits],
                "width_ns": [fit.width_ns for fit in fits],
                "spread_ns": [fit.spread_ns for fit in fits],
                "n_meetings": [fit.n_meetings for fit in fits],
                "is_feasible": [fit.width_ns >= 0 for fit in fits],
            }
        )


def _shared(matched: pd.DataFrame) -> dict[tuple[int, int], int]:
    """Return how many rendezvous each pair of ranks shares."""
    counts: dict[tuple[int, int], int] = {}
    full = matched[matched["is_rendezvous"]]
    for ranks in full.groupby("meeting")["rank"].agg(tuple):
        for first in ranks:
            for second in ranks:
                if first != second:
                    counts[first, second] = counts.get((first, second), 0) + 1
    return counts


def fit_clocks(matched: pd.DataFrame, ranks: list[int]) -> Clocks:
    """Return the clocks of all ranks, each aligned with the rank it met most often of those aligned before it.

    Parameters
    ----------
    matched : DataFrame
        As `match_collectives` returns it.
    ranks : list of int

    Returns
    -------
    Clocks
        The reference is the lowest rank.
    """
    reference = min(ranks)
    shared = _shared(matched) if len(matched) else {}
    fits = {reference: ClockFit(Clock(), 0, 0, 0, 0)}
    parents = {reference: -1}
    full = matched[matched["is_rendezvous"]] if len(matched) else matched
    by_rank = {rank: part.set_index("meeting") for rank, part in full.groupby("rank")} if len(full) else {}
    waiting = set(ranks) - {reference}
    while waiting:
        best = max(
            ((shared.get((done, rank), 0), -done, -rank) for done in fits for rank in waiting), default=(0, 0, 0)
        )
        if best[0] == 0:
            break
        parent, rank = -best[1], -best[2]
        fits[rank] = _fit_pair(by_rank[rank], by_rank[parent], fits[parent].clock)
        parents[rank] = parent
        waiting.discard(rank)
    for rank in waiting:
        fits[rank], parents[rank] = ClockFit(Clock(), 0, 0, 0, 0), -1
    return Clocks(reference, fits, parents)


def _fit_pair(member: pd.DataFrame, parent: pd.DataFrame, parent_clock: Clock) -> ClockFit:
    """Return the clock of a member from its meetings with its parent, whose clock is known."""
    both = member.join(parent[["start_ns", "end_ns"]], how="inner", rsuffix="_parent")
    return fit_clock(
        both["start_ns"].to_numpy(np.int64),
        both["end_ns"].to_numpy(np.int64),
        parent_clock.to_common(both["start_ns_parent"].to_numpy()),
        parent_clock.to_common(both["end_ns_parent"].to_numpy()),
    )


def _needed(matched: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Return which members others wait for: all at a rendezvous, the root or the sender elsewhere.

    Without a recorded root, the member that starts first cannot be told from one that waits: nobody is waited for.
    """
    sender = (matched["operation"] == "send").to_numpy(dtype=bool)
    return matched["is_rendezvous"].to_numpy(dtype=bool) | sender


def measure_meetings(matched: pd.DataFrame, clocks: Clocks) -> pd.DataFrame:
    """Return one row per member of each meeting, in common time: who was last, who waited, and how long it took then.

    Parameters
    ----------
    matched : DataFrame
        As `match_collectives` returns it.
    clocks : Clocks

    Returns
    -------
    DataFrame, schema `frames.MEETINGS`
        ``wait_ns + transfer_ns`` is the duration of the kernel. A wait no longer than the width of the clocks' feasible
        interval blames nobody: ``is_certain`` is False.
    """
    if not len(matched):
        return MEETINGS.empty()
    rank = matched["rank"].to_numpy(np.int64)
    start, end = np.empty(len(matched), dtype=np.int64), np.empty(len(matched), dtype=np.int64)
    width = np.empty(len(matched), dtype=np.int64)
    for number in np.unique(rank).tolist():
        rows = rank == number
        clock, fit = clocks.clock(number), clocks.fits[number]
        start[rows] = clock.to_common(matched["start_ns"].to_numpy()[rows])
        end[rows] = clock.to_common(matched["end_ns"].to_numpy()[rows])
        width[rows] = max(fit.width_ns, 0)
    meeting = matched["meeting"].to_numpy(np.int64)
    arrival = pd.Series(np.where(_needed(matched), start, np.iinfo(np.int64).min)).groupby(meeting)
    latest = np.maximum(arrival.transform("max").to_numpy(), start)
    last_row = arrival.idxmax().reindex(meeting).to_numpy()
    met = np.clip(latest, start, end)
    last_rank = np.where(met > start, rank[last_row], rank)
    largest_width = pd.Series(width).groupby(meeting).transform("max").to_numpy()
    return MEETINGS.frame(
        {
            "meeting": meeting,
            "rank": rank,
            "collective": matched["collective"].to_numpy(),
            "event": matched["event"].to_numpy(),
            "operation": matched["operation"].to_numpy(),
            "group": matched["group"].to_numpy(),
            "start_ns": start,
            "end_ns": end,
            "wait_ns": met - start,
            "transfer_ns": end - met,
            "last_rank": last_rank,
            "is_certain": (met - start) > largest_width,
            "overrun_ns": np.maximum(latest - end, 0),
            "matched_by": categorical(matched["matched_by"].map(_RULES.index).to_numpy(), _RULES),
        }
    )
