"""What devices do with their time."""

from __future__ import annotations

from htagraph.compiler.passes import compile_events
from htagraph.model.window import Window
from htagraph.queries.steps import temporal_breakdown
from htagraph.synth import timeline

_OVERLAPPING = compile_events(
    timeline("""
        us       |0         10        20        30
        stream 7 |[gemm  ]            [gemm   ]
        stream 9 |    [nccl   ]
        stream 9 |           [Memcpy]
    """)
)
_PARTS = ["idle_ns", "compute_ns", "communication_ns", "memory_ns"]


def test_compute_comes_before_communication_before_memory():
    """Nccl is exposed from 8 to 13, the copy from 13 to 19; 19 to 20 is idle."""
    frame = temporal_breakdown(_OVERLAPPING, _OVERLAPPING.span)

    assert frame[_PARTS].to_numpy().tolist() == [[1_000, 17_000, 5_000, 6_000]]


def test_a_window_is_half_open_and_clips():
    """From 6 to 12: two of gemm, four of nccl."""
    frame = temporal_breakdown(_OVERLAPPING, Window(6_000, 12_000, "part"))

    assert frame[["window_ns", *_PARTS]].to_numpy().tolist() == [[6_000, 0, 2_000, 4_000, 0]]


def test_each_device_has_its_row():
    """The second device works for 4 of 10 us."""
    dag = compile_events(
        timeline("""
            gpu 0 stream 7 |[gemm    ]
            gpu 1 stream 7 |   [k ]
        """)
    )
    frame = temporal_breakdown(dag, dag.span)

    assert frame[["device", "idle_ns", "compute_ns"]].to_numpy().tolist() == [
        [0, 0, 10_000],
        [1, 6_000, 4_000],
    ]


def test_a_trace_without_device_work_has_no_rows():
    """There is no device to speak of."""
    dag = compile_events(timeline("cpu 1 |[op  ]"))

    assert len(temporal_breakdown(dag, dag.span)) == 0
