"""THREAD edges: program order on host threads."""

from __future__ import annotations

from htagraph.explain.critical_path import path_edges


def test_a_thread_is_one_chain_of_boundaries(compiled, arrows):
    """Every instant between the first and the last boundary is one edge, whoever is innermost."""
    dag = compiled("""
        cpu 1    |[outer [inner]   ]   [next]
    """)

    assert arrows(dag, "thread") == [
        ("inner<", "inner>", 7),
        ("inner>", "outer>", 4),
        ("next<", "next>", 6),
        ("outer<", "inner<", 7),
        ("outer>", "next<", 3),
    ]


def test_the_time_of_an_edge_belongs_to_the_innermost_call(compiled):
    """A person charges time to what is drawn deepest; a gap belongs to nobody."""
    dag = compiled("""
        cpu 1    |[outer [inner]   ]   [next]
    """)
    owners = [
        None if event < 0 else dag.events.symbols.texts[dag.events.name[event]]
        for event in dag.edges.event
    ]
    by_start = sorted(zip(dag.events.node_ts_ns[dag.edges.tail].tolist(), owners, strict=True))

    assert [owner for _, owner in by_start] == ["outer", "inner", "outer", None, "next"]


def test_partially_overlapping_calls_stay_one_chain(compiled, arrows):
    """Real threads have calls that end a little after their parent; nothing is lost."""
    dag = compiled("""
        cpu 1    |[first    ]
        cpu 1    |      [second   ]
    """)

    assert arrows(dag, "thread") == [
        ("first<", "second<", 6),
        ("first>", "second>", 6),
        ("second<", "first>", 5),
    ]


def test_events_of_no_length_do_not_run_backward(compiled):
    """An event of no length begins and ends at one instant; in the order, its end comes later."""
    dag = compiled("""
        cpu 1    |[outer ^now  ]
    """)
    position = {node: place for place, node in enumerate(dag.order.tolist())}

    assert all(
        position[tail] < position[head]
        for tail, head in zip(dag.edges.tail, dag.edges.head, strict=True)
    )
    assert len(dag.rejected.edges) == 0


def test_a_call_that_waits_needs_no_time_of_its_own(compiled, arrows):
    """The device explains the time in a blocking call, so program order must not."""
    dag = compiled("""
        cpu 1    |[launch >a][sync              ]
        stream 7 |     [kernel <a           ]
    """)

    assert ("cudaDeviceSynchronize<", "cudaDeviceSynchronize>", 0) in arrows(dag, "thread")


def test_threads_that_only_poll_do_not_define_the_trace(compiled):
    """A watchdog polls long after the work is done; nobody asks why it took that long."""
    dag = compiled("""
        cpu 1    |[aten::mm [launch >a]]
        stream 7 |               [kernel <a ]
        cpu 9    |   [cudaEventQuery]              [cudaEventQuery]
    """)

    assert dag.span.dur_ns == 27_000


def test_a_side_thread_that_nothing_waits_for_does_not_end_the_trace(compiled):
    """A collective's worker and a background thread run on; the run ends with its last step."""
    dag = compiled("""
        cpu 1    |{ProfilerStep#0 }{ProfilerStep#1 }
        cpu 1    | [aten::mm     ]  [aten::mm     ]
        cpu 7    |       {gloo:all_reduce             }
        cpu 8    |[aten::tanh        ][aten::tanh            ]
    """)

    heads = dag.edges.head[path_edges(dag, dag.span)] >> 1

    assert dag.span.dur_ns == 34_000
    assert len(set(dag.events.lane[heads].tolist())) == 1
    assert "ProfilerStep#1" in dag.events.names(heads)
