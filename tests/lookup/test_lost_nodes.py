"""Replays of captured graphs that lack nodes: each something else, or none is like another."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import htagraph as hg
from htagraph.lookup.holes import lost_nodes
from htagraph.model.recording import DamageKind
from htagraph.synth import timeline
from tests.real_traces import located

VLLM = "tracelens/vllm_piecewise_graph.json.gz"
NODES = "abcdefghijklmno"


def trace(replays: Sequence[str], *, has_ids: bool = False) -> hg.Trace:
    """A trace of replays, each of them a word: a letter is a kernel. Graphs may have ids."""
    cpu = device = ""
    for at, word in enumerate(replays):
        work = "".join(f"[{letter} <g{at}]" for letter in word)
        width = max(len(work), 12) + 8
        cpu += f"[graph >g{at}]".ljust(width) if word else "[graph]".ljust(width)
        device += f"    {work}".ljust(width)
    letters = sorted(set("".join(replays)))
    ids = {"graph_node": {one: ord(one) for one in letters}, "graph_id": dict.fromkeys(letters, 5)}
    drawn = f"cpu 1 |{cpu}\nstream 7 |{device}"
    events = timeline(drawn, columns=ids if has_ids else None)
    return hg.Trace.from_events(events)


def lossy(replays: Sequence[str], *, has_ids: bool = False) -> list[tuple[int, int]]:
    """Replays that lack nodes, and all, of each graph with a loss."""
    dag = trace(replays, has_ids=has_ids).compile(infer=False).dag
    return [(hole.n, hole.n_all) for hole in lost_nodes(dag)]


def without(*letters: str, nodes: str = NODES) -> list[str]:
    """Replays that each lack some letters."""
    return ["".join(one for one in nodes if one not in lacking) for lacking in letters]


@pytest.mark.parametrize(("lacking", "found"), [("ac", []), ("ack", [(3, 11)])])
def test_three_replays_that_lack_nodes_are_a_loss(
    lacking: str, found: list[tuple[int, int]]
) -> None:
    """Of a graph with three whole replays at least; two may be graphs of their own."""
    some = without(*lacking)

    assert lossy([NODES] * 4 + some + [NODES] * 4) == found
    assert lossy([NODES, NODES, *some, NODES[:9], NODES[:9]]) == []


@pytest.mark.parametrize("has_ids", [False, True])
def test_whole_replays_lack_nothing(has_ids: bool) -> None:
    """Graphs of different sizes, each three times."""
    assert lossy([NODES, "abc", "xyz"] * 3, has_ids=has_ids) == []


def test_the_first_and_the_last_replay_may_be_cut() -> None:
    """The first was running when the profile began, the last when it ended."""
    assert lossy(["efg", *[NODES] * 4, *without("a", "c"), NODES, "ab"]) == []


def test_replays_with_ids_are_of_one_graph() -> None:
    """None is whole; without ids these may be graphs of their own."""
    some = ["abc", "bcd", "acd", "ad", "bd", "abcd"]

    assert lossy(some, has_ids=True) == [(4, 6)]
    assert lossy(some) == []


@pytest.mark.parametrize(("n", "found"), [(11, []), (12, [(10, 12)])])
def test_ten_replays_without_ids_are_a_loss(n: int, found: list[tuple[int, int]]) -> None:
    """Each lacks two other nodes of nine; the first and the last show nothing."""
    pairs = [NODES[at] + NODES[at + gap] for gap in (1, 2, 3) for at in range(6)]

    assert lossy(without(*pairs[:n], nodes=NODES[:9])) == found


def test_graphs_for_other_batch_sizes_are_whole() -> None:
    """They share norms and attention, and have products of their own."""
    shared = "abcdefgh"

    assert lossy([shared + own + "z" for own in "ijklmnopqrst"]) == []


def test_replays_of_several_graphs_are_whole() -> None:
    """Twelve graphs run once, but more replays are of one that repeats."""
    pairs = [NODES[at] + NODES[at + gap] for gap in (1, 2, 3) for at in range(4)]
    once = without(*pairs, nodes=NODES[:8])

    assert lossy(once + ["xyz"] * 13) == []
    assert lossy(once + ["xyz"] * 5) == [(11, 17)]


@given(st.data())
def test_kernels_lost_at_random_are_a_loss(data: st.DataObject) -> None:
    """Law: of 30 replays of a graph, from a tenth to 70% of the kernels."""
    seed = data.draw(st.integers(0, 1 << 30))
    share = data.draw(st.sampled_from([0.1, 0.3, 0.5, 0.7]))
    has_ids = data.draw(st.booleans())
    keeps = np.random.default_rng(seed).random((30, len(NODES))) >= share
    words = ["".join(np.array(list(NODES))[row]) for row in keeps]

    assert sum(n for n, _ in lossy(words, has_ids=has_ids)) >= 8


@pytest.mark.parametrize("losing", [False, True])
def test_a_verdict_on_replays_that_lost_kernels_names_no_mechanism(losing: bool) -> None:
    """Gaps inside the replays may be lost kernels: the verdict is withheld, and says why."""
    gone = "".join(NODES[at % 15] for at in range(40))
    lacking = [gone[at] + gone[at + 1 + at // 15] + gone[at + 7] for at in range(30)]
    graph = trace(without(*lacking) if losing else [NODES] * 30).compile()
    verdict = graph.verdict()

    assert (graph.damage()["kind"] == DamageKind.LOST_NODES).any() == losing
    assert bool(verdict.withheld) == losing
    assert (verdict.replays == "") == losing
    assert any("replays of captured graphs" in said for said in verdict.damage) == losing


@pytest.mark.public(VLLM)
@pytest.mark.parametrize(("keeps", "found"), [(1.0, False), (0.9, True), (0.3, True)])
def test_a_real_trace_of_hip_graphs(keeps: float, found: bool) -> None:
    """25 replays of three graphs, of which no ids are recorded; some of their kernels are lost."""
    document = json.loads(gzip.decompress(Path(located(VLLM)).read_bytes()))
    events, rng = document["traceEvents"], np.random.default_rng(1)
    of = [event.get("args", {}).get("correlation", -1) for event in events]
    graphs = {
        at for at, one in zip(of, events, strict=True) if "GraphLaunch" in one.get("name", "")
    }
    keep = (rng.random(len(events)) < keeps) | [
        one.get("cat") != "kernel" or at not in graphs for at, one in zip(of, events, strict=True)
    ]
    document["traceEvents"] = [one for one, kept in zip(events, keep, strict=True) if kept]
    graph = hg.load(json.dumps(document).encode()).compile(infer=False)

    assert (graph.damage()["kind"] == DamageKind.LOST_NODES).any() == found
