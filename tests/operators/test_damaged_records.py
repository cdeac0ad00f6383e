"""Records that no operator wrote: their calls have no work, and everything is answered."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from htagraph.operators import work
from htagraph.operators.call import Call
from htagraph.operators.work import registered, work_of
from tests.queries.recorded_shapes import Op, recorded

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
