"""Laws of every real trace."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
import rustworkx

import htagraph as hg
from htagraph.errors import QueryError
from htagraph.explain.segments import main_causes
from htagraph.findings.window_bounds import find_bounds
from htagraph.lookup.attribution import loads_data
from htagraph.model.kinds import KernelClass
from htagraph.model.recording import HOLES
from htagraph.replay.changes import remove
from htagraph.replay.device_changes import overlap
from htagraph.replay.draft import EventGroup, of_class
from htagraph.replay.host_changes import prefetch
from htagraph.replay.rehearsal import Rehearsal
from tests.real_traces import TRACES, cases, located
from tests.replay.drawn import replayed

MAX_EDGES = 60_000

_MANY = ("captures/jobs/", "captures/pipelines/")
"""Ranks that are like each other."""
_LOADERS = EventGroup(
    "data loading", lambda dag: dag.events.named(loads_data(dag)) & dag.events.is_host
)
ASIDE = [
    (prefetch(), remove(_LOADERS)),
    *((overlap(of_class(one)), remove(of_class(one))) for one in KernelClass),
]
"""Changes that move work aside, and the same work gone."""

pytestmark = pytest.mark.parametrize(
    "graph",
    [
        pytest.param(*one.values, id=one.id, marks=pytest.mark.slow)
        if one.values[0].startswith(_MANY)
        else one
        for one in cases(TRACES)
    ],
    indirect=True,
)


@pytest.fixture(scope="module")
def graph(request: pytest.FixtureRequest) -> hg.TraceGraph:
    return hg.load(located(request.param)).compile()


def windows(graph: hg.TraceGraph) -> list[hg.TraceGraph]:
    """The whole trace and each of its steps."""
    return [
        graph,
        *(
            graph.window((row.start_ns, row.start_ns + row.dur_ns))
            for row in graph.steps.itertuples()
        ),
    ]


def named_steps(graph: hg.TraceGraph) -> list[hg.TraceGraph]:
    """The windows of the distinct names of steps."""
    return [graph.window(name, instance=0) for name in dict.fromkeys(graph.steps["name"])]


@pytest.mark.some(13)
def test_segments_tile_every_window(graph: hg.TraceGraph) -> None:
    """Each segment starts where the one before ended, so every nanosecond is accounted for once."""
    for window in [*windows(graph), *named_steps(graph)]:
        path = window.critical_path()
        start, dur = (path.segments[name].to_numpy() for name in ("start_ns", "dur_ns"))

        assert (dur > 0).all()
        assert dur.sum() == path.dur_ns == window.dur_ns
        assert np.array_equal(start, window.interval.start_ns + np.cumsum(dur) - dur)


def test_longest_path_of_rustworkx_is_the_window(graph: hg.TraceGraph) -> None:
    """Without binding edges, over lag and residual alone, the length is the same."""
    fitting = (window for window in windows(graph) if len(window._edge_rows) <= MAX_EDGES)
    window = next(fitting, None)
    if window is None:
        pytest.skip("the trace has no window that is small enough for Python callbacks")

    length = rustworkx.dag_longest_path_length(
        window.to_rustworkx(), lambda _tail, _head, edge: edge["lag_ns"] + edge["residual_ns"]
    )

    assert length == window.dur_ns


def test_a_replay_without_changes_gives_back_every_timestamp(graph: hg.TraceGraph) -> None:
    """By every reading of what the trace leaves open."""
    for reading in Rehearsal(graph.dag, graph.interval).readings:
        assert np.array_equal(
            replayed(reading.replay), graph.dag.events.node_ts_ns[graph.dag.order]
        )


def test_work_moved_aside_is_done_no_earlier_than_if_it_were_gone(graph: hg.TraceGraph) -> None:
    """Copies, communication and computation on own streams, and batches that workers load."""
    rehearsal = Rehearsal(graph.dag, graph.dag.span)
    for moved, gone in ASIDE:
        for reading in rehearsal.readings:
            with suppress(QueryError):
                later_ns = rehearsal.run([moved], reading).times_ns
                least_ns = rehearsal.run([gone], reading).times_ns

                assert (later_ns >= least_ns).all()
                assert rehearsal.dur_ns(later_ns) >= rehearsal.dur_ns(least_ns)


def test_groups_add_up_to_the_window(graph: hg.TraceGraph) -> None:
    """However the path is grouped, nothing is lost and nothing counted twice."""
    path = graph.critical_path()
    by = ["bound", "kind", "name", "op", "track", "rule", *(["step"] if len(graph.steps) else [])]

    assert {key: int(path.breakdown(by=key)["dur_ns"].sum()) for key in by} == dict.fromkeys(
        by, path.dur_ns
    )


@pytest.mark.some(9)
def test_findings_and_what_is_apart_add_up_to_the_window(graph: hg.TraceGraph) -> None:
    """Unless the verdict is withheld, as too much is unknown waits."""
    path = graph.critical_path()
    attributed = path.attributed_time
    verdict = find_bounds(path)
    apart_ns = sum(dur_ns for _, dur_ns in verdict.apart)

    assert int(attributed["dur_ns"].sum()) == path.dur_ns
    assert bool(verdict.withheld) != bool(verdict.findings)
    if verdict.findings:
        assert sum(finding.path_ns for finding in verdict.findings) + apart_ns == path.dur_ns


def test_no_trace_has_lost_device_work(graph: hg.TraceGraph) -> None:
    """These are whole: every launch has its work, but for captured ones; links are recorded."""
    assert not graph.damage()["kind"].isin(HOLES).any()


def test_findings_over_time_tile_the_window(graph: hg.TraceGraph) -> None:
    """Each part of the run has one main cause, of which some time is on the path."""
    path = graph.critical_path()
    causes = main_causes(path.attributed_labels)
    start, dur = (causes[name].to_numpy() for name in ("start_ns", "dur_ns"))

    assert (dur > 0).all()
    assert np.array_equal(start, graph.interval.start_ns + np.cumsum(dur) - dur)
    assert dur.sum() == graph.dur_ns
    assert len(causes) <= 200
    assert set(causes["cause"]) <= set(path.attributed_time["cause"])


@pytest.mark.some(16)
def test_the_drawing_of_the_path_fits_a_slide(graph: hg.TraceGraph) -> None:
    """At most 25 boxes, whose times add up to the window; few of it is in none."""
    path = graph.critical_path()
    drawn = path.outline

    assert sum(box.dur_ns for box in drawn.boxes) + drawn.left_out_ns == graph.dur_ns
    assert len(drawn.boxes) <= 24
    assert drawn.left_out_ns < graph.dur_ns / 5
    assert path.to_dot().count("fixedsize=true") == len(drawn.boxes) + 3 + (drawn.n_left_out > 0)
