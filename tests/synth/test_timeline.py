"""What a drawn timeline means."""

from __future__ import annotations

import pytest

from htagraph.errors import QueryError
from htagraph.model.kinds import EventKind
from htagraph.synth import timeline


def test_an_event_is_as_long_as_it_is_drawn() -> None:
    """Column 0 follows the bar; brackets belong to the event; so neighbors share an instant."""
    events = timeline("cpu 1 | [a  ][b]")

    assert events.ts_ns.tolist() == [1_000, 6_000]
    assert events.end_ns.tolist() == [6_000, 9_000]


def test_a_column_may_be_wider() -> None:
    """A drawing of ten microseconds a column is ten times as long."""
    assert timeline("cpu 1 | [a  ]", us_per_column=10).dur_ns.tolist() == [50_000]


def test_events_nest_on_one_line_and_on_two() -> None:
    """Both drawings show the same two events."""
    one = timeline("cpu 1 |[outer [inner] ]")
    two = timeline("""
        cpu 1 |[outer         ]
        cpu 1 |       [inner]
    """)

    assert one.names().tolist() == two.names().tolist() == ["outer", "inner"]
    assert one.ts_ns.tolist() == [0, 7_000]
    assert one.end_ns.tolist() == [16_000, 14_000]
    assert set(two.lane.tolist()) == {0}


def test_names_and_lanes_tell_the_kind() -> None:
    """API names and shorthands are runtime calls, boxes on streams work, braces annotations."""
    events = timeline("""
        cpu 1          |{step }[aten::mm][cudaMalloc][cuLaunchKernel][hipMalloc][sync][custom]
        stream 7       |{step }[gemm][Memcpy HtoD][Memset (Device)]
        gpu 1 stream 9 |[k]
    """)

    expected = ["annotation", "op", "runtime", "runtime", "runtime", "runtime", "op"]
    expected += ["device_annotation", "kernel", "memcpy", "memset", "kernel"]
    assert [EventKind(kind).label for kind in events.kind] == expected
    assert events.device.tolist() == [-1] * 7 + [0] * 4 + [1]
    assert events.stream.tolist() == [-1] * 7 + [7] * 4 + [9]


def test_a_marked_call_launches_what_carries_its_label() -> None:
    """One call may enqueue several events; work without a mark has an id that leads nowhere."""
    events = timeline("""
        cpu 1    |[graph >g]
        stream 7 |   [a <g] [b <g] [c]
    """)

    call, a, b, c = events.correlation.tolist()
    assert a == b == call
    assert c not in (-1, call)
    assert events.names([0]).tolist() == ["cudaGraphLaunch"]


def test_waits_that_are_marked_leave_sync_records() -> None:
    """Each kind of wait has the record that the profiler makes of it."""
    events = timeline("""
        cpu 1    |[record !r @7][wait ?r @9][eventsync ?r][streamsync @7][sync @*][sync]
        stream 7 |[a]
    """)
    records = [int(event) for event in (events.kind == EventKind.SYNC).nonzero()[0]]

    assert events.names(records).tolist() == [
        "Stream Wait Event",
        "Event Sync",
        "Stream Sync",
        "Context Sync",
    ]
    assert events.correlation[records].tolist() == events.correlation[[1, 2, 3, 4]].tolist()
    assert events.stream[records].tolist() == [9, -1, 7, -1]
    assert events.column("wait_on_stream")[records].tolist() == [7, 7, -1, -1]
    assert events.column("wait_on_event_record")[records].tolist() == [
        events.correlation[0]
    ] * 2 + [-1, -1]


def test_a_flow_joins_two_starts() -> None:
    """The profiler draws forward-backward arrows from start to start."""
    events = timeline("""
        thread 1 |[fwd ~>f]
        thread 2 |            [bwd ~<f]
    """)

    assert events.flows.phase.tolist() == [0, 2]
    assert events.flows.ts_ns.tolist() == [0, 12_000]
    assert events.flows.lane.tolist() == [0, 1]


def test_a_caret_is_an_event_of_no_length() -> None:
    """Integer clocks make such events."""
    events = timeline("""
        cpu 1    |[op ^launch>a ]
        stream 7 |          ^k<a
    """)

    assert events.dur_ns.tolist() == [15_000, 0, 0]
    assert events.ts_ns.tolist() == [0, 4_000, 10_000]
    assert events.correlation[1] == events.correlation[2]


def test_short_names_and_columns_are_filled_in() -> None:
    """A drawing has no room for real names and metadata."""
    events = timeline(
        "stream 7 |[K1][K2]",
        names={"K1": "ncclDevKernel_AllReduce_Sum"},
        columns={"msg_in": {"K1": 6144}, "dtype": {"K1": "Float"}},
    )

    assert events.names().tolist() == ["ncclDevKernel_AllReduce_Sum", "K2"]
    assert events.column("msg_in").tolist() == [6144, -1]
    assert events.symbols.array[events.column("dtype")[0]] == "Float"


def test_an_empty_drawing_has_no_events() -> None:
    """Only a ruler and a comment."""
    assert len(timeline("# nothing\n us |0    5   10\n")) == 0


@pytest.mark.parametrize(
    ("drawing", "message"),
    [
        ("cpu 1 |[a", "line 1, column 0: '[' is not closed"),
        ("cpu 1 |[a]\ncpu 1 |  a]", "line 2, column 2: 'a' is outside an event"),
        ("cpu 1 |[a]  }", "line 1, column 5: '}' has no opening bracket"),
        ("cpu 1 |[ [b] ]", "line 1, column 0: an event needs a name"),
        ("cpu 1 |[a [b] c]", "line 1, column 7: 'c' is outside an event"),
        ("[a]", "line 1, column 0: no track"),
        ("cpu 1 |[launch >a]", "line 1, column 0: >a has no <a"),
        ("stream 7 |  [k <a]", "line 1, column 2: <a has no >a"),
        ("cpu 1 |[x >a][y >a]", "line 1, column 6: >a occurs twice"),
        ("cpu 1 |[x ?r]", "line 1, column 0: no call records r"),
        ("cpu 1 |[x ~>f]", "line 1, column 0: flow 'f' has only one end"),
        ("cpu 1 |[x >a b]", "line 1, column 0: 'b' is not a marker"),
        ("cpu 1 |[x @y]", "line 1, column 0: @y is not a stream"),
    ],
)
def test_a_bad_drawing_names_its_line_and_column(drawing: str, message: str) -> None:
    """A person must find the place."""
    with pytest.raises(QueryError) as caught:
        timeline(drawing)

    assert message in str(caught.value)


def test_what_is_named_must_be_drawn() -> None:
    """A spelling mistake in the names is no silent no-op."""
    with pytest.raises(QueryError, match="'K2' is not drawn"):
        timeline("stream 7 |[K1]", names={"K2": "x"})
