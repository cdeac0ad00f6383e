"""Where kernels were launched from."""

from __future__ import annotations

from htagraph.compiler.passes import compile_events
from htagraph.queries.kernel_annotations import kernel_annotations
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


def test_every_kernel_names_its_annotation_and_operator():
    """Relu was launched outside of any operator."""
    frame = kernel_annotations(_DAG, _DAG.span)

    assert frame[["name", "annotation", "op", "module"]].to_numpy().tolist() == [
        ["gemm", "forward", "aten::mm", ""],
        ["relu", "step", "", ""],
    ]
