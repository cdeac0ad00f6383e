"""What changed between two traces."""

from __future__ import annotations

import pandas as pd
import pytest

import htagraph as hg
from htagraph.explain.differences import kernel_diff, op_diff, path_diff, short_name
from htagraph.model.window import Window
from tests.drawn import drawn_dag
from tests.queries.recorded_shapes import Op, recorded

_IMAGES = [[8, 3, 224, 224], [64, 3, 7, 7]]


def _dag(drawing: str, **options):
    return drawn_dag(drawing, **options)


def test_kernels_are_added_removed_grown_shrunk_and_equal():
    """By time; the largest change comes first."""
    before = _dag("stream 7 |[gemm  ][relu][tanh    ][copy]")
    after = _dag("stream 7 |[gemm    ][tanh ][copy][new]")
    frame = kernel_diff(before, after)

    assert frame[["name", "change", "n_delta", "delta_ns"]].to_numpy().tolist() == [
        ["relu", "removed", -1, -6_000],
        ["new", "added", 1, 5_000],
        ["tanh", "shrunk", 0, -3_000],
        ["gemm", "grown", 0, 2_000],
        ["copy", "equal", 0, 0],
    ]


def test_steps_are_one_name_whatever_their_number():
    """ProfilerStep#3 before and ProfilerStep#7 after are the same thing."""
    frame = op_diff(_dag("cpu 1 |{ProfilerStep#3 }"), _dag("cpu 1 |{ProfilerStep#7   }"))

    assert frame[["name", "change", "delta_ns"]].to_numpy().tolist() == [
        ["ProfilerStep", "grown", 2_000]
    ]


def test_windows_of_either_side_may_differ():
    """Ten of 17 us before, five of 10 after."""
    before, after = _dag("cpu 1 |[aten::mm       ]"), _dag("cpu 1 |[aten::mm]")
    frame = op_diff(
        before,
        after,
        before_window=Window(0, 10_000, "before"),
        after_window=Window(2_000, 7_000, "after"),
    )

    assert frame[["before_ns", "after_ns"]].to_numpy().tolist() == [[10_000, 5_000]]


def test_short_names_put_instances_of_a_template_together():
    """Same kernel, another element type."""
    before = _dag("stream 7 |[a  ]", names={"a": "void scale<float>(float*, int)"})
    after = _dag("stream 7 |[a  ]", names={"a": "void scale<__half>(__half*, int)"})

    assert kernel_diff(before, after)["change"].tolist() == ["added", "removed"]
    assert kernel_diff(before, after, short_names=True)[["name", "change"]].to_numpy().tolist() == [
        ["scale", "equal"]
    ]


def _convolved(library: str, dtype: str, *kernels: tuple[str, int]) -> hg.TraceGraph:
    return recorded(
        Op(f"aten::{library}_convolution", _IMAGES, list(kernels), [dtype] * 2, "aten::convolution")
    )


def test_two_vendors_compare_by_the_operator_that_both_call():
    """Libraries, kernels and types differ; the convolution and its shapes do not."""
    before = _convolved("cudnn", "float", ("sm90_fprop", 200))
    after = _convolved("miopen", "c10::BFloat16", ("transpose", 40), ("igemm_fwd", 100))
    found = hg.diff(before, after)
    shown = ["name", "change", "n_delta", "delta_ns"]
    expected = [["aten::convolution [8, 3, 224, 224] [64, 3, 7, 7]", "shrunk", 1, -60_000]]

    assert found.kernels(by="shape")[shown].to_numpy().tolist() == expected
    assert found.kernels()["change"].tolist() == ["removed", "added", "added"]


def test_a_run_on_another_device_compares_step_by_step():
    """The same, per step: one step each is too few to tell a change from noise."""
    before = _convolved("cudnn", "float", ("sm90_fprop", 200))
    after = _convolved("miopen", "c10::BFloat16", ("transpose", 40), ("igemm_fwd", 100))
    found = hg.diff(before, after).runs.kernels(by="shape")

    assert found[["name", "calls_after", "delta_ns"]].to_numpy().tolist() == [
        ["aten::convolution [8, 3, 224, 224] [64, 3, 7, 7]", 2, -60_000]
    ]


def test_operators_compare_by_the_shapes_of_their_inputs():
    """One product grew larger, another stays; both are aten::mm."""
    small, large = ([[n, n], [n, n]] for n in (64, 128))
    before, after = (
        recorded(Op("aten::mm", small, [("gemm", 5)]), Op("aten::mm", dims, [("gemm", 5)]))
        for dims in (small, large)
    )
    found = hg.diff(before, after).ops(by="shape")

    assert found[["name", "change", "n_delta"]].to_numpy().tolist() == [
        ["aten::mm 2x [128, 128]", "added", 1],
        ["aten::mm 2x [64, 64]", "shrunk", -1],
    ]


def test_operators_under_an_annotation_count_nested_ones_once():
    """aten::linear has aten::mm inside; aten::relu follows it, and is gone after the change."""
    before = _dag("cpu 1 |{block [aten::linear [aten::mm]][relu   ]}")
    after = _dag("cpu 1 |{block [aten::linear [aten::mm]]}")
    found = op_diff(before, after, by="annotation")

    assert found[["name", "n_before", "before_ns", "after_ns"]].to_numpy().tolist() == [
        ["block", 3, 34_000, 25_000]
    ]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("gemm", "gemm"),
        ("optimizer step", "optimizer step"),
        ("void scale<float>", "scale"),
        ("(anonymous namespace)::scale(int)", "scale"),
        ("Memset (Device)", "Memset (Device)"),
        ("## forward (1) ##", "## forward (1) ##"),
    ],
)
def test_the_short_name_of_a_function_is_without_its_types(name: str, short: str) -> None:
    """What is no function keeps its name."""
    assert short_name(name) == short


def test_groups_of_a_path_change_by_a_share_of_the_path_before() -> None:
    """Of 20 us, compute loses 6 and the host gains 2; the larger change comes first."""
    groups = ["host", "compute"]
    before, after = (pd.DataFrame({"dur_ns": ns}, index=groups) for ns in ([4, 16], [6, 10]))
    found = path_diff(before, after, delta_ns=-4)

    assert found["delta_share"].to_dict() == {"compute": -0.3, "host": 0.1}
    assert found.index.tolist() == ["compute", "host"]
