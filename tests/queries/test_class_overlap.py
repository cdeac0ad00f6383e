"""Which classes of work run at once."""

from __future__ import annotations

from htagraph.compiler.passes import compile_events
from htagraph.queries.communication import class_overlap
from htagraph.synth import timeline

_OVERLAPPING = compile_events(
    timeline("""
        us       |0         10        20        30
        stream 7 |[gemm  ]            [gemm   ]
        stream 9 |    [nccl   ]
        stream 9 |           [Memcpy]
    """)
)


def test_classes_that_run_at_once_are_told_apart():
    """Nccl and gemm from 4 to 8, nccl and the copy from 11 to 13."""
    frame = class_overlap(_OVERLAPPING, _OVERLAPPING.span)

    assert dict(zip(frame["classes"], frame["dur_ns"], strict=True)) == {
        "compute": 13_000,
        "memory": 6_000,
        "compute + communication": 4_000,
        "communication": 3_000,
        "communication + memory": 2_000,
        "idle": 1_000,
    }
