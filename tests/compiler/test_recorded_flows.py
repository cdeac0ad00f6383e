"""FLOW edges by arrows that the file has: from slice to slice."""

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
