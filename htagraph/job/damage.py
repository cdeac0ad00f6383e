"""What a job lacks or has wrong: the damage of its ranks, and what only their comparison shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import NamedTuple

import numpy as np

from htagraph.job.ranks import RankSummary, listed
from htagraph.job.timeline import Timeline, apart_in_words
from htagraph.model.arrays import I64
from htagraph.model.labels import printable
from htagraph.model.recording import Damage, DamageKind, damage_in_words
from htagraph.model.units import human_count, human_duration
from htagraph.queries.communication import HOST_RANGE
from htagraph.readers.storage import name_of

_CLOCKS_APART_NS = 1_000_000
"""Clocks of processes of one host that are further apart are not one. Measured: 0 in 17 jobs of one
host; processes calibrate their ticks to 0.1 ms. Pinned by test_collectives."""

WHOLE_JOB = -1
"""Rank of damage that no rank has alone."""

_FAR_INSIDE = 0.1
"""Share of the job, and of what others ran with it, that a rank may lack at an end: profilers do
not start and stop at one time. Chosen: test_damage."""

_NOT_BLAMED = (
    "waiting for a missing rank counts as communication, and no rank is called late for it"
)


class RankDamage(NamedTuple):
    """Damage of a rank, or of the job as a whole (-1)."""

    rank: int
    damage: Damage


class _Recorded(NamedTuple):
    """What a rank recorded, in common time."""

    rank: int
    start_ns: int
    end_ns: int
    begin_ns: Mapping[str, I64]  # Starts of the collectives that all members of a group run
    steps: Mapping[str, int]


def find_damage(
    timeline: Timeline, failed: Mapping[str, str], missing: Sequence[int]
) -> list[RankDamage]:
    """All damage of a job: of ranks on their clocks, of the job in common time."""
    summaries = timeline.graphs.summaries
    cut = dict(_cut_ranks(timeline)) | dict(_cut_apart(timeline))
    found = [RankDamage(rank, one) for rank, one in cut.items()]
    found += damage_of_ranks(summaries, apart_from=cut)
    ends = [_ends(timeline, rank) for rank in timeline.aligned]
    start_ns, end_ns = min(start for start, _ in ends), max(end for _, end in ends)
    for kind, n, n_all, said in (*_absent(failed, missing, len(summaries)), *_unmatched(timeline)):
        found.append(RankDamage(WHOLE_JOB, Damage(kind, n, n_all, start_ns, end_ns, said)))
    return found


def told_once(found: Sequence[RankDamage]) -> list[RankDamage]:
    """Some damage without the cut files of ranks that are said to end early, and why."""
    cut = {one.rank for one in found if one.damage.kind == DamageKind.CUT_RANK}
    return [one for one in found if one.damage.kind != DamageKind.CUT_FILE or one.rank not in cut]


def damage_of_ranks(
    summaries: Mapping[int, RankSummary], *, apart_from: Collection[int] = ()
) -> list[RankDamage]:
    """The damage that shows without common time; of the steps, between all but some ranks."""
    cut = {rank for rank, own in summaries.items() if _has_cut_file(own)}
    usual = [own.n_events for rank, own in summaries.items() if rank not in cut]
    found = [
        RankDamage(rank, _compared(one, own.n_events, usual))
        for rank, own in summaries.items()
        for one in own.damage
    ]
    whole = {rank: own for rank, own in summaries.items() if rank not in cut.union(apart_from)}
    start_ns = min(own.ends.start_ns for own in summaries.values())
    end_ns = max(own.ends.end_ns for own in summaries.values())
    for kind, n, n_all, said in _other_steps(whole):
        found.append(RankDamage(WHOLE_JOB, Damage(kind, n, n_all, start_ns, end_ns, said)))
    return found


def _compared(one: Damage, n_events: int, usual: Sequence[int]) -> Damage:
    """Damage of a rank; of a cut file with the events of the rank and of ranks with whole files."""
    if one.kind != DamageKind.CUT_FILE or not usual:
        return one
    own, median = human_count(n_events, "event"), int(np.median(usual))
    return one._replace(said=f"{one.said} It has {own}, the median of other ranks is {median:,}.")


def job_damage_in_words(found: Iterable[RankDamage]) -> tuple[str, ...]:
    """The sentences of damage, the worst kind first; ranks with damage of one kind share one."""
    by_kind: dict[DamageKind, list[RankDamage]] = {}
    for one in found:
        by_kind.setdefault(one.damage.kind, []).append(one)
    return damage_in_words(one for rows in by_kind.values() for one in _joined(rows))


def _joined(rows: Sequence[RankDamage]) -> Iterator[Damage]:
    """Yield damage of the job as it is, and that of the ranks as one with their numbers."""
    yield from (one.damage for one in rows if one.rank == WHOLE_JOB)
    ranks = [one for one in rows if one.rank != WHOLE_JOB]
    if not ranks:
        return
    worst = max(ranks, key=lambda one: (one.damage.n / max(one.damage.n_all, 1), -one.rank))
    same = sorted({one.rank for one in ranks if one.damage.said == worst.damage.said})
    others = sorted({one.rank for one in ranks}.difference(same))
    said = f"rank{'s' if len(same) > 1 else ''} {listed(same)}: {worst.damage.said}"
    if others:
        said += f" Likewise rank{'s' if len(others) > 1 else ''} {listed(others)}."
    yield worst.damage._replace(said=said)


def _ends(timeline: Timeline, rank: int) -> tuple[int, int]:
    return timeline.graphs.summaries[rank].ends.common(timeline.clocks[rank])


def _absent(
    failed: Mapping[str, str], missing: Sequence[int], n_loaded: int
) -> Iterator[tuple[DamageKind, int, int, str]]:
    """Yield what is said of files that could not be used, and of ranks without a file."""
    if failed:
        path, why = next(iter(failed.items()))
        files = f"{len(failed):,} of {human_count(len(failed) + n_loaded, 'file')}"
        more = "" if len(failed) == 1 else ", …"
        short = why.removeprefix(f"{path}: ").partition(" Hint:")[0]
        named = f"{name_of(Path(path))}: {short.rstrip('.')}{more}"
        blamed = f"; {_NOT_BLAMED}" if 0 < len(missing) <= len(failed) else ""
        said = f"{files} could not be used ({named}){blamed}."
        yield DamageKind.FAILED_FILE, len(failed), len(failed) + n_loaded, said
    if len(missing) > len(failed):
        n_all = len(missing) + n_loaded
        named = f"{len(missing):,} of {human_count(n_all, 'rank')} ({listed(missing)})"
        said = f"traces missing: {named}; {_NOT_BLAMED}."
        yield DamageKind.MISSING_RANKS, len(missing), n_all, said


def _other_steps(
    summaries: Mapping[int, RankSummary],
) -> Iterator[tuple[DamageKind, int, int, str]]:
    """Yield what is said of steps that some ranks recorded and others did not."""
    by_steps: dict[tuple[str, ...], list[int]] = {}
    for rank, summary in sorted(summaries.items()):
        by_steps.setdefault(summary.steps, []).append(rank)
    if len(by_steps) < 2:
        return
    counts = [Counter(steps) for steps in by_steps]
    n_all = reduce(or_, counts).total()
    n = n_all - reduce(and_, counts).total()
    each = "; ".join(_steps_of(ranks, steps) for steps, ranks in by_steps.items())
    said = (
        f"the ranks recorded different steps ({each}): work that only some recorded has no "
        "counterpart."
    )
    yield DamageKind.OTHER_STEPS, n, n_all, said


def _steps_of(ranks: Sequence[int], steps: Sequence[str]) -> str:
    """The steps that some ranks recorded, in words."""
    recorded = " to ".join(dict.fromkeys((steps[0], steps[-1]))) if steps else "none"
    return f"rank {listed(ranks)}: {recorded}"


def _unmatched(timeline: Timeline) -> Iterator[tuple[DamageKind, int, int, str]]:
    """Yield what is said of ranks that no clock aligns, and of kernels that are not matched."""
    summaries = timeline.graphs.summaries
    apart = sorted(set(summaries).difference(timeline.aligned))
    if apart := [rank for rank in apart if not _has_cut_file(summaries[rank])]:
        yield DamageKind.APART, len(apart), len(summaries), apart_in_words(apart)
    for said in timeline.unmatched:
        yield DamageKind.UNMATCHED, 1, 1, said
    yield from _lone(timeline)
    yield from _clocks_of_a_host(timeline)


def _clocks_of_a_host(timeline: Timeline) -> Iterator[tuple[DamageKind, int, int, str]]:
    """Yield what is said of ranks whose host ranges share a host, but not its clock."""
    members = timeline.members
    on_host = set(members.loc[members["is_on_host"], "rank"].tolist())
    by_host: dict[str, list[int]] = {}
    for rank in sorted(on_host.intersection(timeline.aligned)):
        by_host.setdefault(timeline.graphs.summaries[rank].host, []).append(rank)
    by_host.pop("", None)
    for host, ranks in by_host.items():
        offset_ns = np.array([timeline.clocks[rank].offset_ns for rank in ranks])
        far = np.abs(offset_ns - np.median(offset_ns)) > _CLOCKS_APART_NS
        if np.ptp(offset_ns) <= _CLOCKS_APART_NS:
            continue
        apart = human_duration(int(np.ptp(offset_ns)))
        said = (
            f"ranks {listed(ranks)} are of host {printable(host)}, but their clocks are {apart} "
            "apart: a clock was set, or these are several hosts; a rank that is a little late is "
            "not told from a late clock."
        )
        yield DamageKind.UNMATCHED, max(int(far.sum()), 1), len(ranks), said


def _lone(timeline: Timeline) -> Iterator[tuple[DamageKind, int, int, str]]:
    """Yield what is said of collectives that other ranks lack, although all recorded then.

    Of those that one rank alone has, only of groups in which its other collectives are matched: the
    others of the rest may not be loaded. The first and the last may be from outside the capture.
    """
    ends = [_ends(timeline, rank) for rank in timeline.aligned]
    start_ns, end_ns = max(start for start, _ in ends), min(end for _, end in ends)
    by_rank, n_all = {}, 0
    for rank, members in timeline.members.groupby("rank"):
        summary, clock = timeline.graphs.summaries[int(str(rank))], timeline.clocks[int(str(rank))]
        table = summary.collectives
        table = table[table["is_rendezvous"] & table["group"].isin(members["group"].unique())]
        start, end = (
            clock.to_common(table[one].to_numpy(np.int64)) for one in ("start_ns", "end_ns")
        )
        table = table[(start > start_ns) & (end < end_ns)]
        n_all += len(table)
        if n := int((~table["event"].isin(members["event"])).sum()):
            by_rank[int(str(rank))] = n
    if by_rank:
        n = sum(by_rank.values())
        said = (
            f"{n:,} of {human_count(n_all, 'collective')} of rank {listed(sorted(by_rank))} have "
            "no counterpart, although the others recorded at that time: some were lost, and "
            "waiting in them is no wait for a late rank."
        )
        yield DamageKind.LOST_EVENTS, n, n_all, said
    else:
        yield from _lacking(timeline)


def _lacking(timeline: Timeline) -> Iterator[tuple[DamageKind, int, int, str]]:
    """Yield what is said of matched collectives that some rank lacks between others of its own."""
    members, takers = timeline.members, timeline.takers
    first_ns, last_ns = {}, {}
    for rank in members["rank"].unique().tolist():
        table = timeline.graphs.summaries[rank].collectives
        all_ns = timeline.clocks[rank].to_common(table["start_ns"].to_numpy(np.int64))
        first_ns[rank], last_ns[rank] = all_ns.min(), all_ns.max()
    times = timeline.collectives[["match", "start_ns", "end_ns"]].assign(
        communicator=members["communicator"].to_numpy()
    )
    matches = times.groupby(["match", "communicator"], as_index=False).agg(
        {"start_ns": "min", "end_ns": "max"}
    )
    pairs = matches.merge(takers[takers["rank"].isin(first_ns)], on="communicator")
    is_between = pairs["start_ns"] > pairs["rank"].map(first_ns)
    pairs = pairs[is_between & (pairs["end_ns"] < pairs["rank"].map(last_ns))]
    there = members.set_index(["match", "rank"]).index
    lacking = pairs[~pairs.set_index(["match", "rank"]).index.isin(there)]
    if n := lacking["match"].nunique():
        said = (
            f"{n:,} of {human_count(len(matches), 'collective')} are not on rank "
            f"{listed(sorted(lacking['rank'].unique().tolist()))}, which recorded earlier and "
            "later ones: they were lost, or its clock was set."
        )
        yield DamageKind.LOST_EVENTS, n, len(matches), said


def _cut_ranks(timeline: Timeline) -> Iterator[tuple[int, Damage]]:
    """Yield ranks whose recording ends, or begins, far inside that of the others.

    A rank may finish early, so others must have run something with it: collectives of a group that
    it takes part in, or steps that it did not record. Ranks whose files are cut off show nothing of
    others: their clocks may be wrong.
    """
    summaries = timeline.graphs.summaries
    recorded = [_recorded(timeline, rank) for rank in timeline.aligned]
    whole = [one for one in recorded if not _has_cut_file(summaries[one.rank])]
    if not whole:
        return
    first_ns, end_ns = min(one.start_ns for one in whole), max(one.end_ns for one in whole)
    start_ns = max(one.start_ns for one in whole)
    for own in recorded:
        early_ns, late_ns = end_ns - own.end_ns, own.start_ns - first_ns
        ends = summaries[own.rank].ends
        if early_ns > _FAR_INSIDE * (end_ns - start_ns):
            n, n_all = _ran_without(whole, own, own.end_ns, end_ns)
            if n > _FAR_INSIDE * n_all:
                share = max(own.end_ns - start_ns, 0) / max(end_ns - start_ns, 1)
                is_cut = _has_cut_file(summaries[own.rank])
                because = ", as its file is cut off" if is_cut else ""
                said = (
                    f"recorded only up to {share:.0%} of the job{because}; what the others did "
                    "afterwards is judged without it, and predictions leave it out."
                )
                until_ns = ends.end_ns + early_ns
                yield own.rank, Damage(DamageKind.CUT_RANK, n, n_all, ends.end_ns, until_ns, said)
        elif late_ns > _FAR_INSIDE * (end_ns - first_ns):
            n, n_all = _ran_without(whole, own, first_ns, own.start_ns)
            if n > _FAR_INSIDE * n_all:
                share = late_ns / (end_ns - first_ns)
                said = (
                    f"recorded only from {share:.0%} of the job on; the verdict is on what follows."
                )
                since_ns = ends.start_ns - late_ns
                yield own.rank, Damage(DamageKind.CUT_RANK, n, n_all, since_ns, ends.start_ns, said)


def replayed_ranks(timeline: Timeline) -> tuple[int, ...]:
    """The aligned ranks that have their end, and device work if others have some.

    In the replay of another all that it did not record takes no time, and no rank waits for it.
    """
    summaries = timeline.graphs.summaries
    left_out = {
        rank for rank, one in _cut_ranks(timeline) if one.start_ns >= summaries[rank].ends.end_ns
    }
    has_device = [rank for rank, one in summaries.items() if one.context.has_device]
    whole = set(has_device or summaries) - left_out
    return tuple(rank for rank in timeline.aligned if rank in whole)


def _cut_apart(timeline: Timeline) -> Iterator[tuple[int, Damage]]:
    """Yield ranks of which so little is left that no clock aligns them."""
    for rank, summary in timeline.graphs.summaries.items():
        for one in summary.damage:
            if one.kind == DamageKind.CUT_FILE and rank not in timeline.aligned:
                said = (
                    "its file is cut off, and no clock aligns the rest with the others; path, "
                    "window and findings are without it."
                )
                yield rank, one._replace(kind=DamageKind.CUT_RANK, said=said)


def _has_cut_file(summary: RankSummary) -> bool:
    return any(one.kind == DamageKind.CUT_FILE for one in summary.damage)


def _recorded(timeline: Timeline, rank: int) -> _Recorded:
    summary, clock = timeline.graphs.summaries[rank], timeline.clocks[rank]
    table = summary.collectives
    on_host = (table["found_by"] == HOST_RANGE).to_numpy(dtype=bool)
    has_group = (table["group"] != "").to_numpy(dtype=bool) | on_host
    table = table[table["is_rendezvous"].to_numpy(dtype=bool) & has_group]
    begin_ns = {
        str(group): np.sort(clock.to_common(part.to_numpy(np.int64)))
        for group, part in table.groupby("group", sort=False)["start_ns"]
    }
    steps = {one.name: int(clock.to_common(one.start_ns)) for one in summary.starts}
    return _Recorded(rank, *_ends(timeline, rank), begin_ns, steps)


def _ran_without(
    whole: Sequence[_Recorded], own: _Recorded, start_ns: int, end_ns: int
) -> tuple[int, int]:
    """Collectives that another member of a rank's groups ran in some time, and at all times.

    Of the others, the one with most counts. If there are none, steps that the rank did not record,
    and all steps.
    """
    n = n_all = 0
    for group in own.begin_ns:
        others = (
            one.begin_ns[group] for one in whole if one.rank != own.rank and group in one.begin_ns
        )
        most = max(others, key=len, default=None)
        if most is not None:
            first, last = np.searchsorted(most, [start_ns, end_ns])
            n, n_all = n + int(last - first), n_all + len(most)
    if n:
        return n, n_all
    steps = {name: at for one in whole for name, at in one.steps.items()}
    missing = [at for name, at in steps.items() if name not in own.steps]
    return sum(start_ns <= at < end_ns for at in missing), len(steps)
