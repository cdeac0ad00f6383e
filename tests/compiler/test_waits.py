"""Waits that nobody recorded: of allocators, of the system, of hidden syncs."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from htagraph.compiler.passes import compile_events
from htagraph.compiler.recurrences import Candidates, Sources, Waits, recurring
from htagraph.explain.attributed_time import attributed_time
from htagraph.explain.critical_path import critical_path
from htagraph.model.api_calls import OS_CALLS
from htagraph.model.dag import Dag
from htagraph.model.events import EventTable
from htagraph.model.kinds import Cause, EventKind
from htagraph.model.rules import Rule
from htagraph.model.symbols import SymbolTable
from htagraph.synth import timeline
from tests.drawn import drawn_dag
from tests.synth.program import (
    Graph,
    GraphNode,
    Launch,
    Machine,
    Op,
    Program,
    Replay,
    Spend,
    Synchronize,
    Work,
)
from tests.synth.simulator import simulate

_NAMES = {"F": "cudaMalloc", "R": "cudaFree", "M": "cudaMalloc"}


def retry(left_us: int = 40, silent_us: int = 400, *, inside: str = "", again: str = "[M ]") -> str:
    """An allocation that fails (F), silence, two calls that free (R), an allocation (M)."""
    silence = f"{inside:^{silent_us}}"
    runs = " " * (9 + silent_us - left_us)
    return f"""
        cpu 1    |[launch >a][aten::cat [F ]{silence}[R ][R ]{again}]
        stream 20|    [SendRecv <a{runs}]
    """


def test_an_allocator_that_frees_has_waited_for_work_of_the_device(arrows, rules):
    """The allocation fails, nothing is recorded for 400 us, and 40 us before its end work ends."""
    dag = drawn_dag(retry(), names=_NAMES)

    assert arrows(dag, "hidden_sync") == [("SendRecv>", "cudaFree<", 0)]
    assert rules(dag, "hidden_sync") == {"cudaFree<": "allocator waits"}


def test_the_wait_is_work_of_the_device_and_what_follows_is_allocation():
    """Of 439 us, 382 are the kernel; what the host does next is charged to the allocator."""
    dag = drawn_dag(retry(), names=_NAMES | {"SendRecv": "ncclDevKernel_SendRecv"})
    segments = critical_path(dag, dag.span)
    by_bound = segments.groupby("bound", observed=True)["dur_ns"].sum()
    causes = attributed_time(dag, segments).groupby("cause")["dur_ns"].sum()

    assert by_bound["communication"] == 382_000
    assert causes[Cause.ALLOCATION] == 53_000


@pytest.mark.parametrize(
    ("drawing", "why"),
    [
        (retry(again=""), "what frees and allocates no more was short of nothing"),
        (retry(again="][aten::add [M ]"), "another operator allocates next"),
        (retry(inside="[aten::empty]"), "the thread did something"),
        (retry().replace("[aten::cat [F ]", "{range     [F ]").replace("]]", "]}"), "no operator"),
        (retry(inside="[cudaEventQuery]"), "the thread called something"),
        (
            f"{retry()}cpu 2    |{'':200}[launch >b]\nstream 20|{'':389}[gemm <b]",
            "another thread launched what ended last",
        ),
        (f"{retry()}stream 7 |{'':300}[gemm    ]", "work of two streams ended"),
    ],
)
def test_there_is_no_edge_without_the_whole_pattern(arrows, drawing, why):
    """Each drawing lacks one thing."""
    names = {short: name for short, name in _NAMES.items() if f"[{short} " in drawing}

    assert arrows(drawn_dag(drawing, names=names), "hidden_sync") == [], why


def test_a_call_that_says_that_it_waits_is_enough(arrows):
    """Newer profilers record cudaEventSynchronize."""
    dag = drawn_dag(retry(inside=f"[cudaEventSynchronize{' ' * 337}]"), names=_NAMES)

    assert arrows(dag, "hidden_sync") == []
    assert arrows(dag, "sync") == [("SendRecv>", "cudaEventSynchronize>", 0)]


@pytest.mark.parametrize(
    ("left_us", "silent_us", "n"),
    [
        (50, 400, 1),
        (51, 400, 0),
        (200, 4_000, 1),
        (201, 4_000, 0),
        (5, 200, 0),
        (5, 201, 1),
    ],
)
def test_the_allocator_frees_soon_after_the_work_has_ended(left_us, silent_us, n):
    """Within an eighth of its wait, and 200 us; it needs up to 200 us of its own."""
    dag = drawn_dag(retry(left_us, silent_us), names=_NAMES)

    assert int((dag.edges.rule_names == "allocator waits").sum()) == n


def test_hip_frees_in_the_same_way(rules):
    """PyTorch's allocator is one, by other names."""
    dag = drawn_dag(retry(), names={"F": "hipMalloc", "R": "hipFree", "M": "hipMalloc"})

    assert rules(dag, "hidden_sync") == {"hipFree<": "allocator waits"}


