"""What a window gains if operators run at their roof, on an H100: 989.4 TFLOP/s in bf16."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.errors import QueryError
from tests.queries.recorded_shapes import Op, recorded

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


def test_the_call_of_the_change():
    assert str(hg.at_roof()) == "at_roof()"
    assert str(hg.at_roof("aten::mm", efficiency=0.8)) == "at_roof('aten::mm', efficiency=0.8)"


def test_a_change_without_a_known_roof_is_refused():
    with pytest.raises(QueryError, match="no such work is above a known roof"):
        hg.what_if(recorded(OTHER), hg.at_roof()).dur_ns  # noqa: B018
    with pytest.raises(QueryError, match="above 0 and at most 1, not 2"):
        hg.at_roof(efficiency=2)
