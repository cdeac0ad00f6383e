"""A prediction in words and tables: what changes save, and what limits the run then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from htagraph.job.scenario import JobScenario
from htagraph.model.frames import READINGS
from htagraph.model.units import human_duration
from htagraph.reports.json_document import records
from htagraph.reports.what_helps import clocks_in_words
from htagraph.scenario import Scenario

__all__ = [
    "PREDICTION_SCHEMA",
    "PREDICTION_VERSION",
    "bounds_of",
    "prediction_document",
    "prediction_in_words",
    "ranks_of",
    "readings_of",
    "trust_in_words",
]

PREDICTION_SCHEMA = "htagraph.what_if"
PREDICTION_VERSION = 1


def readings_of(scenario: Scenario | JobScenario) -> pd.DataFrame:
    """What the changes save under each assumption about the trace, the expected one first.

    Returns
    -------
    DataFrame, schema `frames.READINGS`
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


def trust_in_words(scenario: Scenario | JobScenario) -> str:
    """How far predictions of this trace or job can be trusted, in one sentence.

    Of a trace, how well its steps predict each other; of a job, how well its clocks are known.

    Examples
    --------
    >>> import htagraph as hg
    >>> graph = hg.Trace.from_events(hg.synth.timeline("cpu 1 |[aten::mm ]")).compile()
    >>> print(trust_in_words(hg.what_if(graph)))
    No two steps do the same, so no step was predicted from another.
    """
    if isinstance(scenario, Scenario):
        said = str(scenario.hold_out)
        return f"{said[0].upper()}{said[1:]}."
    return clocks_in_words(scenario.rehearsal.clock_error_ns)


def prediction_in_words(scenario: Scenario | JobScenario) -> str:
    """What the changes save, in one sentence; or why nothing is predicted.

    Examples
    --------
    >>> import htagraph as hg
    >>> graph = hg.load(hg.demo_trace("dataloader")).compile()
    >>> print(prediction_in_words(hg.what_if(graph, hg.prefetch())))
    24.0 ms -> 22.2 ms: saves 1.77 ms, 7.4% (from 973 us longer to 2.74 ms shorter)
    """
    before_ns, saves = scenario.rehearsal.window.dur_ns, scenario.saves_ns
    if saves is None:
        return f"No prediction: {scenario.withheld}."
    share = abs(saves.expected_ns) / max(before_ns, 1)
    does = "saves" if saves.expected_ns >= 0 else "costs"
    said = (
        f"{human_duration(before_ns)} -> {human_duration(before_ns - saves.expected_ns)}: "
        f"{does} {human_duration(abs(saves.expected_ns))}, {share:.1%}"
    )
    if not saves.width_ns:
        return said
    low, high = human_duration(abs(saves.low_ns)), human_duration(abs(saves.high_ns))
    if saves.low_ns >= 0:
        return f"{said} (saves at least {low}, at most {high})"
    if saves.high_ns <= 0:
        return f"{said} (costs at least {high}, at most {low})"
    return f"{said} (from {low} longer to {high} shorter)"


def prediction_document(scenario: Scenario | JobScenario) -> dict[str, Any]:
    """Prediction as a dict that `json.dumps` accepts.

    Returns
    -------
    dict
        ``schema``, ``version``, ``window`` (its name), ``changes`` as `what_if` takes them,
        ``before_ns``, ``withheld`` ("", or why nothing is predicted), ``hold_out`` (how well steps
        predict each other, in a sentence; "" of a job), ``after_ns``, ``saves_ns``, ``low_ns``,
        ``high_ns`` (null where it is withheld), ``readings`` and ``bounds`` as rows. Of a job also
        ``ranks``, the path by rank, as rows, and ``clock_error_ns``, for which ``low_ns`` and
        ``high_ns`` allow.
    """
    saves = scenario.saves_ns
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
        "before_ns": scenario.rehearsal.window.dur_ns,
        "withheld": scenario.withheld,
        "hold_out": str(scenario.hold_out) if isinstance(scenario, Scenario) else "",
        "after_ns": scenario.rehearsal.window.dur_ns - saves.expected_ns if saves else None,
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
