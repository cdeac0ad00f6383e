"""Idle time in HTA's three categories."""

from __future__ import annotations

from htagraph.compiler.passes import compile_events
from htagraph.queries.idle_categories import idle_categories
from htagraph.synth import timeline


def test_categories_are_host_wait_kernel_wait_and_other():
    """B was launched late; c is close behind; d was launched in time, but began late."""
    dag = compile_events(
        timeline("""
            us       |0         10        20        30        40        50        60
            cpu 1    |[launch >a]     [launch >b][launch >c][launch >d]
            stream 7 |    [a <a]               [b <b               ] [c <c]          [d <d]
        """)
    )
    frame = idle_categories(dag, dag.span, kernel_wait_ns=5_000)

    assert frame[["category", "n_gaps", "idle_ns"]].to_numpy().tolist() == [
        ["host_wait", 1, 15_000],
        ["kernel_wait", 1, 1_000],
        ["other", 1, 10_000],
    ]
