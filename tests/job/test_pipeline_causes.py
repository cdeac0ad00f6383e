"""What is slow in a pipeline: rank, stage, micro-batch or action, and what that costs."""

from __future__ import annotations

import pandas as pd
import pytest

from htagraph.job.pipeline import Pipeline
from htagraph.job.pipeline_causes import PipelineCauses
from tests.job.drawn_pipelines import Order, drawn, gpipe, one_forward_one_backward


def base(stage: int, phase: str, number: int) -> float:
    """A forward of 10 ms, a backward of 20 ms."""
    del stage, number
    return 10.0 if phase == "F" else 20.0


def causes(pipeline: Pipeline) -> pd.DataFrame:
    """What is called a cause."""
    found = PipelineCauses(pipeline).table
    return found[found["is_cause"]].reset_index(drop=True)


def saved_ms(slow: Pipeline, without: Pipeline) -> float:
    """By how much a step is longer."""
    return float(slow.step_ns.mean() - without.step_ns.mean()) / 1e6


def test_equal_stages_have_no_cause() -> None:
    """Up to 2% apart: stages, micro-batches and actions."""
    even = drawn(4, 8, lambda s, p, n: base(s, p, n) * (1 + (s * 5 + n * 3) % 5 / 200))
    assert causes(even).empty


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_a_slow_stage_saves_what_it_costs(stage: int) -> None:
    """It takes twice as long; with the others' time the run is that of equal stages."""
    slow = drawn(4, 8, lambda s, p, n: base(s, p, n) * (2 if s == stage else 1), transfer_ms=1)
    found = causes(slow)
    assert found[["change", "stage", "rank"]].to_numpy().tolist() == [["stage", stage, stage]]
    assert found["ratio"][0] == pytest.approx(2)
    without = drawn(4, 8, base, transfer_ms=1)
    assert found["saves_ns"][0] / 1e6 == pytest.approx(saved_ms(slow, without), rel=0.05)


def test_a_stage_is_slow_from_a_tenth_on() -> None:
    """Below that, stages are equal; 9% more would save 7% of the step."""
    for extra, n in ((0.09, 0), (0.11, 1)):
        slow = drawn(4, 8, lambda s, p, n, x=extra: base(s, p, n) * (1 + x * (s == 1)))
        assert len(causes(slow)) == n


def test_of_two_stages_the_faster_is_the_measure() -> None:
    """Their median would be their mean, which nothing is faster than."""
    slow = drawn(2, 8, lambda s, p, n: base(s, p, n) * (1 + s))
    found = causes(slow)
    assert found["stage"].tolist() == [1]
    assert found["saves_ns"][0] / 1e6 == pytest.approx(saved_ms(slow, drawn(2, 8, base)), rel=0.01)


def test_moved_layers_save_less_than_a_fast_stage() -> None:
    """The work of the slow stage has to be done: each of four takes a quarter more."""
    slow = drawn(4, 8, lambda s, p, n: base(s, p, n) * (2 if s == 2 else 1))
    even = drawn(4, 8, lambda s, p, n: base(s, p, n) * 1.25)
    assert causes(slow)["spread_ns"][0] / 1e6 == pytest.approx(saved_ms(slow, even), rel=0.01)


def test_an_uneven_micro_batch_is_no_slow_stage() -> None:
    """Micro-batch 3 takes three times as long on every stage."""
    slow = drawn(4, 8, lambda s, p, n: base(s, p, n) * (3 if n == 3 else 1), order=gpipe)
    found = causes(slow)
    assert found[["change", "micro_batch"]].to_numpy().tolist() == [["micro-batch", 3]]
    without = drawn(4, 8, base, order=gpipe)
    assert found["saves_ns"][0] / 1e6 == pytest.approx(saved_ms(slow, without), rel=0.01)


def test_noise_on_uneven_micro_batches_is_no_slow_stage() -> None:
    """Stages are compared micro-batch by micro-batch: one of four takes 40% longer on stage 3."""

    def dur(stage: int, phase: str, number: int) -> float:
        size = 3 if number == 2 else 1
        return base(stage, phase, number) * size * (1.4 if (stage, number) == (3, 3) else 1)

    assert "stage" not in causes(drawn(4, 4, dur))["change"].tolist()


