"""What would be critical next: floats of chains worked out by hand, and tried by replay."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

import htagraph as hg
from htagraph.arrays.retime import retime
from htagraph.compiler.passes import compile_events
from htagraph.model.window import Window
from htagraph.queries.near_critical import _shares, near_chains, near_critical
from htagraph.replay.rehearsal import Rehearsal
from htagraph.synth import timeline
from tests.synth.simulator import simulate
from tests.synth.strategies import programs

DRAWING = """
    us       |0         10        20        30        40
    cpu 1    |[launch >a][launch >b]        [sync @*   ]
    stream 7 |      [a <a                       ]
    stream 9 |                 [b <b   ][c    ]
"""
"""The path is a and the 7 us until the wait ends at 42. The work of stream 9 ends 9 us before that;
the host comes to its wait 12 us before that, and waits from then on."""

FAR = 1_000_000


def chains(window: Window | None = None, **options: int) -> list[tuple[int, int, int]]:
    """Float, start and length of the chains, in us."""
    dag = compile_events(timeline(DRAWING))
    found = near_critical(dag, window or dag.span, **options)
    columns = (found[name] // 1000 for name in ("float_ns", "start_ns", "dur_ns"))
    return list(zip(*columns, strict=True))


def test_each_chain_leaves_what_is_more_critical_and_joins_it_again() -> None:
    """Stream 9 with the launches before it; the host, from where it launched b until it waits."""
    dag = compile_events(timeline(DRAWING))
    found = near_critical(dag, dag.span, within_ns=FAR)

    assert chains(within_ns=FAR) == [(9, 0, 33), (12, 11, 19)]
    assert found["leaves"].tolist() == ["cudaLaunchKernel", "cudaLaunchKernel"]
    assert found["joins"].tolist() == ["cudaDeviceSynchronize", "cudaDeviceSynchronize"]


def test_a_chain_says_what_it_is_made_of() -> None:
    """11 us of launch calls, 6 until b starts, 16 of two kernels; the host: 11 calling, 8 idle."""
    dag = compile_events(timeline(DRAWING))
    found = near_critical(dag, dag.span, within_ns=FAR)

    assert found["bounds"].tolist() == [
        "GPU compute 48%, CPU operators 33%, launch latency 18%",
        "CPU operators 58%, untraced code 42%",
    ]
    assert found["said"].tolist() == [
        "device chain on stream 9 and 1 other track, 33.0 us, is 9.00 us behind: 45% b",
        "host chain on thread 1, 19.0 us, is 12.0 us behind: mostly cudaLaunchKernel",
    ]


def test_chains_that_are_farther_behind_than_asked_are_left_out() -> None:
    """By default, than a twentieth of the window: 2.1 us."""
    assert chains(within_ns=9_000) == [(9, 0, 33)]
    assert chains(within_ns=8_999) == []
    assert chains() == []


def test_a_twentieth_of_the_window_is_near() -> None:
    """The same in a window of 200 us: 9 us behind are near, 12 are not."""
    more = " " * 158
    drawing = DRAWING.replace("[launch >b]", f"[launch >b]{more}")
    drawing = drawing.replace("[a <a", f"[a <a{more}").replace("[b <b", f"[b <b{more}")
    dag = compile_events(timeline(drawing))

    assert dag.span.dur_ns == 200_000
    assert near_critical(dag, dag.span)["float_ns"].tolist() == [9_000]
    assert near_critical(dag, dag.span, within_ns=FAR)["float_ns"].tolist() == [9_000, 12_000]


def test_chains_shorter_than_a_thousandth_of_the_window_are_left_out() -> None:
    """The chain of b ends at 33 us: of a window of 9 us, it has 10 ns or 9."""
    dag = compile_events(timeline(DRAWING))
    windows = [Window(begin_ns, 42_000, "end") for begin_ns in (32_990, 32_991)]
    found = [near_critical(dag, window, within_ns=FAR)["dur_ns"].tolist() for window in windows]

    assert found == [[10], []]


def test_a_twentieth_of_a_chain_is_worth_saying() -> None:
    shares = pd.Series({"compute": 90, "host": 6, "launch": 4})
    assert _shares(shares) == "GPU compute 90%, CPU operators 6%"


def test_as_many_chains_as_asked_are_there() -> None:
    """The nearest first."""
    assert chains(within_ns=FAR, top=1) == [(9, 0, 33)]


def test_a_window_has_the_part_of_a_chain_that_lies_in_it() -> None:
    """From 20 us on: of the chain of b what is left of it, and of the host until its wait."""
    assert chains(Window(20_000, 42_000, "part"), within_ns=FAR) == [(9, 20, 13), (12, 20, 10)]


@given(program=programs(max_blocks=4), data=st.data())
def test_a_chain_that_takes_longer_than_its_float_is_critical(program, data) -> None:
    """Whatever part of it takes longer: the window, by exactly what is beyond its float."""
    graph = hg.Trace.from_events(simulate(program).events).compile()
    rehearsal = Rehearsal(graph.dag, graph.interval)
    replay, span_ns = rehearsal.expected.replay, graph.dur_ns
    found = near_chains(graph.dag, replay, graph.interval, within_ns=span_ns, least_ns=0, top=1_000)
    part = data.draw(st.integers(0, len(found.chain) - 1))
    float_ns = int(found.float_ns[found.chain[part]])
    for more_ns in (0, 1, 50_000):
        weight = replay.weight_ns.copy()
        weight[found.edge[part]] += float_ns + more_ns
        times = retime(replay.offsets, replay.tail, weight, replay.release_ns)

        assert rehearsal.dur_ns(times) == span_ns + more_ns


@settings(max_examples=15)
@given(program=programs(max_blocks=4))
def test_every_node_that_has_little_float_is_in_one_chain(program) -> None:
    """None is missed, and none is in two; what takes no time is no part."""
    dag = compile_events(simulate(program).events)
    replay = Rehearsal(dag, dag.span).expected.replay
    float_ns = replay.float_ns(dag.span)
    found = near_chains(dag, replay, dag.span, within_ns=FAR, least_ns=0, top=10_000)
    heads = replay.head[found.edge]
    inside = heads[float_ns[heads] == found.float_ns[found.chain]]
    takes_time = np.zeros(len(float_ns), dtype=bool)
    takes_time[replay.head] = True
    takes_time[replay.head[replay.weight_ns <= 0]] = False
    near = (float_ns > 0) & (float_ns <= FAR) & (replay.ts_ns > dag.span.start_ns)

    assert len(set(inside.tolist())) == len(inside)
    assert set(np.flatnonzero(near & takes_time).tolist()) <= set(inside.tolist())
    assert near[inside].all()
