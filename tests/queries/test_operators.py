"""Operators and annotations, and their time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from htagraph.compiler.passes import compile_events
from htagraph.model.answers import EXECUTION_NODES
from htagraph.model.events import EventTable, SparseColumn
from htagraph.model.symbols import SymbolTable
from htagraph.model.window import Window
from htagraph.queries.operators import (
    annotation_breakdown,
    execution_nodes,
    operator_breakdown,
    operator_tree,
)
from htagraph.synth import timeline
from tests.drawn import drawn_dag
from tests.queries.recorded_shapes import Op, recorded

_DAG = drawn_dag("""
    us       |0         10        20        30        40        50        60        70
    cpu 1    |[aten::linear [aten::mm [launch >a]]]   [aten::mm [launch >b] ]
    stream 7 |                           [gemm <a     ]           [gemm <b]
""")


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
    dag = drawn_dag("cpu 1 |[again [again  ] ]")
    frame = operator_breakdown(dag, dag.span)

    assert frame[["n_calls", "host_ns", "self_ns"]].to_numpy().tolist() == [[2, 18_000, 18_000]]


def test_own_times_in_a_window_add_up_to_the_window():
    """From 5 to 30 the thread is never idle."""
    frame = operator_breakdown(_DAG, Window(5_000, 30_000, "part"))

    assert frame["self_ns"].sum() == 25_000


def test_a_call_that_outlasts_its_caller_is_its_own_in_a_window_after_that():
    """The launch began in aten::mm, which had ended when the window begins."""
    dag = drawn_dag("""
        us       |0         10        20        30
        cpu 1    |[aten::mm   ]
        cpu 1    |      [launch >a        ]
        stream 7 |                    [gemm <a ]
    """)
    frame = operator_breakdown(dag, Window(18_000, 30_000, "later"))

    assert frame[["name", "self_ns", "device_ns"]].to_numpy().tolist() == [
        ["cudaLaunchKernel", 7_000, 10_000]
    ]


def test_an_api_call_that_an_operator_overhangs_launched_nothing_of_it():
    """Operators and API calls have two clocks: mm seems to begin before the query returned."""
    dag = drawn_dag("""
        us       |0         10        20        30        40
        cpu 1    |[aten::linear                        ]
        cpu 1    | [cudaStreamIsCapturing ]
        cpu 1    |                    [aten::mm [launch >a]]
        stream 7 |                                      [gemm <a ]
    """)
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
    dag = drawn_dag("""
        cpu 1    |{block [aten::mm [launch >a]] }[aten::relu]
        stream 7 |                          [gemm <a     ]
    """)
    found = operator_breakdown(dag, dag.span, by="annotation").sort_values(["name", "kind"])

    assert found[["name", "kind", "n_calls", "self_device_ns"]].to_numpy().tolist() == [
        ["", "op", 1, 0],
        ["block", "op", 1, 14_000],
        ["block", "runtime", 1, 0],
        ["block", "annotation", 1, 0],
    ]


def test_the_tree_keeps_callers_apart():
    """Mm under linear and mm on its own are two nodes, each with its launch."""
    frame = operator_tree(_DAG, _DAG.span)
    columns = ["node", "parent", "depth", "name", "host_ns", "device_ns"]

    assert frame[columns].to_numpy().tolist() == [
        [0, -1, 0, "aten::linear", 37_000, 14_000],
        [1, -1, 0, "aten::mm", 23_000, 9_000],
        [2, 0, 1, "aten::mm", 22_000, 14_000],
        [3, 1, 1, "cudaLaunchKernel", 11_000, 9_000],
        [4, 2, 2, "cudaLaunchKernel", 11_000, 14_000],
    ]


def test_deeper_calls_are_counted_with_their_callers():
    """Cut at depth 0, the roots keep the device time."""
    frame = operator_tree(_DAG, _DAG.span, max_depth=0)

    assert frame[["name", "device_ns"]].to_numpy().tolist() == [
        ["aten::linear", 14_000],
        ["aten::mm", 9_000],
    ]


_DAG_ANNOTATION_BREAKDOWN = drawn_dag("""
    us       |0         10        20        30        40        50        60
    cpu 1    |{step                                              }
    cpu 1    |     {forward [aten::mm [launch >a]]}[launch >b]
    stream 7 |                       [gemm <a            ][relu <b]
    stream 7 |                       {forward            }
""")


def test_device_time_belongs_to_every_annotation_around_its_launch():
    """Gemm (21) was launched in forward, relu (9) in the step only; each is the step's as well."""
    frame = annotation_breakdown(_DAG_ANNOTATION_BREAKDOWN, _DAG_ANNOTATION_BREAKDOWN.span)
    columns = ["name", "n_ranges", "sum_ns", "n_kernels", "device_ns", "self_device_ns"]

    assert frame[columns].to_numpy().tolist() == [
        ["step", 1, 52_000, 2, 30_000, 9_000],
        ["forward", 1, 32_000, 1, 21_000, 21_000],
    ]


def test_a_pattern_picks_annotations():
    """The others still hold what is theirs."""
    assert annotation_breakdown(
        _DAG_ANNOTATION_BREAKDOWN, _DAG_ANNOTATION_BREAKDOWN.span, name="for*"
    )["self_device_ns"].tolist() == [21_000]


def test_times_are_clipped_to_the_window():
    """From 30 to 50: seven of forward and fifteen of gemm."""
    frame = annotation_breakdown(
        _DAG_ANNOTATION_BREAKDOWN, Window(30_000, 50_000, "part")
    ).set_index("name")

    assert frame.loc["forward", ["sum_ns", "device_ns"]].tolist() == [7_000, 15_000]


def test_annotations_on_the_device_hold_what_begins_in_them():
    """The profiler's projection of forward has gemm."""
    frame = annotation_breakdown(
        _DAG_ANNOTATION_BREAKDOWN, _DAG_ANNOTATION_BREAKDOWN.span, on="device"
    )

    assert frame[["name", "sum_ns", "n_kernels", "self_device_ns"]].to_numpy().tolist() == [
        ["forward", 21_000, 1, 21_000]
    ]


def _correlated() -> EventTable:
    """Two operators, of which the execution trace knows the second."""
    events = timeline("cpu 1 |[aten::mm ][aten::t ]")
    texts = tuple(events.symbols.texts)
    second = np.array([1])
    numbers = {
        "execution_node": 7,
        "record_function": 3,
        "tensor_inputs": 1,
        "tensor_outputs": 2,
    }
    words = ("op_schema", "input_shapes", "input_types", "output_shapes", "output_types")
    columns = {name: SparseColumn(second, np.array([n])) for name, n in numbers.items()}
    columns |= {
        name: SparseColumn(second, np.array([len(texts) + k], dtype=np.int32))
        for k, name in enumerate(words)
    }
    return replace(events, columns=columns, symbols=SymbolTable((*texts, *words)))


def test_an_operator_has_its_node_and_what_it_took():
    frame = execution_nodes(compile_events(_correlated()), Window(0, 50_000, "all"))

    assert frame.to_numpy().tolist() == [
        [1, "aten::t", 7, 3, 1, 2,
         "op_schema", "input_shapes", "input_types", "output_shapes", "output_types"],
    ]  # fmt: skip


def test_only_operators_of_the_window_are_told():
    assert len(execution_nodes(compile_events(_correlated()), Window(0, 5_000, "first"))) == 0


def test_without_an_execution_trace_there_is_nothing():
    dag = drawn_dag("cpu 1 |[aten::mm ]")

    assert execution_nodes(dag, Window(0, 50_000, "all")).equals(EXECUTION_NODES.empty())
