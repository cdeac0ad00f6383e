"""FLOW edges: forward to backward, and threads that work for others."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import htagraph as hg
from htagraph.compiler.passes import compile_events
from htagraph.model.dag import Dag
from htagraph.model.rules import Rule
from tests.drawn import drawn_dag


def test_a_backward_operator_comes_after_its_forward_operator(arrows):
    """The file's fwdbwd flow joins the two."""
    dag = drawn_dag("""
        cpu 1    |[aten::mm ~>f]
        cpu 2    |                  [MmBackward0 ~<f]
    """)

    assert ("aten::mm>", "MmBackward0<", 0) in arrows(dag, "flow")


def test_each_pair_of_operators_has_its_own_flow(arrows):
    """Backward runs in the opposite order."""
    dag = drawn_dag("""
        cpu 1    |[aten::mm ~>f][aten::add ~>g]
        cpu 2    |                               [AddBackward0 ~<g][MmBackward0 ~<f]
    """)

    assert arrows(dag, "flow") == [
        ("aten::add>", "AddBackward0<", 0),
        ("aten::mm>", "MmBackward0<", 0),
    ]


def test_the_caller_of_backward_waits_for_the_autograd_thread(arrows):
    """The caller records nothing while autograd runs: it hands over and gets back."""
    dag = drawn_dag("""
        cpu 1    |[aten::mm ~>f]                                          [Optimizer.step]
        cpu 2    |                  [MmBackward0 ~<f] [AccumulateGrad]
    """)

    assert arrows(dag, "flow") == [
        ("AccumulateGrad>", "Optimizer.step<", 0),
        ("aten::mm>", "MmBackward0<", 0),
        ("aten::mm>", "MmBackward0<", 0),
    ]
    assert ("aten::mm>", "Optimizer.step<", 0) in arrows(dag, "thread")


def test_an_autograd_thread_is_known_by_what_it_begins_with(arrows):
    """Hooks of gradients run on it, too, and may be more than the functions."""
    dag = drawn_dag("""
        cpu 1    |[aten::mm]                                                                  [step]
        cpu 2    |           [AddmmBackward0][aten::item][aten::select][aten::select][aten::item]
    """)

    assert ("aten::mm>", "AddmmBackward0<", 0) in arrows(dag, "flow")


def test_a_caller_that_runs_a_function_itself_waits_again(arrows):
    """Parameters on the host are the caller's: it runs their function, then waits for the end."""
    dag = drawn_dag("""
        cpu 1    |[aten::mm]                 [AccumulateGrad]                                 [step]
        cpu 2    |           [AddmmBackward0]  [MmBackward0      ][ReluBackward0][TBackward0]
    """)

    assert arrows(dag, "flow") == [
        ("AddmmBackward0>", "AccumulateGrad<", 0),
        ("TBackward0>", "step<", 0),
        ("aten::mm>", "AddmmBackward0<", 0),
    ]


def test_a_worker_that_was_idle_begins_another_burst_after_the_callers_function(arrows):
    """The autograd thread starts after the caller's own function: nothing went on beside it."""
    dag = drawn_dag("""
        cpu 1    |[aten::mm]                 [AccumulateGrad]                                 [step]
        cpu 2    |           [AddmmBackward0]                  [ReluBackward0][TBackward0]
    """)

    assert arrows(dag, "flow") == [
        ("AccumulateGrad>", "ReluBackward0<", 0),
        ("AddmmBackward0>", "AccumulateGrad<", 0),
        ("TBackward0>", "step<", 0),
        ("aten::mm>", "AddmmBackward0<", 0),
    ]


def test_a_caller_between_two_functions_of_its_own_waits_for_the_one_that_runs(arrows):
    """The worker begins nothing in that gap; its function is under way, and its end is the news."""
    dag = drawn_dag("""
        cpu 1    |[aten::mm]                 [AccumulateGrad]       [AccumulateGrad]             [s]
        cpu 2    |           [AddmmBackward0]  [MmBackward0       ]                  [TBackward0]
    """)

    assert arrows(dag, "flow") == [
        ("AccumulateGrad>", "TBackward0<", 0),
        ("AddmmBackward0>", "AccumulateGrad<", 0),
        ("MmBackward0>", "AccumulateGrad<", 0),
        ("TBackward0>", "s<", 0),
        ("aten::mm>", "AddmmBackward0<", 0),
    ]


def test_a_thread_that_steps_the_profiler_is_a_caller(arrows):
    """A capture may begin inside of a backward pass that its own thread runs."""
    dag = drawn_dag("""
        cpu 1    |[AddmmBackward0]  {ProfilerStep#1           }
        cpu 2    |[aten::a]                                     [aten::b]
    """)

    assert arrows(dag, "flow") == []


