"""The order of actions of a schedule, and the share of a step in which ranks do nothing."""

from __future__ import annotations

import numpy as np
import pytest

from htagraph.arrays.pipelines import FORWARD, PHASES, planned
from htagraph.job.pipeline_what_if import SCHEDULES, order_of, round_of

SIZES = [(2, 2), (2, 8), (4, 8), (3, 12), (8, 16)]
"""Ranks and micro-batches."""


def told(schedule: str, n_ranks: int, n_batches: int, chunks: int = 1) -> list[str]:
    """The actions of each rank, as PyTorch names them: stage, phase, micro-batch."""
    one = order_of(schedule, n_ranks, n_batches, chunks)
    names = [
        f"{stage}{PHASES[phase]}{number}"
        for stage, phase, number in zip(one.stage, one.phase, one.micro_batch, strict=True)
    ]
    return [" ".join(np.array(names)[one.rank == rank]) for rank in range(n_ranks)]


def bubble(schedule: str, n_ranks: int, n_batches: int, chunks: int = 1) -> float:
    """Share without work if a forward takes 1, a backward 2 or each of its parts 1."""
    order = order_of(schedule, n_ranks, n_batches, chunks)
    one = planned(*order)
    assert one is not None
    weights = 1 if schedule == "zero_bubble" else 2
    dur = np.where(order.phase == FORWARD, 1, weights)[one.order]
    return float(1 - dur.sum() / (n_ranks * one.ends(dur).max()))


def test_one_forward_one_backward() -> None:
    """As in the figure of Narayanan et al., 2021."""
    assert told("1f1b", 3, 3) == [
        "0F0 0F1 0F2 0B0 0B1 0B2",
        "1F0 1F1 1B0 1F2 1B1 1B2",
        "2F0 2B0 2F1 2B1 2F2 2B2",
    ]


def test_gpipe_runs_all_forwards_first() -> None:
    """Backwards in the order of micro-batches, as PyTorch runs them."""
    assert told("gpipe", 2, 3) == ["0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1F1 1F2 1B0 1B1 1B2"]


def test_interleaved_runs_a_round_on_each_chunk() -> None:
    """PyTorch's `ScheduleInterleaved1F1B` has this order."""
    assert told("interleaved", 2, 4, 2) == [
        "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
        "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3",
    ]


def test_weights_of_zero_bubble_come_later_on_later_ranks() -> None:
    """PyTorch's `ScheduleInterleavedZeroBubble` has this order."""
    assert told("zero_bubble", 2, 3) == [
        "0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2",
        "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2",
    ]


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_the_bubble_is_the_textbook_one(p: int, m: int) -> None:
    """Interleaved divides it by chunks; zero bubble (H1) leaves what weights cannot fill."""
    assert bubble("gpipe", p, m) == pytest.approx((p - 1) / (m + p - 1))
    assert bubble("1f1b", p, m) == pytest.approx((p - 1) / (m + p - 1))
    assert bubble("zero_bubble", p, m) == pytest.approx((p - 1) / (3 * m + p - 1))
    for chunks in (2, 3):
        expected = (p - 1) / chunks / (m + (p - 1) / chunks)
        assert bubble("interleaved", p, m, chunks) == pytest.approx(expected)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_action_is_there_once(schedule: str) -> None:
    """Stages of a rank are as many apart as there are ranks."""
    chunks = 2 if schedule == "interleaved" else 1
    one = order_of(schedule, 4, 8, chunks)
    rows = set(zip(*(column.tolist() for column in one[1:]), strict=True))
    n_phases = 3 if schedule == "zero_bubble" else 2
    assert len(one.rank) == len(rows) == n_phases * 4 * 8 * chunks
    assert (one.stage % 4 == one.rank).all()


@pytest.mark.parametrize(("p", "m", "size"), [(4, 8, 4), (4, 6, 6), (4, 2, 2), (4, 9, 0)])
def test_rounds_are_equal(p: int, m: int, size: int) -> None:
    """Nine micro-batches are no two rounds."""
    assert round_of(p, m) == size


def test_actions_that_wait_for_each_other_are_no_schedule() -> None:
    """A backward before its own forward on the last stage, which the first one's needs."""
    worker, stage = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1])
    phase, none = np.array([1, 0, 0, 1]), np.zeros(4, dtype=np.int64)
    assert planned(worker, stage, phase, none) is None
