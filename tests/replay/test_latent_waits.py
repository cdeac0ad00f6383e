"""Waits that cost nothing in the run, and do in a faster one."""

from __future__ import annotations

import numpy as np
import pytest

import htagraph as hg
from htagraph.model.kinds import EventKind
from htagraph.model.rules import Rule
from htagraph.replay.latent_waits import latent_waits
from htagraph.synth import timeline
from tests.event_rows import taken
from tests.replay.drawn import drawn, saved_us
from tests.synth.program import Launch, Machine, Op, Program, Spend, Work
from tests.synth.simulator import simulate

LIMIT = 1_022


def test_a_call_that_found_its_work_done_waits_in_a_faster_run():
    """Without the operator it comes at 11, and the kernel ends at 30: 7 us later it returns."""
    graph = drawn("""
        us       |0         10        20        30        40        50
        cpu 1    |[launch >a][aten::unique               ][sync ]
        stream 7 |      [gemm <a               ]
    """)

    assert graph.dur_ns == 47_000
    assert saved_us(graph, hg.remove("aten::unique")) == 10


def test_the_last_kernel_of_one_launch_is_the_one_that_ran_last():
    """Without the operator, the call waits for `two` until 26, wherever that is in the file."""
    events = timeline("""
        us       |0         10        20        30        40        50
        cpu 1    |[launch >a][aten::unique               ][sync ]
        stream 7 |      [one <a   ][two <a ]
    """)
    backwards = taken(events, np.arange(len(events))[::-1])
    saved = [
        saved_us(hg.Trace.from_events(rows).compile(), hg.remove("aten::unique"))
        for rows in (events, backwards)
    ]

    assert saved == [14, 14]


def test_a_stream_is_waited_for_by_who_enqueued_on_it():
    """The call of 12 us is for stream 7, where its thread launched last: not for that on 9."""
    graph = drawn("""
        us       |0         10        20        30        40        50        60
        cpu 2    |[launch >b]
        cpu 1    |[launch >a][aten::unique               ][streamsync]
        stream 7 |      [gemm <a               ]
        stream 9 |      [conv <b                                             ]
    """)
    changed = hg.what_if(graph, hg.remove("aten::unique")).graph
    events = changed.dag.events
    ends = dict(zip(events.names().tolist(), events.end_ns.tolist(), strict=True))

    assert ends["gemm"] == 30_000
    assert ends["conv"] == 60_000
    assert ends["cudaStreamSynchronize"] == 42_000


def test_a_call_waits_for_the_streams_that_were_used_last():
    """Of 40 streams, each with one kernel that ended long before; a later one is waited for."""
    launches = "".join(f"[launch >{number:02}]" for number in range(40))
    kernels = "".join(
        f"        stream {number + 10} |{' ' * (12 * number + 12)}[k{number:02} <{number:02}]\n"
        for number in range(40)
    )
    graph = drawn(f"        cpu 1    |{launches}{' ' * 60}[sync ]\n{kernels}")
    found = latent_waits(graph.dag)
    names = graph.dag.events.names(found.tail >> 1)

    assert sorted(names) == [f"k{number:02}" for number in range(8, 40)]


def test_no_more_is_outstanding_in_a_faster_run_than_the_queue_holds():
    """The host is slow and the device slower; without host time, launches wait for room."""
    body = tuple(
        Op("aten::add", (Spend(4_000), Launch(Work("add", 6_000)))) for _ in range(LIMIT + 400)
    )
    rank = simulate(Program(body, machine=Machine(queue_limit=LIMIT)))
    graph = hg.Trace.from_events(rank.events).compile()
    changed = hg.what_if(graph, hg.scale("aten::add", by=0)).graph
    dag = changed.dag
    work = np.flatnonzero(dag.events.kind == EventKind.KERNEL)
    returned = np.sort(dag.events.end_ns[dag.launch[work]])
    started = np.sort(dag.events.ts_ns[work])
    outstanding = np.arange(len(work)) + 1 - np.searchsorted(started, returned, side="right")

    assert changed.dur_ns < graph.dur_ns
    assert outstanding.max() == LIMIT


@pytest.mark.parametrize(("n_waits", "n_latent"), [(7, 3), (3, 0)])
def test_a_kernel_waits_where_most_of_its_instances_do(n_waits, n_latent):
    """Of ten, some start right as the other stream's kernel ends; the rest start later."""
    cpu = stream = waiting = ""
    for number in range(10):
        start = 66 if number < n_waits else 80
        cpu += f"[launch >a{number}][launch >b{number}]".ljust(110)
        stream += f"      {f'[gemm <a{number}'.ljust(59)}]".ljust(110)
        waiting += f"{' ' * start}[nccl <b{number}]".ljust(110)
    drawing = f"cpu 1 |{cpu}\nstream 7 |{stream}\nstream 9 |{waiting}"
    graph = hg.Trace.from_events(timeline(drawing)).compile()

    found = latent_waits(graph.dag).rule == Rule.RECURRING_IN_REPLAYS

    assert found.sum() == n_latent