# Profilers leave cudaEventSynchronize out: the host stands still until k1 has ended.
_TIMED = """
    cpu 1    |[L >a][R         ]                                        [E         ][op            ]
    stream 7 |    [k1 <a                                             ]
"""
_NAMES_HIDDEN_SYNCS = {"L": "cudaLaunchKernel", "R": "cudaEventRecord", "E": "cudaEventElapsedTime"}


def test_a_gap_before_an_elapsed_time_that_ends_with_device_work_is_a_wait(arrows, rules):
    """Elapsed time needs completed events, so its caller waited for them."""
    dag = drawn_dag(_TIMED, names=_NAMES_HIDDEN_SYNCS)

    assert arrows(dag, "hidden_sync") == [("k1>", "cudaEventElapsedTime<", 0)]
    assert rules(dag, "hidden_sync") == {"cudaEventElapsedTime<": "host polls"}


def test_the_gap_is_the_kernel_s_time_and_what_follows_is_charged_to_the_wait():
    """The host was blocked for 38 us, so what follows is charged to the wait for as long."""
    dag = drawn_dag(_TIMED, names=_NAMES_HIDDEN_SYNCS)
    segments = critical_path(dag, dag.span)
    by_bound = segments.groupby("bound", observed=True)["dur_ns"].sum()
    causes = attributed_time(dag, segments).groupby("cause")["dur_ns"].sum()

    assert by_bound["compute"] == 52_000
    assert "untraced_code" not in by_bound
    assert causes[Cause.GPU_SYNCHRONIZATION] == 30_000


def test_work_that_goes_on_behind_the_record_is_not_waited_for(arrows):
    """Only what was enqueued before the event record had to end."""
    dag = drawn_dag(
        """
        cpu 1    |[L >a][R    ][L >b]                                  [E           ]
        stream 7 |    [k1 <a                                         ][k2 <b             ]
        """,
        names=_NAMES_HIDDEN_SYNCS,
    )

    assert arrows(dag, "hidden_sync") == [("k1>", "cudaEventElapsedTime<", 0)]


def test_a_gap_that_ends_long_after_all_device_work_is_no_wait(arrows):
    """The host did something of its own for 70 us."""
    gap = " " * 80
    dag = drawn_dag(
        f"""
        cpu 1    |[L >a][R         ]{gap}[E         ]
        stream 7 |    [k1 <a                    ]
        """,
        names=_NAMES_HIDDEN_SYNCS,
    )

    assert arrows(dag, "hidden_sync") == []


def test_a_gap_before_another_call_is_no_wait(arrows):
    """A launch needs nothing completed: that it follows the end of a kernel is chance."""
    dag = drawn_dag(_TIMED, names=_NAMES_HIDDEN_SYNCS | {"E": "cudaEventQuery"})

    assert arrows(dag, "hidden_sync") == []


def test_mtia_synchronizes_by_other_names(rules):
    """``synchronizeStream`` calls ``synchronize``, and both wait for the work of their stream."""
    events = timeline(
        """
        cpu 1    |[L >a][synchronizeStream [synchronize                      ]]
        stream 7 |    [k1 <a                                             ]
        """,
        names={"L": "cudaLaunchKernel"},
    )
    calls = events.named(events.symbols.mask(lambda name: name.startswith("synchronize")))
    dag = compile_events(
        replace(events, kind=np.where(calls, EventKind.RUNTIME, events.kind).astype(np.int8))
    )

    assert rules(dag, "sync") == {
        "synchronize>": "call semantics",
        "synchronizeStream>": "call semantics",
    }


_WAITS = ("pthread_cond_wait", "poll")


def _drawn(drawing: str) -> EventTable:
    """Events of a drawing; those that are named as calls of the operating system are such."""
    events = timeline(drawing)
    is_wait = np.isin(events.names(), _WAITS)
    symbols = SymbolTable((*events.symbols.texts, OS_CALLS))
    return replace(
        events,
        kind=np.where(is_wait, EventKind.RUNTIME, events.kind).astype(np.int8),
        category=np.where(is_wait, len(symbols) - 1, events.category).astype(np.int32),
        symbols=symbols,
    )


def _path(dag: Dag) -> list[tuple[str, str]]:
    """Bound and name of each segment; neighbors that are alike are one."""
    segments = critical_path(dag, dag.span)[["bound", "name"]].astype(str)
    rows = list(segments.itertuples(index=False, name=None))
    return [row for row, before in zip(rows, [None, *rows], strict=False) if row != before]


