"""Operators, inclusive and exclusive."""

from __future__ import annotations

import pytest

from htagraph.compiler.passes import compile_events
from htagraph.model.window import Window
from htagraph.queries.operators import operator_breakdown
from htagraph.synth import timeline
from tests.queries.recorded_shapes import Op, recorded

_DAG = compile_events(
    timeline("""
        us       |0         10        20        30        40        50        60        70
        cpu 1    |[aten::linear [aten::mm [launch >a]]]   [aten::mm [launch >b] ]
        stream 7 |                           [gemm <a     ]           [gemm <b]
    """)
)


def test_own_time_is_what_nothing_inside_takes():
    """linear: 37 - 22 of mm; mm: 22 + 23 - 2 * 11 of launches; together the time of the thread."""
    frame = operator_breakdown(_DAG, _DAG.span)
    columns = ["name", "n_calls", "host_ns", "self_ns", "n_kernels", "device_ns", "self_device_ns"]

    assert frame[columns].to_numpy().tolist() == [
        ["aten::mm", 2, 45_000, 23_000, 2, 23_000, 23_000],
        ["cudaLaunchKernel", 2, 22_000, 22_000, 2, 23_000, 0],
        ["aten::linear", 1, 37_000, 15_000, 1, 14_000, 0],
    ]


def test_a_recursive_call_counts_once():
    """The inner call is part of the outer one's time."""
    dag = compile_events(timeline("cpu 1 |[again [again  ] ]"))
    frame = operator_breakdown(dag, dag.span)

    assert frame[["n_calls", "host_ns", "self_ns"]].to_numpy().tolist() == [[2, 18_000, 18_000]]


def test_own_times_in_a_window_add_up_to_the_window():
    """From 5 to 30 the thread is never idle."""
    frame = operator_breakdown(_DAG, Window(5_000, 30_000, "part"))

    assert frame["self_ns"].sum() == 25_000


def test_a_call_that_outlasts_its_caller_is_its_own_in_a_window_after_that():
    """The launch began in aten::mm, which had ended when the window begins."""
    dag = compile_events(
        timeline("""
            us       |0         10        20        30
            cpu 1    |[aten::mm   ]
            cpu 1    |      [launch >a        ]
            stream 7 |                    [gemm <a ]
        """)
    )
    frame = operator_breakdown(dag, Window(18_000, 30_000, "later"))

    assert frame[["name", "self_ns", "device_ns"]].to_numpy().tolist() == [
        ["cudaLaunchKernel", 7_000, 10_000]
    ]


def test_an_api_call_that_an_operator_overhangs_launched_nothing_of_it():
    """Operators and API calls have two clocks: mm seems to begin before the query returned."""
    dag = compile_events(
        timeline("""
            us       |0         10        20        30        40
            cpu 1    |[aten::linear                        ]
            cpu 1    | [cudaStreamIsCapturing ]
            cpu 1    |                    [aten::mm [launch >a]]
            stream 7 |                                      [gemm <a ]
        """)
    )
    found = operator_breakdown(dag, dag.span).set_index("name")

    assert found["device_ns"].to_dict() == {
        "aten::mm": 10_000,
        "aten::linear": 10_000,
        "cudaLaunchKernel": 10_000,
        "cudaStreamIsCapturing": 0,
    }


_SMALL, _LARGE = (
    Op("aten::mm", [[n, n], [n, n]], [("gemm", 5 * n)], inside="aten::linear") for n in (4, 64)
)


def test_calls_of_an_operator_are_told_apart_by_the_shapes_of_their_inputs():
    found = recorded(_SMALL, _LARGE, _LARGE).operator_breakdown(by="shape")
    products = found[found["name"].str.startswith("aten::mm") & (found["kind"] == "op")]

    assert products[["name", "n_calls", "self_device_ns"]].to_numpy().tolist() == [
        ["aten::mm 2x bf16[64, 64]", 2, 640_000],
        ["aten::mm 2x bf16[4, 4]", 1, 20_000],
    ]


@pytest.mark.parametrize("by", ["name", "shape", "module", "annotation", "step", "phase"])
def test_every_grouping_adds_up_to_the_time_of_the_thread_and_of_its_kernels(by):
    """Three steps of 999 us, and kernels of 660 us."""
    found = recorded(_SMALL, _LARGE, _LARGE).operator_breakdown(by=by)

    assert found["self_ns"].sum() == 3 * 999_000
    assert found["self_device_ns"].sum() == 660_000


def test_operators_under_an_annotation():
    """Product and launch are in the block; relu follows it."""
    dag = compile_events(
        timeline("""
            cpu 1    |{block [aten::mm [launch >a]] }[aten::relu]
            stream 7 |                          [gemm <a     ]
        """)
    )
    found = operator_breakdown(dag, dag.span, by="annotation").sort_values(["name", "kind"])

    assert found[["name", "kind", "n_calls", "self_device_ns"]].to_numpy().tolist() == [
        ["", "op", 1, 0],
        ["block", "op", 1, 14_000],
        ["block", "runtime", 1, 0],
        ["block", "annotation", 1, 0],
    ]
