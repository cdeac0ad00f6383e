"""The clocks of all ranks of a job, each fitted to one rank that it shares collectives with.

Comparing every pair of ranks is quadratic. So each matched collective compares its members with one
of them only, which keeps all connected, and a spanning tree of these pairs decides which rank is
fitted to which. Errors add up along the tree. So that one is the rank that waited least in most
collectives: pairs with the rank that comes last are bounded by one wait, others by two. What does
not depend on how ranks are numbered, nor on what their clocks show, keeps answers from depending on
that. `htagraph.arrays.clocks` fits one pair.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from htagraph.arrays.clocks import (
    ONE_HOST_NS,
    Clock,
    ClockFit,
    fit_clock,
    shared_clock,
    to_common,
)
from htagraph.job.groups import ends_together
from htagraph.job.rank_segments import RankEnds
from htagraph.model.arrays import I64, brief
from htagraph.model.job_answers import CLOCKS

_ONE_CAPTURE_NS = 1_000_000_000
"""Gap between ranks without common collectives up to which they count as one capture. Chosen:
test_alignment."""

_LOST_HOST_NS = 2_000_000
"""Error of the clock of a rank that lost its host, if taken to be on that of all others. Chosen."""

_FITTED = ("arrived_ns", "end_ns", "waits", "is_awaited")


@brief
@dataclass(frozen=True)
class Clocks:
    """The clock of every rank against the reference rank."""

    fits: Mapping[int, ClockFit]  # By rank, ascending: against the rank's parent, in common time
    # The rank that each was fitted to; -1 for the reference and for unconnected ranks
    parents: Mapping[int, int]
    # Least and most that may still have to be added to each clock, against the reference
    bounds: Mapping[int, tuple[int, int]]
    # The first of those that read the same clock, of ranks that are not alone
    shared: Mapping[int, int] = field(default_factory=dict)

    def clock(self, rank: int) -> Clock:
        """The clock of a rank."""
        return self.fits[rank].clock

    def component(self, rank: int) -> int:
        """The first of the ranks that share a clock with this one: its last parent that fits."""
        while self.parents[rank] >= 0 and self.fits[rank].width_ns >= 0:
            rank = self.parents[rank]
        return rank

    def moved(self) -> Clocks:
        """The clocks after all times moved to common time; errors stay."""
        fits = {rank: replace(fit, clock=Clock()) for rank, fit in self.fits.items()}
        return replace(self, fits=fits)

    def aligned(self, ends: Mapping[int, RankEnds]) -> tuple[int, ...]:
        """The ranks of the largest component, and what was recorded at the same time; ascending.

        Collectives align the ranks of a component. Without a common collective, all that ties two
        ranks together is that both were recorded at one time, on clocks as they are. A rank whose
        collectives fit no clock does not belong. `ends` are those of the whole traces.
        """
        spans = {rank: one.common(self.clock(rank)) for rank, one in ends.items()}
        components: dict[int, list[int]] = {}
        for rank in ends:
            components.setdefault(self.component(rank), []).append(rank)

        def joined(first: int) -> list[int]:
            own = components[first]
            start_ns = min(spans[rank][0] for rank in own) - _ONE_CAPTURE_NS
            end_ns = max(spans[rank][1] for rank in own) + _ONE_CAPTURE_NS
            return own + [
                rank
                for other, ranks in components.items()
                if other != first and self.parents[other] < 0 and self.parents[first] < 0
                for rank in ranks
                if spans[rank][0] <= end_ns and spans[rank][1] >= start_ns
            ]

        best = max(components, key=lambda one: (len(components[one]), len(joined(one)), -one))
        return tuple(sorted(joined(best)))

    @cached_property
    def _columns(self) -> tuple[I64, I64]:
        """Ranks, ascending; and offset, drift, origin, errors and who shares the clock of each."""
        rows = [
            (
                *(fit.clock.offset_ns, fit.clock.drift_ppb, fit.clock.origin_ns),
                *(*self.bounds[rank], self.shared.get(rank, rank)),
            )
            for rank, fit in self.fits.items()
        ]
        return np.array(list(self.fits), dtype=np.int64), np.array(rows, dtype=np.int64).reshape(
            -1, 6
        )

    def _rows(self, rank: I64) -> I64:
        ranks, rows = self._columns
        return rows[np.searchsorted(ranks, rank)]

    def to_common(self, rank: I64, ts_ns: I64) -> I64:
        """Times, each on the clock of its rank, in common time."""
        rows = self._rows(rank)
        return to_common(ts_ns, rows[:, 0], rows[:, 1], rows[:, 2])

    def errors(self, rank: I64, other: I64) -> I64:
        """By how much times of ranks may have to be later, against those of others, at most.

        Errors of two clocks add up, but if both are the same clock.
        """
        rows, others = self._rows(rank), self._rows(other)
        apart: I64 = rows[:, 4] - others[:, 3]
        return np.where(rows[:, 5] == others[:, 5], np.minimum(apart, ONE_HOST_NS), apart)

    def frame(self) -> pd.DataFrame:
        """The clocks as a table, schema `job_answers.CLOCKS`."""
        fits = list(self.fits.values())
        return CLOCKS.frame(
            {
                "rank": list(self.fits),
                "aligned_with": [self.parents[rank] for rank in self.fits],
                "offset_ns": [fit.clock.offset_ns for fit in fits],
                "drift_ppb": [fit.clock.drift_ppb for fit in fits],
                "width_ns": [fit.width_ns for fit in fits],
                "spread_ns": [fit.spread_ns for fit in fits],
                "n_collectives": [fit.n_collectives for fit in fits],
                "is_feasible": [fit.width_ns >= 0 for fit in fits],
            }
        )


def _order(full: pd.DataFrame, ranks: Iterable[int]) -> list[int]:
    """Ranks from the one with most collectives, of these from the one that waited least in them.

    Ranks of which that is equal are ordered by the lengths of their collectives.
    """
    dur = full["end_ns"] - full["arrived_ns"]
    rows = full[["rank"]].assign(dur=dur, more=dur - dur.groupby(full["match"]).transform("min"))
    keys = {
        rank: (-len(own), int(own["more"].sum()), np.sort(own["dur"].to_numpy(np.int64)).tolist())
        for rank, own in rows.groupby("rank")
    }
    return sorted(ranks, key=lambda rank: (*keys.get(rank, (0, 0, [])), rank))


def _neighbors(full: pd.DataFrame, place: I64) -> dict[int, list[tuple[int, int]]]:
    """The ranks each rank is compared with, as (weight, rank): the first, or the root, of each.

    All ranks are numbered by `place`, which has that of each row.
    """
    match, is_rendezvous = full["match"].to_numpy(), full["is_rendezvous"].to_numpy(dtype=bool)
    first = pd.Series(place).groupby(match).transform("min").to_numpy(np.int64)
    is_root = (full["peer"] == full["rank"]).to_numpy(dtype=bool)
    root_of = pd.Series(np.where(is_root, place, -1)).groupby(match).transform("max").to_numpy()
    hub = np.where(~is_rendezvous & (root_of >= 0), root_of, first)
    apart = place != hub
    n = int(place.max(initial=0)) + 1
    keys, pair = np.unique(hub[apart] * n + place[apart], return_inverse=True)
    # A rendezvous bounds a clock from both sides: one outweighs all other collectives.
    weight = np.where(is_rendezvous[apart], len(full), 1)
    weights = np.bincount(pair, weight, len(keys)).astype(np.int64)
    neighbors: dict[int, list[tuple[int, int]]] = {}
    for key, weight in zip(keys.tolist(), weights.tolist(), strict=True):
        first_place, second = divmod(key, n)
        neighbors.setdefault(first_place, []).append((weight, second))
        neighbors.setdefault(second, []).append((weight, first_place))
    return neighbors


def _tree(
    neighbors: Mapping[int, list[tuple[int, int]]], ranks: Iterable[int]
) -> Iterator[tuple[int, int]]:
    """Yield (rank, parent or -1), parents first: the tree with most collectives (Prim 1957)."""
    placed: set[int] = set()
    for root in ranks:
        waiting = [(0, root, -1)]
        while waiting:
            _, rank, parent = heapq.heappop(waiting)
            if rank in placed:
                continue
            placed.add(rank)
            yield rank, parent
            for count, other in neighbors.get(rank, ()):
                if other not in placed:
                    heapq.heappush(waiting, (-count, other, rank))


def fit_clocks(
    matched: pd.DataFrame,
    ranks: list[int],
    hosts: Mapping[int, str] | None = None,
    lost_ns: Mapping[int, int] | None = None,
) -> Clocks:
    """Fit the clocks of all ranks; the reference is the one that waited least.

    Common time is what the reference shows, moved to what the lowest rank of its component shows.
    Host ranges of one host (empty: unknown) share a clock, unless their collectives forbid it.
    Devices have clocks of their own. `lost_ns` is added to times of ranks that lost their host.
    """
    lost_ns = lost_ns or {}
    full = matched[matched["waits"] | matched["is_awaited"]]
    by_rank = {int(str(rank)): part for rank, part in full.groupby("rank")}
    fits: dict[int, ClockFit] = {}
    parents: dict[int, int] = {}
    bounds: dict[int, tuple[int, int]] = {}
    shared: dict[int, int] = {}
    apart, settled = _order(full, ranks), set[int]()
    while apart:
        settled.add(apart[0])
        left = full[full["rank"].isin(apart)]
        number = {rank: place for place, rank in enumerate(apart)}
        pairs = _neighbors(left, np.asarray(left["rank"].map(number), dtype=np.int64))
        for place, of in _tree(pairs, range(len(apart))):
            rank, parent = apart[place], apart[of] if of >= 0 else -1
            if parent < 0:
                parents.setdefault(rank, -1)
                fits.setdefault(rank, ClockFit(Clock(), 0, 0, 0, 0))
                bounds[rank] = (0, 0)
                continue
            parents[rank] = parent
            together = bool(hosts and hosts.get(rank) and hosts.get(rank) == hosts.get(parent))
            is_lost = rank in lost_ns or parent in lost_ns
            shift_ns = lost_ns.get(rank, 0) - lost_ns.get(parent, 0)
            clock = fits[parent].clock
            of_host = replace(
                clock, offset_ns=clock.offset_ns + shift_ns, origin_ns=clock.origin_ns - shift_ns
            )
            fits[rank] = _fit_pair(
                by_rank[rank],
                by_rank[parent],
                clock,
                of_host if together or is_lost else None,
                _LOST_HOST_NS if is_lost else ONE_HOST_NS,
            )
            if fits[rank].clock is of_host and not is_lost:
                shared[rank] = shared.get(parent, parent)
            fit, (low_ns, high_ns) = fits[rank], bounds[parent]
            offset_ns = fit.clock.offset_ns
            bounds[rank] = (low_ns + fit.low_ns - offset_ns, high_ns + fit.high_ns - offset_ns)
        # Ranks that do not fit the reference may fit each other: the reference may be the outlier.
        so_far = Clocks(fits, parents, bounds, shared)
        first = {rank: so_far.component(rank) for rank in apart}
        apart = [r for r in apart if fits[first[r]].width_ns < 0 and first[r] not in settled]
        apart.sort(key=lambda rank: first[rank] != rank)  # no root has a parent that fits
    found = Clocks({rank: fits[rank] for rank in sorted(fits)}, parents, bounds, shared)
    spreads, lowest_ns, told = _spreads(full, found), dict[int, int](), dict[int, ClockFit]()
    for rank, fit in found.fits.items():
        offset_ns = fit.clock.offset_ns
        by_ns = lowest_ns.setdefault(found.component(rank), offset_ns)
        told[rank] = ClockFit(
            replace(fit.clock, offset_ns=offset_ns - by_ns),
            *(fit.low_ns - by_ns, fit.high_ns - by_ns, spreads.get(rank, 0), fit.n_collectives),
        )
    return replace(found, fits=told)


def _spreads(full: pd.DataFrame, clocks: Clocks) -> dict[int, int]:
    """Median distance of each rank's ends of collectives from the median end of the others.

    Not from that of its parent, which may be the one that ends early or late.
    """
    full = full[ends_together(full)]
    full = full[full.groupby("match")["match"].transform("size") > 1]
    match, rank = full["match"].to_numpy(np.int64), full["rank"].to_numpy(np.int64)
    end = clocks.to_common(rank, full["end_ns"].to_numpy(np.int64))
    order = np.lexsort((end, match))
    match, rank, end = match[order], rank[order], end[order]
    begins = np.flatnonzero(np.diff(match, prepend=-1))
    size = np.diff(begins, append=len(match))
    first, n_others = np.repeat(begins, size), np.repeat(size - 1, size)
    place = np.arange(len(match)) - first
    low, high = (n_others - 1) // 2, n_others // 2  # places of their median
    median = (end[first + low + (low >= place)] + end[first + high + (high >= place)]) // 2
    by_rank = pd.Series(np.abs(end - median)).groupby(rank).median()
    return {int(str(one)): int(ns) for one, ns in by_rank.items()}


def _fit_pair(
    member: pd.DataFrame,
    parent: pd.DataFrame,
    parent_clock: Clock,
    of_host: Clock | None,
    within_ns: int,
) -> ClockFit:
    """Fit the clock of a rank to its parent's, by the collectives of both.

    `of_host` is the clock that it has within some time if both are on one host.
    """
    _, own, others = np.intersect1d(
        member["match"].to_numpy(),
        parent["match"].to_numpy(),
        assume_unique=True,
        return_indices=True,
    )
    start, end, waits, is_awaited = (member[name].to_numpy()[own] for name in _FITTED)
    parent_start, parent_end, parent_waits, parent_awaited = (
        parent[name].to_numpy()[others] for name in _FITTED
    )
    columns = (
        start,
        end,
        parent_clock.to_common(parent_start),
        parent_clock.to_common(parent_end),
    )
    roles = {"waits": waits & parent_awaited, "is_awaited": is_awaited & parent_waits}
    on_host = member["is_on_host"].to_numpy(dtype=bool)[own]
    if of_host is not None and on_host.all():
        shared = shared_clock(*columns, **roles, clock=of_host, within_ns=within_ns)
        if shared is not None:
            return shared
    return fit_clock(*columns, **roles, ends_together=ends_together(member)[own])
