"""Every cause is complete: a title, advice, and a fault that it names when planted.

A cause that lacks one of these fails here, with a message that says what is missing and where.
"""

from __future__ import annotations

import pytest

from htagraph.compiler.passes import compile_events
from htagraph.explain.attributed_time import attributed_time
from htagraph.explain.critical_path import critical_path
from htagraph.findings.findings import TITLES
from htagraph.findings.rules import ADVICE
from htagraph.model.kinds import Cause
from htagraph.replay.candidates import UNRANKED
from tests.findings.planted import CAUSES
from tests.findings.test_planted_captures import PLANTED
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

JUDGED = set(Cause) - set(UNRANKED)
every_cause = pytest.mark.parametrize("cause", sorted(JUDGED))

DRAWN_ONLY = {
    Cause.ALLOCATION,
    Cause.AUTOTUNING,
    Cause.CHECKPOINTING,
    Cause.COMPILATION,
    Cause.COPIES,
    Cause.WAITING_FOR_SMS,
    Cause.GAPS_BETWEEN_KERNELS,
    Cause.EXPERT_IMBALANCE,
    Cause.ONE_TIME_SETUP,
    Cause.PIPELINE,
    Cause.GARBAGE_COLLECTION,
    Cause.UNRECORDED_WAIT,
    Cause.WAITING_FOR_WORK,
}
"""Causes that no simulated job and no capture plants as its first finding; drawings have them."""


@every_cause
def test_a_cause_has_a_title_and_advice(cause: Cause) -> None:
    """What a report calls it, and what to try."""
    assert cause in TITLES, f"no title of {cause!r} in TITLES of htagraph/findings/findings.py"
    assert cause in ADVICE, (
        f"no advice on {cause!r} in htagraph/findings/rules.py or device_rules.py; its "
        "conditions are cases of tests/findings/test_rules.py"
    )


@pytest.mark.parametrize("fault", sorted(set(CAUSES) - {"straggler"}))
def test_a_planted_fault_is_attributed_to_its_cause(fault: str) -> None:
    """`test_planted_faults.py`, which is slow, says whether it is the first finding, too."""
    rank = simulate(training_rank(steps=2, layers=2, fault=fault))
    dag = compile_events(rank.events)
    found = set(attributed_time(dag, critical_path(dag, dag.span))["cause"].astype(str))

    assert CAUSES[fault] in found, (
        f"no time of fault {fault!r} is attributed to {CAUSES[fault]!r}: its names in "
        "htagraph/explain/topics.py, or its segments in htagraph/explain/attributed_time.py"
    )


@every_cause
def test_a_cause_is_planted(cause: Cause) -> None:
    """A fault whose first finding it is, in a simulated job or a real capture."""
    planted = {*CAUSES.values(), *(expected[2] for expected in PLANTED)}

    assert (cause in planted) != (cause in DRAWN_ONLY), (
        f"{cause!r} needs a fault in tests/synth/training.py and CAUSES of "
        "tests/findings/planted.py, or a place in DRAWN_ONLY here: one of the two"
    )
