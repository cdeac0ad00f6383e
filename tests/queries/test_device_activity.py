"""How busy a device is, from coarse to fine: on an H100, estimated and measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from htagraph.compiler.passes import compile_events
from htagraph.model.samples import SampleTable, Series
from htagraph.queries.utilization import device_activity
from htagraph.synth import timeline
from tests.queries.recorded_shapes import H100, Op, recorded

PRODUCT = Op("aten::mm", [[4096, 4096], [4096, 4096]], [("nvjet_tst_gemm", 200)])
"""137.4 GFLOP: 138.9 us at the peak; 100.7 MB: 30.0 us."""
ADDED = Op("aten::add", [[8192, 8192], [8192, 8192]], [("add", 240)])
"""402.7 MB: 120.2 us at memory bandwidth."""
TO_HOST = Op("aten::copy_", [[1000, 1000]], [("Memcpy DtoH (Device -> Pinned)", 100)])
"""2 MB."""


def sampled(graph, *series, at_us=(0, 500, 1_000, 1_500)):
    """The graph with samples of constant value from its start on."""
    start = graph.interval.start_ns
    times = [start + 1_000 * at for at in at_us]
    parts = [(one, times, [value] * len(times)) for one, value in series]
    events = replace(graph.dag.events, samples=SampleTable.of(parts))
    return replace(graph, dag=replace(graph.dag, events=events))


def column(graph, name):
    """A column by metric."""
    return graph.device_activity().set_index("metric")[name]


def test_the_ladder_of_estimates():
    """Two kernels in two steps: a product of 200 us and a sum of 240."""
    graph = recorded(PRODUCT, ADDED)
    length_us = graph.interval.dur_ns / 1_000
    found = column(graph, "estimate")

    assert found["GPU utilization"] == pytest.approx(440 / length_us)
    assert found["graphics engine active"] == found["GPU utilization"]
    assert found["tensor active"] == pytest.approx(138.9 / length_us, rel=1e-3)
    assert found["DRAM active"] == pytest.approx((30.05 + 120.2) / length_us, rel=1e-3)
    assert "SM active" not in found  # no grid was recorded


def test_products_of_fp32_count_if_their_kernel_runs_on_tensor_cores():
    """Else they run elsewhere; TF32 at 494.7 TFLOP/s takes 277.8 us."""
    plain = PRODUCT._replace(types=["float"] * 2, kernels=[("sgemm_128x128", 900)])
    tensor = plain._replace(kernels=[("cutlass_tensorop_s1688gemm_tf32", 900)])
    length_us = recorded(plain).interval.dur_ns / 1_000

    assert column(recorded(plain), "estimate")["tensor active"] == 0
    assert column(recorded(tensor), "estimate")["tensor active"] == pytest.approx(
        277.8 / length_us, rel=1e-3
    )


def test_what_has_no_model_lowers_the_coverage():
    """A third of the device time."""
    own = Op("mylib::attention", [[4096, 4096]], [("attention", 100)])
    found = column(recorded(PRODUCT, own), "coverage")

    assert found["tensor active"] == pytest.approx(2 / 3)
    assert found["GPU utilization"] == 1


def test_copies_are_the_least_that_the_link_moves():
    graph = recorded(TO_HOST)
    found = column(graph, "estimate")

    assert found["PCIe sent"] == pytest.approx(2e6 / graph.interval.dur_ns)
    assert "PCIe received" not in found


@pytest.mark.parametrize(
    ("series", "value", "metric", "measured"),
    [
        (Series("utilization.gpu", "%", 0, "nvidia-smi"), 80.0, "GPU utilization", 0.8),
        (Series("GRACT", "ratio", 0, "dcgm"), 0.7, "graphics engine active", 0.7),
        (Series("DCGM_FI_PROF_SM_ACTIVE", "ratio", 0, "dcgm"), 0.6, "SM active", 0.6),
        (Series("SMOCC", "ratio", 0, "dcgm"), 0.5, "SM occupancy", 0.5),
        (Series("TENSO", "ratio", 0, "dcgm"), 0.4, "tensor active", 0.4),
        (Series("DRAMA", "ratio", 0, "dcgm"), 0.3, "DRAM active", 0.3),
        (Series("PCITX", "B/s", 0, "dcgm"), 5e9, "PCIe sent", 5.0),
        (Series("DCGM_FI_PROF_PCIE_RX_BYTES", "B/s", 0, "dcgm"), 7e9, "PCIe received", 7.0),
        (Series("clocks.sm", "MHz", 0, "nvidia-smi"), 1830.0, "SM clock", 1830),
        (Series("MMCLK", "MHz", 0, "dcgm"), 2619.0, "memory clock", 2619),
        (Series("power.draw", "W", 0, "nvidia-smi"), 400.0, "power", 400),
    ],
)
def test_each_tool_measures_what_is_estimated(series, value, metric, measured):
    """Next to the estimate, in its unit, with the series and how many samples."""
    found = sampled(recorded(PRODUCT, ADDED), (series, value)).device_activity()
    row = found.set_index("metric").loc[metric]

    assert row["measured"] == pytest.approx(measured)
    assert (row["series"], row["instrument"]) == (series.name, series.instrument)
    assert row["n_samples"] >= 2
    assert found["measured"].notna().sum() == 1


def test_at_half_the_clock_tensor_cores_are_active_twice_as_long():
    """The same operations take twice the cycles' time; the log has the clock."""
    clock = Series("SMCLK", "MHz", 0, "dcgm")
    product = PRODUCT._replace(kernels=[("nvjet_tst_gemm", 400)])
    full, half = (
        column(sampled(recorded(product), (clock, mhz)), "estimate")["tensor active"]
        for mhz in (1830.0, 915.0)
    )

    assert half == pytest.approx(2 * full)


def test_it_goes_from_coarse_to_fine():
    """Each metric is a part of the one before, as far as they are shares."""
    graph = recorded(PRODUCT, ADDED, TO_HOST, device=H100)

    assert graph.device_activity()["metric"].tolist() == [
        *("GPU utilization", "graphics engine active", "tensor active", "DRAM active", "PCIe sent"),
    ]


def test_a_device_without_peaks_has_what_needs_none():
    found = column(recorded(PRODUCT, device={**H100, "name": "Unknown GPU"}), "estimate")

    assert found.index.tolist() == ["GPU utilization", "graphics engine active"]


def test_a_host_alone_has_no_activity():
    dag = compile_events(timeline("cpu 1 |[aten::mm]"))

    assert device_activity(dag, dag.span).empty
