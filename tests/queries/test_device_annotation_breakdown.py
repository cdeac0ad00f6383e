"""Time under annotations on the device."""

from __future__ import annotations

from htagraph.compiler.passes import compile_events
from htagraph.queries.device_annotation_breakdown import device_annotation_breakdown
from htagraph.synth import timeline

_DAG = compile_events(
    timeline("""
        us       |0         10        20        30        40        50        60
        cpu 1    |{step                                              }
        cpu 1    |     {forward [aten::mm [launch >a]]}[launch >b]
        stream 7 |                       [gemm <a            ][relu <b]
        stream 7 |                       {forward            }
    """)
)


def test_annotations_on_the_device_hold_what_begins_in_them():
    """The profiler's projection of forward has gemm."""
    frame = device_annotation_breakdown(_DAG, _DAG.span)

    assert frame[["name", "sum_ns", "n_kernels", "self_device_ns"]].to_numpy().tolist() == [
        ["forward", 21_000, 1, 21_000]
    ]
