"""What a verdict says of compute, on an H100: 989.4 TFLOP/s in bf16."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.findings.light import Light, light_on
from htagraph.findings.verdict import Fix
from tests.queries.recorded_shapes import A100, Op, recorded

SLOW = Op("aten::mm", [[16384, 16384], [16384, 16384]], [("gemm", 20_000)])
"""8.89 ms at the peak."""
FAST = SLOW._replace(kernels=[("gemm", 9_000)])
OWN = Op("mylib::attention", [[8]], [("attention", 20_000)])
"""An operator without a model."""


def graph_of(*ops) -> hg.TraceGraph:
    return recorded(*ops, is_awaited=True)


IN_FP32 = SLOW._replace(
    dims=[[8192, 8192], [8192, 8192]],
    types=["float"] * 2,
    kernels=[("ampere_sgemm_128x128_tn", 61_000)],
)
"""1.1 PFLOP on an A100: 56.4 ms at the peak of FP32, 7.05 at that of TF32."""
IN_TF32 = IN_FP32._replace(kernels=[("cutlass_80_tensorop_s1688gemm_128x128_16x4_tn", 61_000)])


def fix(graph: hg.TraceGraph) -> Fix:
    """What to do about compute."""
    return next(one.fix for one in graph.verdict().findings if one.cause == "GPU compute")


def advice(*ops) -> str:
    return fix(graph_of(*ops)).do


def test_the_operator_with_most_to_gain_is_named():
    assert advice(SLOW) == (
        "Speed up aten::mm 2x bf16[16384, 16384]: it runs at 44% of the peak of its matrix units."
    )


def test_an_operator_near_its_roof_is_not_named():
    """9 of 8.89 ms: kernels alone save 1%."""
    assert advice(FAST) == "Make operators fewer or smaller: they run at 99% of their roofs."


def test_little_is_said_if_little_has_a_model():
    assert light_on(graph_of(FAST, OWN).critical_path()) == Light()
    assert advice(FAST, OWN).startswith("Start with the largest kernel")


def test_tf32_is_advised_where_products_run_in_fp32():
    """At 92% of the peak of FP32, there is little to gain but by another pipe."""
    graph = recorded(IN_FP32, device=A100, is_awaited=True)
    (found,) = (one for one in graph.verdict().findings if one.cause == "GPU compute")

    assert found.advice == (
        'Allow TF32: torch.set_float32_matmul_precision("high"), and for convolutions '
        "torch.backends.cudnn.allow_tf32 = True (saves up to 87%)."
    )
    assert found.fix.saves_ns == graph.dur_ns - hg.what_if(graph, hg.allow_tf32()).dur_ns


@pytest.mark.parametrize("op", [IN_TF32, IN_FP32._replace(types=["c10::Half"] * 2)])
def test_tf32_is_not_advised_where_it_changes_nothing(op):
    assert not fix(recorded(op, device=A100, is_awaited=True)).do.startswith("Allow")


def test_tf32_is_not_advised_where_another_product_has_it():
    graph = recorded(IN_FP32, IN_TF32, device=A100, is_awaited=True)

    assert fix(graph).do.startswith("Speed up aten::mm")


def test_the_change_is_the_named_operator_at_its_roof():
    """By its shapes: another product of the same name stays as slow as it is."""
    other = SLOW._replace(dims=[[8192, 8192], [8192, 8192]], kernels=[("gemm", 3_000)])
    graph = graph_of(SLOW, other)
    change = fix(graph).change
    (cost_ns,) = graph.speed_of_light().query("group == 'aten::mm 2x bf16[16384, 16384]'")[
        "cost_ns"
    ]

    assert str(change) == "at_roof('aten::mm 2x bf16[16384, 16384]')"
    assert graph.dur_ns - hg.what_if(graph, change).dur_ns == pytest.approx(cost_ns, rel=1e-3)
    assert graph.dur_ns - hg.what_if(graph, hg.at_roof("aten::mm")).dur_ns > 1.1 * cost_ns
