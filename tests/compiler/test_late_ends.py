"""Ends that come late: what waited has begun before the recorded end of what it waited for."""

from __future__ import annotations

import pytest

from htagraph.compiler.passes import compile_events
from htagraph.explain.critical_path import critical_path
from htagraph.model.rules import Rule
from htagraph.synth import timeline

WAITS = """
    cpu 1    |[launch >a][record !r @7][wait ?r @9][launch >b]
    stream 7 |              [k1 <a                                  ]
    stream 9 |                                                     [k2 <b    ]
"""


def test_a_dependency_whose_end_comes_late_runs_from_the_start_of_its_source(arrows, rules):
    """By the clock, k2 begins 3 us before k1 ends; the time until then is that of k1."""
    dag = compile_events(timeline(WAITS))
    path = critical_path(dag, dag.span)

    assert arrows(dag, "sync") == [("k1<", "k2<", 39)]
    assert rules(dag, "sync") == {"k2<": "sync record"}
    assert path[path["name"] == "k1"]["bound"].tolist() == ["launch", "compute"]
    assert len(dag.rejected.edges) == 0


def test_an_end_is_late_by_half_of_the_launch_latency_at_most(arrows):
    """The launch latency is 14 us, and k2 begins 6 us before k1 ends."""
    drawing = WAITS.replace("                  ]", "                     ]")
    dag = compile_events(timeline(drawing))

    assert arrows(dag, "sync") == [("k1<", "k2<", 39)]


def test_an_end_that_comes_much_later_contradicts_the_record():
    """Ten microseconds are no inaccuracy of a clock: the edge is set aside with its skew."""
    dag = compile_events(
        timeline("""
        cpu 1    |[launch >a][record !r @7][wait ?r @9][launch >b]
        stream 7 |              [k1 <a                                          ]
        stream 9 |                                                     [k2 <b    ]
        """)
    )

    assert dag.rejected.skew_ns.tolist() == [10_000]


def _sources(drawing: str) -> list[str]:
    """What k2 waits for by time alone."""
    dag = compile_events(timeline(drawing))
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