def test_autograd_threads_are_known_by_name_where_the_file_has_no_flows(arrows):
    """Older files have no fwdbwd flows; their operators are still called backward."""
    dag = drawn_dag("""
        cpu 1    |[aten::mm]                                                       [step]
        cpu 2    |             [AddmmBackward]    [torch::autograd::AccumulateGrad]
    """)

    assert arrows(dag, "flow") == [
        ("aten::mm>", "AddmmBackward<", 0),
        ("torch::autograd::AccumulateGrad>", "step<", 0),
    ]


def test_the_last_event_of_a_burst_may_end_after_it_woke_the_caller(arrows):
    """The last callback wakes the caller, then cleans up: the caller resumed before that."""
    dag = drawn_dag("""
        cpu 1    |[aten::mm]                                                               [step]
        cpu 2    |             [AddmmBackward]    [AccumulateGrad        [inner]            ]
    """)

    assert arrows(dag, "flow") == [("aten::mm>", "AddmmBackward<", 0), ("inner>", "step<", 0)]


@pytest.mark.parametrize(("more", "n_handoffs"), [("", 2), ("[aten::add]", 0)])
def test_a_thread_that_runs_mostly_autograd_functions_is_an_autograd_thread(
    arrows, more, n_handoffs
):
    """Two functions are more than half of three operators, and no more than half of four."""
    dag = drawn_dag(f"""
        cpu 1    |[aten::mm]{"":80}[step]
        cpu 2    |           [aten::item][AddmmBackward0][MmBackward0]{more}
    """)

    assert len(arrows(dag, "flow")) == n_handoffs


def test_autograd_works_for_the_thread_whose_operators_it_takes_back(arrows):
    """Even if another thread runs more."""
    dag = drawn_dag("""
        cpu 1    |[aten::mm ~>f]                    [step]
        cpu 2    |               [MmBackward0 ~<f]
        cpu 3    |[aten::a]                               [aten::b][aten::c][aten::d][aten::e]
    """)

    assert ("MmBackward0>", "step<", 0) in arrows(dag, "flow")


def test_autograd_without_flows_works_for_the_thread_that_runs_most(arrows):
    """Here not for the first one."""
    dag = drawn_dag("""
        cpu 1    |[aten::a]                               [aten::b]
        cpu 2    |                     [MmBackward0]
        cpu 3    |[aten::mm][aten::mm]               [step]
    """)

    assert arrows(dag, "flow") == [("MmBackward0>", "step<", 0), ("aten::mm>", "MmBackward0<", 0)]


def test_a_thread_that_goes_on_working_was_not_waited_for(arrows):
    """Its work reaches far beyond the caller's gap, so the caller did not wait for it."""
    dag = drawn_dag("""
        cpu 1    |[aten::mm]                                         [step]
        cpu 2    |             [AddmmBackward]    [torch::autograd::AccumulateGrad]
    """)

    assert arrows(dag, "flow") == []


def test_a_thread_without_any_sign_of_autograd_hands_over_nothing(arrows):
    """Two threads that happen to alternate are not known to wait for each other."""
    dag = drawn_dag("""
        cpu 1    |[aten::mm]                   [aten::add]
        cpu 2    |             [pin_memory  ]
    """)

    assert arrows(dag, "flow") == []


@pytest.mark.parametrize(("overhang_us", "n_handoffs"), [(7, 2), (14, 0)])
def test_the_last_event_ends_within_a_tenth_of_the_burst_after_the_gap(
    arrows, overhang_us, n_handoffs
):
    """The burst is of 100 us."""
    dag = drawn_dag(f"""
        cpu 1    |[aten::mm]{"":100}[step]
        cpu 2    |{"":10}[AddmmBackward{"":{85 + overhang_us}}]
    """)

    assert len(arrows(dag, "flow")) == n_handoffs


def trace_of(lines: str, *points: tuple[str, int, int, dict[str, Any]]) -> hg.TraceGraph:
    """Graph of slices, ``name tid start end`` a line, and of flow points (phase, tid, time)."""
    rows = [line.split() for line in lines.strip().splitlines()]
    events: list[dict[str, Any]] = [
        {"ph": "X", "name": n, "pid": 1, "tid": int(t), "ts": int(a), "dur": int(b) - int(a)}
        for n, t, a, b in rows
    ]
    events += [
        {"ph": ph, "name": "arrow", "cat": "post", "id": 7, "pid": 1, "tid": tid, "ts": ts} | more
        for ph, tid, ts, more in points
    ]
    return hg.load(json.dumps(events).encode()).compile()


