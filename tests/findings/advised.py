"""What to do about each finding of a path or a job, with the change to replay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

import htagraph as hg
from htagraph.findings.context import Context, find_context
from htagraph.findings.light import light_on
from htagraph.findings.rules import advice_on
from htagraph.findings.seen import Advice, Seen
from htagraph.findings.verdict import Finding, Verdict
from htagraph.findings.window_bounds import find_bounds
from htagraph.model.answers import OPPORTUNITIES
from htagraph.model.kinds import Cause

__all__ = ["advised", "advised_job", "told"]


def told(path: hg.CriticalPath) -> dict[str, str]:
    """What to do about each cause of a drawing, and why; nothing is replayed."""
    nothing: pd.DataFrame = OPPORTUNITIES.empty()
    found = _advised(find_bounds(path, costs=nothing), find_context(path.dag, path.window))
    return {finding.cause: f"{advice.do} {advice.why}" for finding, advice in found}


def advised(path: hg.CriticalPath) -> list[tuple[Finding, Advice]]:
    """Findings of a path with their advice."""
    run = replace(find_context(path.dag, path.window), compute=light_on(path))
    return list(_advised(find_bounds(path), run))


def advised_job(job: hg.Job) -> list[tuple[Finding, Advice]]:
    """Findings of a job with their advice."""
    run = Context.of_job([one.context for one in job.summaries.values()], is_whole=True)
    return list(_advised(job.verdict(), run))


def _advised(verdict: Verdict, run: Context) -> Iterator[tuple[Finding, Advice]]:
    for one in verdict.findings:
        most, (bound, _) = one.evidence[0], one.parts[0]
        times = {"path_ns": one.dur_ns, "cost_ns": one.cost_ns or 0, "window_ns": verdict.dur_ns}
        yield one, advice_on(Seen(Cause(one.cause), run, most, bound, most.op, **times))
