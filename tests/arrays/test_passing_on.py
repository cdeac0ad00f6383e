"""Amounts are split among parts and passed on; nothing is lost."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays.delays import pass_on


def test_amounts_that_do_not_divide_are_kept_whole() -> None:
    """10 among three equal parts."""
    own, passed = pass_on(np.array([10]), np.array([0, 3]), np.ones(3), np.full(3, -1))

    assert (sorted(own.tolist()), passed.tolist()) == ([3, 3, 4], [0, 0, 0])


def test_what_is_passed_on_twice_arrives() -> None:
    """Row 2 is due to row 1, which is due to row 0."""
    own, passed = pass_on(
        np.array([1, 20, 300]), np.array([0, 1, 2, 3]), np.ones(3), np.array([-1, 0, 1])
    )

    assert (own.tolist(), passed.tolist()) == ([1, 0, 0], [320, 0, 0])


@given(data=st.data(), counts=st.lists(st.integers(1, 4), min_size=1, max_size=8))
def test_parts_keep_the_sum_of_all_amounts(data: st.DataObject, counts: list[int]) -> None:
    """Whatever the weights, also of minutes in nanoseconds; and parts that pass on keep nothing."""
    row = np.repeat(np.arange(len(counts)), counts)
    amount = np.array([data.draw(st.integers(0, 10**12)) for _ in counts])
    weight = np.array([data.draw(st.floats(1e-3, 1e12)) for _ in row])
    to = np.array([data.draw(st.integers(-1, max(int(own) - 1, -1))) for own in row])
    own, passed = pass_on(amount, np.append(0, np.cumsum(counts)), weight, to)

    assert own.sum() + passed.sum() == amount.sum()
    assert (own >= 0).all()
    assert (passed >= 0).all()
    assert not (own + passed)[to >= 0].any()
