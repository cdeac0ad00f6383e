"""The tree of callers."""

from __future__ import annotations

from htagraph.compiler.passes import compile_events
from htagraph.queries.operators import operator_tree
from htagraph.synth import timeline

_DAG = compile_events(
    timeline("""
        us       |0         10        20        30        40        50        60        70
        cpu 1    |[aten::linear [aten::mm [launch >a]]]   [aten::mm [launch >b] ]
        stream 7 |                           [gemm <a     ]           [gemm <b]
    """)
)


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
