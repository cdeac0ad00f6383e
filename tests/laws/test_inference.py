"""An inferred edge that binds is right, on random programs whose causes are known."""

from __future__ import annotations

import pandas as pd
import pytest

from htagraph.model.rules import Rule
from tests.judged_inference import INFERRED, Judgement, judge
from tests.synth.mechanisms import KINDS, inference_program
from tests.synth.simulator import simulate

LEAST_PRECISION = 0.99
FEWEST = 5
"""Edges of each rule that bind in the programs, at least: of none nothing is shown."""
SEEDS = range(1_000, 1_008)

_judged: dict[str, list[Judgement]] = {}


def judged(kind: str) -> list[Judgement]:
    """Judgements of some programs of a kind, made once."""
    if kind not in _judged:
        programs = (inference_program(kind, seed) for seed in SEEDS)
        _judged[kind] = [judge(simulate(program)) for program in programs]
    return _judged[kind]


@pytest.mark.parametrize("rule", INFERRED, ids=lambda rule: rule.label)
def test_what_a_rule_infers_is_true(rule: Rule) -> None:
    """Of the edges that bind, on all kinds of programs."""
    edges = pd.concat([found.edges.assign(kind=kind) for kind in KINDS for found in judged(kind)])
    own = edges[edges["rule"] == rule]

    assert len(own) >= FEWEST, (
        f"rule {rule.label!r} binds {len(own)} times: plant what it infers in "
        "tests/synth/mechanisms.py, name its truth in UNNAMED of tests/judged_inference.py"
    )
    wrong = own.loc[~own["is_right"], "kind"].value_counts().to_dict()
    assert own["is_right"].sum() >= LEAST_PRECISION * len(own), f"wrong, by kind: {wrong}"


def test_nothing_is_inferred_where_nothing_waits() -> None:
    """Garbage collection, data loading, sleeping, and streams that do not wait for each other."""
    edges = pd.concat([found.edges for found in judged("nothing")])

    assert edges["is_right"].all()


@pytest.mark.parametrize("kind", KINDS)
def test_inference_makes_no_path_worse(kind: str) -> None:
    """More of its time has the true bound with inference than without."""
    time = pd.concat([found.time for found in judged(kind)])
    right_ns = time.groupby("infer")["right_ns"].sum()

    assert right_ns[True] >= right_ns[False]
