"""How good a trace is: damage, overhead, kinds, inferences."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given

import htagraph as hg
from htagraph.compiler.passes import compile_events
from htagraph.explain.critical_path import critical_path
from htagraph.model.edges import Support
from htagraph.model.events import EventTable
from htagraph.model.kinds import EventKind
from htagraph.model.rules import Evidence, Rule
from htagraph.model.window import Window
from htagraph.queries.quality import inferences, profiler_overhead, quality
from htagraph.run.graph import TraceGraph
from htagraph.synth import timeline
from tests.drawn import drawn_dag, drawn_graph
from tests.synth.simulator import simulate
from tests.synth.strategies import programs

_DRAWING = """
    cpu 1    |[launch >a][launch >b][record     ]
    stream 7 |     [K <a ]  [gemm <b]
"""


def _counts(events: EventTable, check: str) -> tuple[int, int, str]:
    """Good, all and verdict of a check."""
    dag = compile_events(events)
    row = quality(dag, dag.span).set_index("check").loc[check]
    return int(row["n_good"]), int(row["n_all"]), str(row["verdict"])


def test_kernels_that_a_rule_names_are_counted():
    """One of two: the gemm counts as compute because nothing says otherwise."""
    events = timeline(_DRAWING, names={"K": "ncclDevKernel_AllReduce"})

    assert _counts(events, "kernels named by a rule (the others count as compute)") == (
        1,
        2,
        "good",
    )


def test_ids_that_several_calls_carry_are_reported():
    """The earliest call is taken as the launch; that is a guess, and a guess is reported."""
    events = timeline(_DRAWING)
    correlation = np.array(events.correlation)
    assert _counts(events, "correlation ids name one call") == (2, 2, "good")

    correlation[2] = correlation[1]
    twice = replace(events, correlation=correlation)

    assert _counts(twice, "correlation ids name one call") == (1, 2, "weak")


@pytest.mark.parametrize(("n_linked", "verdict"), [(19, "good"), (18, "weak")])
def test_a_check_is_good_up_to_one_in_twenty(n_linked, verdict):
    """Kernels that have a launch."""
    host = "".join(f"[launch >{number:02}]" for number in range(n_linked))
    work = "".join(f"[k <{number:02}   ]" if number < n_linked else "[k]" for number in range(20))
    events = timeline(f"cpu 1    |{host}\nstream 7 |     {work}")

    assert _counts(events, "device work linked to its launch") == (n_linked, 20, verdict)


@pytest.mark.parametrize(("n_worked", "verdict"), [(19, "good"), (18, "weak")])
def test_launches_without_device_work_are_reported(n_worked, verdict):
    """Kernels that were recorded, of twenty that were launched."""
    host = "".join(f"[launch >{n:02}]" if n < n_worked else "[launch]" for n in range(20))
    work = "".join(f"[k <{number:02}   ]" for number in range(n_worked))
    events = timeline(f"cpu 1    |{host}\nstream 7 |     {work}")

    assert _counts(events, "launches with their device work") == (n_worked, 20, verdict)


def test_clocks_that_no_shift_makes_agree_are_reported():
    """The launch keeps the clock where it is, so the wait ends 2 us before the copy."""
    events = timeline(
        """
        cpu 1    |[launch >a][copy >m              ]
        stream 7 |[k1 <a                  ][M <m     ]
        """,
        names={"M": "Memcpy DtoH (Device -> Pageable)"},
    )

    assert _counts(events, "device clock agrees with host clock") == (1, 1, "good")
    assert _counts(events, "waits end after what they waited for") == (0, 1, "missing")


def test_ranges_of_collectives_that_were_recorded_as_ending_too_late_are_reported():
    """The caller of the first continues 6 us before its end, that of the second right after."""
    events = timeline(
        f"""
        cpu 1    |[c10d::allreduce_]{"":76}[copies 1  ][c10d::allreduce_]{"":76}[copies 2]
        cpu 2    |                {{gloo:all_reduce{"":66}}}{"":23}{{gloo:all_reduce{"":57}}}
        """
    )

    assert _counts(events, "host collectives end before their callers continue") == (1, 2, "weak")


def test_work_that_no_edge_joins_to_the_rest_is_reported():
    """A thread of its own: two operators of four events."""
    check = "operators and device work joined by edges"
    joined = """
        cpu 1    |[op    ][launch >a][op    ]
        stream 7 |            [gemm <a ]
    """
    apart = timeline(joined + "    cpu 2    |[other ]    [other ]\n")

    assert _counts(timeline(joined), check) == (3, 3, "good")
    assert _counts(apart, check) == (3, 5, "weak")
    dag = compile_events(apart)
    (said,) = quality(dag, dag.span).query("check == @check")["consequence"]
    assert said.startswith("No edge joins 2 events (2 on thread 2) to the rest")


def test_threads_that_only_poll_need_not_be_joined():
    """A watchdog asks whether work is done; it has no operators."""
    events = timeline("""
        cpu 1    |[op    ][launch >a][op    ]
        cpu 2    |[cudaEventQuery] [cudaEventQuery]
        stream 7 |            [gemm <a ]
    """)

    assert _counts(events, "operators and device work joined by edges") == (3, 3, "good")


_EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": f"op {at}", "pid": 1, "tid": 1, "ts": at, "dur": 5}
    for at in range(0, 100, 10)
]


def _graph(text: str) -> hg.TraceGraph:
    return hg.load(text.encode()).compile()


def test_a_whole_file_has_no_damage():
    """Ten events, all read."""
    assert _graph(json.dumps({"traceEvents": _EVENTS})).damage().empty


def test_a_file_that_ends_in_an_event_is_cut_off():
    """One row, however many repairs that takes: the event is lost, the brackets are added."""
    found = _graph(json.dumps({"traceEvents": _EVENTS})[:-30]).damage()

    assert found["kind"].tolist() == ["cut file"]


def test_events_that_cannot_be_read_are_lost():
    """One of ten has no time."""
    events = [*_EVENTS[:-1], {**_EVENTS[-1], "ts": "soon"}]
    found = _graph(json.dumps({"traceEvents": events})).damage()

    assert found[["kind", "n", "n_all"]].to_numpy().tolist() == [["lost events", 1, 10]]


def test_what_is_read_a_little_differently_is_no_damage():
    """A comma too many."""
    text = json.dumps({"traceEvents": _EVENTS})
    trace = hg.load(text.replace("]}", ",]}").encode())

    assert [repair.kind for repair in trace.recording.repairs] == ["comma"]
    assert trace.compile().damage().empty


def _launched(n: int, *, behind_us: int, n_worked: int | None = None) -> str:
    """Launches every 10 us, each of a kernel that runs so much later; some without."""
    events = []
    for at in range(n):
        ids = {"pid": 1, "tid": 1, "ts": 10 * at, "dur": 5, "args": {"correlation": at + 1}}
        events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **ids})
        if n_worked is None or at < n_worked:
            work = {"ts": 10 * at + behind_us, "args": {**ids["args"], "device": 0, "stream": 7}}
            events.append({"ph": "X", "cat": "kernel", "name": "k", **ids, "pid": 0, **work})
    return json.dumps({"traceEvents": events})


def test_launches_without_device_work_are_damage():
    """The last twenty of sixty, and the device was idle."""
    found = _graph(_launched(60, behind_us=5, n_worked=40)).damage()

    assert found[["kind", "n", "n_all"]].to_numpy().tolist() == [["lost device work", 20, 20]]


@pytest.mark.parametrize(
    "left_out",
    [{"window": (0, 400_000)}, {"categories": ["cuda_runtime"]}],
    ids=["of a window", "of categories"],
)
def test_device_work_that_was_not_asked_for_is_not_lost(left_out):
    """It runs 300 us after its launch: in a window, many launches are without it."""
    graph = hg.load(_launched(60, behind_us=300).encode(), **left_out).compile()
    checks = graph.quality().set_index("check")

    assert checks.loc["launches with their device work", "n_all"] == 0
    assert graph.damage().empty


_OVERHEAD = (
    "Resource", "Instrumentation", "Buffer Flush", "Activity Buffer Request",
    "Lazy Function Loading", "Command Buffer Full", "CUPTI: Unknown",
    "dlopen(libcuda.so.1)", "dlopen(libcupti.so.11.7)",
)  # fmt: skip
_NO_THREAD = 99
"""What is drawn on this thread stands on Kineto's row of overhead, which names no thread."""


