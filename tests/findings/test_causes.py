"""Every cause is complete: a title, advice, a repair, and a fault that it names when planted.

A cause that lacks one of these fails here, with a message that says what is missing and where.
"""

from __future__ import annotations

import pytest

from htagraph.findings.advice import TITLES
from htagraph.findings.rules import ADVICE
from htagraph.model.kinds import Cause
from htagraph.replay.candidates import REPAIRS
from tests.findings.planted import CAUSES
from tests.findings.test_planted_captures import PLANTED

JUDGED = set(Cause) - {Cause.UNEXPLAINED}
every_cause = pytest.mark.parametrize("cause", sorted(JUDGED))

TIME_GOES = {
    Cause.ALLOCATION,
    Cause.CHECKPOINTING,
    Cause.CPU_OPERATORS,
    Cause.FIRST_USE,
    Cause.GARBAGE_COLLECTION,
    Cause.HOST_CODE,
    Cause.LAUNCHED_BEFORE_CAPTURE,
    Cause.OPTIMIZER,
    Cause.SHORT_OPERATORS,
    Cause.UNRECORDED_WAIT,
    Cause.WAITING_FOR_WORK,
}
"""Causes whose advice names no events to change: a replay drops the time that they take."""

DRAWN_ONLY = {
    Cause.ALLOCATION,
    Cause.AUTOTUNING,
    Cause.CHECKPOINTING,
    Cause.COMPILATION,
    Cause.COPIES,
    Cause.DEVICE_FULL,
    Cause.DEVICE_GAPS,
    Cause.FIRST_USE,
    Cause.GARBAGE_COLLECTION,
    Cause.LAUNCHED_BEFORE_CAPTURE,
    Cause.UNRECORDED_WAIT,
    Cause.WAITING_FOR_WORK,
}
"""Causes that no simulated job and no capture plants as its first finding; drawings have them."""


@every_cause
def test_a_cause_has_a_title_and_advice(cause: Cause) -> None:
    """What a report calls it, and what to try."""
    assert cause in TITLES, f"no title of {cause!r} in TITLES of htagraph/findings/advice.py"
    assert cause in ADVICE, (
        f"no advice on {cause!r} in htagraph/findings/host_rules.py or device_rules.py; its "
        "conditions are cases of tests/findings/test_rules.py"
    )


@every_cause
def test_a_cause_has_a_repair(cause: Cause) -> None:
    """What a replay changes to tell what it is worth."""
    has_repair = cause in REPAIRS or cause is Cause.LATE_RANK

    assert has_repair != (cause in TIME_GOES), (
        f"{cause!r} needs a change in htagraph/replay/candidates.py, or a place in TIME_GOES "
        "here if its advice names no events: one of the two"
    )


@every_cause
def test_a_cause_is_planted(cause: Cause) -> None:
    """A fault whose first finding it is, in a simulated job or a real capture."""
    planted = {*CAUSES.values(), *(expected[2] for expected in PLANTED)}

    assert (cause in planted) != (cause in DRAWN_ONLY), (
        f"{cause!r} needs a fault in tests/synth/training.py and CAUSES of "
        "tests/findings/planted.py, or a place in DRAWN_ONLY here: one of the two"
    )
