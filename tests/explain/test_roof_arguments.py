"""What a trace viewer shows of the roofline, on an H100: 989.4 TFLOP/s in bf16, 3.35 TB/s."""

from __future__ import annotations

from htagraph.explain.counter_tracks import roof_arguments
from tests.queries.recorded_shapes import Op, recorded

_PRODUCT = Op("aten::mm", [[4096, 4096], [4096, 4096]], [("fill", 10), ("gemm", 190)])
"""137.4 GFLOP in 200 us."""
_ADDED = Op("aten::add", [[8192, 8192], [8192, 8192]], [("add", 240)])
"""402.7 MB: 120.2 us at memory bandwidth."""
_OWN = Op("mylib::attention", [[4096, 4096]], [("attention", 100)])


def test_all_kernels_of_a_call_and_the_call_have_its_rates():
    """The fill belongs to the product; an operator without a model has nothing."""
    dag = recorded(_PRODUCT, _ADDED, _OWN).dag
    found = {
        name: dict(zip(dag.events.names(event).tolist(), value.tolist(), strict=True))
        for name, (event, value) in roof_arguments(dag).items()
    }

    assert found == {
        "roof_tflops_per_s": {"aten::mm": 687.2, "fill": 687.2, "gemm": 687.2},
        "roof_gb_per_s": {
            "aten::mm": 503.3,
            "fill": 503.3,
            "gemm": 503.3,
            "aten::add": 1677.7,
            "add": 1677.7,
        },
        "roof_share": {
            "aten::mm": 0.695,
            "fill": 0.695,
            "gemm": 0.695,
            "aten::add": 0.501,
            "add": 0.501,
        },
        "roof_limit": {
            "aten::mm": "compute",
            "fill": "compute",
            "gemm": "compute",
            "aten::add": "memory",
            "add": "memory",
        },
    }


def test_an_unknown_device_has_none():
    assert roof_arguments(recorded(_PRODUCT, device=None).dag) == {}