def _asked(drawing: str, question=profiler_overhead) -> pd.DataFrame:
    """The answer about a drawing in which overhead has its kind and its row."""
    events = timeline(drawing)
    is_overhead = np.isin(events.names(), _OVERHEAD)
    rows = [tid == _NO_THREAD for tid in events.lanes.tid]
    lanes = replace(
        events.lanes,
        pid=tuple(-1 if row else pid for row, pid in zip(rows, events.lanes.pid, strict=True)),
        tid=tuple(0 if row else tid for row, tid in zip(rows, events.lanes.tid, strict=True)),
    )
    kind = np.where(is_overhead, EventKind.OVERHEAD, events.kind).astype(np.int8)
    dag = compile_events(replace(events, kind=kind, lanes=lanes))
    return question(dag, dag.span)


def _path_us(drawing: str) -> dict[str, float]:
    """Time of each overhead on the path."""
    found = _asked(drawing)
    return dict(zip(found["name"], found["path_ns"] / 1000, strict=True))


def test_the_innermost_overhead_on_the_thread_of_the_path_counts():
    """`Resource` has 25 us, 14 of them are of what is in it; thread 2 is beside the path."""
    found = _asked("""
        us    |0         10        20        30        40        50
        cpu 1 |[aten::add [Resource [Buffer Flush]]              ]
        cpu 2 |[aten::mul [Resource]      ]
    """)

    assert found[["name", "n_events", "sum_ns", "path_ns", "inside"]].to_numpy().tolist() == [
        ["Buffer Flush", 1, 14_000, 14_000, "aten::add"],
        ["Resource", 2, 35_000, 11_000, "aten::add"],
    ]


