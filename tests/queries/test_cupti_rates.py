"""Rates from hardware counters."""

from __future__ import annotations

from htagraph.queries.cupti_rates import cupti_rates
from tests.queries.counted import ALL, FMA, TWO_KERNELS, args


def test_a_fused_multiply_add_is_two_operations():
    """Twice 400 * 2 + 200, and 500 bytes, in 20 us: 100 MFLOP/s, two operations a byte."""
    frame = cupti_rates(TWO_KERNELS, ALL, args=args)

    assert frame.iloc[0].tolist() == ["gemm", 2, 20_000, 2_000.0, 1_000.0, 1e8, 5e7, 2.0]


def test_what_was_not_counted_is_not_a_number():
    """Operations without traffic have no intensity."""
    frame = cupti_rates(TWO_KERNELS, ALL, args=lambda events: [{FMA: 1.0} for _ in events], by="op")

    assert frame["name"].tolist() == ["aten::mm"]
    assert frame["flop"].tolist() == [4.0]
    assert frame[["bytes", "bytes_per_s", "flop_per_byte"]].isna().all(axis=None)