def test_one_slow_replica_is_a_rank_and_not_a_stage() -> None:
    """Rank 5 is stage 1 of the second of two pipelines; the other stage 1 is as fast as all."""
    found = causes(drawn(4, 8, base, n_replicas=2, slow_rank=5))
    assert found[["change", "rank"]].to_numpy().tolist() == [["rank", 5]]


def test_a_stage_slow_in_every_replica_is_a_stage() -> None:
    """Ranks 2 and 6."""
    slow = drawn(4, 8, lambda s, p, n: base(s, p, n) * (2 if s == 2 else 1), n_replicas=2)
    found = causes(slow)
    assert found[["change", "stage", "rank"]].to_numpy().tolist() == [["stage", 2, -1]]


def test_an_action_that_is_slow_in_every_step_is_named() -> None:
    """The forward of micro-batch 1 on stage 1 takes 40 ms longer."""

    def dur(stage: int, phase: str, number: int) -> float:
        return base(stage, phase, number) + 40 * ((stage, phase, number) == (1, "F", 1))

    slow = drawn(4, 8, dur)
    found = causes(slow)
    named = found[["change", "rank", "micro_batch"]].to_numpy().tolist()
    assert named == [["action", 1, 1]]
    assert found["saves_ns"][0] / 1e6 == pytest.approx(saved_ms(slow, drawn(4, 8, base)), rel=0.01)


@pytest.mark.parametrize(("extra_ms", "n"), [(7, 0), (15, 1)])
def test_a_repair_that_saves_little_is_no_cause(extra_ms: int, n: int) -> None:
    """The last backward takes longer, in a step of 330 ms: 2% of it, or 4%."""
    few = drawn(4, 8, lambda s, p, m: base(s, p, m) + extra_ms * ((s, p, m) == (0, "B", 7)))
    assert len(causes(few)) == n


STALL_CAUSES = ("rank", "stage", "micro_batch", "action", "transfer", "between", "schedule")


def stalls(pipeline: Pipeline) -> pd.DataFrame:
    """What the stalls of each rank are due to, in ms a step; without parts that are nothing."""
    table = pipeline.table(PipelineCauses(pipeline).repaired)
    parts = [f"stall_{name}_ns" for name in STALL_CAUSES]
    found = table.groupby("rank")[parts].mean() / 1e6
    found.columns = pd.Index(STALL_CAUSES)
    return found.loc[:, (found > 0).any()]


@pytest.mark.parametrize(
    ("cause", "order"),
    [("stage", one_forward_one_backward), ("micro_batch", gpipe), ("action", gpipe)],
)
def test_a_stall_is_due_to_what_is_slow_as_far_as_it_goes_with_it(cause: str, order: Order) -> None:
    """The rest is the stall of equal stages, which the schedule makes."""

    def dur(stage: int, phase: str, number: int) -> float:
        slow = {
            "stage": 2 if stage == 2 else 1,
            "micro_batch": 3 if number == 3 else 1,
            "action": 4 if (stage, phase, number) == (1, "F", 1) else 1,
        }
        return base(stage, phase, number) * slow[cause]

    slow, equal = stalls(drawn(4, 8, dur, order=order)), stalls(drawn(4, 8, base, order=order))
    assert set(slow.columns) == {cause, "schedule"}
    assert slow["schedule"].to_list() == pytest.approx(
        [min(*both) for both in zip(equal["schedule"], slow.sum(axis=1), strict=True)]
    )


def test_a_stall_is_due_to_a_slow_rank_before_all_else() -> None:
    """Rank 5 of two pipelines: the stalls of the other one are those of its schedule."""
    found = stalls(drawn(4, 8, base, n_replicas=2, slow_rank=5))
    assert found["rank"].gt(0).tolist() == [False, False, False, False, True, False, True, True]


def test_transfers_make_others_stall() -> None:
    """Of 3 ms each: without them, every stall is as long as where they are free."""
    slow, free = (stalls(drawn(4, 8, base, transfer_ms=ms)) for ms in (3, 0))
    assert slow["schedule"].to_list() == pytest.approx(free["schedule"].to_list())
    assert slow["transfer"].max() > 3
