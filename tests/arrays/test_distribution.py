"""Statistics of groups, against pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays.distribution import distribution


@given(rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**12)), min_size=1, max_size=30))
def test_statistics_are_those_of_pandas(rows):
    """Sum, extremes, lower quantiles, mean and sample deviation of every group."""
    group, value = np.array(rows, dtype=np.int64).T
    found = distribution(group, value, (0.5, 0.9))
    groups = pd.Series(value).groupby(group)

    assert found.group.tolist() == sorted(set(group.tolist()))
    assert found.n.tolist() == groups.size().tolist()
    assert found.total.tolist() == groups.sum().tolist()
    assert found.smallest.tolist() == groups.min().tolist()
    assert found.largest.tolist() == groups.max().tolist()
    assert found.quantiles[1].tolist() == groups.quantile(0.9, interpolation="lower").tolist()
    assert np.allclose(found.deviation, groups.std().fillna(0), rtol=1e-9, atol=1e-3)


def test_one_value_does_not_deviate():
    """Not even by nothing over nothing."""
    assert distribution(np.array([5]), np.array([7])).deviation.tolist() == [0.0]


def test_nothing_has_no_groups():
    """And quantiles of no length."""
    none = np.empty(0, dtype=np.int64)

    assert distribution(none, none, (0.5,)).quantiles.shape == (1, 0)
