"""A report on one screen: the findings in three lines each, and what is missing.

The tables behind it are in the files of a report, and answers to the questions of `htagraph ask`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from htagraph.findings.advice import NOT_RANKED
from htagraph.findings.verdict import Finding, Paragraph
from htagraph.model.kinds import Cause
from htagraph.model.labels import name_label
from htagraph.model.units import human_duration
from htagraph.reports.summary import Summary

if TYPE_CHECKING:
    from htagraph.reports.job_summary import JobSummary

__all__ = ["brief_paragraphs", "next_question", "shortened"]

_INDENT, _WITHIN = 2, 5
"""Indents of a finding and of the lines below it, as in a verdict."""

_ENDS = (", ", "; ", ": ", ". ", " (")
"""Where advice can be cut: after a clause."""

_ACTIONS = ("balance ", "check ", "compare ", "find ")
"""How advice begins that does not give its reason first: what follows a colon is no action.

Found in the rules. Pinned by `test_one_screen.py::test_advice_is_cut_to_what_to_do`.
"""
_TRY = "try: "
_CONDITION = re.compile(r",? (?:if|at(?! most)|without) .*")
"""What a saving depends on: left out where there is no room, as advice follows."""

_LEAST_LABEL = 24
"""Chosen: characters of a contributor that even a narrow terminal shows."""

_QUESTIONS = {
    Cause.LATE_RANK: "ask stragglers",
    Cause.PIPELINE: "ask pipeline_savings",
    Cause.EXPERT_IMBALANCE: "ask experts",
}
"""What to ask next, by the first cause; of any other: what would help."""


def brief_paragraphs(summary: Summary | JobSummary, width: int) -> Iterator[Paragraph]:
    """The verdict, and what the recording lacks, for a terminal of some width in characters."""
    verdict = summary.verdict
    yield Paragraph("title", verdict.title, 0)
    for said in verdict.top_damage:
        yield Paragraph("damage", said, _INDENT)
    if verdict.balance:
        yield Paragraph("balance", verdict.balance, _INDENT)
    if verdict.withheld:
        yield Paragraph("withheld", f"No verdict: {verdict.withheld}", _INDENT)
    room = width - _WITHIN
    for number, finding in enumerate(verdict.top_findings, start=1):
        yield Paragraph("finding", f"{number}. {finding.sentence}", _INDENT)
        yield Paragraph("evidence", _evidence(finding, room), _WITHIN)
        if finding.to_try:
            advice = shortened(finding.to_try, room - len(_TRY))
            yield Paragraph("advice", f"{_TRY}{advice}", _WITHIN)
    replays = f"{verdict.replays.partition('. ')[0].rstrip('.')}." if verdict.replays else ""
    not_ranked = NOT_RANKED if verdict.ranking == NOT_RANKED else ""
    if said := " ".join(filter(None, (replays, verdict.rest, not_ranked))):
        yield Paragraph("note", said, _INDENT)
    for said in (*summary.unmatched_files, _not_shown(summary)):
        if said:
            yield Paragraph("note", said, _INDENT)


def next_question(summary: Summary | JobSummary) -> str:
    """The verb to continue with, and its question if it takes one."""
    findings = summary.verdict.top_findings
    if not findings:
        return _checks(summary)
    return _QUESTIONS.get(Cause(findings[0].cause), "what-if")


def _checks(summary: Summary | JobSummary) -> str:
    """The verb that says what was not recorded, and how to record it."""
    return "info" if isinstance(summary, Summary) else "ask quality"


def shortened(advice: str, width: int) -> str:
    """Advice in as many clauses as fit on a line; if it fits none, without its reason.

    Examples
    --------
    >>> shortened("gradients are reduced late: tune bucket_cap_mb, or compress them.", 60)
    'gradients are reduced late: tune bucket_cap_mb …'
    >>> shortened("gradients are reduced late: tune bucket_cap_mb, or compress them.", 30)
    'tune bucket_cap_mb …'
    >>> shortened("use larger operators (torch.compile, CUDA graphs), and less Python.", 50)
    'use larger operators (torch.compile, …)'
    """
    if len(advice) <= width:
        return advice
    cuts = list(_cuts(advice))
    said = (len(cut) for cut, end in cuts if end == ": " and cut.endswith(" …"))
    reason = 0 if advice.startswith(_ACTIONS) else next(said, 0)
    fits = [cut for cut, end in cuts if len(cut) > reason + len(" …") and len(cut) <= width]
    if fits:
        return fits[-1]
    return shortened(advice[reason:], width) if reason else next(iter(cuts), (advice, ""))[0]


def _cuts(advice: str) -> Iterator[tuple[str, str]]:
    """The first sentence of advice, cut after each of its clauses, and what followed there."""
    for at, depth in enumerate(accumulate((char == "(") - (char == ")") for char in advice)):
        end = advice[at : at + 2]
        if end in _ENDS and depth <= 1:
            yield advice[:at] + (" …" if not depth else ", …)"), end
        if end == ". " and not depth:
            return


def _evidence(finding: Finding, width: int) -> str:
    """As many of the largest contributors as fit on a line, and what it would save."""
    items = [(item.label, human_duration(item.dur_ns)) for item in finding.evidence]
    few = _CONDITION.sub("", finding.gain)
    some = [f"largest: {', '.join(map(' '.join, items[:n]))}" for n in range(len(items), 0, -1)]
    lines = [
        "; ".join(filter(None, (said, gain)))
        for gain in (finding.gain, few)
        for said in some or [""]
    ]
    fits = [line for line in lines if len(line) <= width]
    if fits or not items:
        return (fits or lines)[0]
    label, dur = items[0]
    end = "; ".join(filter(None, (dur, few)))
    room = max(width - len(f"largest:  {end}"), _LEAST_LABEL)
    return f"largest: {name_label(label, width=room)} {end}"


def _not_shown(summary: Summary | JobSummary) -> str:
    """What the recording does not show: checks that are not good, with the share of the worst."""
    shares = summary.weak_checks.groupby("check", sort=False)["share"].min()
    checks = "; ".join(f"{check} ({share:.0%})" for check, share in shares.items())
    how = f"htagraph {_checks(summary)} says more."
    return f"Not recorded, or only in part: {checks}. {how}" if checks else ""
