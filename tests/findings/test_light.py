"""What a verdict says of compute, on an H100: 989.4 TFLOP/s in bf16."""

from __future__ import annotations

from tests.queries.recorded_shapes import Op, recorded

SLOW = Op("aten::mm", [[16384, 16384], [16384, 16384]], [("gemm", 20_000)])
"""8.89 ms at the peak."""
FAST = SLOW._replace(kernels=[("gemm", 9_000)])
OWN = Op("mylib::attention", [[8]], [("attention", 20_000)])
"""An operator without a model."""


def advice(*ops):
    """The advice on compute."""
    findings = recorded(*ops, is_awaited=True).verdict().findings
    return next(one.to_try for one in findings if one.cause == "GPU compute")


def test_the_operator_with_most_to_gain_is_named():
    assert advice(SLOW).startswith(
        "speed up aten::mm 2x bf16[16384, 16384] first: it runs at 44% of the peak of its matrix "
        "units, and at this roof the window would be 11.1 ms (55%) shorter"
    )


def test_an_operator_near_its_roof_is_not_named():
    """9 of 8.89 ms: kernels alone save 1%."""
    assert advice(FAST).startswith(
        "its operators have little left to gain: all at their roofs, the window would be 1.2% "
        "shorter; make them fewer or smaller"
    )


def test_little_is_said_if_little_has_a_model():
    assert advice(FAST, OWN).startswith("speed up its largest kernels first")
