"""Time of many paths by name: what a table of all their segments would add up to."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import htagraph as hg
from htagraph.explain import breakdown as module
from htagraph.explain.breakdown import path_sums
from htagraph.explain.critical_path import critical_paths
from htagraph.lookup.steps import without_numbers
from htagraph.model.kinds import Bound
from htagraph.model.window import Window
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

_KEY = ["window", "bound", "name", "op", "event"]


def _by_segments(dag, windows):
    """The same from all segments of all paths."""
    parts = []
    for number, window in enumerate(windows):
        own = critical_paths(dag, [window])
        parts.append(own.assign(window=number))
    found = pd.concat(parts).assign(
        bound=lambda one: one["bound"].astype(object),
        name=lambda one: without_numbers(one["name"]),
        op=lambda one: without_numbers(one["op"]),
        event=lambda one: one["event"].where(one["bound"] == Bound.COMMUNICATION.label, -1),
    )
    return found.groupby(_KEY, sort=False).agg(
        start_ns=("start_ns", "min"), dur_ns=("dur_ns", "sum")
    )


@pytest.mark.some(1)
@pytest.mark.parametrize("most", [1 << 20, 1], ids=["at once", "one by one"])
def test_sums_are_those_of_all_segments(monkeypatch, most):
    """Of windows that overlap, with and without a node they end at, in the order of first ones."""
    monkeypatch.setattr(module, "_N_SEGMENTS", most)
    dag = hg.Trace.from_events(simulate(training_rank(steps=3)).events).compile().dag
    nodes = np.random.default_rng(0).choice(np.flatnonzero(dag.binding >= 0), 40).tolist()
    ends_ns, begin_ns = dag.events.node_ts_ns[nodes].tolist(), dag.span.start_ns
    pairs = list(zip(nodes, ends_ns, strict=True))
    windows = [
        dag.span,
        *(Window(begin_ns, end, "", anchor=node) for node, end in pairs if end > begin_ns),
        *(Window((begin_ns + end) // 2, end - 7, "") for _, end in pairs if end > begin_ns + 99),
    ]
    sums, causes = path_sums(dag, windows)

    named = pd.DataFrame([causes[number] for number in sums.cause], columns=_KEY[1:4])
    found = named.assign(
        window=sums.window, event=sums.event, start_ns=sums.start_ns, dur_ns=sums.dur_ns
    )
    expected = _by_segments(dag, windows).reset_index()
    assert found[expected.columns].to_numpy().tolist() == expected.to_numpy().tolist()


def test_steps_have_one_name():
    """What a step does outside operators is one row for all steps."""
    dag = hg.Trace.from_events(simulate(training_rank(steps=3)).events).compile().dag
    _, causes = path_sums(dag, [dag.span])

    assert {name for _, name, _ in causes if name.startswith("ProfilerStep")} == {"ProfilerStep"}


def test_of_no_windows_there_is_no_sum():
    """No row, no cause."""
    dag = hg.Trace.from_events(simulate(training_rank(steps=1)).events).compile().dag
    sums, causes = path_sums(dag, [])

    assert (len(sums.dur_ns), causes) == (0, [])
