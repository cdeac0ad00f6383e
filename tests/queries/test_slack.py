"""What could change: slack, near-critical paths, opportunities."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import htagraph as hg
from htagraph.arrays.retime import retime
from htagraph.compiler.passes import compile_events
from htagraph.model.window import Window
from htagraph.queries import cost as room
from htagraph.queries.cost import _shares, near_chains, near_critical, opportunities, slack
from htagraph.replay.changes import scale
from htagraph.replay.charges import Charges
from htagraph.replay.predictions import Candidate, Trials
from htagraph.replay.rehearsal import Rehearsal
from tests.drawn import drawn_dag, drawn_graph
from tests.real_traces import located
from tests.synth.simulator import simulate
from tests.synth.strategies import programs
from tests.synth.training import training_rank

DRAWING = """
    us       |0         10        20        30        40
    cpu 1    |[launch >a][launch >b]        [sync @*   ]
    stream 7 |      [a <a                       ]
    stream 9 |                 [b <b   ][c    ]
"""


def floats(drawing: str, window: Window | None = None) -> dict[str, tuple[int, int]]:
    """Total and free float by name, in us; of the last of a name."""
    dag = drawn_dag(drawing)
    found = slack(dag, window or dag.span)
    both = zip(found["total_float_ns"] // 1000, found["free_float_ns"] // 1000, strict=True)
    return dict(zip(found["name"], both, strict=True))


def test_work_beside_the_path_has_the_time_until_it_is_needed() -> None:
    """The wait ends at 42, 7 us after a: c ends at 33, b right before c starts."""
    found = floats(DRAWING)

    assert (found["a"], found["cudaDeviceSynchronize"]) == ((0, 0), (0, 0))
    assert found["c"] == (9, 9)
    assert found["b"] == (9, 0)


def test_what_is_critical_has_no_float() -> None:
    """The flag is the number, and the events of the path are critical."""
    dag = drawn_dag(DRAWING)
    found = slack(dag, dag.span)

    assert found.loc[found["is_critical"], "name"].tolist() == ["a", "cudaDeviceSynchronize"]
    assert found["is_critical"].tolist() == (found["total_float_ns"] == 0).tolist()


def test_a_window_has_what_ends_in_it() -> None:
    """Up to 30 us: c is begun by then, and may begin 4 us later; what runs on is not there."""
    assert floats(DRAWING, Window(15_000, 30_000, "part")) == {
        "cudaLaunchKernel": (0, 0),
        "b": (4, 0),
    }


def test_threads_that_nothing_waits_for_may_end_with_the_window() -> None:
    """A watchdog polls on a thread of its own; the steps of another bound the trace."""
    found = floats("""
        us       |0         10        20        30        40
        cpu 1    |{ProfilerStep#1                          }
        cpu 1    | [work                                  ]
        cpu 2    |     [poll]
    """)

    assert found["poll"] == (31, 31)


@given(program=programs(max_blocks=4), data=st.data())
def test_an_event_that_ends_later_than_its_float_delays_the_end_by_the_rest(program, data) -> None:
    """Exactly; and free float delays nothing else."""
    dag = compile_events(simulate(program).events)
    found, rehearsal = slack(dag, dag.span), Rehearsal(dag, dag.span)
    row = found.iloc[data.draw(st.integers(0, len(found) - 1))]
    end = rehearsal.expected.replay.places[2 * row["event"] + 1]

    def later(by_ns: int) -> np.ndarray:
        replay = rehearsal.expected.replay
        release = replay.release_ns.copy()
        release[end] = replay.ts_ns[end] + by_ns
        return retime(replay.offsets, replay.tail, replay.weight_ns, release)

    for more_ns in (0, 1, 70_000):
        times = later(int(row["total_float_ns"]) + more_ns)
        assert rehearsal.dur_ns(times) == dag.span.dur_ns + more_ns
    moved = later(int(row["free_float_ns"])) > rehearsal.expected.replay.ts_ns
    moved[end] = False
    assert not moved.any()


@given(program=programs(max_blocks=4), by=st.sampled_from((1.5, 3.0, 20.0)), data=st.data())
def test_work_that_takes_longer_than_its_float_makes_the_window_longer(program, by, data) -> None:
    """A kernel scaled by itself: by exactly what it takes more than its float."""
    graph = hg.Trace.from_events(simulate(program).events).compile()
    found = graph.slack()
    found = found[found["kind"] == "kernel"]
    row = found.iloc[data.draw(st.integers(0, len(found) - 1))]
    rehearsal = Rehearsal(graph.dag, graph.interval)
    one = graph.select(where=f"event == {row['event']}")
    run = rehearsal.run([scale(one, by=by)])
    more_ns = int(np.rint(row["dur_ns"] * by)) - int(row["dur_ns"])

    assert rehearsal.dur_ns(run.times_ns) - graph.dur_ns == max(
        more_ns - int(row["total_float_ns"]), 0
    )


@pytest.mark.public("hta/trace_diff/control/control.json.gz")
def test_a_real_trace_has_its_path_among_what_is_critical() -> None:
    """Every piece of device work that the path ends with is critical."""
    graph = hg.load(located("hta/trace_diff/control/control.json.gz")).compile()
    found = graph.slack().set_index("event")
    path = graph.critical_path().segments
    work = path.loc[path["kind"] == "span", "event"]

    assert len(work)
    assert found.loc[work, "is_critical"].all()


"""The path is a and the 7 us until the wait ends at 42. The work of stream 9 ends 9 us before that;
the host comes to its wait 12 us before that, and waits from then on."""

FAR = 1_000_000


def chains(window: Window | None = None, **options: int) -> list[tuple[int, int, int]]:
    """Float, start and length of the chains, in us."""
    dag = drawn_dag(DRAWING)
    found = near_critical(dag, window or dag.span, **options)
    columns = (found[name] // 1000 for name in ("float_ns", "start_ns", "dur_ns"))
    return list(zip(*columns, strict=True))


def test_each_chain_leaves_what_is_more_critical_and_joins_it_again() -> None:
    """Stream 9 with the launches before it; the host, from where it launched b until it waits."""
    dag = drawn_dag(DRAWING)
    found = near_critical(dag, dag.span, within_ns=FAR)

    assert chains(within_ns=FAR) == [(9, 0, 33), (12, 11, 19)]
    assert found["leaves"].tolist() == ["cudaLaunchKernel", "cudaLaunchKernel"]
    assert found["joins"].tolist() == ["cudaDeviceSynchronize", "cudaDeviceSynchronize"]


def test_a_chain_says_what_it_is_made_of() -> None:
    """11 us of launch calls, 6 until b starts, 16 of two kernels; the host: 11 calling, 8 idle."""
    dag = drawn_dag(DRAWING)
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
    dag = drawn_dag(drawing)

    assert dag.span.dur_ns == 200_000
    assert near_critical(dag, dag.span)["float_ns"].tolist() == [9_000]
    assert near_critical(dag, dag.span, within_ns=FAR)["float_ns"].tolist() == [9_000, 12_000]


def test_chains_shorter_than_a_thousandth_of_the_window_are_left_out() -> None:
    """The chain of b ends at 33 us: of a window of 9 us, it has 10 ns or 9."""
    dag = drawn_dag(DRAWING)
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


def simulated(fault: str) -> hg.TraceGraph:
    return hg.Trace.from_events(simulate(training_rank(fault=fault)).events).compile()


@pytest.fixture(scope="module")
def loading() -> hg.TraceGraph:
    return simulated("dataloader")


def test_a_kernel_is_asked_about_at_four_speeds():
    """One kernel of 21 us, waited for; without it, the call that launched it still takes 13 us."""
    graph = drawn_graph("""
        cpu 1    |[launch >a]   [sync @*    ]
        stream 7 |      [gemm <a            ]
    """)

    found = graph.opportunities().query("kind == 'kernel'").set_index("left_share")["saves_ns"]

    assert found.to_dict() == {0.0: 13_000, 0.5: 10_500, 0.75: 5_250, 0.9: 2_100}


def test_what_was_planted_costs_most(loading):
    """Of all causes; that workers load ahead is among the changes."""
    found = loading.opportunities()

    assert found.iloc[0][["kind", "cause"]].tolist() == ["cause", "data loading"]
    assert found.query("kind == 'data loading'")["change"].tolist() == ["prefetch()"]


def test_causes_asked_alone_cost_what_they_cost_among_all_changes(loading):
    """A verdict replays no other changes."""
    alone, among = loading.critical_path().trials.causes, loading.opportunities()

    assert set(alone["kind"]) == {"cause"}
    told = ["kind", "cause", "change", "left_share", "saves_ns", "low_ns", "high_ns", "alone_ns"]
    of_causes = among[among["cause"] != ""]
    pd.testing.assert_frame_equal(alone[told], of_causes[told].reset_index(drop=True))


def test_several_at_once_find_what_one_after_the_other_do(loading):
    """Large traces are replayed by two threads; what was found is not asked again."""
    rehearsal = Rehearsal(loading.dag, loading.interval)
    asked = [
        Candidate("operator", name, (scale(name, by=0.5),), 0.5)
        for name in ("aten::linear", "aten::addmm", "no such operator")
    ]

    def charges() -> Charges:
        return Charges.of(loading.dag, rehearsal.replay)

    alone, beside = (
        Trials(rehearsal, charges, lambda _: (), lambda: asked, n_threads).opportunities
        for n_threads in (1, 2)
    )

    assert len(alone)
    pd.testing.assert_frame_equal(alone, beside)


def test_an_expected_saving_lies_in_its_interval(loading):
    found = loading.opportunities()

    assert (found["low_ns"] <= found["saves_ns"]).all()
    assert (found["saves_ns"] <= found["high_ns"]).all()
    assert (found["saves_ns"] <= loading.dur_ns).all()


def test_a_kernel_saves_no_more_than_another_leaves():
    """Two kernels on two streams, both waited for, one 2 us longer."""
    graph = drawn_graph("""
        cpu 1    |[launch >a][launch >b]  [sync @*     ]
        stream 7 |              [gemm <a               ]
        stream 9 |              [conv <b             ]
    """)

    found = graph.opportunities().query("left_share == 0 and kind == 'kernel'")

    assert found["saves_ns"].tolist() == [2_000]


def test_nothing_recorded_has_no_opportunities():
    graph = drawn_graph("cpu 1 |[aten::mm]")

    assert opportunities(graph.dag, drawn_graph("").interval).empty


@pytest.mark.parametrize("launch", ["cudaLaunchKernel", "cudaGraphLaunch"])
@pytest.mark.parametrize("loader", ["_SingleProcess", "_MultiProcessing"])
def test_what_the_run_has_had_already_is_no_opportunity(launch, loader):
    """Replayed work is not replayed, and what workers load ahead is not prefetched."""
    drawing = """
        cpu 1    |{load      }[launch >a    ]{load      }[launch >b    ]{load      }[launch >c    ]
        stream 7 |                       [k <a      ]            [k <b       ]         [k <c       ]
    """
    names = {"load": f"enumerate(DataLoader)#{loader}DataLoaderIter.__next__", "launch": launch}
    graph = drawn_graph(drawing, names=names)

    kinds = set(graph.opportunities()["kind"])

    assert ("launches" in kinds) is (launch == "cudaLaunchKernel")
    assert ("data loading" in kinds) is (loader == "_SingleProcess")


def recurring(names: str) -> hg.TraceGraph:
    """Kernels that a host launches one by one, in this order."""
    host = "".join(f"[launch >{number:03}  ]" for number in range(len(names)))
    work = "".join(f"     [{name} <{number:03}   ]" for number, name in enumerate(names))
    return drawn_graph(f"""
        cpu 1    |{host}
        stream 7 |      {work}
    """)


@pytest.mark.parametrize(("large", "n_fusions"), [(1_000_000, 5), (0, 2)])
def test_five_sequences_are_fused(large, n_fusions, monkeypatch):
    """Of a dozen pairs that recur; in a large graph two."""
    monkeypatch.setattr(room, "LARGE", large)
    found = recurring("".join(2 * f"{a}{a.upper()}" for a in "abcdefghijkl")).opportunities()

    assert (found["kind"] == "fusion").sum() == n_fusions


@pytest.mark.parametrize(("names", "is_fused"), [("abcdefgh", True), ("abcdefghijkl", False)])
def test_up_to_eight_kernels_are_fused(names, is_fused):
    """Of eight that recur, or twelve."""
    assert ("fusion" in set(recurring(2 * names).opportunities()["kind"])) is is_fused
