"""Intervals of predictions hold what repairs of real runs saved."""

from __future__ import annotations

import pandas as pd
import pytest

from htagraph.replay import rehearsal
from tests.benchmarks.bench_intervals import FIT, TABLE, judged


def held(*, is_fit: bool) -> pd.DataFrame:
    """Pairs recorded on a machine with free cores, of which constants knew, or did not."""
    found = judged(pd.read_csv(TABLE))
    return found[(found["machine"] == "free") & (found["kind"].isin(FIT) == is_fit)]


def test_nine_of_ten_intervals_hold_on_pairs_that_set_nothing() -> None:
    found = held(is_fit=False)
    assert found["pair"].nunique() >= 25
    assert found["holds_next"].mean() >= 0.9


def test_intervals_are_not_wider_than_they_need_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two deviations in place of three, fewer than nine of ten hold where they were chosen."""
    assert held(is_fit=True)["holds_next"].mean() >= 0.9
    monkeypatch.setattr(rehearsal, "_DEVIATIONS", 2)
    assert held(is_fit=True)["holds_next"].mean() < 0.9
