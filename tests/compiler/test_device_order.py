"""The order of work on a device: many streams, first work, room on multiprocessors."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import htagraph as hg
from htagraph.arrays import binding
from htagraph.compiler import passes, structure, syncs
from htagraph.compiler.passes import compile_events
from htagraph.errors import TraceLimitError
from htagraph.explain.critical_path import critical_path
from htagraph.lookup import matching
from htagraph.model.dag import Dag
from htagraph.model.events import EventTable
from htagraph.model.kinds import EdgeKind
from htagraph.run.graph import TraceGraph
from htagraph.run.trace import Trace
from htagraph.synth import timeline
from tests.drawn import drawn_dag
from tests.synth.program import Launch, Machine, Program, Spend, Synchronize, Work
from tests.synth.simulator import simulate


def test_device_work_starts_after_the_start_of_its_launch(arrows):
    """A kernel may start while its launch call still runs; only the call's start bounds it."""
    dag = drawn_dag("""
        cpu 1    |[launch >a             ]  [launch >b]
        stream 7 |     [k <a  ]                 [k <b ]
    """)

    assert arrows(dag, "launch") == [("cudaLaunchKernel<", "k<", 4), ("cudaLaunchKernel<", "k<", 4)]


def test_an_api_call_is_a_launch_if_device_work_carries_its_correlation(arrows):
    """No list of names decides, so a launch call that nobody has heard of works."""
    dag = drawn_dag("""
        cpu 1    |[cuLaunchKernelOfTomorrow >a]
        stream 7 |                  [k <a  ]
    """)

    assert [tail for tail, _, _ in arrows(dag, "launch")] == ["cuLaunchKernelOfTomorrow<"]


def test_one_graph_launch_has_many_kernels(arrows, rules):
    """All kernels of a CUDA graph replay share the correlation id of one launch."""
    dag = drawn_dag("""
        cpu 1    |[graph >a   ]
        stream 7 |     [k1 <a  ][k2 <a ]
        stream 9 |       [k3 <a   ]
    """)

    assert len(arrows(dag, "launch")) == 3
    assert rules(dag, "launch") == {
        "k1<": "graph replay",
        "k2<": "graph replay",
        "k3<": "graph replay",
    }


def test_work_of_one_stream_runs_in_order(arrows):
    """The next kernel of a stream waits for the end of the one before, and the smallest gap."""
    dag = drawn_dag("""
        cpu 1    |[launch >a][launch >b][launch >c]
        stream 7 |                 [k1 <a     ] [k2 <b     ]  [k3 <c ]
    """)

    assert arrows(dag, "stream") == [("k1>", "k2<", 1), ("k2>", "k3<", 1)]


def test_overlapping_work_of_one_stream_counts_its_overlap_once(arrows, rules):
    """With programmatic dependent launch a kernel begins before the one before it ends."""
    dag = drawn_dag("""
        cpu 1    |[launch >a][launch >b]
        stream 7 |                         [k1 <a      ]
        stream 7 |                                   [k2 <b      ]
    """)

    assert arrows(dag, "stream") == [("k1<", "k2<", 10)]
    assert rules(dag, "stream") == {"k2<": "stream overlap"}


def test_work_launched_while_other_work_of_its_stream_runs_is_bound_by_its_launch():
    """Streams of a file need not be real queues: work launched meanwhile did not wait."""
    dag = drawn_dag("""
        cpu 1    |[launch >a]                   [launch >b]
        stream 7 |       [k1 <a                                       ]
        stream 7 |                                    [k2 <b ]
    """)
    k2 = 2 * int(np.flatnonzero(dag.events.names() == "k2")[0])

    assert ("launch" if dag.edges.kind[dag.binding[k2]] == 2 else "other") == "launch"


def test_device_work_before_its_launch_moves_the_device_clock():
    """No kernel starts before the call that launched it: the device clock is behind by as much."""
    dag = drawn_dag("""
        cpu 1    |     [launch >a]      [launch >b]
        stream 7 |  [k1 <a ]            [k2 <b ]
    """)
    k1 = int(np.flatnonzero(dag.events.names() == "k1")[0])

    assert dag.calibration.clock_shift_ns == 3_000
    assert dag.events.ts_ns[k1] == 5_000
    assert len(dag.rejected.edges) == 0


