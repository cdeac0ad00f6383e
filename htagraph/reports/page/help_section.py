"""The section on what would help, of the page of a rank and of a job."""

from __future__ import annotations

from htagraph.model import answers
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.page.panels import Panel, Section
from htagraph.reports.summary import Summary
from htagraph.reports.what_helps import NOT_REPLAYED, UNCHANGED, UNKNOWN

__all__ = ["help_section"]


def help_section(summary: Summary | JobSummary, *more: Panel) -> Section:
    """Section on what would help, or why none is named.

    Parameters
    ----------
    *more : Panel
        Below the changes.
    """
    helpful = summary.what_helps
    changes = Panel(
        "what-helps",
        None,
        helpful,
        answers.OPPORTUNITIES,
        heading="Changes, largest saving first",
        is_wide=True,
        is_open=True,
    )
    return Section(
        "help",
        "What would help",
        summary.help_notes,
        () if helpful.empty else (changes, *more),
        _why_none(summary),
    )


def _why_none(summary: Summary | JobSummary) -> str:
    """Why no change is named."""
    if summary.verdict.withheld:
        return UNKNOWN
    is_replayed = isinstance(summary, Summary) or summary.is_replayed
    return UNCHANGED if is_replayed else NOT_REPLAYED
