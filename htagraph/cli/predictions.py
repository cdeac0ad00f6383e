"""Predictions on the terminal: what would help, or what changes would save."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from rich.console import Console

from htagraph.cli.console import output
from htagraph.cli.sources import Source
from htagraph.cli.tables import Format, print_facts, print_frame, print_titled
from htagraph.job.scenario import JobScenario
from htagraph.model.units import human_duration
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.prediction import (
    bounds_of,
    prediction_in_words,
    ranks_of,
    readings_of,
    trust_in_words,
)
from htagraph.reports.summary import Summary
from htagraph.reports.what_helps import UNCHANGED, notes_on
from htagraph.scenario import Scenario

__all__ = ["print_next", "print_opportunities", "print_prediction"]

_MAX_ROWS = 20
"""Chosen: changes in the table on the terminal."""


def print_opportunities(
    scenario: Scenario | JobScenario,
    summary: Summary | JobSummary,
    caveats: Sequence[str],
    asked: tuple[Format, str],
    aside: Console,
) -> None:
    """Print the changes that would help, largest saving first."""
    console, (form, columns) = output(), asked
    if columns or form is not Format.TABLE:
        print_frame(console, summary.opportunities, form, columns=columns, aside=aside)
        return
    print_facts(console, summary, caveats)
    length = human_duration(summary.path.dur_ns)
    console.print(f"What would help {summary.window_name} ({length})", style="bold", markup=False)
    if scenario.withheld:
        console.print(prediction_in_words(scenario), style="yellow", markup=False)
        return
    helpful = summary.what_helps
    if helpful.empty:
        console.print(UNCHANGED, markup=False)
        return
    print_frame(console, helpful.head(_MAX_ROWS), form)
    notes = f"{notes_on(helpful)} {trust_in_words(scenario)}"
    console.print(notes, style="dim", markup=False)
    n_more = len(helpful) - _MAX_ROWS
    if n_more > 0:
        aside.print(f"… and {n_more:,} more: --format csv prints all.", style="dim")


def print_prediction(
    scenario: Scenario | JobScenario,
    summary: Summary | JobSummary,
    caveats: Sequence[str],
    asked: tuple[Format, str],
    aside: Console,
) -> None:
    """Print the saving of the changes, under each assumption, and the next bottleneck."""
    console, (form, columns) = output(), asked
    found = readings_of(scenario)
    if columns or form is not Format.TABLE:
        print_frame(console, found, form, columns=columns, aside=aside)
        return
    print_facts(console, summary, caveats)
    said = ", ".join(map(str, scenario.changes))
    console.print(f"What if: {said}; {summary.window_name}", style="bold", markup=False)
    console.print(prediction_in_words(scenario), markup=False)
    if scenario.withheld:
        return
    console.print(trust_in_words(scenario), style="dim", markup=False)
    print_titled(console, "What it saves, by what the trace leaves open", found)
    print_titled(console, "What limits it", bounds_of(scenario))
    if isinstance(scenario, JobScenario):
        print_titled(console, "On which ranks its critical path runs", ranks_of(scenario))


def print_next(source: Source, *, changed: bool, out: Path | None, aside: Console) -> None:
    """Print the commands to try next."""
    name, of_job = " ".join(quote(str(path)) for path in source.given), source.is_job
    if source.rank is not None:
        name += f" --rank {source.rank}"
    runs = "The changed run in Perfetto, all ranks" if of_job else "Both runs in Perfetto"
    place = "on one clock" if of_job else "one below the other"
    example = "--equalise" if of_job else "--scale 'NAME=0.5'"
    said = (
        [
            f"{runs}: htagraph view {quote(str(out))}"
            if out
            else f"{runs}, {place}: --out what-if.pftrace",
            f"What else would help: htagraph what-if {name}",
        ]
        if changed
        else [f"Details of one change: htagraph what-if {name} {example} (--help: others)"]
    )
    aside.print()
    for line in said:
        aside.print(line, style="dim", markup=False)