def test_correlation_zero_links_nothing(arrows):
    """Some tools write 0 for every event: that id means none and joins nothing."""
    from dataclasses import replace

    from htagraph.compiler.passes import compile_events
    from htagraph.synth import timeline

    events = timeline("""
        cpu 1    |[launch >a] [launch >b]
        stream 7 |    [k1 <a ]  [k2 <b  ]
    """)
    dag = compile_events(replace(events, correlation=np.zeros(len(events), dtype=np.int64)))

    assert arrows(dag, "launch") == []


def test_external_ids_are_never_taken_for_correlation_ids():
    """They are numbers of two kinds that often collide."""
    from dataclasses import replace

    from htagraph.compiler.passes import compile_events
    from htagraph.synth import timeline

    events = timeline("""
        cpu 1    |[aten::mm  ] [launch >b]
        stream 7 |    [k1   ]     [k2 <b ]
    """)
    dag = compile_events(replace(events, external_id=np.array(events.correlation)[::-1].copy()))
    k1 = int(np.flatnonzero(dag.events.names() == "k1")[0])

    assert dag.launch[k1] == -1


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
    """Rows that are sorted to find what ran before what, while a trace is drawn_dag."""
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


FAR = " " * 1_500


def bounds(dag: Dag) -> dict[str, int]:
    path = critical_path(dag, dag.span)
    return (path.groupby("bound", observed=True)["dur_ns"].sum() // 1_000).to_dict()


def test_first_work_long_after_its_launch_waits_for_what_the_capture_did_not_see(arrows):
    """Until k1 starts, the path is what was launched before; the tiny copy changes nothing."""
    dag = drawn_dag(
        f"""
        cpu 1    |[cudaMemcpyAsync >c][launch >a][launch >b]
        stream 2 |                  [Memcpy <c]
        stream 7 |{FAR}[k1 <a    ][k2 <b]
        """
    )

    assert arrows(dag, "source") == [("cudaMemcpyAsync<", "k1<", 1_500)]
    assert bounds(dag) == {"compute": 18, "work_from_before_the_profile": 1_500}


def test_its_segment_says_by_which_rule():
    """An inferred one, unlike that of work whose launch was not recorded."""
    dag = drawn_dag(f"cpu 1    |[launch >a]\nstream 7 |{FAR}[k1 <a    ]")
    path = critical_path(dag, dag.span)

    assert path["rule"].astype(str).tolist() == ["first device work", "duration"]


def test_a_wait_for_the_device_that_returned_says_that_it_was_idle(arrows):
    """Then something else holds k1 up, and nothing says what."""
    dag = drawn_dag(
        f"""
        cpu 1    |[launch >a][cudaDeviceSynchronize]
        stream 7 |{FAR}[k1 <a    ]
        """
    )

    assert arrows(dag, "source") == []
    assert "unknown_waits" in bounds(dag)


@pytest.mark.parametrize(("call_us", "is_source"), [(100, True), (1_511, False), (1_600, False)])
def test_a_slow_launch_call_is_what_its_work_waited_for(arrows, call_us, is_source):
    """The work starts after 1.5 ms: long after its call returned, right then, or while it runs."""
    dag = drawn_dag(
        f"""
        cpu 1    |[launch >a{"":{call_us - 11}}][launch >b]
        stream 7 |{"":1511}[k1 <a    ][k2 <b]
        """
    )

    assert bool(arrows(dag, "source")) == is_source


def test_work_that_was_launched_late_is_late_by_its_launch(arrows):
    """The host worked for most of the time before k1; that it then took 300 us is another thing."""
    dag = drawn_dag(
        f"""
        cpu 1    |[aten::load{FAR}][launch >a]
        stream 7 |{FAR}{" " * 300}[k1 <a    ]
        """
    )

    assert arrows(dag, "source") == []


@pytest.mark.parametrize(("load_us", "found"), [(270, [("aten::load<", "k1<", 600)]), (320, [])])
def test_the_wait_for_unseen_work_is_half_of_the_time_before_it(arrows, load_us, found):
    """Of 600 us, the host works for 270 or 320, and a launch takes at least 22."""
    dag = drawn_dag(
        f"""
        cpu 1    |{"":50}[aten::load{"":{load_us - 12}}][launch >a]
        stream 7 |{"":650}[k1 <a    ]
        """
    )

    assert arrows(dag, "source") == found


def test_a_device_that_was_busy_with_recorded_work_was_not_busy_with_other(arrows):
    """Half of the wait is explained by k0: what the rest is, is not known."""
    dag = drawn_dag(
        f"""
        cpu 1    |[launch >z][launch >a]
        stream 9 |         [k0 <z{FAR}]
        stream 7 |{FAR}{FAR}[k1 <a    ]
        """
    )

    assert arrows(dag, "source") == []


def test_work_whose_launch_is_not_known_is_not_late_by_it(arrows):
    """It may have been launched at any time."""
    dag = drawn_dag(
        f"""
        cpu 1    |[launch >a]
        stream 7 |[k0 <a]{FAR}[k1    ]
        """
    )

    assert arrows(dag, "source") == []


@pytest.mark.parametrize(("busy_us", "is_source"), [(110, True), (220, False)])
def test_recorded_work_may_fill_a_tenth_of_the_wait(arrows, busy_us, is_source):
    """The wait is of 1.5 ms."""
    dag = drawn_dag(
        f"""
        cpu 1    |[launch >z][launch >a]
        stream 9 |         [k0 <z{"":{busy_us}}]
        stream 7 |{FAR}[k1 <a    ]
        """
    )

    assert bool(arrows(dag, "source")) == is_source


N_STEPS = 8
MACHINE = Machine(launch_latency_ns=5_000, stream_gap_ns=800, n_sms=10)


def stepped(machine: Machine = MACHINE, *, geometry: bool = False, seed: int = 0) -> Dag:
    """Steps in which a kernel of 1,000 blocks runs, and a small one is launched beside it."""
    draw = random.Random(seed)  # noqa: S311  no secret
    body = tuple(
        action
        for _ in range(N_STEPS)
        for action in (
            Launch(Work("fills", draw.randint(500_000, 900_000), n_blocks=1_000, n_threads=1_024)),
            Spend(draw.randint(20_000, 80_000)),
            Launch(Work("ready", 20_000, n_blocks=4, n_threads=128), 20),
            Synchronize(),
        )
    )
    program = Program(body, machine, sync_records=False, geometry=geometry, seed=seed)
    return compile_events(simulate(program).events)


def test_work_that_starts_as_a_kernel_drains_waited_for_the_device(arrows):
    """It hangs on the start of the kernel that fills the device, eight of eight times."""
    dag = stepped()
    (support,) = dag.support

    assert [(tail, head) for tail, head, _ in arrows(dag, "contention")] == [
        ("fills<", "ready<")
    ] * N_STEPS
    assert (support.n_matched, support.n_all) == (N_STEPS, N_STEPS)


def test_the_time_until_there_is_room_is_bound_by_the_full_device():
    """The path says which kernel fills it."""
    dag = stepped()
    path = critical_path(dag, dag.span)
    full = path[path["bound"] == "waiting_for_sms"]

    assert set(full["name"]) == {"fills"}
    assert set(full["rule"].astype(str)) == {"no free SMs"}


def test_work_that_finds_room_anywhere_in_a_run_waited_for_something_else():
    """A device that is never full: what starts at random beside the kernel is not held by it."""
    for seed in range(20):
        draw = random.Random(seed)  # noqa: S311  no secret
        machine = replace(MACHINE, n_sms=0, launch_latency_ns=5_000, jitter_ns=600_000)
        dag = stepped(machine, seed=draw.randint(0, 99))

        assert not (dag.edges.kind == EdgeKind.CONTENTION).any()


def test_a_kernel_of_fewer_blocks_than_multiprocessors_fills_nothing():
    """Where the launch geometry says so, starts near its end are no evidence."""
    dag = stepped(geometry=True)
    blocks = dag.events.columns["blocks_per_sm"]
    small = replace(blocks, value=blocks.value / 1_000)
    events = replace(dag.events, columns={**dag.events.columns, "blocks_per_sm": small})

    assert (stepped(geometry=True).edges.kind == EdgeKind.CONTENTION).sum() == N_STEPS
    assert not (compile_events(events).edges.kind == EdgeKind.CONTENTION).any()


def test_work_whose_own_stream_was_busy_waits_from_there_on(arrows):
    """The kernel that fills the device began before; the path stays on the busy stream."""
    draw = random.Random(3)  # noqa: S311  no secret
    body = tuple(
        action
        for _ in range(N_STEPS)
        for action in (
            Launch(Work("own", 300_000, n_blocks=4, n_threads=128), 20),
            Launch(Work("fills", draw.randint(500_000, 900_000), n_blocks=1_000, n_threads=1_024)),
            Launch(Work("ready", 20_000, n_blocks=4, n_threads=128), 20),
            Synchronize(),
        )
    )
    program = Program(body, MACHINE, sync_records=False, geometry=False)
    dag = compile_events(simulate(program).events)
    edges = dag.edges.take(dag.edges.kind == EdgeKind.CONTENTION)

    assert {(tail, head) for tail, head, _ in arrows(dag, "contention")} == {("own>", "ready<")}
    assert set(dag.events.names(edges.event)) == {"fills"}


def drawn(left_us: Sequence[int], *, n_streams: int = 1, threads: int = 0) -> Dag:
    """Starts of ready work when so much is left of a kernel of 1 ms on another stream."""
    streams = [f"stream {7 + k}" for k in range(n_streams)]
    lines = dict.fromkeys([*streams, "cpu 1", "stream 20"], "")
    for i, left in enumerate(left_us):
        runs = {
            "cpu 1": f"[launch >k{i:02d}][launch >r{i:02d}]",
            "stream 20": f"{'':{1_020 - left}}[ready <r{i:02d}]",
            streams[i % n_streams]: f"{'':20}[k <k{i:02d}{'':992}]",
        }
        lines = {name: lines[name] + runs.get(name, "").ljust(1_200) for name in lines}
    columns = {"blocks_per_sm": 2.0, "block_x": threads // 2} if threads else {}
    events = timeline(
        "\n".join(f"{name} |{line}" for name, line in lines.items()),
        columns={name: {"k": value} for name, value in columns.items()},
    )
    return compile_events(events)


def held_up(left_us: Sequence[int], *, n_streams: int = 1, threads: int = 0) -> int:
    """How many of these starts wait for room."""
    dag = drawn(left_us, n_streams=n_streams, threads=threads)
    return int((dag.edges.kind == EdgeKind.CONTENTION).sum())


def test_what_a_full_device_rests_on_is_shown():
    """Ready work starts before the end of the kernel: a negative distance."""
    (support,) = drawn([20, 21, 24, 25]).support

    assert (support.source, support.target) == ("k (stream 7)", "ready (stream 20)")
    assert (support.n_matched, support.n_all) == (4, 4)
    assert (support.distance_ns, support.spread_ns) == (-22_500, 5_000)
    assert support.chance == pytest.approx(0.03, abs=0.002)


@pytest.mark.parametrize(("left_us", "n_edges"), [(25, 5), (50, 0)])
def test_a_kernel_of_unknown_size_drains_in_the_last_three_hundredths_of_its_run(left_us, n_edges):
    """What starts before found room."""
    assert held_up([left_us] * 5) == n_edges


@pytest.mark.parametrize(("left_us", "n_edges"), [(80, 5), (150, 0)])
def test_a_kernel_larger_than_the_device_drains_in_the_last_tenth(left_us, n_edges):
    """It is known to fill the device, so less evidence is enough."""
    assert held_up([left_us] * 5, threads=3_000) == n_edges


def test_a_kernel_is_larger_than_the_device_from_2048_threads_on_a_multiprocessor_on():
    """No device runs more at once, and one that runs fewer is not told from it."""
    assert held_up([80] * 5, threads=2_048) == 0
    assert held_up([80] * 5, threads=2_050) == 5


def test_a_kernel_is_known_to_be_large_if_all_of_its_runs_are():
    """One of five runs has 1,500 threads on a multiprocessor."""
    events = drawn([80] * 5, threads=3_000).events
    blocks = events.columns["blocks_per_sm"]
    mixed = replace(blocks, value=blocks.value * [0.5, 1, 1, 1, 1])
    dag = compile_events(replace(events, columns={**events.columns, "blocks_per_sm": mixed}))

    assert not (dag.edges.kind == EdgeKind.CONTENTION).any()


@pytest.mark.parametrize(("n_elsewhere", "n_edges"), [(1, 9), (2, 0)])
def test_nine_of_ten_starts_during_a_kernel_that_fills_the_device_meet_its_end(
    n_elsewhere, n_edges
):
    """If more found room in the middle of it, the others began near its end by chance."""
    assert held_up([20] * (10 - n_elsewhere) + [500] * n_elsewhere) == n_edges


@pytest.mark.parametrize(("n_streams", "n_edges"), [(2, 4), (4, 0)])
def test_two_starts_for_each_of_many_kernels_may_be_chance(n_streams, n_edges):
    """One of a thousand kernels meets two of two by chance, and a trace may have many."""
    assert held_up([20] * 2 * n_streams, n_streams=n_streams) == n_edges
