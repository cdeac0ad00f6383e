"""Captured and planted threads: idle workers, stalls, transfers of the host."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import htagraph as hg
from htagraph import load
from htagraph.compiler.passes import compile_events
from htagraph.explain.edge_bounds import edge_bounds
from htagraph.findings.window_bounds import find_bounds
from htagraph.model.dag import Dag
from htagraph.model.events import EventTable
from htagraph.model.kinds import Bound
from htagraph.model.rules import Evidence, Rule
from htagraph.synth import timeline
from tests.real_traces import CAPTURES, located, traces_in

STRANGERS = ("unrelated_random", "unrelated_steady", "unrelated_loop", "prefetch")


def capture(name: str) -> tuple[hg.TraceGraph, dict[str, Any]]:
    """The graph of a capture, and what its script measured."""
    folder = CAPTURES / "threads"
    truth: dict[str, Any] = json.loads((folder / f"{name}.truth.json").read_text())
    return hg.load(folder / f"{name}.pt.trace.json.gz").compile(), truth


@pytest.mark.parametrize(
    ("name", "thread"),
    [
        ("server", "tokenizer"),
        ("server", "inference"),
        ("pool", "slow"),
        ("to_thread", "worker"),
        ("forward", "forward"),
    ],
)
def test_the_path_has_the_time_of_the_thread_that_works(name, thread):
    """Within 10% of what the thread measured; its callers have none of it."""
    graph, truth = capture(name)
    by_track = graph.critical_path().segments.groupby("track")["dur_ns"].sum()
    planted = truth["threads"][thread]
    found_ns = sum(int(by_track[str(tid)]) for tid in planted["tids"])

    assert found_ns / 1e6 == pytest.approx(planted["ms"], rel=0.10)


@pytest.mark.parametrize("name", ["server", "pool", "to_thread", "forward"])
def test_work_of_other_threads_is_the_first_finding(name):
    """Not code of the main thread, which waits for it."""
    graph, _ = capture(name)
    first = find_bounds(graph.critical_path()).findings[0]

    assert (first.cause, first.evidence[0].label) == ("CPU operators", "aten::sort")


def test_a_server_hands_each_request_through_both_threads_and_back():
    """Each of the 20 requests, by what the threads do next to each handoff."""
    graph, _ = capture("server")
    pairs = graph.inferences(by="pair").set_index(["source", "target"])

    assert sorted(pairs.index) == [
        ("end of aten::linear", "end of request"),
        ("end of aten::sort", "start of aten::linear"),
        ("start of request", "start of aten::rand"),
    ]
    assert pairs["n_matched"].tolist() == [20, 20, 19]
    assert pairs["chance"].max() < 0.1


@pytest.mark.parametrize("name", STRANGERS)
def test_nothing_is_inferred_between_threads_that_do_not_wait(name):
    """At random, at one rhythm 1 ms apart, with one pause; a loader that is always ahead."""
    graph, _ = capture(name)

    assert not len(graph.inferences(by="pair"))


def test_code_in_a_thread_that_works_for_others_is_code_of_that_thread():
    """It tokenizes in Python: nothing is recorded, but after whose operator."""
    graph, truth = capture("server_python")
    path = graph.critical_path()
    first = find_bounds(path).findings[0]
    (tokenizer,) = truth["threads"]["tokenizer"]["tids"]

    assert path.segments.groupby("track")["dur_ns"].sum().idxmax() == str(tokenizer)
    assert first.evidence[0].label == "untraced code after aten::rand"


def test_an_operator_that_waits_for_forked_work_names_the_thread_that_ran_it():
    """``torch.jit.wait`` records nothing of its own: the operator may as well do the work."""
    graph, _ = capture("fork")
    first = find_bounds(graph.critical_path()).findings[0]

    assert first.evidence[0].label.startswith("code or a wait in forks, while thread ")
    assert first.evidence[0].label.endswith(" ran <forked function>")


STALLS = traces_in(CAPTURES / "single")


@pytest.mark.parametrize("path", STALLS, ids=lambda path: path.name.split(".")[0])
def test_nothing_is_inferred_of_a_host_that_stalls_by_itself(path):
    """A collection, a lock, JSON, a sleep, a loader: planted, and each its own thread's time."""
    dag = load(path).compile().dag

    assert not np.isin(dag.edges.rule, Rule.on(Evidence.INFERRED)).any()
    assert dag.support == ()


GAP = " " * 200
SERVER = f"""
    cpu 1    |[aten::mm ][launch >a]
    cpu 2    |{{Stage::request }}{GAP}{{Stage::request }}
    cpu 3    |    {{Stage::request }}
    cpu 4    |        {{Stage::request }}
    stream 7 |              [k1 <a  ]
"""


def named(drawing: str, names: dict[int, str]) -> EventTable:
    """A drawing whose threads have names."""
    events = timeline(drawing)
    lanes = events.lanes
    thread = [names.get(tid, old) for tid, old in zip(lanes.tid, lanes.thread, strict=True)]
    return replace(events, lanes=replace(lanes, thread=tuple(thread)))


