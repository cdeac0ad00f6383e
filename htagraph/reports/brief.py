"""What a report says besides its verdict: what to know of it, and the command to continue with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from htagraph.model.kinds import Cause
from htagraph.replay.change_options import options_of
from htagraph.replay.changes import without
from htagraph.reports.summary import Summary

if TYPE_CHECKING:
    from htagraph.reports.job_summary import JobSummary

_QUESTIONS = {
    Cause.LATE_RANK: "ask stragglers",
    Cause.PIPELINE: "ask pipeline_savings",
    Cause.EXPERT_IMBALANCE: "ask experts",
    Cause.COMPUTE: "ask kernel_breakdown",
    Cause.CPU_OPERATORS: "ask operator_breakdown",
}
"""What to ask next, by the first cause, if it leads or is the work itself."""


def next_question(summary: Summary | JobSummary) -> tuple[str, str]:
    """The verb to continue with, with its question if it takes one; and options that follow."""
    verdict = summary.verdict
    match verdict.state:
        case "withheld" | "hidden chain":
            return ("info" if isinstance(summary, Summary) else "ask quality"), ""
        case "nothing" | "side by side":
            return "what-if", ""
        case "one rank" | "work bound":
            return _QUESTIONS[Cause(verdict.findings[0].cause)], ""
    options = options_of(without(verdict.findings[0].cause))
    if not isinstance(summary, Summary) and summary.job.alone:
        return "what-if", f"--rank {min(summary.job.ranks)} {options}"
    return "what-if", options
