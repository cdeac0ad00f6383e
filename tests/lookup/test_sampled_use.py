"""Samples of other instruments as shares of 1."""

from __future__ import annotations

import numpy as np
import pytest

from htagraph.lookup.samples import sampled_use
from htagraph.model.samples import SampleTable, Series


@pytest.mark.parametrize(
    ("name", "unit", "most", "share"),
    [
        ("SMACT", "ratio", 1.4, 1.4),
        ("SMACT", "ratio", 1.6, 0.016),
        ("SMs Active [Throughput %]", "", 1.4, 0.014),
        ("SMs Active", "%", 1.4, 0.014),
    ],
)
def test_a_series_is_in_percent_if_it_says_so_or_exceeds_what_a_ratio_can(name, unit, most, share):
    """A ratio exceeds 1 by rounding only."""
    table = SampleTable.of([(Series(name, unit, 0), [5, 15], [most, most])])
    use = sampled_use(table, 0, np.array([0]), np.array([0]), np.array([20]))

    assert use["sm_activity"].tolist() == pytest.approx([share])
