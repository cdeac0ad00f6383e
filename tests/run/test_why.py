"""Why an event started only then: drawn and simulated runs, and the answer in words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import htagraph as hg
from htagraph.compiler.passes import compile_events
from htagraph.errors import QueryError, RankNotFoundError
from htagraph.explain.waited_for import MOST_STRETCHES, stretches
from htagraph.run.graph import TraceGraph
from tests.drawn import drawn_graph
from tests.event_rows import taken
from tests.job.simulated import FEW, loaded, meet, three
from tests.laws.test_path_laws import any_events
from tests.real_traces import TRACES, cases, located
from tests.synth.program import Spend, Synchronize
from tests.synth.simulator import simulate_job
from tests.synth.strategies import jobs

BUSY_STREAM = """
    us       |0         10        20        30        40
    cpu 1    |[launch >a][launch >b]
    stream 7 |     [relu <a          ][gemm <b]
"""
TWO_STREAMS = """
    us       |0         10        20        30        40        50
    cpu 1    |[launch >a][record @e    ][wait ?e 8][launch >b]
    stream 7 |     [relu <a                ]
    stream 8 |                                         [gemm <b]
"""


def test_a_stream_was_busy() -> None:
    """The launch came 8 us before the stream was free: that is what it could have gained."""
    found = drawn_graph(BUSY_STREAM).why("gemm")

    first, stretch, coverage = found.sentences

    assert first == (
        "gemm on stream 7 started 24.0 us after the start of the trace, 2.00 us after its "
        "launch: stream 7 was busy with relu. Without that, it could have started 8.00 us "
        "earlier, when it was launched."
    )
    assert stretch == (
        "24.0 us on stream 7: relu 19.0 us, launch latency 5.00 us. Before that, relu was "
        "launched by cudaLaunchKernel on thread 1."
    )
    assert coverage == "Back to the start of the trace: 24.0 us in 2 segments."


def test_the_table_has_the_latest_segment_first_and_what_comes_next() -> None:
    """What held each: the launch of gemm came 8 us before its stream was free."""
    chain = drawn_graph(BUSY_STREAM).why("gemm").chain
    shown = chain[["name", "kind", "start_ns", "dur_ns", "next_name", "next_kind", "next_slack_ns"]]

    assert shown.fillna(-1).values.tolist() == [
        ["relu", "span", 5_000, 19_000, "", "", -1],
        ["relu", "launch", 0, 5_000, "", "", -1],
    ]


def test_the_end_of_an_event_is_its_run() -> None:
    found = drawn_graph(BUSY_STREAM).why("relu", end=True)

    assert found.sentences[0] == (
        "relu on stream 7 ended 24.0 us after the start of the trace: it ran for 19.0 us."
    )


def test_an_idle_device_waits_for_its_next_work() -> None:
    """At 1 us nothing runs; relu starts 4 us later, as soon as it was launched."""
    graph = drawn_graph(BUSY_STREAM)
    said = graph.why("1us", device=0).sentences[0]

    assert said.startswith(
        "Device 0 is idle 1.00 us after the start of the trace, for another 4.00 us, until relu on "
        "stream 7 starts: it was launched by cudaLaunchKernel on thread 1."
    )
    assert graph.why(at_ns=graph.dag.span.start_ns + 1_000).sentences[0] == said
    assert graph.why("6us").sentences[0].startswith("Device 0 is not idle 6.00 us after")


def test_a_chain_of_given_depth_ends_at_its_edge() -> None:
    graph = drawn_graph(BUSY_STREAM.replace("][gemm", "] [gemm"))

    assert [graph.why("gemm", depth=depth).edges["kind"].tolist() for depth in (1, 2, 9)] == [
        ["stream"],
        ["span", "stream"],
        ["launch", "span", "stream"],
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"what": "absent"}, "no event"),
        ({"what": "gemm", "at_ns": 5}, "an event and a time are asked for"),
        ({"what": "gemm", "depth": 0}, "depth=0 is no number of edges"),
        ({"what": "40us"}, "runs nothing from 40.0 us"),
    ],
)
def test_what_cannot_be_answered_is_said(options, said) -> None:
    with pytest.raises(QueryError, match=said):
        drawn_graph(BUSY_STREAM).why(**options)


def test_a_wait_in_a_loop_is_told_once() -> None:
    """Sixty `.item()` calls, each of which waits for its copy: two stretches, 59 times."""
    graph = hg.load(hg.demo_trace("sync_in_loop")).compile()
    loop = [said for said in graph.why("*gemm*", instance=-1).sentences if "59 times" in said]

    assert [said.partition(":")[0] for said in loop] == [
        "1.40 ms on thread 4200, 59 times",
        "361 us on stream 7, 59 times",
    ]


def test_a_long_chain_ends_in_its_sums() -> None:
    """Eight stretches are told, three names of each; what is before them is summed up."""
    cpu, stream = "", ""
    for letter in "abcdefgh":
        cpu += f"[op_{letter} [m][n][p] [launch >{letter}]][sync {' ' * 10}] "
        stream = f"{stream:<{len(cpu) - 14}}[kernel_{letter} <{letter}]"
    graph = drawn_graph(f"cpu 1    |{cpu}\nstream 7 |{stream}")
    found = graph.why("cudaDeviceSynchronize", instance=-1, end=True)
    first, *told, sums, coverage = found.sentences

    assert "ended" in first
    assert len(told) == MOST_STRETCHES
    assert sums.startswith("Earlier, ")
    assert coverage.startswith("Back to the start of the trace")
    assert "op_h 7.00 us, m 3.00 us, n 3.00 us, 2 others." in told[1]


@given(events=any_events, data=st.data())
def test_a_chain_is_binding_edges_and_tiles_the_time(events, data) -> None:
    """Back from any start or end, to the start of its step, else of the window."""
    dag = compile_events(events)
    rows = np.flatnonzero(dag.events.is_device | dag.events.is_host).tolist()
    if not rows:
        return
    event, end = data.draw(st.sampled_from(rows)), data.draw(st.booleans())
    found = TraceGraph(dag, dag.span).why(event, end=end)
    edges = found.edges
    joined = 2 * edges["head_event"] + edges["head_is_end"]
    begins = 2 * edges["tail_event"] + edges["tail_is_end"]

    assert edges["is_binding"].all()
    assert joined.iloc[:-1].tolist() == begins.iloc[1:].tolist()
    assert joined.iloc[-1:].tolist() in ([], [2 * event + end])
    assert int(found.chain["dur_ns"].sum()) == found.dur_ns
    assert found.chain["start_ns"].is_monotonic_decreasing
    assert (found.chain["next_slack_ns"].dropna() >= 0).all()
    assert len(found.sentences) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(TRACES))
def test_a_chain_tiles_the_time_in_real_traces(name) -> None:
    """From nine events over the whole trace, each back to the start of its step."""
    dag = hg.load(located(name)).compile().dag
    rows = np.flatnonzero(dag.events.is_device | dag.events.is_host)
    for event in rows[np.linspace(0, len(rows) - 1, 9).astype(np.int64)].tolist():
        found = TraceGraph(dag, dag.span).why(event)
        assert int(found.chain["dur_ns"].sum()) == found.dur_ns
        assert found.edges["is_binding"].all()
        assert found.sentences[-1].startswith("Back to the start of ") or not found.dur_ns
        parts = stretches(dag, found.window, found.coded)
        told_since = min((one.start_ns for one in parts), default=found.end_ns)
        earlier_ns = found.segments.loc[found.segments["start_ns"] < told_since, "dur_ns"].sum()
        assert sum(one.dur_ns for one in parts) + earlier_ns == found.dur_ns


@given(events=any_events)
def test_why_of_the_end_of_a_window_is_its_critical_path(events) -> None:
    dag = compile_events(events)
    graph = TraceGraph(dag, dag.span)

    assert graph.why().segments.equals(graph.critical_path().segments)


@given(events=any_events, seed=st.randoms(use_true_random=False))
def test_a_chain_does_not_depend_on_the_order_of_the_file(events, seed) -> None:
    dag = compile_events(events)
    order = list(range(len(events)))
    seed.shuffle(order)
    other = compile_events(taken(events, np.array(order, dtype=np.int64)))
    place = np.argsort(order) if order else np.array([], dtype=np.int64)
    rows = np.flatnonzero(dag.events.is_device | dag.events.is_host).tolist()
    for event in rows[:5]:
        one = TraceGraph(dag, dag.span).why(event).sentences
        assert TraceGraph(other, other.span).why(int(place[event])).sentences == one


def test_a_chain_continues_on_the_rank_that_came_last() -> None:
    """Ranks 0 and 1 meet rank 2, which is 30 us late; what follows on rank 0 waited for it."""
    after = (meet(), Synchronize())
    job = loaded(three(after, (Spend(30_000), *after), after))
    found = job.why(0, "cudaDeviceSynchronize", end=True)

    assert found.segments["rank"].tolist()[0] == 1
    assert "Before that, rank 0 waited 30.0 us for rank 1." in " ".join(found.sentences)
    assert int(found.segments["dur_ns"].sum()) == found.dur_ns
    with pytest.raises(RankNotFoundError):
        job.why(7, "cudaDeviceSynchronize")


@pytest.mark.slow
@FEW
@given(program=jobs(), data=st.data())
def test_a_chain_across_ranks_tiles_the_time(program, data) -> None:
    job = loaded(simulate_job(program))
    rank = data.draw(st.sampled_from(sorted(job.timeline.aligned)))
    dag = job[rank].dag
    rows = np.flatnonzero(dag.events.is_device | dag.events.is_host).tolist()
    found = job.why(rank, data.draw(st.sampled_from(rows)), end=data.draw(st.booleans()))

    segments = found.segments
    ends_ns = segments["start_ns"] + segments["dur_ns"]

    assert ends_ns.iloc[:-1].tolist() == segments["start_ns"].iloc[1:].tolist()
    assert int(segments["dur_ns"].sum()) == found.dur_ns
    assert found.sentences
    parts = found._stretches
    told_since = min((one.start_ns for one in parts), default=found.end_ns)
    earlier_ns = segments.loc[segments["start_ns"] < told_since, "dur_ns"].sum()
    told_ns = sum(one.dur_ns for one in parts)
    # Clocks that drift round each stretch and each segment.
    assert told_ns + earlier_ns == pytest.approx(found.dur_ns, abs=2 * len(segments) + 2)
