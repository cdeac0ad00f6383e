"""What a trace lost, and where it stops being one: steps, nodes, clocks, records."""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import htagraph as hg
from htagraph.lookup.damage import WHOLE_PART, lost_nodes
from htagraph.model.kinds import DEVICE_CLOCK_KINDS, EventKind, among
from htagraph.model.recording import DamageKind
from htagraph.reports.summary import Summary
from htagraph.synth import timeline
from tests.event_rows import taken
from tests.lookup.launched import drawing
from tests.real_traces import located
from tests.synth.simulator import simulate
from tests.synth.training import training_rank


def trace(n: int, lost: Collection[int] = (), unlinked: Collection[int] = ()) -> hg.Trace:
    """As many launches, one every 20 us; of some, the kernel or its launch is lost."""
    text = drawing(n, call="launch", lost=lost, unlinked=unlinked)
    return hg.Trace.from_events(timeline(text))


@pytest.mark.parametrize(("n", "window"), [(240, "the whole trace"), (160, WHOLE_PART)])
def test_a_small_hole_is_only_told(n: int, window: str) -> None:
    """Ten launches are 4.2% of 240, and 6.3% of 160."""
    verdict = trace(n, lost=range(100, 110)).compile().verdict()

    assert (verdict.window, bool(verdict.findings)) == (window, True)
    assert " ".join(verdict.damage) == (
        "10 of 10 kernel launches between 2.00 ms and 2.20 ms have no device work: its records "
        "are missing, and the device only seems idle."
    )


@pytest.mark.parametrize(("lost", "is_judged"), [(range(21, 41), True), (range(19, 41), False)])
def test_a_part_of_a_third_is_judged_in_place_of_the_whole(
    lost: Collection[int], is_judged: bool
) -> None:
    """Of sixty launches, the first 21 or 19 are left, and the last 19."""
    verdict = trace(60, lost=lost).compile().verdict()

    assert bool(verdict.findings) == is_judged
    if is_judged:
        assert (verdict.window, verdict.dur_ns) == (WHOLE_PART, 420_000)
    else:
        assert verdict.withheld.startswith("device work or launches of 37% of the critical path")
        assert verdict.withheld.endswith(
            "32% of it can be judged: htagraph report FILE -w 0:380000"
        )


def test_a_window_that_was_asked_for_is_not_replaced() -> None:
    """It is judged, or not; and a part without holes is judged as ever."""
    graph = trace(60, lost=range(21, 41)).compile()

    assert graph.window((300_000, 700_000)).verdict().findings == ()
    assert graph.window((0, 300_000)).verdict().damage == ()


def test_lost_launches_are_lost_too() -> None:
    """Their kernels hang on the start of the window, whatever they waited for."""
    verdict = trace(60, unlinked=range(21, 41)).compile().verdict()

    assert verdict.window == WHOLE_PART
    assert verdict.damage[0].startswith("20 of 20 pieces of device work between 422 us and 813 us")


def test_of_a_device_without_records_nothing_is_judged() -> None:
    """The host alone does not say what limits the run."""
    verdict = trace(30, lost=range(30)).compile().verdict()

    assert "No part of it can be judged" in verdict.withheld
    assert verdict.damage[0].startswith("30 of 30 kernel launches in the whole trace")


def test_a_report_is_on_the_part_and_says_so() -> None:
    """With the option for all of it."""
    one = trace(60, lost=range(21, 41))
    summary = Summary.of(one, one.compile())

    assert summary.window_name == WHOLE_PART
    assert summary.caveats == [f"Left out: 773 us around {WHOLE_PART} (-w trace: all)."]
    assert Summary.of(one, one.compile(), "trace").verdict.findings == ()


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((4, 5, 6), []),
        ((4, 6, 9), ["1 step between ProfilerStep#4 and ProfilerStep#6 is missing",
                     "2 steps between ProfilerStep#6 and ProfilerStep#9 are missing"]),
        ((4, 4, 6), []),
    ],
)  # fmt: skip
def test_the_numbers_of_steps_tell_which_are_missing(numbers, said):
    """The profiler counts up by one; two threads may both have steps."""
    steps = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 1, "tid": 1,
         "ts": 100 * place, "dur": 90}
        for place, number in enumerate(numbers)
    ]  # fmt: skip
    found = hg.load(json.dumps({"traceEvents": steps}).encode()).compile().damage()

    assert [one.split(":")[0] for one in found["consequence"]] == said


VLLM = "tracelens/vllm_piecewise_graph.json.gz"
NODES = "abcdefghijklmno"


def lost_nodes_trace(replays: Sequence[str], *, has_ids: bool = False) -> hg.Trace:
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
    dag = lost_nodes_trace(replays, has_ids=has_ids).compile(infer=False).dag
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
    graph = lost_nodes_trace(without(*lacking) if losing else [NODES] * 30).compile()
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


@pytest.mark.parametrize(
    ("back_ns", "kinds"), [(0, []), (200_000, []), (2_000_000, ["lost times"])]
)
def test_a_clock_that_was_set_back_is_damage(back_ns, kinds):
    """By more than two clocks of one machine are apart: work begins before its launch."""
    events = simulate(training_rank(steps=2, layers=2)).events
    at_ns = int(np.median(events.ts_ns))
    moved = np.where(events.ts_ns > at_ns, events.ts_ns - back_ns, events.ts_ns)
    found = hg.Trace.from_events(replace(events, ts_ns=moved)).compile().damage()

    assert found["kind"].tolist() == kinds
    if kinds:
        assert "a clock was set during the capture" in found["consequence"][0]


@pytest.mark.parametrize(("early_us", "kinds"), [(0, []), (150, []), (250, ["lost times"])])
def test_waits_that_end_long_before_their_work_are_damage(early_us, kinds):
    """Work begins before its launch and ends with the wait: no shift of its clock mends both."""
    early = " " * early_us
    events = timeline(f"""
        cpu 1    |{early}   [L >a][streamsync @7 ]
        stream 7 |   [k <a {early}               ]
    """)
    found = hg.Trace.from_events(events).compile().damage()

    assert found["kind"].tolist() == kinds


@given(
    ahead_ns=st.integers(300_000, 5_000_000),
    since=st.sampled_from([0.0, 0.25, 0.5]),
    has_records=st.booleans(),
)
def test_a_device_clock_that_was_set_forward_is_moved_back_or_damage(ahead_ns, since, has_records):
    """Law: by any time, from any part of the run on, no bound changes silently."""
    events = simulate(training_rank(steps=4, layers=2, fault="sync_in_loop")).events
    events = taken(events, np.flatnonzero(has_records | (events.kind != EventKind.SYNC)))
    is_ahead = among(events.kind, DEVICE_CLOCK_KINDS)
    is_ahead &= events.ts_ns >= int(np.quantile(events.ts_ns, since))
    ahead = replace(events, ts_ns=events.ts_ns + np.where(is_ahead, ahead_ns, 0))
    was, now = (shares(hg.Trace.from_events(one).compile()) for one in (events, ahead))
    moved = [abs(was.get(bound, 0) - now.get(bound, 0)) for bound in was | now]

    assert len(hg.Trace.from_events(ahead).compile().damage()) or max(moved) < 0.05


def shares(graph):
    """Share of each bound of the path."""
    sums = graph.critical_path().sums()
    return dict(zip(sums["bound"], sums["dur_ns"] / sums["dur_ns"].sum(), strict=True))
