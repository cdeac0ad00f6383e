"""Threads of a pool wait for work in their gaps, which are no time of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from htagraph import load
from htagraph.compiler.passes import compile_events
from htagraph.explain.edge_bounds import edge_bounds
from htagraph.model.dag import Dag
from htagraph.model.events import EventTable
from htagraph.model.kinds import Bound
from htagraph.model.rules import Rule
from htagraph.synth import timeline
from tests.real_traces import located

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
    assert edge_bounds(dag, dag.edges.take(rows)).tolist() == [Bound.WAITING_FOR_WORK]


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