def pool(drawing: str = SERVER, **options: bool) -> Dag:
    names = {1: "main", 2: "exec11", 3: "exec12", 4: "exec7"}
    return compile_events(named(drawing, names), **options)


def waits(dag: Dag) -> list[int]:
    """Length of each gap in which a thread waits for work, in us."""
    rows = dag.edges.take(dag.edges.rule == Rule.WAITS_FOR_WORK)
    times = dag.events.node_ts_ns
    return ((times[rows.head] - times[rows.tail]) // 1_000).tolist()


def test_a_gap_of_a_thread_of_a_pool_is_a_wait_for_work():
    """Three threads of one name serve requests; 200 us lie between two of the first."""
    dag = pool()
    rows = np.flatnonzero(dag.edges.rule == Rule.WAITS_FOR_WORK).astype(np.int32)

    assert waits(dag) == [200]
    assert edge_bounds(dag, dag.edges.take(rows))[0].tolist() == [Bound.WAITING_FOR_WORK]


def test_what_a_thread_does_inside_of_its_requests_may_differ():
    """Threads are alike by what they are given."""
    inside = SERVER.replace("{Stage::request }", "{Stage::request [own][own]}", 1)
    lines = inside.strip().splitlines()

    assert waits(pool("\n".join([lines[1], lines[0], *lines[2:]]))) == [200]


def test_two_threads_are_no_pool():
    """Nothing says that they are alike by design."""
    assert waits(pool(SERVER.replace("cpu 4", "cpu 3").replace("        {S", "{S"))) == []


def test_a_thread_that_runs_what_no_other_runs_is_of_no_pool():
    """Its time between may be its own, whatever its name."""
    assert (
        waits(pool(SERVER.replace("cpu 2    |{Stage::request }", "cpu 2    |{load_batch     }")))
        == []
    )


@pytest.mark.public("hta/mtia_inference_trace/mtia_inference_rank_0.json.gz")
def test_a_server_of_requests_waits_for_them():
    """Most of its path is the time until the next request, which is no code of anybody."""
    path = load(located("hta/mtia_inference_trace/mtia_inference_rank_0.json.gz")).compile()
    shares = path.critical_path().breakdown(by="bound")["share"]

    assert shares["waiting_for_work"] > 0.65
    assert shares["untraced_code"] < 0.02
    assert shares["unknown_waits"] < 0.05


@pytest.mark.parametrize("names", [{}, {1: "main", 2: "exec11", 3: "worker", 4: "other"}])
def test_threads_of_different_names_are_no_pool(names):
    """Nor are threads without names."""
    dag = compile_events(named(SERVER, {tid: names.get(tid, "") for tid in (1, 2, 3, 4)}))

    assert waits(dag) == []


def test_a_thread_that_launches_device_work_is_of_no_pool():
    """Its gaps delay the device."""
    drawing = SERVER.replace("[aten::mm ][launch >a]", "[aten::mm ]").replace(
        "cpu 2    |{Stage::request }", "cpu 2    |{S [launch >a]   }"
    )

    assert waits(pool(drawing.replace("{S [", "{Stage::request ["))) == []


def test_without_inference_a_gap_is_a_gap():
    """Program order, as recorded."""
    assert waits(pool(infer=False)) == []


def parents(folder: Path, events: list[tuple[str, int, int]]) -> dict[str, str]:
    """The name of each event's parent, by its own name; times in us."""
    rows = [
        {
            "ph": "X",
            "cat": "cpu_op" if "::" in name else "user_annotation",
            "name": name,
            "pid": 1,
            "tid": 1,
            "ts": start,
            "dur": end - start,
        }
        for name, start, end in events
    ]
    (folder / "rank0.json").write_text(json.dumps({"traceEvents": rows}))
    dag = load(folder / "rank0.json").compile().dag
    names = ["", *dag.events.names().tolist()]
    return {name: names[at + 1] for name, at in zip(names[1:], dag.parent.tolist(), strict=True)}


def test_what_runs_until_a_transfer_is_waited_for_is_no_part_of_it(tmp_path: Path) -> None:
    """Nor of the call that began it: the step encloses all."""
    found = parents(
        tmp_path,
        [
            ("ProfilerStep#0", 0, 1_000),
            ("c10d::send", 10, 50),
            ("gloo:send", 40, 600),
            ("aten::mm", 100, 300),
            ("aten::fill_", 120, 150),
            ("c10d::recv_", 310, 350),
            ("gloo:recv", 340, 800),
            ("aten::add", 400, 550),
            ("aten::mul", 620, 700),
        ],
    )
    step = "ProfilerStep#0"
    assert found == {
        step: "",
        "c10d::send": step,
        "gloo:send": "c10d::send",
        "aten::mm": step,
        "aten::fill_": "aten::mm",
        "c10d::recv_": step,
        "gloo:recv": "c10d::recv_",
        "aten::add": step,
        "aten::mul": step,
    }


def test_a_transfer_within_its_call_encloses_what_it_does(tmp_path: Path) -> None:
    """A call that blocks until it is done."""
    found = parents(
        tmp_path, [("c10d::send", 0, 500), ("gloo:send", 10, 490), ("aten::copy_", 20, 60)]
    )
    assert found["aten::copy_"] == "gloo:send"
