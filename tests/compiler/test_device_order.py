"""SPAN, LAUNCH and STREAM edges: device work after its launch and after the work before it."""

from __future__ import annotations

import numpy as np


def test_device_work_starts_after_the_start_of_its_launch(compiled, arrows):
    """A kernel may start while its launch call still runs; only the call's start bounds it."""
    dag = compiled("""
        cpu 1    |[launch >a             ]  [launch >b]
        stream 7 |     [k <a  ]                 [k <b ]
    """)

    assert arrows(dag, "launch") == [("cudaLaunchKernel<", "k<", 4), ("cudaLaunchKernel<", "k<", 4)]


def test_an_api_call_is_a_launch_if_device_work_carries_its_correlation(compiled, arrows):
    """No list of names decides, so a launch call that nobody has heard of works."""
    dag = compiled("""
        cpu 1    |[cuLaunchKernelOfTomorrow >a]
        stream 7 |                  [k <a  ]
    """)

    assert [tail for tail, _, _ in arrows(dag, "launch")] == ["cuLaunchKernelOfTomorrow<"]


def test_one_graph_launch_has_many_kernels(compiled, arrows, rules):
    """All kernels of a CUDA graph replay share the correlation id of one launch."""
    dag = compiled("""
        cpu 1    |[graph >a   ]
        stream 7 |     [k1 <a  ][k2 <a ]
        stream 9 |       [k3 <a   ]
    """)

    assert len(arrows(dag, "launch")) == 3
    assert rules(dag, "launch") == {
        "k1<": "graph replay",
        "k2<": "graph replay",
        "k3<": "graph replay",
    }


def test_work_of_one_stream_runs_in_order(compiled, arrows):
    """The next kernel of a stream waits for the end of the one before, and the smallest gap."""
    dag = compiled("""
        cpu 1    |[launch >a][launch >b][launch >c]
        stream 7 |                 [k1 <a     ] [k2 <b     ]  [k3 <c ]
    """)

    assert arrows(dag, "stream") == [("k1>", "k2<", 1), ("k2>", "k3<", 1)]


def test_overlapping_work_of_one_stream_counts_its_overlap_once(compiled, arrows, rules):
    """With programmatic dependent launch a kernel begins before the one before it ends."""
    dag = compiled("""
        cpu 1    |[launch >a][launch >b]
        stream 7 |                         [k1 <a      ]
        stream 7 |                                   [k2 <b      ]
    """)

    assert arrows(dag, "stream") == [("k1<", "k2<", 10)]
    assert rules(dag, "stream") == {"k2<": "stream overlap"}


def test_work_launched_while_other_work_of_its_stream_runs_is_bound_by_its_launch(compiled):
    """Streams of a file need not be real queues: work launched meanwhile did not wait."""
    dag = compiled("""
        cpu 1    |[launch >a]                   [launch >b]
        stream 7 |       [k1 <a                                       ]
        stream 7 |                                    [k2 <b ]
    """)
    k2 = 2 * int(np.flatnonzero(dag.events.names() == "k2")[0])

    assert ("launch" if dag.edges.kind[dag.binding[k2]] == 2 else "other") == "launch"


def test_device_work_before_its_launch_moves_the_device_clock(compiled):
    """No kernel starts before the call that launched it: the device clock is behind by as much."""
    dag = compiled("""
        cpu 1    |     [launch >a]      [launch >b]
        stream 7 |  [k1 <a ]            [k2 <b ]
    """)
    k1 = int(np.flatnonzero(dag.events.names() == "k1")[0])

    assert dag.calibration.clock_shift_ns == 3_000
    assert dag.events.ts_ns[k1] == 5_000
    assert len(dag.rejected.edges) == 0


def test_correlation_zero_links_nothing(compiled, arrows):
    """Some tools write 0 for every event: that id means none and joins nothing."""
    from dataclasses import replace

    from htagraph.compiler.passes import compile_events
    from htagraph.synth import timeline

    events = timeline("""
        cpu 1    |[launch >a] [launch >b]
        stream 7 |    [k1 <a ]  [k2 <b  ]
    """)
    dag = compile_events(replace(events, correlation=np.zeros(len(events), dtype=np.int64)))

    assert arrows(dag, "launch") == []


def test_external_ids_are_never_taken_for_correlation_ids(compiled):
    """They are numbers of two kinds that often collide."""
    from dataclasses import replace

    from htagraph.compiler.passes import compile_events
    from htagraph.synth import timeline

    events = timeline("""
        cpu 1    |[aten::mm  ] [launch >b]
        stream 7 |    [k1   ]     [k2 <b ]
    """)
    dag = compile_events(replace(events, external_id=np.array(events.correlation)[::-1].copy()))
    k1 = int(np.flatnonzero(dag.events.names() == "k1")[0])

    assert dag.launch[k1] == -1
