"""Collectives matched by evidence, where ranks recorded different ones.

A rank may lack its first step, some collectives, or the end of its file. So its collectives are
compared in time: an offset of its clock says which are the same, in all groups at once. Several
offsets are tried, and the one with most evidence is taken, if it is clearly better than any that
matches other collectives:

- ranges of one host have one clock, and devices of one host nearly; so have ranks that share other
  collectives that are matched already;
- operations, sizes and types are equal, and few lack a partner;
- both belong to steps of one name;
- their ends are near each other: steps differ in length by more than the ends of one collective.

The ranks with most collectives in common come first; each later one is compared with all before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from htagraph.arrays.clocks import ONE_HOST_NS, Clock, fit_clock
from htagraph.arrays.sequences import Timed, align, likely_offsets
from htagraph.job.clocks import fit_clocks
from htagraph.model.arrays import I64, Bools

_A_CLOCK = 12.0
"""Evidence of a clock that is known, in nats: more than step names and sizes. On one host, time is
right where step names are not."""
_A_SIGN = 6.0
"""Evidence, in nats, if all steps have the same names, or all sizes are equal, or none lacks a
partner: odds of 1 to 400. Chosen."""
_A_LOSS = 2.0
"""Evidence against a match, in nats, for each end that one side alone recorded: fewer losses are
more likely. Two, as of a shift of equal sequences, are more than is in doubt. Chosen."""
_LEAST_PAIRED = 0.6
"""Least share with a partner of what both recorded at one time. Chosen."""
_MOST_MEETINGS = 5
"""Collectives whose ends count: those of one step are late together, so more prove no more."""
_CLEAR = 3.0
"""Evidence, in nats, by which the best match has to exceed all others: odds of 1 to 20. Chosen."""
_DEVICES_NS = 1_000_000
"""Distance of clocks of devices of one host that halves the evidence of that. Chosen."""
_DEVICE_SCALES_NS = 20_000, 2_000_000
"""Least and most by which ends of devices are taken to differ. Least: calibration. Chosen."""
_HOST_SCALES_NS = 200_000, 2_000_000
"""The same for ranges of hosts, which end up to 6 ms apart on a busy machine."""
_FIRST_SCALE_NS = 500_000
"""By how much ends are taken to differ at first. Chosen."""
_EXCERPT = 1_000
"""Collectives by which offsets of longer ranks are tried first: to try one takes 30 us for each."""
_MOST_WHOLE = 3
"""Offsets that are tried with all of them. Chosen."""
_SLACK_NS = 2_000_000
"""By how much a clock that is tried may be off: as far apart as distances that vote together."""


class _Columns(NamedTuple):
    """The collectives of one communicator, in order, in common time."""

    timed: Timed
    step: I64
    number: I64


@dataclass(frozen=True)
class _Tried:
    """A match of a rank, by communicator, and its evidence."""

    clock: Clock
    place: dict[int, I64]
    is_doubtful: dict[int, Bools]
    evidence: float

    def differs(self, other: _Tried) -> bool:
        """Whether it matches most of what both match otherwise."""
        both = [(self.place[one], other.place[one]) for one in self.place]
        own, others = (np.concatenate(places) for places in zip(*both, strict=True))
        common = (own >= 0) & (others >= 0)
        return bool((own != others)[common].mean() > 0.5) if common.any() else True


def matched_by_evidence(
    table: pd.DataFrame,
    certain: pd.DataFrame,
    hosts: Mapping[int, str],
    lost_ns: Mapping[int, int],
) -> tuple[I64, Bools]:
    """Place of each row in the order of its communicator, -1 for none; and what is in doubt.

    `table`: collectives of communicators whose ranks differ, by communicator and rank, in order of
    launch. Columns ``symbol``, ``size`` and ``step`` are numbers, ``usual`` the place of a row
    among those of ranks that do not differ, else -1; ``waits`` and ``is_awaited`` as in
    `Matching.members`. `certain`: members of collectives that are matched for certain. `lost_ns`:
    what has to be added to times of ranks that lost their host, if they are on that of others.
    """
    placing = _Placing(table, certain, hosts, lost_ns)
    return placing.places(), placing.is_doubtful


class _Placing:
    """The ranks that have a place so far, and what they recorded."""

    def __init__(
        self,
        table: pd.DataFrame,
        certain: pd.DataFrame,
        hosts: Mapping[int, str],
        lost_ns: Mapping[int, int],
    ) -> None:
        self._rank, self._communicator, self._step, self._usual = (
            table[name].to_numpy(np.int64) for name in ("rank", "communicator", "step", "usual")
        )
        self._timed = Timed(
            *(table[name].to_numpy(np.int64) for name in ("symbol", "size", "start_ns", "end_ns")),
            *(table[name].to_numpy(dtype=bool) for name in ("waits", "is_awaited")),
        )
        self._on_host = table["is_on_host"].to_numpy(dtype=bool)
        self._hosts, self._lost_ns = hosts, lost_ns
        self._columns: dict[int, _Columns] = {}
        self._clocks: dict[int, Clock] = {}
        self._number = np.full(len(table), -1, dtype=np.int64)
        self.is_doubtful = np.zeros(len(table), dtype=bool)
        self._place_all(certain)

    def places(self) -> I64:
        """Place of each row in the order of its communicator, -1 for none."""
        place = np.full(len(self._number), -1, dtype=np.int64)
        for communicator, rows in self._parts(np.flatnonzero(self._number >= 0)):
            place[rows] = np.argsort(self._columns[communicator].number)[self._number[rows]]
        return place

    def _place_all(self, certain: pd.DataFrame) -> None:
        ranks = np.unique(self._rank).tolist()
        of_rank = {rank: np.flatnonzero(self._rank == rank) for rank in ranks}
        # Where ranges are lost, others are taken for those of their calls: their own times count.
        in_time = np.where(self._on_host, self._timed.start_ns, 0)
        fitted = fit_clocks(certain, sorted({*ranks, *certain["rank"].tolist()}), self._hosts)
        first = {rank: fitted.component(rank) for rank in ranks}
        n_in = pd.Series([first[rank] for rank in self._rank.tolist()]).value_counts()
        n_own = {
            rank: (rank not in self._lost_ns, n_in[first[rank]], len(of_rank[rank]), -rank)
            for rank in ranks
        }
        main = max(ranks, key=lambda rank: n_own[rank])
        known = {r: fitted.clock(r) for r in ranks if first[r] == first[main]}
        for rank, clock in known.items():
            self._add_usual(rank, of_rank[rank][self._usual[of_rank[rank]] >= 0], clock)
        left = {rank: rows[self._number[rows] < 0] for rank, rows in of_rank.items()}
        left = {
            rank: rows[np.argsort(in_time[rows], kind="stable")]
            for rank, rows in left.items()
            if len(rows)
        }
        while left:
            common = {r: np.isin(self._communicator[left[r]], [*self._columns]).sum() for r in left}
            rank = max(left, key=lambda one: (common[one], n_own[one]))
            rows = left.pop(rank)
            if common[rank]:
                self._place(rank, rows, known.get(rank))
            else:
                self._add(rank, rows, known.get(rank, Clock()), {})

    def _add_usual(self, rank: int, rows: I64, clock: Clock) -> None:
        """Add the collectives of a rank where it does not differ."""
        for communicator, own in self._parts(rows):
            if communicator in self._columns:
                self._number[own] = self._usual[own]
            else:
                self._add(rank, own, clock, {})
        self._clocks[rank] = clock

    def _parts(self, rows: I64) -> Iterator[tuple[int, I64]]:
        """Yield rows by communicator."""
        of = self._communicator[rows]
        for communicator in np.unique(of).tolist():
            yield communicator, rows[of == communicator]

    def _timed_at(self, rows: I64, clock: Clock) -> Timed:
        one = self._timed
        start, end = (clock.to_common(ts_ns[rows]) for ts_ns in (one.start_ns, one.end_ns))
        roles = one.waits[rows], one.is_awaited[rows]
        return Timed(one.symbol[rows], one.size[rows], start, end, *roles)

    def _add(self, rank: int, rows: I64, clock: Clock, place: Mapping[int, I64]) -> None:
        """Add the collectives of a rank: to those of their places, others as new ones."""
        self._clocks[rank] = clock
        for communicator, own in self._parts(rows):
            found = place.get(communicator, np.full(len(own), -1, dtype=np.int64))
            new = own[(found < 0) & ~self.is_doubtful[own]]
            known = self._columns.get(communicator)
            n_known = 0 if known is None else len(known.number)
            if known is not None:
                self._number[own[found >= 0]] = known.number[found[found >= 0]]
            self._number[new] = n_known + np.arange(len(new))
            added = _Columns(self._timed_at(new, clock), self._step[new], self._number[new])
            if known is not None:
                added = _inserted(known, added, found[(found >= 0) | np.isin(own, new)])
            self._columns[communicator] = added

    def _place(self, rank: int, rows: I64, known: Clock | None) -> None:
        """Match the collectives of a rank with those of all before, if that is clear."""
        inside = rows[np.isin(self._communicator[rows], [*self._columns])]
        tried = [one for one in self._tries(rank, inside, known) if one is not None]
        tried.sort(key=lambda one: -one.evidence)
        others = [one.evidence for one in tried[1:] if one.differs(tried[0])]
        if not tried or tried[0].evidence - max([0.0, *others]) < _CLEAR:
            self.is_doubtful[rows] = True
            return
        best = tried[0]
        for communicator, own in self._parts(inside):
            self.is_doubtful[own[best.is_doubtful[communicator]]] = True
            best.place[communicator][best.is_doubtful[communicator]] = -1
        self._add(rank, rows, best.clock, best.place)

    def _tries(self, rank: int, rows: I64, known: Clock | None) -> Iterator[_Tried | None]:
        """Yield the match by each offset that the clock may have."""
        shared, bonus = (known, _A_CLOCK) if known is not None else self._clock_of_host(rank)
        if shared is not None and (known is not None or self._on_host[rows].all()):
            yield self._tried(rows, shared, bonus, is_known=True)
            shared = None
        offsets = [*dict.fromkeys(self._offsets(rows))]
        if len(rows) > _EXCERPT:
            middle = np.argsort(self._timed.start_ns[rows], kind="stable")
            middle = rows[np.sort(middle[(len(rows) - _EXCERPT) // 2 :][:_EXCERPT])]
            offsets = self._best_of(offsets, middle)
        for offset in offsets:
            yield self._tried(rows, Clock(offset), bonus, near=shared)

    def _best_of(self, offsets: list[int], rows: I64) -> list[int]:
        """The offsets by which some collectives match best, each otherwise."""
        at = int(np.median(self._timed.end_ns[rows]))
        tried = [self._tried(rows, Clock(offset), 0.0) for offset in offsets]
        best: list[_Tried] = []
        for one in sorted(filter(None, tried), key=lambda one: -one.evidence):
            if all(one.differs(other) for other in best):
                best.append(one)
        return [int(one.clock.to_common(at)) - at for one in best[:_MOST_WHOLE]]

    def _clock_of_host(self, rank: int) -> tuple[Clock | None, float]:
        """The clock of another rank of the host, None for none, and the evidence that it gives.

        A rank that lost its host is likely to be on that of the others.
        """
        host, lost_ns = self._hosts.get(rank, ""), self._lost_ns.get(rank)
        alike = [one for one in self._clocks if self._hosts.get(one)]
        if host or lost_ns is None:
            alike = [one for one in alike if self._hosts[one] == host]
        if not alike:
            return None, 0.0
        clock = self._clocks[alike[0]]
        if host or lost_ns is None:
            return clock, _A_CLOCK
        return replace(clock, offset_ns=clock.offset_ns + lost_ns), _A_SIGN

    def _offsets(self, rows: I64) -> list[int]:
        """Offsets by which many ends are near: those of one step, the first, the last, or any."""
        own, other, steps, other_steps = [], [], [], []
        found: list[int] = []
        for communicator, part in self._parts(rows):
            columns = self._columns[communicator]
            ends, others = self._timed.end_ns[part], columns.timed.end_ns
            n = min(len(ends), len(others))
            if n:
                found += [
                    int(np.median(others[:n] - ends[:n])),
                    int(np.median(others[-n:] - ends[-n:])),
                ]
            own.append(part)
            other.append((columns.timed.symbol, others))
            steps.append(_within(self._step[part], self._timed.symbol[part]))
            other_steps.append(_within(columns.step, columns.timed.symbol))
        rows = np.concatenate(own)
        symbols, others = (np.concatenate(part) for part in zip(*other, strict=True))
        ends = self._timed.end_ns[rows]
        by_step = pd.DataFrame(np.concatenate(steps)).assign(own=ends)
        by_step = by_step[by_step[0] >= 0].merge(
            pd.DataFrame(np.concatenate(other_steps)).assign(other=others), on=[0, 1, 2]
        )
        if len(by_step):
            found.append(int((by_step["other"] - by_step["own"]).median()))
        return found + likely_offsets(self._timed.symbol[rows], ends, symbols, others)

    def _tried(
        self,
        rows: I64,
        clock: Clock,
        bonus: float,
        *,
        is_known: bool = False,
        near: Clock | None = None,
    ) -> _Tried | None:
        """The match by a clock, which is fitted to it unless it is known; None for none.

        `bonus` is the evidence of a clock that is known, or equals the one that is likely.
        """
        parts = dict(self._parts(rows))
        found = self._paired(parts, clock, _FIRST_SCALE_NS, is_known=is_known)
        if found is not None:  # again, by the clock and the scale that were fitted
            found = self._paired(parts, *found[:2], is_known=is_known)
        if found is None:
            return None
        clock, scale_ns, place, is_doubtful, own, size, step = found
        paired = len(own) / max(self._n_expected(parts, clock), len(own))
        if paired < _LEAST_PAIRED:
            return None
        n_free = len(own) - (not is_known)
        usual_ns = float(np.ptp(self._timed.end_ns[rows])) / max(len(rows) - 1, 1)
        named = (self._step[own] >= 0) & (step >= 0)
        evidence = (
            min(n_free, _MOST_MEETINGS) * max(np.log(max(usual_ns / (2 * scale_ns), 1)), 0)
            + _A_SIGN * _share(self._timed.size[own] == size)
            + _A_SIGN * _share((self._step[own] == step)[named])
            + _A_SIGN * paired
            - _A_LOSS * self._n_open_ends(place)
        )
        if is_known:
            evidence += bonus * paired
        elif near is not None:
            at = int(self._timed.end_ns[own[0]])
            off_ns = abs(int(clock.to_common(at)) - int(near.to_common(at)))
            evidence += bonus * paired * _DEVICES_NS / (_DEVICES_NS + off_ns)
        return _Tried(clock, place, is_doubtful, float(evidence))

    def _paired(
        self, parts: Mapping[int, I64], clock: Clock, scale_ns: int, *, is_known: bool
    ) -> tuple[Clock, int, dict[int, I64], dict[int, Bools], I64, I64, I64] | None:
        """The clock and the scale by the pairs that a clock makes; None for none.

        Then, by communicator, the place of each collective, and whether that is in doubt. Of pairs,
        the row of the rank's collective, and the size and the step of the other one.
        """
        rows = np.concatenate([*parts.values()])
        on_host = bool(self._on_host[rows].all())
        slack_ns = ONE_HOST_NS if is_known and on_host else _SLACK_NS
        found = {
            one: align(self._timed_at(own, clock), self._columns[one].timed, scale_ns, slack_ns)
            for one, own in parts.items()
        }
        place = {one: at for one, (at, _) in found.items()}
        own = np.concatenate([parts[one][at >= 0] for one, at in place.items()])
        if not len(own):
            return None
        columns = [(self._columns[one], at[at >= 0]) for one, at in place.items()]
        start, end, size = (
            np.concatenate([getattr(column.timed, name)[at] for column, at in columns])
            for name in ("start_ns", "end_ns", "size")
        )
        meets = self._timed.meets[own]
        if not is_known:
            roles = {"waits": meets, "is_awaited": meets, "ends_together": meets}
            times = (self._timed.start_ns[own], self._timed.end_ns[own], start, end)
            clock = fit_clock(*times, **roles).clock
        apart = np.abs(end - clock.to_common(self._timed.end_ns[own]))
        spread = np.median(apart[meets] if meets.any() else apart)
        least_ns, most_ns = _HOST_SCALES_NS if on_host else _DEVICE_SCALES_NS
        return (
            clock,
            int(np.clip(spread, least_ns, most_ns)),
            place,
            {one: is_doubtful for one, (_, is_doubtful) in found.items()},
            own,
            size,
            np.concatenate([column.step[at] for column, at in columns]),
        )

    def _n_open_ends(self, place: Mapping[int, I64]) -> int:
        """Of the beginning and the end of both sides, how many the other one lacks."""
        ends = np.zeros(4, dtype=bool)
        for communicator, found in place.items():
            rows = np.flatnonzero(found >= 0)
            if len(rows):
                last = len(self._columns[communicator].number) - 1
                at = found[rows]
                ends |= [rows[0] > 0, at[0] > 0, rows[-1] < len(found) - 1, at[-1] < last]
        return int(ends.sum())

    def _n_expected(self, parts: Mapping[int, I64], clock: Clock) -> int:
        """How many collectives both sides recorded while the other one did."""
        n = 0
        for communicator, own in parts.items():
            ends = clock.to_common(self._timed.end_ns[own])
            others = self._columns[communicator].timed.end_ns
            n += min(_n_between(ends, others), _n_between(others, ends))
        return n


def _share(holds: Bools) -> float:
    """The share that holds; of none, 0."""
    return float(holds.mean()) if len(holds) else 0.0


def _n_between(times: I64, others: I64) -> int:
    """How many of some times are within those of the others."""
    if not len(others):
        return 0
    return int(((times >= others.min()) & (times <= others.max())).sum())


def _within(step: I64, symbol: I64) -> I64:
    """Step, symbol, and which of that symbol in that step each one is."""
    frame = pd.DataFrame({"step": step, "symbol": symbol})
    nth = frame.groupby(["step", "symbol"]).cumcount()
    return np.column_stack([step, symbol, nth])


def _inserted(known: _Columns, new: _Columns, place: I64) -> _Columns:
    """Columns with new ones, which stand between their neighbors in the order of a rank.

    `place` has the column of each of the rank's collectives, -1 for the new ones.
    """
    n = len(known.number)
    before = np.maximum.accumulate(place)[place < 0]
    after = np.minimum.accumulate(np.where(place < 0, n, place)[::-1])[::-1][place < 0]
    by_time = np.searchsorted(np.maximum.accumulate(known.timed.end_ns), new.timed.end_ns)
    at = np.maximum.accumulate(np.clip(by_time, before + 1, after)) if len(by_time) else by_time
    order = np.argsort(np.concatenate([2 * np.arange(n) + 1, 2 * at]), kind="stable")

    def both(name: str) -> Any:  # noqa: ANN401
        first, second = (getattr(one, name) for one in (known.timed, new.timed))
        return np.concatenate([first, second])[order]

    return _Columns(
        Timed(*(both(one.name) for one in fields(Timed))),
        np.concatenate([known.step, new.step])[order],
        np.concatenate([known.number, new.number])[order],
    )