def _arrows(dag: Dag, rule: Rule) -> list[tuple[str, str]]:
    """Tails and heads of the edges of a rule."""
    edges, names = dag.edges.take(dag.edges.rule == rule), dag.events.names
    return sorted(zip(names(edges.tail >> 1), names(edges.head >> 1), strict=True))


def test_a_thread_that_waits_for_autograd_in_a_call_hands_over_as_in_a_gap():
    """The path runs through the backward pass, and no nanosecond of it is the wait's."""
    dag = compile_events(
        _drawn("""
            cpu 1 |[aten::mm ~>f][pthread_cond_wait                 ][aten::add]
            cpu 2 |                [MmBackward0 ~<f][AddBackward0 ]
        """)
    )

    assert _arrows(dag, Rule.HANDOFF) == [
        ("AddBackward0", "pthread_cond_wait"),
        ("pthread_cond_wait", "MmBackward0"),
    ]
    assert [name for bound, name in _path(dag) if bound == "host"] == [
        "aten::mm",
        "MmBackward0",
        "AddBackward0",
        "aten::add",
    ]


def test_a_wait_that_nothing_explains_is_named():
    """It is no untraced code."""
    dag = compile_events(_drawn("cpu 1 |[aten::mm][poll         ][aten::add]"))

    assert _path(dag) == [("host", "aten::mm"), ("host", "poll"), ("host", "aten::add")]


def test_a_wait_does_not_end_a_window():
    """A thread that has nothing to do any more often waits for the end of its process."""
    drawing = """
        cpu 1    |[aten::mm [launch >a]]             [poll                 ]
        cpu 2    |      [poll                                                    ]
        stream 7 |                             [k <a]
    """
    dag = compile_events(_drawn(drawing))
    events = dag.events

    assert dag.span.end_ns == events.end_ns[np.flatnonzero(events.is_device)].max()


N_REPLAYS = 12
MACHINE = Machine(launch_latency_ns=5_000, stream_gap_ns=800, stream_wait_ns=1_100)


def replayed(*, waits: bool, machine: Machine = MACHINE, seed: int = 0) -> Dag:
    """Replays of six kernels on stream 7, and two on stream 20, the second of which may wait."""
    draw = random.Random(seed)  # noqa: S311  no secret

    def graph() -> Graph:
        main = tuple(
            GraphNode(Work(f"layer{i}", draw.randint(60_000, 120_000)), 7) for i in range(6)
        )
        side = GraphNode(Work("prepare", draw.randint(10_000, 90_000)), 20)
        after = (3,) if waits else ()
        join = GraphNode(Work("exchange", 15_000), 20, after=after)
        return Graph((*main, side, join), records_nodes=False)

    warm_up = tuple(
        action for _ in range(24) for action in (Launch(Work("warm_up", 9_000)), Spend(60_000))
    )
    body = tuple(
        action
        for _ in range(N_REPLAYS)
        for action in (Op("replay", (Replay(graph()),)), Synchronize(), Spend(30_000))
    )
    program = Program((*warm_up, *body), machine, sync_records=False, sync_calls=False, seed=seed)
    return compile_events(simulate(program).events)


def learnt(dag: Dag) -> list[tuple[str, str]]:
    """Source and target of each learnt edge."""
    rows = dag.edges.take(dag.edges.rule == Rule.RECURRING_IN_REPLAYS)
    name = dag.events.names
    return list(zip(name(rows.tail >> 1), name(rows.head >> 1), strict=True))


def test_a_kernel_that_starts_right_after_another_streams_in_every_replay_waits_for_it():
    """The launch is long past, and no record names the node; twelve of twelve do."""
    dag = replayed(waits=True)

    assert learnt(dag) == [("layer3", "exchange")] * N_REPLAYS


def test_a_learnt_pair_has_its_support_its_distance_and_its_chance_level():
    """Twelve of twelve, 1.1 us after the end; a random instant matches in less than one of 100."""
    (pair,) = replayed(waits=True).support

    assert (pair.source, pair.target) == ("layer3 (stream 7)", "exchange (stream 20)")
    assert (pair.n_matched, pair.n_all) == (N_REPLAYS, N_REPLAYS)
    assert (pair.distance_ns, pair.spread_ns) == (1_100, 0)
    assert 0 < pair.chance < 0.01


def test_kernels_that_wait_for_nothing_have_no_learnt_dependency():
    """Some kernel of the busy stream always ended a little before; none of them every time."""
    for seed in range(20):
        assert learnt(replayed(waits=False, seed=seed)) == []


