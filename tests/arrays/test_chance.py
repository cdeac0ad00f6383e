"""The bound on a chance, against the chance."""

from __future__ import annotations

from math import comb, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from htagraph.compiler.recurrences import log_chance


@given(n=st.integers(1, 30), matched=st.integers(0, 30), share=st.floats(0.01, 0.99))
def test_chance_is_at_most_the_bound_and_at_least_its_largest_term(n, matched, share):
    """Chernoff's bound is at most n + 1 times the largest term of the tail."""
    matched = min(matched, n)
    terms = [comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(matched, n + 1)]
    bound = float(log_chance(matched, n, share))

    assert log(sum(terms)) <= bound + 1e-9
    assert bound <= min(log((n + 1) * max(terms)) + 1e-9, 0) or matched <= n * share


def test_all_that_match_are_as_likely_as_each_one_to_their_number():
    assert log_chance([4, 0, 0], [4, 0, 9], [0.1, 0.5, 0.1]).tolist() == pytest.approx(
        [4 * log(0.1), 0, 0]
    )
    assert log_chance(4, 4, 1.0) == 0
    assert log_chance(4, 4, 0.0) == pytest.approx(4 * log(1e-12))
