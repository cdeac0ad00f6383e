"""Why communication is not hidden."""

from __future__ import annotations

from htagraph.compiler.passes import compile_events
from htagraph.queries.communication import exposed_communication
from htagraph.synth import timeline


def _why(drawing: str) -> list[list]:
    dag = compile_events(timeline(drawing))
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
