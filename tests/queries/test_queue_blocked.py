"""How long launch queues were full."""

from __future__ import annotations

from htagraph.compiler.passes import compile_events
from htagraph.queries.launches import queue_blocked
from htagraph.synth import timeline

_DAG = compile_events(
    timeline("""
        us       |0         10        20        30        40
        cpu 1    |[launch >a][launch >b][launch >c]
        stream 7 |          [a <a               ][b <b][c <c]
    """)
)


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
    dag = compile_events(timeline(f"cpu 1 |{host}\nstream 7 |{device}"))
    frame = queue_blocked(dag, dag.span)

    assert frame[["n_blocked", "blocked_ns"]].to_numpy().tolist() == [[1, 61_000]]
