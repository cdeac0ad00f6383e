"""How far operators are from their roof, on an H100: 989.4 TFLOP/s in bf16, 3.35 TB/s."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from htagraph.model.samples import SampleTable, Series
from tests.queries.recorded_shapes import A100, H100, Op, recorded

PRODUCT = Op("aten::mm", [[4096, 4096], [4096, 4096]], [("gemm", 200)])
"""137.4 GFLOP: 138.9 us at the peak."""
ADDED = Op("aten::add", [[8192, 8192], [8192, 8192]], [("add", 240)])
"""402.7 MB: 120.2 us at memory bandwidth."""


def rows(graph, **options):
    """The columns that matter, by group."""
    found = graph.roofline(**options)
    columns = ["n_calls", "n_kernels", "device_ns", "roof_share", "limit"]
    return {
        row.group: tuple(round(value, 2) if isinstance(value, float) else value for value in values)
        for row, values in zip(
            found.itertuples(), found[columns].itertuples(index=False), strict=True
        )
    }


def test_a_product_at_69_percent_of_its_peak_and_a_sum_at_half_of_memory_bandwidth():
    found = rows(recorded(PRODUCT, ADDED))

    assert found == {
        "aten::mm": (1, 1, 200_000, 0.69, "compute"),
        "aten::add": (1, 1, 240_000, 0.5, "memory"),
    }


@pytest.mark.parametrize(
    ("kernel", "dur_us", "row"),
    [
        ("ampere_sgemm_128x64_tn", 7_678, (0.92, "FP32 compute")),
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_ffma",
            7_678,
            (0.92, "FP32 compute"),
        ),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4", 1_000, (0.88, "compute")),
        ("triton_mm", 7_678, (0.11, "compute")),
    ],
)
def test_products_of_fp32_are_judged_by_the_pipe_of_their_kernel(kernel, dur_us, row):
    """137.4 GFLOP on an A100: 7.05 ms in FP32 at 19.5 TFLOP/s, 0.88 ms in TF32 at 156."""
    product = PRODUCT._replace(types=["float"] * 2, kernels=[(kernel, dur_us)])
    graph = recorded(product, device=A100)

    assert rows(graph)["aten::mm"][3:] == row
    assert graph.roofline().attrs["peaks"]["tflops"] == (
        {"fp32": 19.5} if row[1] == "FP32 compute" else {"fp32": 19.5, "tf32": 156}
    )


def test_a_device_without_tf32_multiplies_at_the_peak_of_fp32():
    """137.4 GFLOP at 15.7 TFLOP/s: 8.75 ms."""
    product = PRODUCT._replace(types=["float"] * 2, kernels=[("any_kernel", 10_000)])
    v100 = {**H100, "name": "Tesla V100-SXM2-16GB", "numSms": 80, "computeMajor": 7}

    assert rows(recorded(product, device=v100))["aten::mm"][3:] == (0.88, "FP32 compute")


def clocked(graph, **mhz):
    """The graph with clocks sampled before and after it."""
    start, end = graph.interval.start_ns, graph.interval.end_ns
    parts = [(Series(name, "MHz", 0), [start, end], [value] * 2) for name, value in mhz.items()]
    events = replace(graph.dag.events, samples=SampleTable.of(parts))
    return replace(graph, dag=replace(graph.dag, events=events))


def test_a_roof_moves_with_the_clock():
    """At three quarters of the clock of the peaks, 200 us of 185; memory is as it was."""
    graph = clocked(recorded(PRODUCT, ADDED), SMCLK=1830 * 0.75)

    assert rows(graph) == {
        "aten::mm": (1, 1, 200_000, 0.93, "compute"),
        "aten::add": (1, 1, 240_000, 0.5, "memory"),
    }
    assert graph.roofline().attrs["peaks"]["device"] == "H100 SXM at 1,372 MHz"
    assert rows(clocked(graph, MMCLK=2619 * 0.75))["aten::add"][3] == 0.67


def test_utilization_of_the_peak_does_not_move_with_the_clock():
    """It is against the data sheet, so that runs compare."""
    graph = recorded(PRODUCT)
    slow = clocked(graph, SMCLK=915.0)

    assert slow.mfu()["mfu_share"].tolist() == graph.mfu()["mfu_share"].tolist()


def test_a_part_of_a_gpu_has_its_own_roof():
    """An eighth of the SMs and of memory: as fast as this, it would be the whole device."""
    part = {**H100, "name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "numSms": 16}
    product = PRODUCT._replace(kernels=[("gemm", 900)], dims=[[1024, 4096], [4096, 4096]])
    added = ADDED._replace(kernels=[("add", 900)], dims=[[4096, 4096], [4096, 4096]])

    assert rows(recorded(product, added, device=part)) == {
        "aten::mm": (1, 1, 900_000, 0.32, "compute"),
        "aten::add": (1, 1, 900_000, 0.27, "memory"),
    }


def test_flops_and_bytes_per_second():
    found = recorded(PRODUCT).roofline().iloc[0]

    assert found["gflop"] == pytest.approx(137.44, abs=0.01)
    assert found["bytes_low"] == 3 * 4096 * 4096 * 2
    assert found["tflops_per_s"] == pytest.approx(687.2, abs=0.1)
    assert found["excess_ns"] == pytest.approx(61_100, abs=100)


def test_all_kernels_of_a_call_belong_to_it():
    """A split product: its two kernels and the fill are one call."""
    split = PRODUCT._replace(kernels=[("fill", 10), ("gemm", 150), ("reduce", 40)])

    assert rows(recorded(split)) == {"aten::mm": (1, 3, 200_000, 0.69, "compute")}


def test_a_wrapper_is_not_counted_again():
    """`linear` around `mm` would be the same product twice."""
    wrapped = PRODUCT._replace(inside="aten::linear")

    assert rows(recorded(wrapped)) == {"aten::mm": (1, 1, 200_000, 0.69, "compute")}


def test_work_without_a_model_stays_in_the_sum():
    own = Op("mylib::attention", [[4096, 4096]], [("attention", 100)])
    found = recorded(PRODUCT, own, own).roofline()

    assert found["device_ns"].sum() == 400_000
    assert found.set_index("group")["n_calls"].to_dict() == {"aten::mm": 1, "mylib::attention": 2}
    assert found.set_index("group")["gb_per_s"].isna().to_dict() == {
        "aten::mm": False,
        "mylib::attention": True,
    }


def test_a_copy_to_the_host_is_judged_by_its_link():
    """67 MB over 64 GB/s take 1.05 ms; memory would take 40 us."""
    copied = Op(
        "aten::copy_", [[8192, 4096], [8192, 4096]], [("Memcpy DtoH (Device -> Pinned)", 2_000)]
    )
    found = rows(recorded(copied))

    assert found["aten::copy_"] == (1, 1, 2_000_000, 0.52, "host link")


def test_a_short_copy_to_the_host_is_judged_by_the_shortest_kernel():
    """32 bytes over 64 GB/s would take half a nanosecond; no work on the device is that short."""
    short = Op("aten::relu_", [[4]], [("relu", 2)])
    copied = Op("aten::copy_", [[16], [16]], [("Memcpy DtoH (Device -> Pinned)", 4)])
    found = rows(recorded(*[short] * 200, copied))

    assert found["aten::copy_"] == (1, 1, 4_000, 0.5, "launch")


def test_tensors_of_unknown_type_have_no_roof():
    """The profiler does not record it for tensors in a list: of 1 byte or of 8."""
    joined = Op(
        "aten::cat", [[[8192, 8192], [8192, 8192]], []], [("cat", 400)], ["TensorList", "Scalar"]
    )
    graph = recorded(joined, ADDED)
    found = graph.roofline().set_index("group")
    light = graph.speed_of_light().set_index("group")

    assert found.loc["aten::cat", ["n_calls", "excess_ns", "limit"]].tolist() == [1, 0, "unknown"]
    assert np.isnan(found.loc["aten::cat", "roof_share"])
    assert np.isnan(light.loc["aten::cat [2 tensors]", "roof_share"])
    assert light.loc["aten::cat [2 tensors]", "cost_ns"] == 0


def test_an_unknown_device_has_no_roof():
    unknown = {"id": 0, "name": "NVIDIA Z9000", "numSms": 900, "warpSize": 32}
    found = recorded(PRODUCT, device=unknown | {"maxThreadsPerMultiprocessor": 2048}).roofline()

    assert found["limit"].tolist() == ["unknown"]
    assert found["roof_ns"].isna().all()
    assert found["gflop"].iloc[0] > 0


def test_shapes_tell_products_apart():
    small = PRODUCT._replace(dims=[[1024, 1024], [1024, 1024]])

    assert list(rows(recorded(PRODUCT, small), by="shape")) == [
        "aten::mm 2x bf16[1024, 1024]",
        "aten::mm 2x bf16[4096, 4096]",
    ]


@pytest.mark.parametrize("by", ["op", "shape", "kernel", "module", "step", "family"])
def test_every_grouping_adds_up(by):
    """Device time, calls and operations."""
    found = recorded(PRODUCT, ADDED, PRODUCT).roofline(by=by)

    assert found["device_ns"].sum() == 640_000
    assert found["n_calls"].sum() == 3
    assert found["gflop"].sum() == pytest.approx(274.88, abs=0.01)
