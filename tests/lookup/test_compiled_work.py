"""Whether most device time comes from captured graphs, or could."""

from __future__ import annotations

import pytest

from htagraph.compiler.passes import compile_events
from htagraph.lookup.programs import can_capture, is_replayed
from htagraph.synth import timeline


@pytest.mark.parametrize(
    ("first", "second", "replayed"), [("graph", "launch", True), ("launch", "graph", False)]
)
def test_a_run_is_replayed_if_graphs_take_more_than_half_of_its_device_time(
    first, second, replayed
):
    """11 or 10 of 21 us."""
    dag = compile_events(
        timeline(f"""
            cpu 1    |[{first} >a][{second} >b]
            stream 7 |          [k1 <a    ][k2 <b   ]
        """)
    )

    assert is_replayed(dag, dag.span) is replayed


@pytest.mark.parametrize(
    ("launch", "before", "can"),
    [
        ("cudaLaunchKernel", "aten::mm", True),
        ("hipLaunchKernel", "aten::mm", True),
        ("musaLaunchKernel", "aten::mm", False),
        ("cudaGraphLaunch", "aten::mm", False),
        ("cudaLaunchKernel", "cudaStreamBeginCapture", False),
    ],
)
def test_launches_of_cuda_and_hip_can_be_captured_once(launch, before, can):
    """Not what a graph launched, nor where the trace captures one."""
    drawing = """
        cpu 1    |[first ][launch_ >a]
        stream 7 |             [kernel <a ]
    """
    dag = compile_events(timeline(drawing, names={"launch_": launch, "first": before}))

    assert can_capture(dag, dag.span) is can


def test_what_nothing_launched_cannot_be_captured():
    """Calls alone: the device was not recorded."""
    dag = compile_events(timeline("cpu 1 |[call_ ]", names={"call_": "cudaLaunchKernel"}))

    assert not can_capture(dag, dag.span)
