"""What every chain of dependencies passes, in drawn and simulated traces."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from htagraph.compiler.passes import compile_events
from htagraph.explain.critical_path import path_edges
from htagraph.model.dag import Dag
from htagraph.model.window import Window
from htagraph.queries.choke_points import choke_points
from htagraph.synth import timeline
from tests.synth.simulator import simulate
from tests.synth.strategies import programs

_DAG = compile_events(
    timeline("""
    us       |0         10        20        30        40        50        60        70
    cpu 1    |[op   ][launch >a][launch >b] [sync        ]  [op2][launch >c] [sync ]
    stream 7 |                  [gemm <a      ][relu <b]              [add <c ]
    """)
)


def _rows(dag: Dag, *columns: str, window: Window | None = None) -> list[list[object]]:
    return choke_points(dag, window or dag.span)[list(columns)].to_numpy().tolist()


def test_host_and_device_part_at_a_launch_and_join_where_the_host_waits():
    """Until the first launch, and from the end of each wait, one thing at a time happens."""
    assert _rows(_DAG, "name", "side", "until", "dur_ns", "is_serial") == [
        ["op", "start", "cudaLaunchKernel starts", 7_000, True],
        ["cudaLaunchKernel", "start", "cudaDeviceSynchronize ends", 37_000, False],
        ["cudaDeviceSynchronize", "end", "cudaLaunchKernel starts", 7_000, True],
        ["cudaLaunchKernel", "start", "cudaDeviceSynchronize ends", 19_000, False],
    ]


def test_a_stretch_says_what_bounds_most_of_it():
    """The path runs on the device from the launch on, as long as kernels run."""
    assert _rows(_DAG, "bound")[1] == ["compute"]


def test_what_the_end_does_not_wait_for_counts_for_nothing():
    """A kernel still runs, but the window of the step ends with the step."""
    dag = compile_events(
        timeline("""
        us       |0         10        20        30        40
        cpu 1    |{ProfilerStep#0 [launch >a] }
        stream 7 |                     [gemm <a         ]
        """)
    )
    step = Window(0, 29_000, "ProfilerStep#0", anchor=1)

    assert _rows(dag, "name", "is_serial", "dur_ns", window=step) == [
        ["ProfilerStep#0", True, 29_000]
    ]


def test_work_from_before_the_window_runs_beside_what_comes_first():
    """The first kernel of the window waits for it; so does nothing before that one."""
    dag = compile_events(
        timeline("""
        us       |0         10        20        30        40
        cpu 1    |[launch >a]   [op ][launch >b][sync     ]
        stream 7 |     [gemm <a            ]      [relu <b]
        """)
    )
    window = Window(12_000, int(dag.span.end_ns), "late")

    assert _rows(dag, "name", "is_serial", "until", window=window)[0] == [
        "(window start)", False, "relu starts",
    ]  # fmt: skip


def test_of_choke_points_at_one_instant_the_call_is_kept():
    """The operator begins with its call, and the step with its operator."""
    dag = compile_events(
        timeline("""
        cpu 1    |{ProfilerStep#0              }
        cpu 1    |[aten::item                 ]
        cpu 1    |[sync       ]
        """)
    )

    assert _rows(dag, "name", "n_points") == [["cudaDeviceSynchronize", 3]]


@given(program=programs(max_blocks=3))
def test_the_critical_path_passes_every_choke_point(program):
    """It is one of the chains; where it is at an instant, it is at one node of that instant."""
    dag = compile_events(simulate(program).events)
    times, edges = dag.events.node_ts_ns, path_edges(dag, dag.span)
    on_path = np.union1d(times[dag.edges.tail[edges]], times[dag.edges.head[edges]])
    rows = choke_points(dag, dag.span)

    assert set(rows["ts_ns"]) - {dag.span.start_ns} <= set(on_path.tolist())