@pytest.mark.parametrize(("calls", "n_learnt"), [(("a", "j"), 8), (("j", "a"), 0)])
def test_no_stream_waits_for_what_was_launched_later(calls, n_learnt):
    """An event is recorded before it is waited for: what came to the queue later is no source."""
    lines = dict.fromkeys(["cpu 1", "stream 7", "stream 20"], "")
    for i in range(8):
        first, second = calls
        step = {
            "cpu 1": f"[launch >{first}{i}][launch >z{i}][launch >{second}{i}]",
            "stream 7": f"{'':50}[A <a{i} {'':190}][z <z{i} {'':40}]",
            "stream 20": f"{'':250}[join <j{i}]",
        }
        lines = {name: line + step[name].ljust(500) for name, line in lines.items()}
    dag = drawn_dag("\n".join(f"{name} |{line}" for name, line in lines.items()))

    assert learnt(dag) == [("A", "join")] * n_learnt


def test_without_inference_nothing_is_learnt():
    """The edges and what they rest on are gone."""
    draw = replayed(waits=True)
    dag = compile_events(draw.events, infer=False)

    assert learnt(dag) == []
    assert dag.support == ()


def _after_each(n_replays: int, distance_us: int, wait_us: int, *, others: str = "") -> Dag:
    """Join always starts so long after A, ready since p ended 30 us after launch."""
    lines = {"cpu 1": "", "stream 7": "", "stream 20": ""}
    start = 30 + wait_us
    for i in range(n_replays):
        replay = {
            "cpu 1": f"[graph >g{i:02d}]",
            "stream 7": f"{'':30}{others.replace('>', f' <g{i:02d}')}[A <g{i:02d}",
            "stream 20": f"{'':10}[p <g{i:02d}".ljust(29) + "]".ljust(wait_us + 1),
        }
        replay["stream 7"] = replay["stream 7"].ljust(start - distance_us - 1) + f"][B <g{i:02d}"
        replay["stream 7"] = replay["stream 7"].ljust(start + 59) + "]"
        replay["stream 20"] += f"[join <g{i:02d}]"
        lines = {name: lines[name] + replay[name].ljust(start + 100) for name in lines}
    drawing = "\n".join(f"{name} |{line}" for name, line in lines.items())
    return drawn_dag(drawing)


@pytest.mark.parametrize(("distance_us", "n_learnt"), [(20, 3), (26, 0)])
def test_chance_would_yield_three_such_waits_once_in_ten_thousand_traces(distance_us, n_learnt):
    """Each of three waits takes 500 us; a match by chance is 4% likely, or 5%."""
    assert learnt(_after_each(3, distance_us, wait_us=500)) == [("A", "join")] * n_learnt


@pytest.mark.parametrize(("distance_us", "n_learnt"), [(4, 2), (6, 0)])
def test_two_waits_are_enough_if_they_are_long(distance_us, n_learnt):
    """Each takes 500 us; a match by chance is 0.8% likely, or 1.2%: of both, 0.0064%, or 0.014%."""
    assert learnt(_after_each(2, distance_us, wait_us=500)) == [("A", "join")] * n_learnt


def test_once_is_nothing():
    """However long the wait."""
    assert learnt(_after_each(1, 2, wait_us=5_000)) == []


@pytest.mark.parametrize(("wait_us", "n_learnt"), [(100, 20), (50, 0)])
def test_what_is_near_at_any_time_is_no_evidence_however_often_it_comes(wait_us, n_learnt):
    """The end of A, 15 us before, is near in 15% of the wait, or in 30% of it."""
    assert learnt(_after_each(20, 15, wait_us)) == [("A", "join")] * n_learnt


@pytest.mark.parametrize(("distance_us", "n_learnt"), [(40, 20), (41, 0)])
def test_a_source_ends_within_a_usual_launch_delay(distance_us, n_learnt):
    """The launch latency is 10 us."""
    assert learnt(_after_each(20, distance_us, wait_us=500)) == [("A", "join")] * n_learnt


def test_a_source_that_comes_twice_in_each_wait_is_near_twice_as_often():
    """The end of A is 5 us before, and each wait of 500 us holds two."""
    (support,) = _after_each(3, 5, wait_us=500, others="[A>]").support

    assert support.chance == pytest.approx(2 * 5 / 500)


def test_a_source_whose_time_was_taken_late_may_come_after_its_wait():
    """Of two kinds of sources, the second comes 1 ns after each wait."""
    ends = np.array([50, 150, 250, 350])
    waits = Waits(ends, ends - 50, ends, np.zeros(4, dtype=np.int64))
    times = np.concatenate([ends - 2, ends - 1, ends + 1])
    places = np.array([0] * 8 + [1] * 4)
    found = Candidates(np.tile(np.arange(4), 3), np.arange(12), np.tile(ends, 3) - times)
    calls, support = recurring(
        Rule.RECURRING_IN_REPLAYS, waits, found, (Sources.of(times, places).only, places), str
    )

    assert calls.wait.tolist() == [0, 1, 2, 3]
    assert [one.n_matched for one in support] == [4]
