"""Ends that come late: what waited has begun before the recorded end of what it waited for."""

from __future__ import annotations

from htagraph.compiler.passes import compile_events
from htagraph.explain.critical_path import critical_path
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


def test_ends_are_late_by_the_resolution_of_the_times_at_least():
    """Times in whole microseconds hide one."""
    assert compile_events(timeline(WAITS)).calibration.late_end_ns >= 1_000


def test_how_late_ends_come_is_not_asked_where_nothing_is_inferred():
    """A recorded wait needs no tolerance that was learnt."""
    dag = compile_events(timeline(WAITS), infer=False)

    assert dag.calibration.late_end_ns == 0
    assert (dag.edges.rule_names == "sync record").sum() == 1
