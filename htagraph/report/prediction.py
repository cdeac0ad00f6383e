"""A prediction in words and tables: what changes save, by each reading, and what bounds it then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from htagraph.model.units import human_duration
from htagraph.report.json_document import records
from htagraph.scenario import Scenario

__all__ = [
    "PREDICTION_SCHEMA",
    "PREDICTION_VERSION",
    "bounds_of",
    "prediction_document",
    "prediction_in_words",
    "readings_of",
]

PREDICTION_SCHEMA = "htagraph.what_if"
PREDICTION_VERSION = 1


def readings_of(scenario: Scenario) -> pd.DataFrame:
    """What the changes save by each reading of the trace, the expected one first.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    DataFrame
        Columns ``reading``, ``saves_ns``, ``after_ns``, ``saves_share``; empty where the
        prediction is withheld.
    """
    before_ns = scenario.before.dur_ns
    found = scenario.saves_ns.readings if scenario.saves_ns is not None else ()
    saves = np.array([saved_ns for _, saved_ns in found], dtype=np.int64)
    return pd.DataFrame(
        {
            "reading": [str(assumption) for assumption, _ in found],
            "saves_ns": saves,
            "after_ns": before_ns - saves,
            "saves_share": saves / max(before_ns, 1),
        }
    )


def bounds_of(scenario: Scenario) -> pd.DataFrame:
    """The critical path by bound, as it was and as it would be; both add up to their windows.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    DataFrame
        Column ``bound``, then those of `frames.PATH_DIFF`; largest change first.
    """
    return scenario.diff().critical_path(by="bound").reset_index(names="bound")


def prediction_in_words(scenario: Scenario) -> str:
    """What the changes save, in one sentence; or why nothing is predicted.

    Parameters
    ----------
    scenario : Scenario

    Examples
    --------
    >>> import htagraph as hg
    >>> rank = hg.synth.simulate(hg.synth.training_rank(fault="dataloader"))
    >>> graph = hg.Trace.from_events(rank.events).compile()
    >>> print(prediction_in_words(hg.what_if(graph, hg.prefetch())))
    7.48 ms -> 6.60 ms: saves 886 us, 11.8%
    """
    before_ns, saves = scenario.before.dur_ns, scenario.saves_ns
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
    low, high = human_duration(saves.low_ns), human_duration(saves.high_ns)
    return f"{said} (saves at least {low}, at most {high})"


def prediction_document(scenario: Scenario) -> dict[str, Any]:
    """Prediction as a dict that `json.dumps` accepts.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    dict
        ``schema``, ``version``, ``window`` (its name), ``changes`` as `what_if` takes them,
        ``before_ns``, ``withheld`` ("", or why nothing is predicted), ``hold_out`` (how well steps
        predict each other, in a sentence), ``after_ns``, ``saves_ns``, ``low_ns``, ``high_ns``
        (null where it is withheld), ``readings`` and ``bounds`` as rows.
    """
    saves = scenario.saves_ns
    told = saves is not None
    return {
        "schema": PREDICTION_SCHEMA,
        "version": PREDICTION_VERSION,
        "window": scenario.before.interval.name,
        "changes": [str(change) for change in scenario.changes],
        "before_ns": scenario.before.dur_ns,
        "withheld": scenario.withheld,
        "hold_out": str(scenario.hold_out),
        "after_ns": scenario.dur_ns if told else None,
        "saves_ns": saves.expected_ns if saves else None,
        "low_ns": saves.low_ns if saves else None,
        "high_ns": saves.high_ns if saves else None,
        "readings": records(readings_of(scenario)),
        "bounds": records(bounds_of(scenario)) if told else [],
    }
