"""What a verdict says of compute, on an H100: 989.4 TFLOP/s in bf16."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.findings.light import Light, light_on
from htagraph.findings.verdict import Fix
from tests.queries.recorded_shapes import Op, recorded

SLOW = Op("aten::mm", [[16384, 16384], [16384, 16384]], [("gemm", 20_000)])
"""8.89 ms at the peak."""
FAST = SLOW._replace(kernels=[("gemm", 9_000)])
OWN = Op("mylib::attention", [[8]], [("attention", 20_000)])
"""An operator without a model."""


def graph_of(*ops) -> hg.TraceGraph:
    return recorded(*ops, is_awaited=True)


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
