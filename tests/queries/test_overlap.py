"""What runs at once, and what communication hides behind."""

from __future__ import annotations

import pytest

from htagraph.model.window import Window
from htagraph.queries.communication import class_overlap, exposed_communication, overlap
from htagraph.queries.counters import queue_blocked
from htagraph.queries.steps import temporal_breakdown
from tests.drawn import drawn_dag


def test_overlap_is_the_time_in_which_both_run():
    """Nccl runs for 10 us, 6 of them under gemm."""
    dag = drawn_dag("""
        stream 7 |[gemm   ]
        stream 9 |   [ncclX   ]
    """)
    frame = overlap(dag, dag.span)

    assert frame.iloc[0].tolist()[1:] == [9_000, 10_000, 6_000, 4_000, pytest.approx(0.6)]


def test_no_communication_has_no_share():
    """None of nothing is hidden."""
    dag = drawn_dag("stream 7 |[gemm]")

    assert overlap(dag, dag.span)["overlap_share"].isna().tolist() == [True]


_OVERLAPPING = drawn_dag("""
    us       |0         10        20        30
    stream 7 |[gemm  ]            [gemm   ]
    stream 9 |    [nccl   ]
    stream 9 |           [Memcpy]
""")


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


def _why(drawing: str) -> list[list]:
    dag = drawn_dag(drawing)
    frame = exposed_communication(dag, dag.span)
    return frame[["name", "exposed_ns", "why", "next_name"]].to_numpy().tolist()


def test_compute_that_waits_for_an_event_depends_on_it():
    """Gemm was launched in time, but on a stream that waits for nccl."""
    assert _why("""
        us       |0         10        20        30        40        50        60
        cpu 1    |[launch >n][record !r @9][wait ?r @7][launch >g]
        stream 9 |      [ncclX <n                                      ]
        stream 7 |                                                       [gemm <g]
    """) == [["ncclX", 48_000, "dependency", "gemm"]]


def test_compute_on_the_stream_of_the_collective_has_to_wait():
    """Streams run in order."""
    assert _why("""
        cpu 1    |[launch >n][launch >g]
        stream 7 |      [ncclX <n               ] [gemm <g]
    """) == [["ncclX", 25_000, "same stream", "gemm"]]


def test_compute_that_the_host_launched_late_could_not_run():
    """The host was busy with something else until 35."""
    assert _why("""
        us       |0         10        20        30        40        50
        cpu 1    |[launch >n][aten::slow           [launch >g]]
        stream 9 |      [ncclX <n          ]
        stream 7 |                                      [gemm <g]
    """) == [["ncclX", 20_000, "late launch", "gemm"]]


def test_compute_launched_after_the_host_waited_is_its_wait():
    """The host synchronizes with the stream of the collective before it goes on."""
    assert _why("""
        us       |0         10        20        30        40        50
        cpu 1    |[launch >n][streamsync @9       ][launch >g]
        stream 9 |      [ncclX <n              ]
        stream 7 |                                      [gemm <g]
    """) == [["ncclX", 24_000, "GPU synchronization", "gemm"]]


def test_the_last_collective_has_nothing_to_hide_behind():
    """No compute follows."""
    assert _why("stream 9 |[ncclX    ]") == [["ncclX", 11_000, "nothing else to run", ""]]


def test_what_is_hidden_has_no_reason():
    """Gemm covers all of it."""
    assert _why("""
        stream 9 |   [ncclX]
        stream 7 |[gemm         ]
    """) == [["ncclX", 0, "none", ""]]


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
    dag = drawn_dag("""
        gpu 0 stream 7 |[gemm    ]
        gpu 1 stream 7 |   [k ]
    """)
    frame = temporal_breakdown(dag, dag.span)

    assert frame[["device", "idle_ns", "compute_ns"]].to_numpy().tolist() == [
        [0, 0, 10_000],
        [1, 6_000, 4_000],
    ]


def test_a_trace_without_device_work_has_no_rows():
    """There is no device to speak of."""
    dag = drawn_dag("cpu 1 |[op  ]")

    assert len(temporal_breakdown(dag, dag.span)) == 0


_DAG = drawn_dag("""
    us       |0         10        20        30        40
    cpu 1    |[launch >a][launch >b][launch >c]
    stream 7 |          [a <a               ][b <b][c <c]
""")


def test_a_full_queue_is_timed():
    """Two or more waited from 22 to 31."""
    frame = queue_blocked(_DAG, _DAG.span, max_queue_length=2)

    assert frame[["stream", "full_ns", "n_blocked", "blocked_ns"]].to_numpy().tolist() == [
        [7, 9_000, 0, 0]
    ]


def test_a_launch_that_met_a_full_queue_is_blocked():
    """1,001 launches of 12 to 15 us; one more takes 61 us, until the first kernel has started."""
    n = 1001
    host = "".join(f"[launch >a{i}]".ljust(16) for i in range(n)) + "[launch >z".ljust(60) + "]"
    device = " " * (16 * n + 58) + "".join(f"[k <a{i}]" for i in range(n)) + "[k <z]"
    dag = drawn_dag(f"cpu 1 |{host}\nstream 7 |{device}")
    frame = queue_blocked(dag, dag.span)

    assert frame[["n_blocked", "blocked_ns"]].to_numpy().tolist() == [[1, 61_000]]
