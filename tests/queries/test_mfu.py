"""Share of the dense peak, on an H100: 989.4 TFLOP/s in bf16."""

from __future__ import annotations

import pytest

from tests.queries.recorded_shapes import Op, recorded

PRODUCT = Op("aten::mm", [[4096, 4096], [4096, 4096]], [("gemm", 200)])
"""138.9 us at the peak."""


def test_a_product_in_a_step_of_a_millisecond():
    found = recorded(PRODUCT, Op("mylib::rest", [[8]], [("rest", 200)])).mfu()

    assert found["part"].tolist() == ["2 steps", "ProfilerStep#0", "ProfilerStep#1"]
    assert found["mfu_share"].tolist() == pytest.approx([0.0695, 0.139, 0.0], abs=0.0003)
    assert found["modelled_share"].tolist() == pytest.approx([0.5, 1.0, 0.0])


def test_a_device_without_known_peaks_has_none():
    assert recorded(PRODUCT, device=None).mfu().empty


def test_a_host_that_runs_ahead_does_not_shorten_its_steps():
    """Steps of 999 us on the host launch 3 ms each: they end at 3.02 and 6.02."""
    slow = PRODUCT._replace(kernels=[("gemm", 3_000)])
    found = recorded(slow, slow).mfu()

    assert found["window_ns"].tolist()[1:] == [3_020_000, 3_000_000]
    assert found["mfu_share"].tolist()[1:] == pytest.approx([0.0460, 0.0463], abs=1e-4)
