"""Steps that vary in what they do are compared by what all of them share."""

from __future__ import annotations

import numpy as np
import pytest

import htagraph as hg
from htagraph.comparison.limits import Limits, check_run
from htagraph.comparison.run_diff import RunDiff
from htagraph.comparison.run_profile import RunProfile
from tests.synth.program import Annotation, Op, Program, Spend
from tests.synth.simulator import simulate


def run(seed: int, *, slow: float = 1.0, gathers: int = 40, gather: float = 1.0) -> RunProfile:
    """Six steps of twelve operators of 200 us, one slow, and gathers of 20 us as data want it."""
    draw = np.random.default_rng(seed)

    def spend(us: float) -> Spend:
        return Spend(int(1_000 * us * draw.normal(1, 0.005)))

    def step() -> tuple[Op, ...]:
        layers = [Op(f"aten::op{n}", (spend(200 * (slow if n == 3 else 1)),)) for n in range(12)]
        n_gathers = int(draw.integers(gathers // 2, gathers * 2))
        return (*layers, *(Op("aten::index", (spend(20 * gather),)) for _ in range(n_gathers)))

    body = tuple(Annotation(f"ProfilerStep#{n}", step()) for n in range(6))
    return hg.run_profile(hg.Trace.from_events(simulate(Program(body)).events))


@pytest.fixture(scope="module")
def before() -> RunProfile:
    """A run whose steps have other numbers of gathers each."""
    return run(1)


def test_what_steps_share_is_compared_and_the_rest_is_told(before: RunProfile):
    """31% of the time are gathers, whose number varies: their noise hides nothing."""
    found = RunDiff(before, run(2))

    assert found.verdict() == (
        "No change beyond noise (24.0 us) in the work that all steps share: 2.40 ms of a step "
        "is 2.40 ms now."
    )
    assert found.notes[0] == (
        "Steps vary in what they do: only work that all of them do as often is compared, 69% of "
        "the time before, 69% after; left out: aten::index (31%)."
    )


def test_a_change_of_shared_work_breaks_a_limit_and_has_its_cause(before: RunProfile):
    """One operator of twelve takes twice as long."""
    found = check_run(run(3, slow=2.0), Limits(fail_above=0.05), baseline=before)

    assert found.state == "broken"
    assert found.verdict().startswith(
        "Failed: the work that all steps share is 8.4% slower, limit 5%: 2.40 ms of a step is "
        "2.60 ms"
    )
    assert " in aten::op3 (each " in found.notes[0]


def test_steps_that_share_little_are_compared_as_a_whole():
    """Gathers are seven eighths of the time."""
    found = RunDiff(run(1, gathers=600), run(2, gathers=600))

    assert not found.is_part
    assert "share 12% of their time. They are compared as a whole." in found.notes[0]
    assert not found.is_change


def test_two_names_that_are_left_out_are_told():
    """Of three whose number varies, those with most time."""
    kinds = {"aten::index": 300_000, "aten::gather": 200_000, "aten::scatter": 100_000}

    def program(seed: int) -> RunProfile:
        draw = np.random.default_rng(seed)
        body = [
            Annotation(
                f"ProfilerStep#{step}",
                (
                    Op("aten::mm", (Spend(20_000_000),)),
                    *(
                        Op(name, (Spend(ns),))
                        for name, ns in kinds.items()
                        for _ in range(int(draw.integers(1, 20)))
                    ),
                ),
            )
            for step in range(6)
        ]
        return hg.run_profile(hg.Trace.from_events(simulate(Program(tuple(body))).events))

    said = RunDiff(program(1), program(2)).notes[0]

    assert "left out: aten::index (12%), aten::gather (10%)." in said
