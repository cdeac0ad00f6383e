"""Real captures on a CPU, in which nothing waits for a device: no wait is made up."""

from __future__ import annotations

import numpy as np
import pytest

from htagraph import load
from htagraph.model.rules import Evidence, Rule
from tests.real_traces import CAPTURES, traces_in

STALLS = traces_in(CAPTURES / "single")


@pytest.mark.parametrize("path", STALLS, ids=lambda path: path.name.split(".")[0])
def test_nothing_is_inferred_of_a_host_that_stalls_by_itself(path):
    """A collection, a lock, JSON, a sleep, a loader: planted, and each its own thread's time."""
    dag = load(path).compile().dag

    assert not np.isin(dag.edges.rule, Rule.on(Evidence.INFERRED)).any()
    assert dag.support == ()