def test_overhead_while_the_path_is_on_the_device_is_not_on_the_path():
    """The path leaves the thread at 6, with the launch that the kernel waits for."""
    assert _path_us("""
        us       |0         10        20        30        40
        cpu 1    |[launch >a]  [aten::add [Resource]  ]
        stream 7 |      [kernel <a                           ]
    """) == {"Resource": 0}


def test_overhead_without_a_thread_is_of_the_one_that_is_in_a_call():
    """At 5 only thread 1 is in an operator all the time; at 25 both are, at 45 none is."""
    drawing = """
        us        |0         10        20        30        40        50        60
        cpu 1     |[aten::add           ][aten::mul        ]          [aten::relu]
        cpu 2     |        [aten::t    ][aten::t           ]
        thread 99 |    [Resource]          [Resource]        [Resource]
    """
    found = _asked(drawing)

    assert found[["n_events", "n_placed", "path_ns"]].to_numpy().tolist() == [[3, 1, 10_000]]


def test_who_flushes_buffers_is_not_known_without_a_thread():
    """It may be a thread of the profiler."""
    assert _path_us("""
        us        |0         10        20        30
        cpu 1     |[aten::add                       ]
        thread 99 |    [Buffer Flush]
    """) == {"Buffer Flush": 0}


def test_the_driver_does_its_work_without_a_profiler_too():
    """CUPTI calls it overhead as well, and Nsight Systems the loading of any library."""
    found = _asked("""
        us    |0         10        20        30        40        50        60        70
        cpu 1 |[launch >a [Lazy Function Loading] [Command Buffer Full] [CUPTI: Unknown] ]
        cpu 2 |[aten::add [Activity Buffer Request]]
        cpu 3 |[aten::mul [dlopen(libcuda.so.1)] [dlopen(libcupti.so.11.7)]]
        stream 7 |                                                                        [k <a]
    """)

    assert dict(zip(found["name"], found["source"], strict=True)) == {
        "Lazy Function Loading": "driver",
        "Command Buffer Full": "driver",
        "CUPTI: Unknown": "unknown",
        "Activity Buffer Request": "profiler",
        "dlopen(libcuda.so.1)": "unknown",
        "dlopen(libcupti.so.11.7)": "profiler",
    }


