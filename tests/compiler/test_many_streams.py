"""Traces with very many streams or devices: work that does not grow with their number squared."""

from __future__ import annotations

import numpy as np
import pytest

import htagraph as hg
from htagraph.arrays import binding
from htagraph.compiler import passes, structure, syncs
from htagraph.errors import TraceLimitError
from htagraph.lookup import matching
from htagraph.model.events import EventTable
from htagraph.run.graph import TraceGraph
from htagraph.run.trace import Trace
from htagraph.synth import timeline


def streams(n: int) -> EventTable:
    """Kernels on streams of their own, launched one after the other, and a wait for all."""
    launches = "".join(f"[launch >k{k}]" for k in range(n))
    lines = [f"cpu 1 |{launches}[sync             ]"]
    at = 0
    for k in range(n):
        lines.append(f"stream {k + 1} |" + " " * (at + 4) + f"[gemm <k{k}    ]")
        at += len(f"[launch >k{k}]")
    return timeline("\n".join(lines))


def sorted_rows(monkeypatch: pytest.MonkeyPatch, events: EventTable) -> int:
    """Rows that are sorted to find what ran before what, while a trace is compiled."""
    n_rows = 0
    join = structure.last_before

    def counted(group: np.ndarray, time: np.ndarray, *query: np.ndarray) -> np.ndarray:
        nonlocal n_rows
        n_rows += len(group) + len(query[0])
        return join(group, time, *query)

    with monkeypatch.context() as patch:
        patch.setattr(structure, "last_before", counted)
        passes.compile_events(events)
    return n_rows


def test_four_times_the_streams_are_four_times_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work of one stream is found in the rows of that stream."""
    few, many = (sorted_rows(monkeypatch, streams(n)) for n in (8, 32))

    assert many <= 5 * few


def test_more_streams_than_any_trace_has_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is named; up to it, a graph is made."""
    assert structure.MAX_STREAMS == 4096
    monkeypatch.setattr(structure, "MAX_STREAMS", 8)

    passes.compile_events(streams(8))
    with pytest.raises(TraceLimitError, match="9 streams run work; a graph has at most 8"):
        passes.compile_events(streams(9))


def test_waits_that_go_back_over_too_many_edges_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every stream of many was idle for as long as the trace lasts: the limit is named."""
    graph: TraceGraph = Trace.from_events(streams(8)).compile()
    assert len(graph.idle_time(per="stream"))
    monkeypatch.setattr(binding, "MOST_STEPS", 1)
    monkeypatch.setattr(binding, "MOST_STEPS_PER_EDGE", 0)

    with pytest.raises(TraceLimitError, match=r"waits go back over .* edges; 1 are the most"):
        graph.idle_time(per="stream")


def test_calls_that_may_wait_for_too_many_streams_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each call is compared with each stream: the limit of these pairs is named."""
    monkeypatch.setattr(syncs, "_MOST_PAIRS", 7)

    with pytest.raises(TraceLimitError, match="1 calls may wait for 8 streams each"):
        passes.compile_events(streams(8))


def test_launches_under_too_many_events_cannot_be_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch is paired with each event around it: the limit of these pairs is named."""
    graph = Trace.from_events(streams(8)).compile()
    chain = hg.launch(), "LAUNCH", hg.kernel()
    assert len(graph.match(*chain)) == 8
    monkeypatch.setattr(matching, "_MOST_PAIRS", 7)

    with pytest.raises(TraceLimitError, match="lies under more than 7 host events"):
        graph.match(*chain)
