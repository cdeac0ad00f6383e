"""Kernels one by one."""

from __future__ import annotations

from htagraph.compiler.passes import compile_events
from htagraph.queries.kernel_durations import kernel_durations
from htagraph.synth import timeline

_DAG = compile_events(
    timeline("""
        us       |0         10        20        30        40
        cpu 1    |[aten::mm [launch >a]][aten::relu [launch >b]]
        stream 7 |            [gemm <a ]                [relu <b]
        stream 9 |            [ncclX][gemm       ]
    """)
)


def test_durations_are_listed_by_name():
    """A pattern picks; times are whole."""
    frame = kernel_durations(_DAG, _DAG.span, name="gem*")

    assert frame[["op", "stream", "ts_ns", "dur_ns"]].to_numpy().tolist() == [
        ["aten::mm", 7, 12_000, 10_000],
        ["", 9, 19_000, 13_000],
    ]