def test_quality_says_how_much_too_long_the_path_is():
    """Ten of forty microseconds; the driver's work is no part of them."""
    checks = _asked(
        """
        us    |0         10        20        30        40        50
        cpu 1 |[aten::add [Resource] [Command Buffer Full]]
        """,
        quality,
    ).set_index("check")
    row = checks.loc["critical path free of the profiler's own work (ns)"]

    assert (row["n_good"], row["n_all"], row["verdict"]) == (34_000, 44_000, "weak")
    assert row["consequence"] == (
        "Times of the path are too long by 10.0 us (22.7%) at least, most in aten::add (Resource); "
        "what it takes to record each event is not recorded."
    )


def test_quality_says_nothing_of_overhead_where_none_was_recorded():
    """Nothing is known of it then."""
    checks = _asked("cpu 1 |[aten::add ]", quality)["check"]

    assert not checks.str.contains("profiler").any()


POLLED = """
    cpu 1    |[L >a][R         ]                                        [E         ][op            ]
    stream 7 |    [k1 <a                                             ]
"""
"""Profilers leave cudaEventSynchronize out: the host stands still until k1 has ended."""

NAMES = {"L": "cudaLaunchKernel", "R": "cudaEventRecord", "E": "cudaEventElapsedTime"}

PAIRS = (
    Support(Rule.RECURRING_IN_REPLAYS, "a", "b", 57, 58, 1_000, 400, 0.02),
    Support(Rule.RECURRING_IN_REPLAYS, "c", "d", 6, 6, 900, 100, 0.05),
)


def test_a_rule_says_how_many_edges_it_made_and_their_time_on_the_path():
    """From the kernel's end to what the host goes on with: 2 us of 86."""
    dag = drawn_dag(POLLED, names=NAMES)
    row = inferences(dag, dag.span).set_index("rule").loc["host polls"]

    assert (row["kind"], row["n_edges"], row["path_ns"]) == ("hidden_sync", 1, 2_000)
    assert row["path_share"] == 2_000 / dag.span.dur_ns
    assert row["n_pairs"] == 0
    assert np.isnan(row["chance"])


def test_recorded_dependencies_are_no_inferences():
    """A launch and a call that waits by definition."""
    dag = drawn_dag("cpu 1 |[launch >a][sync @*  ]\nstream 7 |   [k <a]")

    assert inferences(dag, dag.span).empty


def test_without_inference_there_are_none():
    """`compile(infer=False)`."""
    dag = compile_events(timeline(POLLED, names=NAMES), infer=False)

    assert inferences(dag, dag.span).empty
    assert not critical_path(dag, dag.span)["is_inferred"].any()


def learned() -> TraceGraph:
    """A graph whose only inferred edge is by a learned rule, with two pairs."""
    dag = drawn_dag(POLLED, names=NAMES)
    rule = dag.edges.rule
    rule = np.where(rule == Rule.HOST_POLLS, Rule.RECURRING_IN_REPLAYS, rule)
    edges = replace(dag.edges, rule=rule.astype(np.int8))
    dag = replace(dag, edges=edges, support=PAIRS)
    return TraceGraph(dag, dag.span)


def test_a_learned_rule_sums_up_its_pairs():
    """63 of 64, and the weaker of two chance levels."""
    row = learned().inferences().iloc[0]

    assert row[["rule", "n_pairs", "n_matched", "n_all", "chance"]].tolist() == [
        "recurring in replays", 2, 63, 64, 0.05,
    ]  # fmt: skip


def test_pairs_are_listed_one_by_one():
    """What each dependency rests on, so that a reader can judge it."""
    frame = learned().inferences(by="pair")

    assert frame[
        ["source", "target", "n_matched", "n_all", "distance_ns", "spread_ns", "chance"]
    ].to_numpy().tolist() == [
        ["a", "b", 57, 58, 1_000, 400, 0.02],
        ["c", "d", 6, 6, 900, 100, 0.05],
    ]


def test_quality_has_a_line_for_each_rule_that_made_edges():
    """How many edges, how much of the path, and what they rest on."""
    graph = learned()
    checks = graph.quality().set_index("check")
    row = checks.loc["inferred: recurring in replays"]

    assert (row["n_good"], row["n_all"], row["verdict"]) == (63, 64, "good")
    assert row["consequence"] == (
        "1 edge, 2.00 us (2.3%) of the path; learned from 2 pairs of places, which random times "
        "would match in 5.00% of cases at most."
    )
    assert [name for name in checks.index if name.startswith("inferred")] == [row.name]


