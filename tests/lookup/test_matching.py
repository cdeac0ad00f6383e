"""How far a hop of a pattern may lead."""

from __future__ import annotations

import time

import pytest

import htagraph as hg
from htagraph.errors import QueryError, TraceLimitError
from htagraph.lookup import matching


def test_a_hop_follows_up_to_64_edges() -> None:
    """More is a typing error that would run for hours."""
    assert hg.hop("CHILD", at_least=0, at_most=64).at_most == 64
    for at_least, at_most in ((1, 65), (2, 1), (-1, 1)):
        with pytest.raises(QueryError, match=f"cannot follow {at_least} to {at_most} edges"):
            hg.hop("CHILD", at_least=at_least, at_most=at_most)


def test_hops_are_of_kinds_that_exist() -> None:
    """Several at once; a typing error is named."""
    assert hg.hop("launch|CHILD").kinds == ["LAUNCH", "CHILD"]
    with pytest.raises(QueryError, match=r"'LANCH' is no EdgeKind.*did you mean 'LAUNCH'"):
        hg.hop("LANCH")


def test_matches_are_counted_before_they_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """31 of 40 kernels in order are many; building them would take the memory of the machine."""
    kernels = "".join("[k]" for _ in range(40))
    graph = hg.Trace.from_events(hg.synth.timeline(f"stream 7 |{kernels}")).compile()
    every = "kernel" + " -STREAM{1,64}> kernel" * 30
    start = time.perf_counter()
    with pytest.raises(TraceLimitError, match=r"has 273,438,880 matches; 1,082,401 are the most"):
        graph.match(every)

    assert time.perf_counter() - start < 2
    monkeypatch.setattr(matching, "_MOST_JOINED", 38)
    assert len(graph.match("kernel -STREAM> kernel -STREAM> kernel")) == 38
    with pytest.raises(TraceLimitError, match="has 39 matches; 38"):
        graph.match("kernel -STREAM> kernel")
    with pytest.raises(TraceLimitError, match="has 79 pairs of events; 38"):
        graph.match("kernel -STREAM{0,2}> kernel")


def test_a_repeated_hop_finds_each_pair_once_by_its_shortest_chain() -> None:
    """However many ways there are: nested host events lead back and forth."""
    graph = hg.Trace.from_events(hg.synth.timeline("cpu 1 |[a [b [c] [d]][e]]")).compile()
    found = graph.match("op a -THREAD{1,64}> op").frame

    assert sorted(found["op_2"]) == ["a", "b", "c", "d", "e"]
    assert graph.match("op a -THREAD{2}> op").frame["op_2"].tolist() == ["c", "e"]
    assert sorted(graph.match("op c -THREAD{0,1}> op").frame["op_2"]) == ["c", "d"]
    assert sorted(graph.match("op e <THREAD{1,2}- op").frame["op_2"]) == ["a", "b", "d"]
