"""Where: windows and events found by name and condition."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pandas as pd
import pytest

import htagraph as hg
from htagraph.errors import AmbiguousWindowWarning, QueryError, TraceLimitError, WindowNotFoundError
from htagraph.lookup import matching
from htagraph.lookup.find_window import find_event, next_work, times_in
from htagraph.lookup.selecting import rows_where
from htagraph.model.dag import Dag
from tests.drawn import drawn_graph
from tests.job.simulated import loaded
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

STEPS = """
    us    |0         10        20        30        40        50        60        70
    cpu 1 |{ProfilerStep#4  }{ProfilerStep#5}{ProfilerStep#6           }{ProfilerStep#7 }
    cpu 1 | [aten::mm]        [aten::mm]      [aten::mm]                  [aten::mm]
"""


@pytest.fixture(scope="module")
def graph() -> hg.TraceGraph:
    """Four steps, of which the third is long."""
    return drawn_graph(STEPS)


@pytest.mark.parametrize(
    ("called", "step"),
    [
        ("first", "ProfilerStep#4"),
        ("last", "ProfilerStep#7"),
        ("5", "ProfilerStep#5"),
        ("median", "ProfilerStep#7"),
        ("ProfilerStep#6", "ProfilerStep#6"),
    ],
)
def test_a_step_is_called_by_place_number_or_name(graph, called, step) -> None:
    """The median is the representative one of those that are alike: not the long one."""
    found = graph.window(called).interval

    assert (found.name, found.anchor >= 0) == (step, True)


def test_times_have_units_and_count_from_the_start(graph) -> None:
    """A unit stands for both; without any, they are nanoseconds."""
    begun_ns = graph.interval.start_ns
    windows = [
        graph.window(called).interval for called in ("10us:20us", "10:20us", "10_000:20,000")
    ]

    assert {(one.start_ns - begun_ns, one.end_ns - begun_ns) for one in windows} == {
        (10_000, 20_000)
    }
    assert times_in("1.5s:2s") == (1_500_000_000, 2_000_000_000)
    assert times_in("1ms:2ms") == (1_000_000, 2_000_000)
    assert times_in("1µs:2µs") == (1_000, 2_000)
    assert times_in("1ns:2ns") == (1, 2)
    with pytest.raises(QueryError, match="'20us:10us' ends before it starts"):
        graph.window("20us:10us")


def test_a_window_after_the_end_is_refused_with_the_length_of_the_trace() -> None:
    """A trace of 30 us; a window that begins in it ends with it."""
    graph = drawn_graph("cpu 1 |[aten::mm                    ]")

    with pytest.raises(QueryError, match=r"'5s:6s' begins after the end of the trace.*30\.0 us"):
        graph.window("5s:6s")
    with pytest.raises(QueryError, match=r"30\.0 us long"):
        graph.window("30us:31us")
    with pytest.raises(QueryError, match="'-5us:1us' begins before the start of the trace"):
        graph.window("-5us:1us")
    with pytest.raises(QueryError, match="'5us:5us' is empty"):
        graph.window("5us:5us")
    assert graph.window("29us:1s").interval.dur_ns == 1_000


def test_times_whose_difference_does_not_fit_into_64_bits_are_refused(graph) -> None:
    """From 2**62 ns on, 146 years; one less is the longest window that there is."""
    last_ns = 2**62 - 1

    assert graph.window((-last_ns, last_ns)).interval.dur_ns == 2**63 - 2
    for beyond in ((0, last_ns + 1), (-last_ns - 1, 0)):
        with pytest.raises(QueryError, match="does not fit into 64 bits"):
            graph.window(beyond)


def test_the_whole_trace_is_called_trace(graph) -> None:
    assert graph.window("5").window("trace").interval == graph.dag.span


@pytest.mark.parametrize("name", ["last", "5", "1ms:2ms"])
def test_an_annotation_that_is_really_called_so_goes_first(name: str) -> None:
    """Whoever wrote the name into the program means it."""
    named = drawn_graph(f"""
        us    |0         10        20        30
        cpu 1 |{{ProfilerStep#5}}{{ProfilerStep#6    }}
        cpu 1 |      {{{name}}}
    """)

    assert named.window(name).interval.start_ns - named.dag.span.start_ns == 6_000


def test_an_operator_of_that_name_does_not() -> None:
    """`last` is the last step, though some operator is called so; a regex reaches that."""
    named = drawn_graph("""
        us    |0         10        20        30
        cpu 1 |{ProfilerStep#5}{ProfilerStep#6    }
        cpu 1 |      [last]
    """)

    assert named.window("last").interval.name == "ProfilerStep#6"
    assert named.window("^last$").interval.name == "last"


def test_of_several_that_match_the_first_is_taken_and_said(graph) -> None:
    """Whoever names one of them hears nothing."""
    said = r"4 ranges match 'aten::mm'; this is the first, aten::mm\."
    with pytest.warns(AmbiguousWindowWarning, match=said):
        first = graph.window("aten::mm")

    assert graph.window("aten::mm", instance=0).interval == first.interval
    assert graph.window("aten::mm", instance=-1).interval.start_ns > first.interval.end_ns


def test_what_is_not_there_is_said_with_what_is_called_alike(graph) -> None:
    for called, hint in (
        ("ProfilerStep#9", "did you mean 'ProfilerStep#"),
        ("aten::nm", "did you mean 'aten::mm'"),
        ("9", "available: ProfilerStep#4"),
    ):
        with pytest.raises(WindowNotFoundError, match=hint):
            graph.window(called)


def test_where_no_steps_are_alike_none_is_the_median() -> None:
    two = drawn_graph("us    |0    5    10\ncpu 1 |{ProfilerStep#1}{ProfilerStep#2       }")
    with pytest.raises(QueryError, match="fewer than 3 are typical"):
        two.window("median")
    with pytest.raises(WindowNotFoundError, match="no steps"):
        drawn_graph("us    |0    5\ncpu 1 |[aten::mm]").window("last")


@pytest.fixture(scope="module")
def job() -> hg.Job:
    """Two ranks of five steps."""
    return loaded(simulate_job(training_job(ranks=2, steps=5, layers=1)))


@pytest.mark.parametrize(
    ("called", "step"),
    [("first", "ProfilerStep#0"), ("3", "ProfilerStep#3"), ("last", "ProfilerStep#4")],
)
def test_a_step_of_a_job_is_called_the_same_way(job, called, step) -> None:
    asked = job.window(called)

    assert asked.critical_path().window_name == f"{step} of the job"
    assert {asked[rank].interval.name for rank in asked} == {step}


def test_the_median_step_of_a_job_is_alike_on_every_rank(job) -> None:
    """It is the lower median of the sums over ranks."""
    lengths = {
        name: sum(one.alike_ns[name] for one in job.summaries.values())
        for name in job.summaries[0].alike_ns
    }
    name = str(job.window("median").asked_window)

    assert sorted(lengths.values())[(len(lengths) - 1) // 2] == lengths[name]


def test_a_job_whose_ranks_end_with_different_steps_has_no_last_one(job) -> None:
    """Nobody could tell which is meant; ranks are named."""
    shorter = dict(job.summaries)
    shorter[1] = replace(shorter[1], starts=shorter[1].starts[:-1])
    graphs = replace(job.graphs, summaries=shorter)
    other = replace(job, timeline=replace(job.timeline, graphs=graphs))

    said = r"the last step is: ProfilerStep#4 on rank 0; ProfilerStep#3 on rank 1"
    with pytest.raises(QueryError, match=said):
        other.window("last")


def test_times_from_the_start_of_a_rank_are_no_window_of_a_job(job) -> None:
    with pytest.raises(QueryError, match="every rank has its own clock"):
        job.window("1ms:2ms")


def test_a_glob_of_a_job_says_which_step_it_took(job) -> None:
    said = "5 ranges match .*ProfilerStep#0 of rank 0"
    with pytest.warns(AmbiguousWindowWarning, match=said) as caught:
        job.window("ProfilerStep*")
    assert caught[0].filename == __file__


DRAWN = """
    us       |0         10        20        30        40
    cpu 1    |[aten::mm [launch >a] ][aten::mm [launch >b]]
    stream 7 |               [gemm <a]                [gemm <b]
"""


@pytest.fixture(scope="module")
def dag() -> Dag:
    return drawn_graph(DRAWN).dag


def found(dag: Dag, what, **options) -> tuple[str, int]:
    event = find_event(dag, dag.span, what, **options)
    return str(dag.events.names([event])[0]), int(dag.events.ts_ns[event])


@pytest.mark.parametrize(
    ("what", "instance", "start_ns"),
    [
        ("gemm", 0, 15_000),
        ("gemm", -1, 40_000),
        ("ge*", 1, 40_000),
        (re.compile("^g.mm$"), 0, 15_000),
    ],
)
def test_a_name_and_a_number_in_order_of_time(dag, what, instance, start_ns) -> None:
    assert found(dag, what, instance=instance) == ("gemm", start_ns)


def test_a_row_also_as_text(dag) -> None:
    row = find_event(dag, dag.span, "gemm", instance=1)

    assert find_event(dag, dag.span, row) == find_event(dag, dag.span, str(row)) == row


def test_of_several_the_first_is_taken_and_said(dag) -> None:
    with pytest.warns(AmbiguousWindowWarning, match="2 events match 'gemm'; this is the first"):
        assert found(dag, "gemm") == ("gemm", 15_000)


@pytest.mark.parametrize(
    ("what", "instance", "said"),
    [
        ("gem", None, "no event of trace is called 'gem'. Hint: similar: gemm"),
        ("gemm", 2, "there is no instance 2 of 'gemm': trace has 2"),
        ("gemm", -3, "there is no instance -3"),
        (99, None, "there is no event 99"),
        ("-1", None, "no event of trace is called '-1'"),
    ],
)
def test_what_is_not_there_is_said(dag, what, instance, said) -> None:
    with pytest.raises(QueryError, match=re.escape(said)):
        find_event(dag, dag.span, what, instance=instance)


@pytest.mark.parametrize(
    ("at_us", "start_ns"), [(0, 15_000), (16, 15_000), (24, 40_000), (41, 40_000)]
)
def test_the_work_that_runs_or_comes_next(dag, at_us, start_ns) -> None:
    event = next_work(dag, dag.span.start_ns + at_us * 1_000, 0)

    assert int(dag.events.ts_ns[event]) == start_ns


def test_after_the_last_work_there_is_none(dag) -> None:
    with pytest.raises(QueryError, match="device 1 runs nothing from 0 ns after"):
        next_work(dag, dag.span.start_ns, 1)
    with pytest.raises(QueryError, match="the device runs nothing"):
        next_work(dag, dag.span.end_ns)


FRAME = pd.DataFrame(
    {
        "name": pd.Categorical(["gemm", "add", "nccl"]),
        "dur_ns": [5, 7, 1_000],
        "share": [0.5, float("nan"), 0.1],
        "is_inferred": [True, False, False],
        "SM busy": [20, 50, 30],
        "stream": pd.array([7, 20, None], dtype="Int64"),
    }
)


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("dur_ns > 6", ["add", "nccl"]),
        ("5 < dur_ns <= 1_000", ["add", "nccl"]),
        ("dur_ns * 2 - 4 == 10", ["add"]),
        ("name == 'gemm' or 'cc' in name", ["gemm", "nccl"]),
        ("'cc' not in name and not is_inferred", ["add"]),
        ("name in ['add', 'gemm']", ["gemm", "add"]),
        ("dur_ns not in (5, 7)", ["nccl"]),
        ("is_inferred", ["gemm"]),
        ("share > 0.2", ["gemm"]),
        ("dur_ns > -1 and True", ["gemm", "add", "nccl"]),
        ("dur_ns % 2 == 1 and dur_ns // 2 == 3", ["add"]),
        ("(dur_ns < 6) | ~(dur_ns < 1_000)", ["gemm", "nccl"]),
        ("name.str.contains('cc') or name.str.endswith('dd')", ["add", "nccl"]),
        ("name.str.startswith('g')", ["gemm"]),
        ("`SM busy` > 40", ["add"]),
        ("stream * 2 == 14", ["gemm"]),
        ("stream not in [20]", ["gemm", "nccl"]),
        ("3 > 2 and share != share", ["add"]),
    ],
)
def test_rows_for_which_a_condition_holds(where, names):
    """As Python reads it, for every row."""
    assert rows_where(FRAME, where)["name"].tolist() == names


@pytest.mark.parametrize(
    "where",
    [
        "@pd.io.common.os.system('echo') == 0",
        "name.to_csv('out.csv') == 1",
        "dur_ns.__class__ == 1",
        "__import__('os') == 1",
        "(lambda: 1)() == 1",
        "[one for one in name] == 1",
        "name[0] == 'gemm'",
        "f'{name}' == 'gemm'",
        "9 ** 9 ** 9 > dur_ns",
        "'a' * 1_000_000_000_000 == name",
        "name + name == 'a'",
        "dur_ns",
        "dur_ns > 'gemm'",
        "name.str.contains('g.*m')",
        "name.str.match('g+')",
        "name.str.cat(name.to_csv('out.csv')) == 1",
        "dur_ns.to_pickle('out.pkl')",
        "name.map(print)",
        "name < 'gemm'",
        "nothing > 1",
        "dur_ns > ",
        "-name == 1",
        "(" * 5_000,
    ],
)
def test_all_else_is_refused(where):
    """Calls, attributes, powers: whatever a name in a trace may talk a client into."""
    with pytest.raises(QueryError, match="is not a condition"):
        rows_where(FRAME, where)


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
    start = time.process_time()
    with pytest.raises(TraceLimitError, match=r"has 273,438,880 matches; 1,082,401 are the most"):
        graph.match(every)

    assert time.process_time() - start < 2
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
