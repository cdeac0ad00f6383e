"""The critical path that is found equals the one that the simulator knows to be true."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import assume, given

from htagraph import load
from htagraph.compiler.passes import compile_events
from htagraph.explain.critical_path import critical_path
from htagraph.lookup.find_window import find_window
from htagraph.model.dag import Dag
from tests.synth.simulator import simulate
from tests.synth.strategies import programs


def _tiles(frame: pd.DataFrame) -> list[tuple[int, int, str]]:
    """Start, end and bound of segments; neighbors of one bound are joined."""
    out: list[tuple[int, int, str]] = []
    for row in frame.itertuples(index=False):
        bound, end = str(row.bound), row.start_ns + row.dur_ns
        if out and out[-1][2] == bound and out[-1][1] == row.start_ns:
            out[-1] = (out[-1][0], end, bound)
        else:
            out.append((row.start_ns, end, bound))
    return out


def _n_tracks_that_end_last(dag: Dag) -> int:
    """Number of tracks that are busy until the last instant; of several, any may be the last."""
    events = dag.events
    return len(np.unique(events.lane[dag.is_work & (events.end_ns == dag.span.end_ns)]))


@given(program=programs())
def test_the_path_of_a_simulated_rank_is_the_true_one(program):
    """The simulator knows the cause of each instant; the compiler finds it in the trace alone."""
    rank = simulate(program)
    dag = compile_events(rank.events)
    assume(rank.n_ties == 0)
    assume(_n_tracks_that_end_last(dag) == 1)

    assert _tiles(rank.truth) == _tiles(critical_path(dag, dag.span))


@given(program=programs())
def test_the_path_of_each_simulated_step_is_the_true_one(program):
    """A step's path leads to the end of its host range, and is cut where the range starts."""
    rank = simulate(program)
    assume(rank.n_ties == 0)
    dag = compile_events(rank.events)

    for step in rank.steps.itertuples(index=False):
        assert _tiles(rank.step_truth(step.name)) == _tiles(
            critical_path(dag, find_window(dag, step.name))
        )


@given(program=programs())
def test_the_trace_as_a_file_has_the_same_path_as_the_trace_in_memory(program):
    """Writing Kineto JSON and reading it back changes nothing that the path depends on."""
    rank = simulate(program)
    from_file = load(rank.to_json()).compile().critical_path().segments
    dag = compile_events(rank.events)

    assert _tiles(critical_path(dag, dag.span)) == _tiles(from_file)
