"""Peaks of devices, and damaged records of operators."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from htagraph.model.devices import DeviceProperties
from htagraph.operators import work
from htagraph.operators.call import Call
from htagraph.operators.peaks import _BUILDS, peaks_of
from htagraph.operators.work import registered, work_of
from tests.queries.recorded_shapes import Op, recorded

A100_40 = "NVIDIA A100-SXM4-40GB"
H100 = "NVIDIA H100 80GB HBM3"
OPERATIONS = {
    H100: 4096,
    "NVIDIA H100 PCIe": 4096,
    "NVIDIA H200": 4096,
    A100_40: 2048,
    "Tesla V100-SXM2-16GB": 1024,
    "Tesla T4": 1024,
    "NVIDIA GeForce RTX 4090": 512,
    "AMD Instinct MI300X": 2048,
    "AMD Instinct MI210": 1024,
}
"""Dense fp16 operations of one multiprocessor in one clock: NVIDIA's and AMD's white papers."""
BUS_BYTES = {
    H100: 640,
    "NVIDIA H100 PCIe": 640,
    A100_40: 640,
    "NVIDIA A100-SXM4-80GB": 640,
    "Tesla V100-SXM2-16GB": 512,
    "Tesla T4": 32,
    "NVIDIA GeForce RTX 4090": 48,
    "AMD Instinct MI300X": 2048,
    "AMD Instinct MI210": 512,
}
"""Width of the memory bus; MI300X counts 1300 MHz of a bus that moves twice as much."""


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_peak_follows_from_units_and_clock(name):
    """Otherwise a sampled clock would scale it from the wrong one."""
    peaks = peaks_of(DeviceProperties(0, name))
    build = _BUILDS[peaks.name]

    expected = build.n_sms * OPERATIONS[name] * build.sm_mhz * 1e6
    assert peaks.flops_per_s("fp16") == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("name", BUS_BYTES)
def test_memory_bandwidth_follows_from_bus_and_clock(name):
    peaks = peaks_of(DeviceProperties(0, name))
    expected = BUS_BYTES[name] * 2 * _BUILDS[peaks.name].memory_mhz * 1e6

    assert peaks.bytes_per_s == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(
    ("name", "n_sms", "compute", "memory"),
    [
        (f"{H100} MIG 1g.10gb", 16, 16 / 132, 1 / 8),
        (f"{H100} MIG 1g.20gb", 16, 16 / 132, 2 / 8),
        (f"{H100} MIG 3g.40gb", 60, 60 / 132, 4 / 8),
        (f"{H100} MIG 7g.80gb", 132, 1.0, 1.0),
        (f"{H100} MIG 1c.3g.40gb", 16, 16 / 132, 4 / 8),
        (f"{A100_40} MIG 1g.5gb", 14, 14 / 108, 1 / 8),
        (f"{A100_40} MIG 3g.20gb", 42, 42 / 108, 4 / 8),
        ("NVIDIA H200 MIG 1g.18gb", 16, 16 / 132, 1 / 8),
        ("NVIDIA H200 MIG 3g.71gb", 60, 60 / 132, 4 / 8),
    ],
)
def test_a_part_of_a_gpu_has_its_share_of_sms_and_memory_slices(name, n_sms, compute, memory):
    """NVIDIA MIG User Guide: an eighth of memory and cache is a slice."""
    whole = peaks_of(DeviceProperties(0, name.partition(" MIG")[0]))
    part = peaks_of(DeviceProperties(0, name, n_sms=n_sms))

    assert part.flops_per_s("bf16") == pytest.approx(whole.flops_per_s("bf16") * compute)
    assert part.bytes_per_s == pytest.approx(whole.bytes_per_s * memory)
    assert part.cache_bytes == pytest.approx(whole.cache_bytes * memory)
    assert part.link_gbps == 0


def test_a_part_whose_size_is_unknown_has_no_peaks():
    """Nor does a part of a device that is not known."""
    assert peaks_of(DeviceProperties(0, f"{H100} MIG 1g.10gb")) is None
    assert peaks_of(DeviceProperties(0, "NVIDIA A30 MIG 1g.6gb", n_sms=14)) is None


def test_peaks_move_with_sampled_clocks():
    """Half the SM clock and all of the memory clock; DCGM's mark for no value changes nothing."""
    peaks = peaks_of(DeviceProperties(0, H100))
    slow = peaks.at_clocks(915.0, 2619.0)

    assert slow.flops_per_s("bf16") == peaks.flops_per_s("bf16") / 2
    assert slow.bytes_per_s == peaks.bytes_per_s
    assert slow.name == "H100 SXM at 915 MHz, memory at 2,619 MHz"
    assert peaks.at_clocks(math.nan, 9223372036854775794.0) == peaks


registered("aten::mm")  # loads all models
_NAMES = sorted(work._MODELS)
_SIZES = st.sampled_from([0, 1, 2, 8, 64, -1, 10**12, 2**62, True, 1.5])
_SHAPES = st.one_of(
    st.lists(_SIZES, max_size=5), st.lists(st.lists(_SIZES, max_size=4), max_size=3), st.none()
)
_TYPES = st.sampled_from(
    ["c10::BFloat16", "float", "long int", "Scalar", "ScalarList", "TensorList", "", "strange"]
)
_VALUES = st.sampled_from(
    ["", "True", "1", "0", "-1", "[1, 1]", "[0]", "[]", "[True, False, True]", "nan", "9" * 20]
)


@settings(max_examples=300)
@given(
    name=st.sampled_from(_NAMES),
    dims=st.lists(_SHAPES, max_size=12),
    types=st.lists(_TYPES, max_size=12),
    strides=st.lists(_SHAPES, max_size=12),
    values=st.lists(_VALUES, max_size=12),
)
def test_a_call_has_work_that_a_device_can_do_or_none(name, dims, types, strides, values):
    found = work_of(Call(name, dims, types, strides, values))

    if found is not None:
        assert 0 <= found.bytes_low <= found.bytes_high < 2**48
        assert 0 <= found.flops < 2**62


@pytest.mark.parametrize(
    ("name", "dims", "types"),
    [
        ("aten::mm", [[10**12, 10**12], [10**12, 10**12]], None),
        ("aten::relu", [[2**62, 2**62]], None),
        ("aten::mm", [[-3, 4], [4, 2]], None),
        ("aten::_grouped_mm", [[], [64, 64]], None),
        ("aten::cat", [[[2**40] * 8], []], ["TensorList", "Scalar"]),
    ],
)
def test_a_trace_with_such_a_call_is_answered(name, dims, types, tmp_path):
    """What the call launched stays in the device time."""
    broken = Op(name, dims, [("kernel", 200)], types)
    graph = recorded(broken, Op("aten::mm", [[64, 64], [64, 64]], [("gemm", 10)]))

    assert graph.roofline(by="shape")["device_ns"].sum() == 210_000
    assert graph.roofline()["gb_per_s"].notna().tolist() == [True, False]
    assert len(graph.mfu()) == 3
    assert len(graph.speed_of_light()) == 2
    assert graph.critical_path().to_perfetto(tmp_path / "x.pftrace").exists()
