"""A prediction in words and tables: what changes save, and what limits the run then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from htagraph.comparison.scenario import Scenario
from htagraph.job.scenario import JobScenario
from htagraph.model.frames import READINGS
from htagraph.model.units import human_duration, human_percent
from htagraph.replay.assumptions import Assumption
from htagraph.replay.rehearsal import Saving
from htagraph.reports.json_document import records
from htagraph.reports.summary import clocks_in_words

PREDICTION_SCHEMA = "htagraph.what_if"
PREDICTION_VERSION = 1

_NEAR = 0.5
"""Part of a saving from which on the low end of its interval, and up to as much above it the high
end, is near: of 140 savings of real runs, 48. Chosen: test_prediction.
"""


def readings_of(scenario: Scenario | JobScenario) -> pd.DataFrame:
    """What the changes save under each assumption about the trace, the expected one first.

    Empty if the prediction is withheld.
    """
    before_ns = scenario.rehearsal.window.dur_ns
    found = scenario.saves_ns.readings if scenario.saves_ns is not None else ()
    saves = np.array([saved_ns for _, saved_ns in found], dtype=np.int64)
    return READINGS.frame(
        {
            "reading": [str(assumption) for assumption, _ in found],
            "saves_ns": saves,
            "after_ns": before_ns - saves,
            "saves_share": saves / max(before_ns, 1),
        }
    )


def bounds_of(scenario: Scenario | JobScenario) -> pd.DataFrame:
    """The path by ``bound`` before and after, as `frames.PATH_DIFF`, largest change first."""
    by_bound = (
        scenario.path_diff(by="bound")
        if isinstance(scenario, JobScenario)
        else scenario.diff().critical_path(by="bound")
    )
    return by_bound.reset_index(names="bound")


def ranks_of(scenario: JobScenario) -> pd.DataFrame:
    """The path by ``rank`` before and after, as `frames.PATH_DIFF`, largest change first."""
    return scenario.path_diff(by="rank").reset_index(names="rank")


def prediction_in_words(scenario: Scenario | JobScenario) -> str:
    """What the changes save, in one sentence; or why nothing is predicted.

    An interval is given if it is no wider than the saving; else the most that is saved.
    """
    before_ns, saves = scenario.rehearsal.window.dur_ns, scenario.saves_ns
    if saves is None:
        return f"No prediction: {scenario.withheld}."
    expected_ns = saves.expected_ns
    n_steps = (
        scenario.before.critical_path() if isinstance(scenario, Scenario) else scenario.path_before
    ).n_steps
    lasts = [
        human_duration(time_ns / max(n_steps, 1))
        for time_ns in (before_ns, before_ns - expected_ns)
    ]
    would = f"{lasts[0]}{' a step' * (n_steps > 1)} would be {lasts[1]}"
    percent = human_percent(abs(expected_ns) / max(before_ns, 1))
    does = f"saves {percent}" if expected_ns else "saves nothing"
    does = does if expected_ns >= 0 else f"{percent} longer"
    return f"{would}: {does}{_within(saves, before_ns)}."


def _within(saves: Saving, whole_ns: int) -> str:
    """How exact a saving is, for ranks that are not there do not count; empty if it is exact."""
    own_ns = [one_ns for reading, one_ns in saves.readings if reading != Assumption.OTHERS_LATE]
    error_ns = saves.high_ns - max(one_ns for _, one_ns in saves.readings)
    low_ns, high_ns = min(own_ns) - error_ns, min(saves.high_ns, whole_ns)
    low, high = (human_percent(max(end_ns, 0) / max(whole_ns, 1)) for end_ns in (low_ns, high_ns))
    if low == high or saves.expected_ns < 0:
        return ""
    if low_ns >= _NEAR * saves.expected_ns and high_ns <= (2 - _NEAR) * saves.expected_ns:
        return f" ({low} to {high})"
    return f", at most {high}"


def caveats_of(scenario: Scenario | JobScenario) -> list[str]:
    """What else to know of a prediction: other ranks, how well steps predict each other, clocks."""
    said, saves = [], scenario.saves_ns
    if saves is not None and scenario.changes:
        alone_ns = dict(saves.readings).get(Assumption.OTHERS_LATE, saves.expected_ns)
        share = max(alone_ns, 0) / max(scenario.rehearsal.window.dur_ns, 1)
        does = f"saves {human_percent(share)}" if share else "saves nothing"
        if alone_ns < saves.expected_ns:
            said = [f"If the other ranks stay as they are, it {does}: they arrive no earlier."]
    if isinstance(scenario, Scenario):
        trust = str(scenario.hold_out)
        return [*said, f"{trust[0].upper()}{trust[1:]}."]
    error_ns = scenario.rehearsal.clock_error_ns
    return [clocks_in_words(error_ns)] if error_ns else []


def prediction_document(scenario: Scenario | JobScenario) -> dict[str, Any]:
    """Prediction as a dict that `json.dumps` accepts.

    ``schema``, ``version``, ``window`` (its name), ``changes`` as `what_if` takes them,
    ``before_ns``, ``withheld`` ("", or why nothing is predicted), ``hold_out`` (how well steps
    predict each other, in a sentence; "" of a job), ``after_ns``, ``saves_ns``, ``low_ns``,
    ``high_ns`` (null where it is withheld), ``readings`` and ``bounds`` as rows. Of a job also
    ``ranks``, the path by rank, as rows, and ``clock_error_ns``, for which ``low_ns`` and
    ``high_ns`` allow.
    """
    saves, before_ns = scenario.saves_ns, scenario.rehearsal.window.dur_ns
    told = saves is not None
    document = {
        "schema": PREDICTION_SCHEMA,
        "version": PREDICTION_VERSION,
        "window": (
            scenario.before.interval.name
            if isinstance(scenario, Scenario)
            else scenario.path_before.name
        ),
        "changes": [str(change) for change in scenario.changes],
        "before_ns": before_ns,
        "withheld": scenario.withheld,
        "hold_out": str(scenario.hold_out) if isinstance(scenario, Scenario) else "",
        "after_ns": before_ns - saves.expected_ns if saves else None,
        "saves_ns": saves.expected_ns if saves else None,
        "low_ns": saves.low_ns if saves else None,
        "high_ns": saves.high_ns if saves else None,
        "readings": records(readings_of(scenario)),
        "bounds": records(bounds_of(scenario)) if told else [],
    }
    if isinstance(scenario, Scenario):
        return document
    return {
        **document,
        "ranks": records(ranks_of(scenario)) if told else [],
        "clock_error_ns": scenario.rehearsal.clock_error_ns,
    }
