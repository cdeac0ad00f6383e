"""What a window gains if operators run at their roof, on an H100: 989.4 TFLOP/s in bf16."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.errors import QueryError
from tests.queries.recorded_shapes import A100, Op, recorded

LARGE = Op("aten::mm", [[16384, 16384], [16384, 16384]], [("gemm", 20_000)])
"""8.89 ms at the peak: 11.11 ms too long."""
BEST = Op("aten::bmm", [[4, 8192, 8192], [4, 8192, 8192]], [("gemm_b", 5_557)])
"""4.45 ms at the peak: 80% of it."""
OTHER = Op("mylib::rest", [[8]], [("rest", 3_000)])


def costs(found):
    """Cost at the roof and at what is attainable, in us, by group."""
    return {
        row.group: (round(row.cost_ns / 1e3), round(row.attainable_ns / 1e3))
        for row in found.itertuples()
    }


def test_a_product_that_bounds_the_run_saves_its_excess():
    found = recorded(LARGE, OTHER, is_awaited=True).speed_of_light()

    assert costs(found) == {
        "all operators": (11_110, 0),
        "aten::mm 2x bf16[16384, 16384]": (11_110, 0),
    }


def test_attainable_is_what_the_best_of_the_family_reaches():
    """At 80% of the peak, the large product would take 11.1 ms instead of 20."""
    found = recorded(LARGE, BEST, is_awaited=True).speed_of_light()

    assert costs(found) == {
        "all operators": (12_222, 8_886),
        "aten::mm 2x bf16[16384, 16384]": (11_110, 8_886),
        "aten::bmm 2x bf16[4, 8192, 8192]": (1_112, 0),
    }


def test_nobody_waits_for_the_kernel():
    """The host's work is longer: the device has nothing to give."""
    short = Op("aten::mm", [[4096, 4096], [4096, 4096]], [("gemm", 200)])
    graph = recorded(short, OTHER, OTHER, OTHER, is_awaited=True).window("trace")
    found = graph.speed_of_light()

    assert found["cost_ns"].tolist() == [0, 0]


def test_what_if_at_roof_saves_the_same():
    graph = recorded(LARGE, BEST, is_awaited=True)
    saved = [
        graph.dur_ns - hg.what_if(graph, change).dur_ns
        for change in (hg.at_roof(), hg.at_roof("aten::mm"), hg.at_roof("gemm", efficiency=0.5))
    ]

    assert [round(one / 1e3) for one in saved] == [12_222, 11_110, 2_219]


FULL = Op(
    "aten::mm",
    [[4096, 4096], [4096, 4096]],
    [("ampere_sgemm_128x64_nn", 8_000)],
    ["float", "float"],
)
"""On an A100, 19.5 TFLOP/s in FP32 and 156 in TF32, where it takes 1 ms: an eighth."""
ROUNDED = FULL._replace(kernels=[("cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4", 1_000)])
NARROW = FULL._replace(
    dims=[[32768, 32768], [32768, 16]], kernels=[("ampere_sgemm_32x32_nn", 6_000)]
)
"""4.3 GB take 2.76 ms at memory bandwidth: more than an eighth of 6."""


@pytest.mark.parametrize(("ops", "saved_us"), [([FULL, OTHER], 7_000), ([NARROW, OTHER], 3_235)])
def test_products_in_fp32_would_be_faster_in_tf32(ops, saved_us):
    graph = recorded(*ops, device=A100, is_awaited=True).window("trace")
    saved_ns = graph.dur_ns - hg.what_if(graph, hg.allow_tf32()).dur_ns

    assert saved_ns == graph.speed_of_light()["tf32_ns"][0]
    assert saved_ns // 1000 == saved_us


@pytest.mark.parametrize("other", [ROUNDED, FULL._replace(types=["c10::Half"] * 2), OTHER])
def test_what_is_allowed_or_is_not_fp32_cannot_be_allowed(other):
    """Another product runs as TF32: the library prefers CUDA cores for this one."""
    ops = [FULL, other] if other is ROUNDED else [other]
    graph = recorded(*ops, device=A100, is_awaited=True)

    assert set(graph.speed_of_light()["tf32_ns"]) <= {0}
    with pytest.raises(QueryError, match="no product runs in FP32 where TF32 is faster"):
        hg.what_if(graph, hg.allow_tf32()).dur_ns  # noqa: B018


def test_the_call_of_the_change():
    assert str(hg.at_roof()) == "at_roof()"
    assert str(hg.at_roof("aten::mm", efficiency=0.8)) == "at_roof('aten::mm', efficiency=0.8)"


def test_a_change_without_a_known_roof_is_refused():
    with pytest.raises(QueryError, match="no such work is above a known roof"):
        hg.what_if(recorded(OTHER), hg.at_roof()).dur_ns  # noqa: B018
    with pytest.raises(QueryError, match="above 0 and at most 1, not 2"):
        hg.at_roof(efficiency=2)
