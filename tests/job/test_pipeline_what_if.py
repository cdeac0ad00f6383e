"""A step of a pipeline with another schedule, or other micro-batches: drawn both ways."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from htagraph.errors import QueryError
from htagraph.job.pipeline import Pipeline
from htagraph.job.pipeline_what_if import pipeline_what_if
from tests.job.drawn_pipelines import drawn, gpipe, one_forward_one_backward


def uneven(stage: int, phase: str, number: int) -> float:
    """Stages and micro-batches differ."""
    return (10.0 if phase == "F" else 20.0) + 3 * stage + (number * 7) % 5


def even(stage: int, phase: str, number: int) -> float:
    """A forward of 10 ms, a backward of 20 ms."""
    del stage, number
    return 10.0 if phase == "F" else 20.0


def asked(
    pipeline: Pipeline, schedule: str = "all", chunks: int = 0, n_micro_batches: int = 0
) -> pd.DataFrame:
    """The answer, by schedule."""
    return pipeline_what_if(pipeline, schedule, chunks, n_micro_batches).set_index("schedule")


def both_ms(pipeline: Pipeline, schedule: str, **options: Any) -> list[float]:
    """Least and most of a schedule."""
    row = asked(pipeline, schedule, **options).loc[schedule]
    return [row["least_ns"] / 1e6, row["most_ns"] / 1e6]


def test_what_was_recorded_takes_as_long_as_recorded() -> None:
    """To the nanosecond, with uneven work, transfers and two replicas of which one is slow."""
    one = drawn(4, 8, uneven, transfer_ms=2, n_replicas=2, slow_rank=5)
    row = asked(one).loc["1f1b"]
    assert (row["is_recorded"], row["least_ns"], row["most_ns"]) == (
        True,
        row["step_ns"],
        row["step_ns"],
    )
    assert not asked(one).loc["gpipe", "is_recorded"]


@pytest.mark.parametrize(
    ("order", "other", "name"),
    [(gpipe, one_forward_one_backward, "1f1b"), (one_forward_one_backward, gpipe, "gpipe")],
)
def test_another_order_takes_as_long_as_drawn_in_it(order: Any, other: Any, name: str) -> None:
    """With uneven stages and micro-batches, GPipe and 1F1B differ."""
    length = drawn(4, 8, uneven, order=other, transfer_ms=2).step_ns.mean() / 1e6
    assert both_ms(drawn(4, 8, uneven, order=order, transfer_ms=2), name) == [length, length]


def test_twice_the_micro_batches_are_half_as_long() -> None:
    """Free transfers: (16 + 3) pairs of 15 ms."""
    assert both_ms(drawn(4, 8, even), "1f1b", n_micro_batches=16) == [285, 285]


def test_it_is_open_whether_transfers_are_split() -> None:
    """Six transfers of 4 ms are on the way of the first and the last micro-batch, or of 2 ms."""
    least, most = both_ms(drawn(4, 1, even, transfer_ms=4), "1f1b", n_micro_batches=1)
    assert least == most == 4 * 30 + 6 * 4
    least, most = both_ms(drawn(4, 8, even, transfer_ms=4), "gpipe", n_micro_batches=16)
    assert [least, most] == [285 + 6 * 2, 285 + 6 * 4]


def test_it_is_open_whether_time_in_python_is_split() -> None:
    """A fifth of 30 ms per micro-batch: of half a micro-batch, 15 ms, or 12 + 6."""
    least, most = both_ms(drawn(4, 8, even, python_share=0.2), "1f1b", n_micro_batches=16)
    assert [least, most] == [19 * 15, 19 * 18]


def test_chunks_divide_the_bubble() -> None:
    """Eight micro-batches of 30 ms, and three bubbles of half of that."""
    assert both_ms(drawn(4, 8, even), "interleaved", chunks=2) == [285, 285]
    assert asked(drawn(4, 8, even), chunks=2)["ideal_bubble"].to_list() == [
        pytest.approx(1.5 / 9.5)
    ]


def test_two_chunks_share_the_layers_in_their_order() -> None:
    """The slow last stage becomes the last two of eight, on two ranks: no rank has all of it."""
    slow = drawn(4, 8, lambda s, p, n: even(s, p, n) * (3 if s == 3 else 1))
    assert both_ms(slow, "interleaved")[1] < 0.8 * slow.step_ns.mean() / 1e6


def test_what_cannot_be_tried_is_told() -> None:
    """Only what was recorded apart can be moved apart."""
    one = drawn(4, 8, even)
    for options, told in (
        ({"schedule": "zero_bubble"}, "weights were not recorded apart"),
        ({"schedule": "1f1b", "chunks": 2}, "1f1b has one chunk"),
        ({"schedule": "interleaved", "chunks": 1}, "several chunks"),
        ({"schedule": "interleaved", "n_micro_batches": 9}, "no equal rounds of 4 ranks"),
        ({"n_micro_batches": 125_001}, "too many"),
    ):
        with pytest.raises(QueryError, match=told):
            asked(one, **options)
    assert len(asked(one, n_micro_batches=16)) == 3


def test_without_backwards_no_schedule_is_asked() -> None:
    """Serving runs forwards only."""
    one = drawn(2, 4, even)
    acts = one.actions[one.actions["phase"] == "F"].reset_index(drop=True)
    assert asked(replace(one, actions=acts)).empty
