"""Predictions on the terminal: what would help, or what changes would save."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

import pandas as pd
from rich.console import Console

from htagraph.cli.console import output, print_notes, print_sentence
from htagraph.cli.sources import Source
from htagraph.cli.tables import Format, print_facts, print_frame, print_titled
from htagraph.job.scenario import JobScenario
from htagraph.model.units import human_percent
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.prediction import (
    bounds_of,
    caveats_of,
    prediction_in_words,
    ranks_of,
    readings_of,
)
from htagraph.reports.summary import Summary
from htagraph.reports.what_helps import UNCHANGED
from htagraph.scenario import Scenario

_N_PARTS = 5
"""Chosen: parts of a path that the terminal lists."""


def print_opportunities(
    scenario: Scenario | JobScenario,
    summary: Summary | JobSummary,
    caveats: Sequence[str],
    asked: tuple[Format, str],
    aside: Console,
    *,
    of: str,
) -> None:
    """Print the changes that would help, largest saving first."""
    console, (form, columns) = output(), asked
    if columns or form is not Format.TABLE:
        print_frame(console, summary.opportunities, form, columns=columns, aside=aside)
        return
    print_facts(console, summary, caveats)
    if scenario.withheld:
        print_sentence(console, prediction_in_words(scenario), style="bold yellow")
        return
    found = summary.first_changes
    if found.empty:
        print_sentence(console, UNCHANGED, style="bold")
        return
    saves = [f"{human_percent(share):>5}" for share in found["saves_share"]]
    print_sentence(console, f"What would help {of}:", style="bold")
    print_frame(console, found[["change"]].assign(saves=saves), form)
    print_notes(console, ["Each change alone: savings do not add up.", *caveats_of(scenario)])


def print_prediction(
    scenario: Scenario | JobScenario,
    summary: Summary | JobSummary,
    caveats: Sequence[str],
    asked: tuple[Format, str],
    aside: Console,
    *,
    of: str,
) -> None:
    """Print what the changes save, and what limits the run then."""
    console, (form, columns) = output(), asked
    if columns or form is not Format.TABLE:
        print_frame(console, readings_of(scenario), form, columns=columns, aside=aside)
        return
    print_facts(console, summary, caveats)
    changes = ", ".join(map(str, scenario.changes))
    print_sentence(console, f"{of[0].upper()}{of[1:]} with {changes}:")
    print_sentence(console, prediction_in_words(scenario), style="bold")
    print_notes(console, caveats_of(scenario))
    if scenario.withheld:
        return
    print_titled(console, "What limits it", _largest(bounds_of(scenario)))
    if isinstance(scenario, JobScenario):
        print_titled(console, "On which ranks", _largest(ranks_of(scenario)))


def _largest(parts: pd.DataFrame) -> pd.DataFrame:
    """The parts of a path that take most time before or after."""
    most_ns = parts[["before_ns", "after_ns"]].max(axis=1)
    shown = parts.loc[most_ns.sort_values(ascending=False, kind="stable").index[:_N_PARTS]]
    return shown.drop(columns="delta_share")


def print_next(source: Source, *, changed: bool, out: Path | None, aside: Console) -> None:
    """Print the commands to continue with."""
    what_if = f"htagraph what-if {source.typed}"
    said = [f"Next: htagraph view {quote(str(out))}"] if out else []
    said += (
        [f"What else would help: {what_if}"]
        if changed
        else ["Other changes: htagraph what-if --help", f"All of it: {what_if} -f csv"]
    )
    aside.print()
    for line in said:
        aside.print(line, style="dim", markup=False)
