"""Which steps are alike: where what they do, and how long they take, is no longer the same."""

from __future__ import annotations

import numpy as np
import pytest

from htagraph.compiler.passes import compile_events
from htagraph.lookup.steady_steps import are_near, steady_steps
from htagraph.synth import timeline


@pytest.mark.parametrize(("n_more", "is_same"), [(1, True), (2, False)])
def test_a_hundredth_of_the_events_of_a_step_may_differ(n_more: int, is_same: bool) -> None:
    """Three steps have 100 events, the second has one or two more; all take equally long."""
    usual, more = (
        "{execute_a " + ("^a" * n_events).ljust(210) + "}" for n_events in (100, 100 + n_more)
    )
    found = steady_steps(compile_events(timeline(f"cpu 1 |{usual}{more}{usual}{usual}")))

    assert found.n_different.tolist() == [0, n_more, 0, 0]
    assert found.is_same_work.tolist() == [True, is_same, True, True]


@pytest.mark.parametrize(
    ("lengths", "length", "far"),
    [
        ([100, 100, 100, 100], 110, 111),
        ([90, 91, 100, 109, 110], 125, 126),
        ([960, 960, 1_000, 1_040, 1_040], 1_177, 1_178),
    ],
    ids=["a tenth", "a quarter", "three deviations"],
)
def test_a_length_is_near_the_median(lengths: list[int], length: int, far: int) -> None:
    """Within a tenth, or three deviations (4.4478 times the median of 40), but a quarter at most.

    Of 90, 91, 100, 109 and 110, three deviations are 40.
    """
    among = np.array([True] * len(lengths) + [False, False])
    found = are_near(np.array([*lengths, length, far]), among)

    assert found.tolist() == [*among[:-2].tolist(), True, False]
