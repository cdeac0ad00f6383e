"""What each step costs."""

from __future__ import annotations

from htagraph.compiler.passes import compile_events
from htagraph.queries.steps import step_times
from htagraph.synth import timeline

_DAG = compile_events(
    timeline("""
        us       |0         10        20        30        40
        cpu 1    |{ProfilerStep#0 [launch >a]}{ProfilerStep#1 [launch >b]}
        stream 7 |                    [gemm <a         ]         [relu <b ]
    """)
)


def test_a_step_tells_what_it_launched_and_what_ran_meanwhile():
    """Gemm (18) was launched in step 0, which is done with it; step 1 lasts from there."""
    frame = step_times(_DAG, _DAG.span)
    columns = ["name", "dur_ns", "n_launches", "launched_ns", "idle_ns", "compute_ns"]

    assert frame[columns].to_numpy().tolist() == [
        ["ProfilerStep#0", 38_000, 1, 18_000, 20_000, 18_000],
        ["ProfilerStep#1", 19_000, 1, 10_000, 9_000, 10_000],
    ]


def test_a_trace_without_a_device_has_steps_that_idle():
    """One row a step, device -1."""
    dag = compile_events(timeline("cpu 1 |{ProfilerStep#0 }"))
    frame = step_times(dag, dag.span)

    assert frame[["device", "n_launches", "idle_ns"]].to_numpy().tolist() == [[-1, 0, 17_000]]


def test_a_trace_without_steps_has_no_rows():
    """Nothing marks them."""
    dag = compile_events(timeline("stream 7 |[k]"))

    assert len(step_times(dag, dag.span)) == 0
