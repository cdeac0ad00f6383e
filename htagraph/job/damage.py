"""What a job lacks or has wrong: the damage of its ranks, and what only their comparison shows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.job.ranks import RankSummary
from htagraph.job.timeline import Timeline, apart_in_words
from htagraph.job.windows import listed
from htagraph.model.damage import Damage, DamageKind, damage_in_words
from htagraph.model.units import human_count
from htagraph.queries.collectives import HOST_RANGE
from htagraph.queries.damage import damage_frame
from htagraph.readers.rank_paths import name_of

__all__ = [
    "RankDamage",
    "damage_of_ranks",
    "find_damage",
    "job_damage_frame",
    "job_damage_in_words",
]

I64 = npt.NDArray[np.int64]

WHOLE_JOB = -1
"""Rank of damage that no rank has alone."""

_FAR_INSIDE = 0.1
"""Share of the job, and of what others ran with it, that a rank may lack at an end: profilers do
not start and stop at one time.

Chosen. Pinned by `test_damage.py::test_a_rank_that_ends_a_little_early_is_whole`.
"""

_NOT_BLAMED = "waiting for one of them counts as communication, and no rank is called late for it"


class RankDamage(NamedTuple):
    """Damage of a rank, or of the job as a whole (-1)."""

    rank: int
    damage: Damage


class _Recorded(NamedTuple):
    """What a rank recorded, in common time: its ends, and the collectives that all members run."""

    start_ns: int
    end_ns: int
    group: npt.NDArray[np.object_]
    begin_ns: I64
    steps: Mapping[str, int]


def find_damage(
    timeline: Timeline, failed: Mapping[str, str], missing: Sequence[int]
) -> list[RankDamage]:
    """All damage of a job: of ranks on their clocks, of the job in common time.

    Parameters
    ----------
    failed : mapping of str to str
        Files that could not be used, and why.
    missing : sequence of int
        Ranks that were not loaded.
    """
    summaries = timeline.graphs.summaries
    cut = dict(_cut_ranks(timeline)) | dict(_cut_apart(timeline))
    found = [RankDamage(rank, one) for rank, one in cut.items()]
    found += [
        one
        for one in damage_of_ranks(summaries, apart_from=cut)
        if one.rank not in cut or one.damage.kind != DamageKind.CUT_FILE  # ends early: why is said
    ]
    start_ns, end_ns = _span(timeline)
    for kind, n, n_all, said in (*_absent(failed, missing, len(summaries)), *_unmatched(timeline)):
        found.append(RankDamage(WHOLE_JOB, Damage(kind, n, n_all, start_ns, end_ns, said)))
    return found


def damage_of_ranks(
    summaries: Mapping[int, RankSummary], *, apart_from: Collection[int] = ()
) -> list[RankDamage]:
    """The damage that shows without common time; of the steps, between all but some ranks."""
    found = [RankDamage(rank, one) for rank, own in summaries.items() for one in own.damage]
    cut = {rank for rank, own in summaries.items() if _has_cut_file(own)}
    whole = {rank: own for rank, own in summaries.items() if rank not in cut.union(apart_from)}
    start_ns = min(own.ends.start_ns for own in summaries.values())
    end_ns = max(own.ends.end_ns for own in summaries.values())
    for kind, n, n_all, said in _other_steps(whole):
        found.append(RankDamage(WHOLE_JOB, Damage(kind, n, n_all, start_ns, end_ns, said)))
    return found


def job_damage_frame(found: Iterable[RankDamage]) -> pd.DataFrame:
    """Damage as a frame: ``rank``, and schema `answers.DAMAGE`."""
    rows = list(found)
    frame = damage_frame(one.damage for one in rows)
    frame.insert(0, "rank", np.array([one.rank for one in rows], dtype=np.int64))
    return frame


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


def _span(timeline: Timeline) -> tuple[int, int]:
    """From the first start to the last end of any aligned rank, in common time."""
    ends = [_ends(timeline, rank) for rank in timeline.aligned]
    return min(start for start, _ in ends), max(end for _, end in ends)


def _ends(timeline: Timeline, rank: int) -> tuple[int, int]:
    ends = timeline.graphs.summaries[rank].ends
    start_ns, end_ns = timeline.clocks[rank].to_common([ends.start_ns, ends.end_ns]).tolist()
    return start_ns, end_ns


def _absent(
    failed: Mapping[str, str], missing: Sequence[int], n_loaded: int
) -> Iterator[tuple[DamageKind, int, int, str]]:
    """Yield what is said of files that could not be used, and of ranks without a file."""
    if failed:
        path, why = next(iter(failed.items()))
        files = f"{len(failed):,} of {human_count(len(failed) + n_loaded, 'file')}"
        more = "" if len(failed) == 1 else ", …"
        said = f"{files} could not be used ({name_of(Path(path))}: {why.rstrip('.')}{more}): "
        said += f"{_NOT_BLAMED}."
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
    every = set().union(*by_steps)
    n = len(every) - len(every.intersection(*by_steps))
    each = "; ".join(_steps_of(ranks, steps) for steps, ranks in by_steps.items())
    said = (
        f"the ranks recorded different steps ({each}): work that only some recorded has no "
        "counterpart."
    )
    yield DamageKind.OTHER_STEPS, n, len(every), said


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


def _cut_ranks(timeline: Timeline) -> Iterator[tuple[int, Damage]]:
    """Yield ranks whose recording ends, or begins, far inside that of the others.

    A rank may finish early, so others must have run something with it: collectives of a group that
    it takes part in, or steps that it did not record. Ranks whose files are cut off show nothing of
    others: their clocks may be wrong.
    """
    summaries = timeline.graphs.summaries
    recorded = {rank: _recorded(timeline, rank) for rank in timeline.aligned}
    whole = [rank for rank in recorded if not _has_cut_file(summaries[rank])]
    for rank, own in recorded.items():
        others = [recorded[other] for other in whole if other != rank]
        if not others:
            continue
        first_ns = min(one.start_ns for one in others)
        start_ns = max(own.start_ns, *(one.start_ns for one in others))
        end_ns = max(one.end_ns for one in others)
        early_ns, late_ns = end_ns - own.end_ns, own.start_ns - first_ns
        after = _ran_without(own, others, own.end_ns, end_ns)
        before = _ran_without(own, others, first_ns, own.start_ns)
        ends = summaries[rank].ends
        if early_ns > _FAR_INSIDE * (end_ns - start_ns) and _is_much(*after):
            share = max(own.end_ns - start_ns, 0) / max(end_ns - start_ns, 1)
            because = ", as its file is cut off" if rank not in whole else ""
            said = (
                f"recorded only up to {share:.0%} of the job{because}; what the others did "
                "afterwards is judged without it."
            )
            until_ns = ends.end_ns + early_ns
            yield rank, Damage(DamageKind.CUT_RANK, *after, ends.end_ns, until_ns, said)
        elif late_ns > _FAR_INSIDE * (end_ns - first_ns) and _is_much(*before):
            share = late_ns / (end_ns - first_ns)
            said = f"recorded only from {share:.0%} of the job on; the verdict is on what follows."
            since_ns = ends.start_ns - late_ns
            yield rank, Damage(DamageKind.CUT_RANK, *before, since_ns, ends.start_ns, said)


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


def _is_much(n: int, n_all: int) -> bool:
    return n > _FAR_INSIDE * n_all


def _has_cut_file(summary: RankSummary) -> bool:
    return any(one.kind == DamageKind.CUT_FILE for one in summary.damage)


def _recorded(timeline: Timeline, rank: int) -> _Recorded:
    summary, clock = timeline.graphs.summaries[rank], timeline.clocks[rank]
    table = summary.collectives
    on_host = (table["found_by"] == HOST_RANGE).to_numpy(dtype=bool)
    is_known = table["is_rendezvous"].to_numpy(dtype=bool) & (
        (table["group"] != "").to_numpy(dtype=bool) | on_host
    )
    return _Recorded(
        *_ends(timeline, rank),
        table["group"].to_numpy(dtype=object)[is_known],
        clock.to_common(table["start_ns"].to_numpy(np.int64)[is_known]),
        {one.name: int(clock.to_common(one.start_ns)) for one in summary.starts},
    )


def _ran_without(
    own: _Recorded, others: Sequence[_Recorded], start_ns: int, end_ns: int
) -> tuple[int, int]:
    """Most that another rank ran of what is the rank's, too, from a time to another; and of all."""
    groups = set(own.group)
    most = (0, 0)
    for one in others:
        is_shared = pd.Index(one.group).isin(groups)
        is_without = is_shared & (one.begin_ns > start_ns) & (one.begin_ns < end_ns)
        steps = [at for name, at in one.steps.items() if name not in own.steps]
        n = int(is_without.sum()) or sum(start_ns <= at < end_ns for at in steps)
        n_all = int(is_shared.sum()) or len(one.steps)
        most = max(most, (n, n_all))
    return most
