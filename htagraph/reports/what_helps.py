"""What would help, for people: one row for each thing that one could do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import Any

import numpy as np
import pandas as pd

from htagraph.errors import QueryError
from htagraph.findings.verdict import LATE, LEAST_ALSO, Verdict
from htagraph.model.frames import FIRST_CHANGES
from htagraph.model.labels import name_label
from htagraph.model.units import human_duration
from htagraph.replay.candidates import TWICE_AS_FAST
from htagraph.replay.predictions import Trials
from htagraph.writers.answering import answers

ALONE = "What the run is shorter by with each change alone, replayed. Savings do not add up."
NOT_REPLAYED = (
    "This job has too many events to be replayed for a report; htagraph what-if handles larger "
    "jobs."
)
NOT_MATCHED = (
    "Changes are not replayed, as no collectives could be matched between ranks; a report on one "
    "rank replays them for it."
)
UNCHANGED = "None of the changes tried makes this run shorter."

_PARTS = {
    "kernel": "{} twice as fast",
    "operator": "{} twice as fast",
    "Python code": "no time in code {}",
    "wait": "no wait in {}",
    "synchronous copy": "no wait in {}",
}
"""Changes to a part of a run, in words; those to all of it are the fixes of findings, and fusions
take longer to find."""
_N_FIRST = 8
"""Rows of `first_changes`. A limit of the screen: `opportunities` has all. Pinned by
test_doctor.
"""


@answers(FIRST_CHANGES)
def first_changes(
    verdict: Verdict,
    trials: Trials[Any],
    labels_of: Callable[[Iterable[str]], Mapping[str, str]],
    *,
    by: float = 1.0,
) -> pd.DataFrame:
    """What one can do, largest saving first: the fixes of a verdict, and changes to parts.

    Each change is replayed once, alone: a part keeps half of its time, or none, and a late rank or
    slow stage keeps up. `by`: how many times as long as what is replayed the window is.
    """
    least_ns = max(LEAST_ALSO * verdict.dur_ns, 1)
    said = [
        (one.cost_ns or 0, "", f"{one.title}: {one.if_gone}")
        if one.cause in LATE
        else (one.fix.saves_ns or 0, "", one.fix.do.rstrip("."))
        for one in verdict.top_findings
    ]
    for one in takewhile(lambda one: one.kind != "fusion", trials.of_parts()):
        if one.kind in _PARTS and (one.kind != "kernel" or one.left == TWICE_AS_FAST):
            with suppress(QueryError):
                saved_ns = round(by * trials.rehearsal.saved_ns(one.changes))
                said.append((saved_ns, one.kind, one.target))
    first = sorted((one for one in said if one[0] >= least_ns), key=lambda one: -one[0])[:_N_FIRST]
    labels = labels_of(target for _, kind, target in first if kind)
    times = np.array([saved_ns for saved_ns, *_ in first], dtype=np.int64)
    return FIRST_CHANGES.frame(
        {
            "change": [
                _PARTS[kind].format(labels.get(target) or _short(kind, target)) if kind else target
                for _, kind, target in first
            ],
            "saves_ns": times,
            "saves_share": times / max(verdict.dur_ns, 1),
        }
    )


def clocks_in_words(error_ns: int) -> str:
    """How far the clocks of a job's ranks may be off, in one sentence."""
    if not error_ns:
        return "The ranks' clocks agree to the nanosecond."
    return f"Rank clocks may be off by {human_duration(error_ns)}; both ends allow for it."


def _short(kind: str, target: str) -> str:
    """A target by its short name; of code, that of what is next to it."""
    where, space, neighbour = target.partition(" ") if kind == "Python code" else ("", "", target)
    return f"{where}{space}{name_label(neighbour)}"
