"""What stages of a pipeline did, and where they waited."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.job.drawn_pipelines import Order, drawn, gpipe, one_forward_one_backward


def usual(stage: int, phase: str, number: int) -> float:
    """A forward of 10 ms, a backward of 20 ms."""
    del stage, number
    return 10.0 if phase == "F" else 20.0


def test_the_parts_of_a_step_add_up() -> None:
    """Stage 1 of two with two micro-batches: it begins 10 ms later, and ends 20 ms earlier."""
    table = drawn(2, 2, usual).table()
    row = table.query("rank == 1 and step == 0").iloc[0]
    parts = ("forward", "backward", "weight", "transfer", "between", "warm_up", "stall", "drain")
    assert [row[f"{part}_ns"] / 1e6 for part in parts] == [20, 40, 0, 0, 0, 10, 0, 20]
    assert (row["after_ns"], row["dur_ns"]) == (2_000_000, 92_000_000)
    first = table.query("rank == 0 and step == 0").iloc[0]
    assert (first["stall_ns"], first["warm_up_ns"], first["drain_ns"]) == (30_000_000, 0, 0)


def test_a_transfer_is_not_a_stall() -> None:
    """Two gradients arrive 3 ms after they are computed."""
    row = drawn(2, 2, usual, transfer_ms=3).table().query("rank == 0 and step == 0").iloc[0]
    assert row["transfer_ns"] == 6_000_000


@pytest.mark.parametrize("order", [gpipe, one_forward_one_backward])
@pytest.mark.parametrize(("n_stages", "n_batches"), [(2, 2), (4, 8), (3, 12)])
def test_the_ideal_bubble_is_that_of_the_schedule(
    order: Order, n_stages: int, n_batches: int
) -> None:
    """However uneven stages are, and however slow transfers."""
    uneven = drawn(
        n_stages, n_batches, lambda s, p, n: usual(s, p, n) + 3 * s, order=order, transfer_ms=2
    )
    expected = (n_stages - 1) / (n_batches + n_stages - 1)
    assert uneven.ideal_bubble == pytest.approx(expected, abs=1e-6)


def test_a_replay_without_changes_is_the_record() -> None:
    """Every action ends when it ended."""
    pipeline = drawn(4, 8, lambda s, p, n: usual(s, p, n) + (s * 7 + n * 3) % 5, transfer_ms=1)
    ends = pipeline.actions["end_ns"].to_numpy()[pipeline.schedule.order]
    assert np.array_equal(pipeline.schedule.ends(), ends)


def test_a_window_keeps_the_steps_of_which_it_has_most() -> None:
    """Step 1 of two."""
    pipeline = drawn(2, 2, usual)
    second = pipeline.steps[pipeline.steps["step"] == 1]
    bounds = {
        rank: (start, end)
        for rank, start, end in zip(
            second["rank"], second["start_ns"], second["end_ns"], strict=True
        )
    }
    kept = pipeline.within(bounds)
    assert kept is not None
    assert kept.table()["step"].unique().tolist() == [1]


def test_a_step_is_contradicted_if_an_action_begins_before_its_input_ended() -> None:
    """By more than clocks of one host differ: in step 1, stage 1 begins 5 ms too early."""
    pipeline = drawn(2, 2, usual)
    acts = pipeline.actions
    early = (acts["step"] == 1) & (acts["stage"] == 1) & (acts["phase"] == "F")
    moved = acts.assign(begin_ns=acts["begin_ns"] - 5_000_000 * early)
    assert pipeline.contradicted.tolist() == []
    assert replace(pipeline, actions=moved).contradicted.tolist() == [1]


def test_a_step_is_contradicted_if_an_action_ends_before_its_input() -> None:
    """In step 1, stage 1 is done with its first forward before stage 0 begins it."""
    pipeline = drawn(2, 2, usual)
    acts = pipeline.actions
    first = (acts["step"] == 1) & (acts["phase"] == "F") & (acts["micro_batch"] == 0)
    late = first & (acts["stage"] == 0)
    moved = acts.assign(end_ns=acts["end_ns"] + 500_000_000 * late)

    assert replace(pipeline, actions=moved).contradicted.tolist() == [1]
