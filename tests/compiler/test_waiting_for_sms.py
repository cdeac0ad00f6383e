"""Ready work that waits until the last blocks of a long kernel of another stream drain."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from htagraph.compiler.passes import compile_events
from htagraph.explain.critical_path import critical_path
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind
from htagraph.synth import timeline
from tests.synth.program import Launch, Machine, Program, Spend, Synchronize, Work
from tests.synth.simulator import simulate

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
