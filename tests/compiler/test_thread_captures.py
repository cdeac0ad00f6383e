"""Real captures of all threads: who works for whom is found, and nothing between strangers."""

from __future__ import annotations

import json
from typing import Any

import pytest

import htagraph as hg
from htagraph.findings.window_bounds import find_bounds
from tests.real_traces import CAPTURES

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
