"""Work that starts late or ends late, and right before what."""

from __future__ import annotations

import numpy as np
import pytest

from htagraph.compiler import late_starts as module
from htagraph.compiler.late_starts import ended_before, late_starts, most_used_streams, running_at
from htagraph.compiler.launches import launch_edges, stream_edges
from htagraph.compiler.structure import Structure, examine
from htagraph.explain.critical_path import critical_path
from htagraph.model.edges import EdgeTable
from htagraph.model.rules import Rule
from htagraph.synth import timeline
from tests.drawn import drawn_dag


def late(drawing: str) -> dict[str, tuple[int, int]]:
    """Since when late work was ready, and how long it waited, in us."""
    structure = examine(timeline(drawing))
    known = EdgeTable.concat([launch_edges(structure), stream_edges(structure)])
    found = late_starts(structure, known)
    names = structure.events.names(found.event).tolist()
    times = zip((found.ready_ns // 1_000).tolist(), (found.wait_ns // 1_000).tolist(), strict=True)
    return dict(zip(names, times, strict=True))


@pytest.mark.parametrize(("gap_us", "found"), [(21, {"k2": (57, 21)}), (20, {})])
def test_queued_work_is_late_beyond_two_launch_latencies_after_the_work_before_it(gap_us, found):
    """The launch latency is 10 us; k1 begins at once."""
    assert (
        late(f"""
        cpu 1    |[launch >a][launch >b][launch >c]
        stream 7 |{"":10}[k0 <a{"":33}][k1 <b]{"":{gap_us}}[k2 <c]
    """)
        == found
    )


@pytest.mark.parametrize(("delay_us", "found"), [(51, {"k2": (61, 41)}), (50, {})])
def test_work_is_late_beyond_four_launch_latencies_after_a_launch_takes(delay_us, found):
    """The launch latency is 10 us, and k2 is launched at 51 us."""
    assert (
        late(f"""
        cpu 1    |[launch >a]{"":40}[launch >b]
        stream 7 |{"":10}[k1 <a]{"":{34 + delay_us}}[k2 <b]
    """)
        == found
    )


@pytest.fixture
def stream() -> Structure:
    """Three kernels, of which two overlap."""
    return examine(
        timeline("""
            us       |0         10        20
            stream 7 |  [k0  ]     [k1   ]
            stream 7 |                 [k2   ]
        """)
    )


def test_the_last_work_that_has_ended_may_end_at_that_time(stream):
    """-1 for none, long before."""
    until = 1_000 * np.array([7, 8, 19, 20, 30])

    work, end_ns = ended_before(stream, 0, until)

    assert work.tolist() == [-1, 0, 0, 1, 2]
    assert (end_ns[1:] == stream.events.end_ns[work[1:]]).all()
    assert end_ns[0] < -until.max()


def test_work_that_runs_ends_at_that_time_or_later(stream):
    """Or it begins next; -1 after all, which ends last."""
    at = 1_000 * np.array([0, 8, 9, 18, 21, 24, 25])

    work, end_ns = running_at(stream, 0, at)

    assert work.tolist() == [0, 0, 1, 1, 2, 2, -1]
    assert (end_ns[:-1] == stream.events.end_ns[work[:-1]]).all()
    assert end_ns[-1] == np.iinfo(np.int64).max


def test_of_very_many_streams_those_with_most_work_are_searched(monkeypatch):
    """Streams 8 and 9 ran more than stream 7."""
    structure = examine(timeline("stream 7 |[a]\nstream 8 |[a][a]\nstream 9 |[a][a][a]"))
    monkeypatch.setattr(module, "_MOST_STREAMS", 2)

    assert most_used_streams(structure).tolist() == [1, 2]


WAITS = """
    cpu 1    |[launch >a][record !r @7][wait ?r @9][launch >b]
    stream 7 |              [k1 <a                                  ]
    stream 9 |                                                     [k2 <b    ]
"""


def test_a_dependency_whose_end_comes_late_runs_from_the_start_of_its_source(arrows, rules):
    """By the clock, k2 begins 3 us before k1 ends; the time until then is that of k1."""
    dag = drawn_dag(WAITS)
    path = critical_path(dag, dag.span)

    assert arrows(dag, "sync") == [("k1<", "k2<", 39)]
    assert rules(dag, "sync") == {"k2<": "sync record"}
    assert path[path["name"] == "k1"]["bound"].tolist() == ["launch", "compute"]
    assert len(dag.rejected.edges) == 0


def test_an_end_is_late_by_half_of_the_launch_latency_at_most(arrows):
    """The launch latency is 14 us, and k2 begins 6 us before k1 ends."""
    drawing = WAITS.replace("                  ]", "                     ]")
    dag = drawn_dag(drawing)

    assert arrows(dag, "sync") == [("k1<", "k2<", 39)]


def test_an_end_that_comes_much_later_contradicts_the_record():
    """Ten microseconds are no inaccuracy of a clock: the edge is set aside with its skew."""
    dag = drawn_dag("""
        cpu 1    |[launch >a][record !r @7][wait ?r @9][launch >b]
        stream 7 |              [k1 <a                                          ]
        stream 9 |                                                     [k2 <b    ]
        """)

    assert dag.rejected.skew_ns.tolist() == [10_000]


def _sources(drawing: str) -> list[str]:
    """What k2 waits for by time alone."""
    dag = drawn_dag(drawing)
    return dag.events.names(dag.edges.tail[dag.edges.rule == Rule.ENDED_RIGHT_BEFORE] >> 1).tolist()


@pytest.mark.parametrize(("late_us", "sources"), [(4, ["k1"]), (6, [])])
def test_by_time_alone_an_end_is_late_by_a_quarter_of_the_launch_latency(late_us, sources):
    """The launch latency is 20 us."""
    assert (
        _sources(f"""
        cpu 1    |[launch >a][launch >b]
        stream 7 |{"":20}[k1 <a {"":{904 + late_us}}]
        stream 9 |{"":931}[k2 <b   ]
        """)
        == sources
    )


@pytest.mark.parametrize(("gap_us", "is_wait"), [(40, True), (60, False)])
def test_the_end_lies_in_an_eighth_of_the_wait(rules, gap_us, is_wait):
    """k2 is ready at 31 us and starts at 431 us: in a longer part, an end may be chance."""
    dag = drawn_dag(f"""
        cpu 1    |[launch >a][launch >b]
        stream 7 |{"":20}[k1 <a {"":{403 - gap_us}}]
        stream 9 |{"":431}[k2 <b   ]
    """)

    assert rules(dag, "sync") == ({"k2<": "ended right before"} if is_wait else {})


@pytest.mark.parametrize(("alone_us", "is_wait"), [(190, True), (210, False)])
def test_work_whose_launch_is_not_known_waits_for_what_ran_half_of_the_time(
    rules, alone_us, is_wait
):
    """What stream 7 had been given is not known; k2 begins 400 us after p."""
    dag = drawn_dag(f"""
        cpu 1    |[launch >a]
        stream 9 |{"":10}[w <a]{"":10}[p   ]{"":400}[k2  ]
        stream 7 |{" " * (32 + alone_us)}[k1{" " * (394 - alone_us)}]
    """)

    assert rules(dag, "sync") == ({"k2<": "ended right before"} if is_wait else {})


def test_a_wait_is_for_all_that_the_stream_had_been_given(arrows):
    """Even if the last of it ran for a small part of the wait; another thread launches k2."""
    dag = drawn_dag(f"""
        cpu 2    |           [launch >b]
        cpu 1    |[graph >a]
        stream 7 |{"":20}[k0 <a{"":300}][k1 <a{"":90}]
        stream 9 |{"":433}[k2 <b   ]
    """)

    assert arrows(dag, "sync") == [("k1>", "k2<", 0)]


def test_what_came_to_the_other_stream_later_is_not_waited_for(arrows):
    """However soon k2 begins after it."""
    dag = drawn_dag(f"""
        cpu 1    |[launch >b][launch >a]
        stream 9 |{"":431}[k2 <b   ]
        stream 7 |{"":20}[k1 <a {"":400}]
    """)

    assert arrows(dag, "sync") == []