def edges(dag: Dag) -> list[tuple[str, str]]:
    """Recorded arrows as written: ``name<`` is the start of an event, ``name>`` its end."""
    rows = dag.edges.take(dag.edges.rule == Rule.RECORDED_FLOW)
    names = dag.events.names()
    return [
        tuple(f"{names[node >> 1]}{'<>'[node & 1]}" for node in pair)
        for pair in zip(rows.tail.tolist(), rows.head.tolist(), strict=True)
    ]


TWO = """
    post 1  0 10
    task 2 30 50
"""
ENCLOSING = {"bp": "e"}


@pytest.mark.parametrize(
    ("finish", "joined"),
    [
        (("f", 2, 20, {}), [("post>", "task<")]),  # the next slice that begins
        (("f", 2, 30, ENCLOSING), [("post>", "task<")]),
        (("f", 2, 20, ENCLOSING), []),  # nothing encloses it
        (("f", 2, 31, {}), []),  # no slice begins after it
        (("t", 2, 30, {}), [("post>", "task<")]),
    ],
)
def test_an_arrow_leads_from_slice_to_slice(finish: Any, joined: list[tuple[str, str]]):
    graph = trace_of(TWO, ("s", 1, 5, {}), finish)

    assert edges(graph.dag) == joined
    quality = graph.quality().set_index("check").loc["arrows of the file join two slices"]
    assert (quality["n_good"], quality["n_all"]) == (len(joined), 1)


def test_an_arrow_from_a_slice_that_goes_on_leaves_from_its_last_boundary():
    graph = trace_of("main 1 0 90\nsend 1 10 20\ntask 2 30 50", ("s", 1, 25, {}), ("f", 2, 30, {}))

    assert edges(graph.dag) == [("send>", "task<")]


def test_an_arrow_whose_slices_the_file_names_leaves_from_the_start_of_a_slice_that_goes_on():
    """Not from what ends inside of it before the arrow begins."""
    events = trace_of(
        "main 1 0 90\nsend 1 10 20\ntask 2 30 50", ("s", 1, 25, {}), ("f", 2, 30, {})
    ).dag.events
    flows = replace(events.flows, event=np.array([0, 2]))

    assert edges(compile_events(replace(events, flows=flows))) == [("main<", "task<")]


def test_an_arrow_into_a_slice_that_has_begun_leads_to_its_next_boundary():
    graph = trace_of(
        "post 1 0 20\nloop 2 5 90\nwork 2 40 60", ("s", 1, 15, {}), ("f", 2, 30, ENCLOSING)
    )

    assert edges(graph.dag) == [("post>", "work<")]


def test_a_step_receives_and_sends():
    graph = trace_of(
        "a 1 0 10\nb 2 20 30\nc 3 40 50",
        ("s", 1, 5, {}),
        ("t", 2, 25, {}),
        ("f", 3, 45, ENCLOSING),
    )

    assert edges(graph.dag) == [("a>", "b<"), ("b>", "c<")]


def test_an_id_that_is_used_again_joins_another_pair():
    graph = trace_of(
        "a 1 0 10\nb 2 20 30\nc 1 40 50\nd 2 60 70",
        ("s", 1, 5, {}),
        ("f", 2, 25, ENCLOSING),
        ("s", 1, 45, {}),
        ("f", 2, 65, ENCLOSING),
    )

    assert edges(graph.dag) == [("a>", "b<"), ("c>", "d<")]


def test_an_end_has_no_start_of_another_id():
    graph = trace_of(TWO, ("s", 1, 5, {"id": 6}), ("f", 2, 30, ENCLOSING))

    assert edges(graph.dag) == []


def test_the_next_slice_begins_after_the_only_one_before():
    graph = trace_of("early 1 3 5\ntask 1 30 50\npost 2 0 2", ("s", 2, 1, {}), ("f", 1, 20, {}))

    assert edges(graph.dag) == [("post>", "task<")]


def test_ends_without_a_start_join_nothing():
    ends = [("f", tid, 10 * tid + 5, ENCLOSING) for tid in (1, 2, 3)]

    assert edges(trace_of("a 1 10 20\nb 2 20 30\nc 3 30 40", *ends).dag) == []


def test_a_thread_that_does_nothing_until_the_arrow_waits_for_it():
    """The path leaves the waiting thread where the arrow began."""
    graph = trace_of(
        "early 2 0 5\nload 1 0 40\ntask 2 50 80", ("s", 1, 39, {}), ("f", 2, 50, ENCLOSING)
    )

    path = graph.critical_path().segments
    assert path[["name", "dur_ns"]].to_numpy().tolist() == [
        ["load", 40_000],
        ["task", 10_000],
        ["task", 30_000],
    ]


def test_an_arrow_that_runs_backward_is_set_aside():
    graph = trace_of("a 1 50 60\nb 2 10 20", ("s", 1, 55, {}), ("f", 2, 56, {}))

    assert edges(graph.dag) == []
