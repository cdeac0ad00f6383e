"""Why devices are idle, interval by interval."""

from __future__ import annotations

from htagraph.compiler.passes import compile_events
from htagraph.model.window import Window
from htagraph.queries.idle import idle_intervals
from htagraph.run.trace import Trace
from htagraph.synth import timeline


def _parts(drawing: str, **options) -> list[tuple]:
    """(start, duration, cause, name) of the parts of idle intervals, in us."""
    dag = compile_events(timeline(drawing))
    frame = idle_intervals(dag, dag.span, **options)
    columns = zip(
        frame["start_ns"] // 1000,
        frame["dur_ns"] // 1000,
        frame["cause"],
        frame["name"],
        strict=True,
    )
    return [tuple(row) for row in columns]


def test_a_late_host_is_blamed_by_operator():
    """From 13 on the device waits: for what is left of aten::slow, then for the launch of b."""
    assert _parts("""
        us       |0         10        20        30        40
        cpu 1    |[launch >a][aten::slow     [launch >b]  ]
        stream 7 |      [a <a ]                   [b <b ]
    """) == [
        (0, 6, "launch", "a"),
        (13, 14, "host", "aten::slow"),
        (27, 5, "launch", "b"),
        (39, 2, "window_edge", "(no more work)"),
    ]


def test_time_that_was_not_recorded_is_a_python_gap():
    """Nothing is known of the host between its two calls."""
    parts = _parts("""
        us       |0         10        20        30        40
        cpu 1    |[launch >a]            [launch >b]
        stream 7 |      [a <a ]                [b <b]
    """)

    assert parts[1:] == [
        (13, 10, "untraced_code", "(host gap)"),
        (23, 6, "launch", "b"),
    ]


def test_a_stream_that_waits_for_another_is_not_an_idle_device():
    """Stream 9 computes all the while; per stream, that work is what stream 7 waits for."""
    drawing = """
        us       |0         10        20        30        40        50
        cpu 1    |[launch >a][record !r @9][wait ?r @7][launch >b]
        stream 9 |      [a <a                                      ]
        stream 7 |                                                    [b <b ]
    """
    per_device = _parts(drawing)
    per_stream = {(cause, name) for _, _, cause, name in _parts(drawing, per="stream")}

    assert per_device == [(0, 6, "launch", "a"), (50, 2, "event_wait", "b")]
    assert per_stream == {
        ("launch", "a"),
        ("other_work", "a"),
        ("event_wait", "b"),
        ("window_edge", "(no more work)"),
    }


def test_work_whose_launch_was_not_recorded_was_launched_before_the_capture():
    """Nothing says why k begins when it does."""
    parts = _parts("""
        cpu 1    |[aten::add                 ]
        stream 7 |[j]            [k ]
    """)

    assert parts[0][2:] == ("work_from_before_the_profile", "(launch not recorded)")


def test_the_interval_before_a_bound_is_explained_by_what_follows_it():
    """The window ends while the device waits for b; b is launched beyond."""
    dag = compile_events(
        timeline("""
            us       |0         10        20        30        40
            cpu 1    |[launch >a][aten::slow     [launch >b]  ]
            stream 7 |      [a <a ]                   [b <b ]
        """)
    )
    frame = idle_intervals(dag, Window(15_000, 20_000, "part"))

    assert frame[["start_ns", "dur_ns", "cause", "name"]].to_numpy().tolist() == [
        [15_000, 5_000, "host", "aten::slow"]
    ]


def test_idle_time_and_the_path_call_the_same_wait_by_the_same_name():
    """The device waits for a host that waited for it; the path runs through the same parts."""
    trace = Trace.from_events(
        timeline("""
            us       |0         10        20        30        40        50        60
            cpu 1    |[launch >a][aten::item [sync     ]  ]    [aten::add [launch >b]]
            stream 7 |      [a <a                    ]                           [b <b    ]
        """)
    )
    graph = trace.compile()
    segments = graph.critical_path().segments
    idle = graph.ask("idle_intervals")
    same = idle.merge(segments[["start_ns", "dur_ns", "bound"]], on=["start_ns", "dur_ns"])

    assert same[["cause", "bound"]].astype(str).to_numpy().tolist() == [
        ["launch", "launch"],
        ["sync", "sync"],
        ["host", "host"],
        ["untraced_code", "untraced_code"],
        ["host", "host"],
        ["launch", "launch"],
    ]
