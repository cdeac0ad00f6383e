"""Hardware counters."""

from __future__ import annotations

import pytest

from htagraph.errors import QueryError
from htagraph.queries.cupti_counters import cupti_counters
from tests.queries.counted import ALL, TWO_KERNELS, VALUES, args, counted


def test_the_nth_range_belongs_to_the_nth_launch():
    """Kernels run one by one while they are counted."""
    frame = cupti_counters(TWO_KERNELS, ALL, args=args)

    assert len(frame) == 2 * 3
    assert frame.drop_duplicates("event")[["name", "op", "top_op"]].to_numpy().tolist() == [
        ["gemm", "aten::mm", "aten::linear"],
        ["gemm", "aten::mm", "aten::linear"],
    ]
    assert frame.drop_duplicates("event")["launch"].is_unique


def test_without_as_many_launches_as_ranges_nothing_is_guessed():
    """One launch, two ranges: who knows which."""
    dag = counted("cpu 1 |[aten::mm [launch]]\nstream 7 |                      [gemm][gemm]")
    frame = cupti_counters(dag, ALL, args=args)

    assert set(frame["launch"]) == {-1}
    assert set(frame["op"]) == {""}


def test_args_must_be_given_for_every_range():
    """Half an answer would be a wrong one."""
    with pytest.raises(QueryError, match="1 of 2 events"):
        cupti_counters(TWO_KERNELS, ALL, args=lambda _: [VALUES])
