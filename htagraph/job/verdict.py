"""What limits a job: the causes of its path across ranks, of which each late rank is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from shlex import quote

import numpy as np
import pandas as pd

from htagraph.arrays.intervals import Cover
from htagraph.findings.context import Context
from htagraph.findings.findings import (
    NOTHING_MATCHED,
    Told,
    advice_off_path,
    charged,
    completed,
    costs_by_cause,
)
from htagraph.findings.rules import CHECK_HOST
from htagraph.findings.verdict import (
    Finding,
    Verdict,
    ordered,
    percent,
    within_sentence,
)
from htagraph.findings.window_bounds import too_little
from htagraph.job.bandwidths import slowest_in_words
from htagraph.job.lateness import slow_device
from htagraph.job.path import JobPath
from htagraph.job.pipeline import PipelineCauses, charge_pipeline, slow_part
from htagraph.job.ranks import RankSummary, listed
from htagraph.job.rehearsal import JobRehearsal
from htagraph.lookup.damage import LOST_LIMIT, holes_of, lost_in_words
from htagraph.model.kinds import Bound, Cause
from htagraph.model.units import human_count
from htagraph.replay.predictions import Trials

_BY_RANKS = (
    "No collectives could be matched, so who waits for whom is unknown; each rank is judged by "
    "itself:"
)


def find_job_bounds(
    path: JobPath,
    stragglers: pd.DataFrame,
    kernels: pd.DataFrame,
    trials: Trials[JobRehearsal] | None,
    pipeline: PipelineCauses | None = None,
    *,
    alone: Mapping[int, Verdict] | None = None,
) -> Verdict:
    """Verdict on a job: the causes of its path across ranks, largest cost first.

    Withheld if unknown waits or losses are too much of the path. `kernels` are by name and rank;
    without `trials`, nothing is replayed. `alone` has the verdict on each rank by itself, if no
    collectives could be matched.
    """
    if alone:
        return _by_ranks(path, alone)
    ranks = path.timeline.graphs.summaries.values()
    context = Context.of_job(
        [rank.context for rank in ranks],
        is_whole=all((rank.world_size or 0) <= len(ranks) for rank in ranks),
    )
    few = too_little(
        path.attributed_time,
        (one for rank in ranks for one in rank.damage),
        max(rank.n_events for rank in ranks),
        has_device=context.has_device,
        uses_device=any(bool(rank.context.api or rank.device_names) for rank in ranks),
    )
    if few:
        return Verdict((), few, path.window_name, path.dur_ns, path.n_steps, is_job=True)
    lost = _lost_share_by_rank(path)
    if sum(lost.values()) > LOST_LIMIT:
        most = max(lost, key=lambda rank: lost[rank])
        said = (
            f"{lost_in_words(sum(lost.values()))} Load the job without rank {most}, which has most "
            "of that; by itself:"
        )
        why = f"{said} {_report_on(path.timeline.graphs.summaries[most])}"
        return Verdict((), why, path.window_name, path.dur_ns, path.n_steps, is_job=True)
    told = Told(
        context=context,
        unread_stacks=any(rank.has_unread_stacks for rank in ranks),
        costs={} if trials is None else costs_by_cause(trials.causes),
        machines=path.timeline.late_hosts,
    )
    attributed = path.attributed_time
    if pipeline is not None:
        attributed = charge_pipeline(attributed, pipeline)
    verdict = charged(attributed, path.window_name, path.dur_ns, told)
    verdict = replace(verdict, n_steps=path.n_steps, is_job=True)
    if verdict.withheld:
        return replace(verdict, withheld=f"{verdict.withheld} {_next_job_command(path)}")
    kernels = kernels[kernels["rank"].isin(path.timeline.aligned)].head(
        len(kernels) if len(ranks) > 1 else 0
    )
    columns = (stragglers[name].tolist() for name in ("rank", "n_last", "n_collectives"))
    how_often = {
        rank: f"last at {n_last:,} of {human_count(n_collectives, 'collective')}"
        for rank, n_last, n_collectives in zip(*columns, strict=True)
    }
    found = tuple(_told(one, path, kernels, how_often, pipeline) for one in verdict.findings)
    verdict = replace(verdict, findings=ordered(found))
    if trials is not None:
        advise = partial(advice_off_path, context, path.dur_ns)
        verdict = completed(verdict, trials, advise)
    return verdict


def _by_ranks(path: JobPath, alone: Mapping[int, Verdict]) -> Verdict:
    """The first cause of all ranks, each by itself; withheld if that is not the same one.

    Its share is that of the rank in the middle.
    """
    firsts = {rank: one.findings[0] for rank, one in alone.items() if one.cards}
    by_title: dict[str, list[int]] = {}
    for rank in alone:
        title = within_sentence(firsts[rank].title) if rank in firsts else "no cause"
        by_title.setdefault(title, []).append(rank)
    told = []
    for title, ranks in by_title.items():
        found = [firsts[rank] for rank in ranks if rank in firsts]
        which = "rank" if len(ranks) == 1 else "ranks"
        told.append(f"{which} {listed(ranks)}: {title} {_range(found)}".rstrip())
    said = "; ".join(told)
    if len(by_title) > 1 or not firsts:
        command = _report_on(path.timeline.graphs.summaries[min(alone)])
        why = f"{NOTHING_MATCHED} Each by itself: {said}. Rank {min(alone)}: {command}"
        return Verdict((), why, path.window_name, path.dur_ns, path.n_steps, is_job=True)
    middle = sorted(firsts.values(), key=lambda one: one.share)[(len(firsts) - 1) // 2]
    cost_ns = None if middle.cost_ns is None else round(middle.share * path.dur_ns)
    path_ns = round(middle.path_ns / middle.window_ns * path.dur_ns)
    return Verdict(
        (replace(middle, cost_ns=cost_ns, path_ns=path_ns, window_ns=path.dur_ns),),
        window=path.window_name,
        dur_ns=path.dur_ns,
        n_steps=path.n_steps,
        is_job=True,
        apart=(("other causes", path.dur_ns - path_ns),),
        damage=(f"{_BY_RANKS} {said}.",),
    )


def _range(found: Sequence[Finding]) -> str:
    """The least and the largest cost of some findings; empty for none."""
    by_share = sorted(found, key=lambda one: one.share)
    ends = [percent(one.weight_ns, one.window_ns) for one in (*by_share[:1], *by_share[-1:])]
    return " to ".join(dict.fromkeys(ends))


def _told(
    finding: Finding,
    path: JobPath,
    kernels: pd.DataFrame,
    how_often: Mapping[int, str],
    pipeline: PipelineCauses | None,
) -> Finding:
    """The finding with what only a job knows of it."""
    match finding.cause:
        case Cause.LATE_RANK:
            said = filter(None, (how_often[finding.ranks[0][0]], finding.detail))
            late = replace(finding, detail="; ".join(said))
            return _on_machine(path, late)
        case Cause.COMMUNICATION:
            moved = slowest_in_words(path.timeline.bandwidths())
            return replace(finding, detail="; ".join(filter(None, (finding.detail, moved))))
        case Cause.COMPUTE if len(kernels):
            # The finding on that rank, which is late by its kernels, advises to compare them.
            slow = slow_device(kernels, finding.ranks[0][0])
            return replace(finding, detail=slow or finding.detail)
        case Cause.EXPERT_IMBALANCE:
            title = path.timeline.expert_work.in_words(finding.ranks[0][0])
            return replace(finding, title=title)
        case Cause.PIPELINE if pipeline is not None:
            return slow_part(finding, pipeline)
    return finding


def _on_machine(path: JobPath, finding: Finding) -> Finding:
    """The finding on a late rank, of its host if all of that is late."""
    machines = path.timeline.late_hosts
    host = machines.get(finding.ranks[0][0]) if finding.ranks else None
    if finding.cause != Cause.LATE_RANK or host is None:
        return finding
    ranks = [rank for rank, its_host in machines.items() if its_host == host]
    is_row = ranks == list(range(ranks[0], ranks[-1] + 1))
    which = f"ranks {ranks[0]} to {ranks[-1]}" if is_row else human_count(len(ranks), "rank")
    title = f"Host {host} ({which}) is late"
    return replace(finding, title=title, fix=CHECK_HOST)


def _lost_share_by_rank(path: JobPath) -> dict[int, float]:
    """Share of the path on each rank in which device work or launches of the rank were lost."""
    found: dict[int, float] = {}
    for rank, summary in path.timeline.graphs.summaries.items():
        holes, clock = holes_of(summary.damage), path.timeline.clocks[rank]
        cover = Cover(clock.to_common(holes.start), clock.to_common(holes.end))
        own = path.segments[path.segments["rank"] == rank]
        start_ns, dur_ns = (own[name].to_numpy(np.int64) for name in ("start_ns", "dur_ns"))
        lost_ns = int(cover.within(start_ns, start_ns + dur_ns).sum())
        found[rank] = lost_ns / max(path.dur_ns, 1)
    return found


def _next_job_command(path: JobPath) -> str:
    """The report to run if too much of a job is unknown waits: on the rank with most of that."""
    summaries = path.timeline.graphs.summaries
    hidden = path.segments[path.segments["bound"] == Bound.UNKNOWN_WAITS.label]
    by_rank = hidden.groupby("rank")["dur_ns"].sum().sort_values(kind="stable")
    if by_rank.empty:
        first = next(iter(summaries.values()))
        return f"Rank {first.rank} by itself: {_report_on(first)}"
    rank = by_rank.index.tolist()[-1]
    return f"Rank {rank}, which has most of that: {_report_on(summaries[rank])}"


def _report_on(summary: RankSummary) -> str:
    return f"htagraph report {quote(str(summary.path))}"
