"""Use of devices as other tools sampled it."""

from __future__ import annotations

import numpy as np
import pytest

from htagraph.lookup.sampled_use import sampled_use
from htagraph.model.samples import SampleTable, Series


@pytest.mark.parametrize(
    ("unit", "largest", "use"), [("", 1.5, 1.0), ("", 1.6, 0.0105), ("%", 1.0, 0.0075)]
)
def test_a_series_is_in_percent_if_it_says_so_or_exceeds_all(
    unit: str, largest: float, use: float
) -> None:
    """Ratios exceed 1 by rounding only; the other sample is 0.5."""
    table = SampleTable.of([(Series("SMACT", unit, 0), [5, 15], [0.5, largest])])
    found = sampled_use(table, 0, np.array([0]), np.array([0]), np.array([20]))

    assert found["sm_activity"].tolist() == pytest.approx([use])
