"""Plan: a change, what it is predicted to save, and how to record the run that shows it.

It is complete before anything runs, and is written as one JSON.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from htagraph.comparison.decision import Decision, Expected
from htagraph.comparison.diff import run_profile
from htagraph.comparison.run_profile import RunProfile
from htagraph.comparison.scenario import Scenario, what_if
from htagraph.errors import QueryError
from htagraph.findings.verdict import Finding
from htagraph.job.scenario import JobScenario
from htagraph.lookup.settings import Settings
from htagraph.model.units import human_percent
from htagraph.replay.change_options import ChangeOptions, options_of
from htagraph.replay.changes import Change, slug, without
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.json_document import summary_profile
from htagraph.reports.kept_runs import git
from htagraph.reports.prediction import prediction_document, prediction_in_words
from htagraph.reports.summary import Summary

PLAN_SCHEMA = "htagraph.plan"
PLAN_VERSION = 1

_LEAST = 0.01
"""Share of the run that a change has to save to be tried: less is noise on any machine. Pinned by
test_plan."""

_PLACE = re.compile(
    r"(?<![^\s'\"])(?P<file>[^\s'\"]+?)(?::|\()(?P<line>\d+)(?: in |\): )(?P<function>[^\s'\"]+)"
)
"""A line of code as findings name it (``a.py:4 in f``), or a frame (``a.py(4): f``)."""


@dataclass(frozen=True, repr=False)
class Recorded:
    """A recorded run: what limits it, and what a comparison needs of it."""

    summary: Summary | JobSummary

    @cached_property
    def profile(self) -> RunProfile:
        """Its steps."""
        return summary_profile(self.summary)

    @cached_property
    def settings(self) -> Settings:
        """How it was recorded."""
        return self.summary.settings

    @property
    def limits(self) -> str:
        """What limits it."""
        return self.summary.verdict.headline

    def finding(self, number: int) -> Finding:
        """The finding of a card, or of what `also` names, counted from 1."""
        found = self.summary.verdict.findings
        if not 0 < number <= len(found):
            said = self.summary.verdict.headline
            raise QueryError(
                f"there is no finding {number}: {said}", hint="htagraph report lists them."
            )
        return found[number - 1]


@dataclass(frozen=True, repr=False)
class Plan:
    """A change, and what it is predicted to save."""

    recorded: Recorded
    changes: tuple[Change, ...]
    finding: Finding | None = None

    @classmethod
    def of(cls, recorded: Recorded, changes: str = "", fix: int = 1) -> Plan:
        """The plan for changes as options of ``htagraph what-if``, else for the fix of a finding.

        A fix that cannot be replayed saves at most what its cause costs.

        Raises
        ------
        QueryError
            If nothing is predicted, or that nothing is saved: nothing could be confirmed.
        """
        if changes:
            plan = cls(recorded, ChangeOptions.read(changes).changes())
        else:
            found = recorded.finding(fix)
            change = found.fix.change or without(slug(found.label))
            plan = cls(recorded, (change,), found)
        if plan.scenario.withheld or plan.expected.saves < _LEAST:
            said = prediction_in_words(plan.scenario).rstrip(".")
            raise QueryError(
                f"nothing to confirm: {said}.", hint="htagraph what-if lists what helps."
            )
        return plan

    @cached_property
    def scenario(self) -> Scenario | JobScenario:
        """The replayed run."""
        summary = self.recorded.summary
        if isinstance(summary, JobSummary):
            return what_if(summary.job, *self.changes)
        return what_if(summary.graph, *self.changes)

    @cached_property
    def expected(self) -> Expected:
        """What is saved, as shares of a step."""
        saves, whole_ns = self.scenario.saves_ns, max(self.scenario.rehearsal.window.dur_ns, 1)
        assert saves is not None
        read = [saved_ns / whole_ns for _, saved_ns in saves.readings]
        settings = self.recorded.settings
        if free_ns := settings.unrecorded_step_ns:  # What recording adds may be all of it
            step_ns = self.recorded.profile.typical_step_ns
            read.append(1 - min((1 - min(read)) * step_ns / free_ns, 1.0))
        low = 0.0 if self.is_most else min(read)
        run = self.scenario.job if isinstance(self.scenario, JobScenario) else self.scenario.graph
        known = self.recorded.profile
        return Expected.of(
            saves.expected_ns / whole_ns, low, max(read), known, run_profile(run, name=known.name)
        )

    @property
    def is_most(self) -> bool:
        """Whether what is predicted is what the cause costs, as its fix cannot be replayed."""
        return any(one.name == "without" or one.is_most for one in self.changes)

    @property
    def options(self) -> str:
        """The changes as ``htagraph what-if`` takes them."""
        return " ".join(map(options_of, self.changes))

    @property
    def fix(self) -> str:
        """What to do, of a finding."""
        return self.finding.fix.do if self.finding else ""

    @property
    def places(self) -> list[dict[str, str]]:
        """Where in the code that is, if stacks were recorded: ``file``, ``line``, ``function``."""
        frames = [one.frame for one in self.finding.evidence] if self.finding else [self.options]
        found = [_PLACE.search(frame) for frame in frames]
        return [one.groupdict() for one in found if one]

    def verdict(self) -> str:
        """The prediction in one sentence."""
        low, high = (human_percent(max(end, 0.0)) for end in self.expected[1:3])
        most = (
            "at most, if its fix removes all of the cause" if self.is_most else f"{low} to {high}"
        )
        changes = ", ".join(map(str, self.changes))
        return f"Predicted: {changes} saves {human_percent(self.expected.saves)} ({most})."

    def decide(self, before: tuple[Recorded, ...], after: tuple[Recorded, ...]) -> Decision:
        """Whether the recordings after the change show what is predicted, against those before."""
        unlike = [
            why for one in (*before, *after) for why in self.recorded.settings.unlike(one.settings)
        ]
        one, other = (tuple(run.profile for run in side) for side in (before, after))
        unrecorded = tuple(
            tuple(run.settings.unrecorded_step_ns for run in side) for side in (before, after)
        )
        return Decision(self.expected, one, other, tuple(dict.fromkeys(unlike)), unrecorded)

    def document(self, *, seed: int, command: list[str]) -> dict[str, Any]:
        """The plan as a dict that `json.dumps` accepts.

        ``schema``, ``version``, ``made`` (UTC), ``fix``, ``options``, ``expected`` (``saves``,
        ``low``, ``high`` as shares of a step; ``touched``: names that shrink), ``prediction`` (as
        ``htagraph what-if --json``), ``settings`` of the recording and its environment, ``device``,
        ``commit`` (of the working directory; empty for none), ``seed`` (of the order of runs),
        ``command`` and ``profile``, with which ``htagraph diff`` compares.
        """
        return {
            "schema": PLAN_SCHEMA,
            "version": PLAN_VERSION,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "fix": self.fix,
            "options": self.options,
            "expected": self.expected._asdict(),
            "prediction": prediction_document(self.scenario),
            "settings": asdict(self.recorded.settings),
            "device": self.recorded.profile.devices or "CPU",
            "commit": _commit(),
            "seed": seed,
            "command": command,
            "profile": self.recorded.profile.document(),
        }


def _commit() -> str:
    """The git commit of the working directory, with ``+`` if files differ; empty for none."""
    with suppress(OSError, subprocess.SubprocessError):
        asked = "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"
        return git(Path.cwd(), *asked).stdout.strip()
    return ""


def plan_text(document: Mapping[str, Any]) -> str:
    """A plan or a decision as text."""
    return json.dumps(document, indent=1, allow_nan=False) + "\n"