def test_a_rule_without_pairs_judges_each_edge_by_itself():
    """All its edges count."""
    dag = drawn_dag(POLLED, names=NAMES)
    row = quality(dag, dag.span).set_index("check").loc["inferred: host polls"]

    assert (row["n_good"], row["n_all"]) == (1, 1)
    assert row["consequence"].endswith("each judged by itself.")


@given(program=programs(max_blocks=3))
def test_time_on_the_path_is_that_of_the_breakdown_by_rule(program):
    """In the whole trace and in its second half; the breakdown adds up to the window."""
    dag = compile_events(simulate(program).events)
    middle = dag.span.start_ns + dag.span.dur_ns // 2
    for window in (dag.span, Window(middle, dag.span.end_ns, "second half")):
        path = TraceGraph(dag, window).critical_path()
        by_rule = path.breakdown(by="rule")["dur_ns"]
        found = inferences(dag, window).set_index("rule")["path_ns"]
        inferred = [rule.label for rule in Rule if rule.evidence is Evidence.INFERRED]

        assert by_rule.sum() == window.dur_ns
        on_path = by_rule[by_rule.index.isin(inferred)]
        assert {k: v for k, v in found.items() if v} == on_path.to_dict()
        marked = path.segments.loc[path.segments["is_inferred"], "dur_ns"].sum()
        assert marked == found.sum()


DRAWING = """
    cpu 1    |[launch >a][sync          ][op]
    stream 7 |    [kernel <a           ]
"""


@pytest.fixture
def graph() -> TraceGraph:
    """A rank that launches a kernel, waits for it, and runs an operator."""
    return drawn_graph(DRAWING)


def test_edges_by_kind_and_rule(graph: TraceGraph) -> None:
    """Of 31 us, the kernel runs for 22, 4 us after its launch; the wait ends 1 us after it."""
    found = graph.kinds()[["kind", "rule", "evidence", "n", "path_ns"]]
    assert list(found.itertuples(index=False, name=None)) == [
        ("span", "duration", "recorded", 1, 22_000),
        ("thread", "program order", "by definition", 4, 4_000),
        ("launch", "correlation", "recorded", 1, 4_000),
        ("sync", "call semantics", "by definition", 1, 1_000),
        ("thread", "blocking call", "by definition", 1, 0),
    ]


def test_events_by_kind(graph: TraceGraph) -> None:
    """The latency of a launch belongs to its kernel."""
    found = graph.kinds(of="events")[["kind", "rule", "n", "path_ns"]]
    assert list(found.itertuples(index=False, name=None)) == [
        ("kernel", "", 1, 26_000),
        ("op", "", 1, 4_000),
        ("runtime", "", 2, 1_000),
    ]


def test_time_in_no_event_is_a_row() -> None:
    """Between two operators no event runs."""
    found = drawn_graph("cpu 1 |[op]    [op]").kinds(of="events")
    assert dict(zip(found["kind"], found["path_ns"], strict=True)) == {
        "op": 8_000,
        "(no event)": 4_000,
    }


@given(programs())
def test_shares_add_up_to_the_window_and_are_those_of_the_path(program) -> None:
    """Of edges and of events, whatever the run; by kind and by rule as a breakdown has them."""
    graph = hg.Trace.from_events(simulate(program).events).compile()
    for of in ("edges", "events"):
        found = graph.kinds(of=of)
        assert found["path_ns"].sum() == graph.dur_ns
    path = graph.critical_path()
    for by in ("kind", "rule"):
        sums = graph.kinds().groupby(by)["path_ns"].sum()
        expected = path.breakdown(by=by)["dur_ns"]
        assert sums[sums > 0].to_dict() == expected[expected > 0].to_dict()
    assert graph.kinds()["n"].sum() == len(graph.edges)
    assert graph.kinds(of="events")["n"].sum() == len(graph.events)


def test_a_notebook_shows_the_same(graph: TraceGraph) -> None:
    """Kinds in words, with their rules."""
    shown = graph._repr_html_()
    assert "correlation" in shown
    assert "of the path" in shown
