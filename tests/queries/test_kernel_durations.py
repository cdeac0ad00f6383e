"""Kernels one by one."""

from __future__ import annotations

from htagraph.compiler.passes import compile_events
from htagraph.queries.kernels import kernel_durations
from htagraph.synth import timeline

_DAG = compile_events(
    timeline("""
        us       |0         10        20        30        40
        cpu 1    |{forward [aten::mm [launch >a]]}[launch >b]
        stream 7 |                      [gemm <a ]            [relu <b]
        stream 9 |                      [ncclX][gemm       ]
    """)
)


def test_durations_are_listed_by_name():
    """A pattern picks; times are whole."""
    frame = kernel_durations(_DAG, _DAG.span, name="gem*")

    assert frame[["op", "stream", "ts_ns", "dur_ns"]].to_numpy().tolist() == [
        ["aten::mm", 7, 22_000, 10_000],
        ["", 9, 29_000, 13_000],
    ]


def test_every_kernel_names_its_annotation():
    """Relu was launched outside of any."""
    frame = kernel_durations(_DAG, _DAG.span).set_index("name")

    assert frame.loc["relu", ["op", "annotation", "module"]].tolist() == ["", "", ""]
    assert sorted(frame["annotation"]) == ["", "", "", "forward"]
