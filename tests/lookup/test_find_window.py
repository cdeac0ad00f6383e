"""What a window may be called: names, numbers and places of steps, times; of a trace and a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

import htagraph as hg
from htagraph.errors import AmbiguousWindowWarning, QueryError, WindowNotFoundError
from htagraph.lookup.find_window import times_in
from htagraph.synth import timeline
from tests.job.simulated import loaded
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

STEPS = """
    us    |0         10        20        30        40        50        60        70
    cpu 1 |{ProfilerStep#4  }{ProfilerStep#5}{ProfilerStep#6           }{ProfilerStep#7 }
    cpu 1 | [aten::mm]        [aten::mm]      [aten::mm]                  [aten::mm]
"""


def graph_of(drawing: str) -> hg.TraceGraph:
    return hg.Trace.from_events(timeline(drawing)).compile()


@pytest.fixture(scope="module")
def graph() -> hg.TraceGraph:
    """Four steps, of which the third is long."""
    return graph_of(STEPS)


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
    graph = graph_of("cpu 1 |[aten::mm                    ]")

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
    named = graph_of(f"""
        us    |0         10        20        30
        cpu 1 |{{ProfilerStep#5}}{{ProfilerStep#6    }}
        cpu 1 |      {{{name}}}
    """)

    assert named.window(name).interval.start_ns - named.dag.span.start_ns == 6_000


def test_an_operator_of_that_name_does_not() -> None:
    """`last` is the last step, though some operator is called so; a regex reaches that."""
    named = graph_of("""
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
    two = graph_of("us    |0    5    10\ncpu 1 |{ProfilerStep#1}{ProfilerStep#2       }")
    with pytest.raises(QueryError, match="fewer than 3 are typical"):
        two.window("median")
    with pytest.raises(WindowNotFoundError, match="no steps"):
        graph_of("us    |0    5\ncpu 1 |[aten::mm]").window("last")


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
