"""A capture of JAX, as XProf writes it: ``tests/data/captures/scripts/jax_steps.py``."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

import htagraph as hg
from htagraph.lookup.programs import user_ranges
from tests.real_traces import CAPTURES

FILE = CAPTURES / "jax" / "steps.trace.json.gz"
"""Five steps, each with a sleep of 20 ms in `make_batch`."""


@pytest.fixture(scope="module")
def trace() -> hg.Trace:
    return hg.load(FILE)


def test_it_opens_without_a_defect(trace):
    """Its list of events ends in ``{}``."""
    assert gzip.decompress(FILE.read_bytes()).endswith(b",{}]}")
    assert trace.repairs.empty
    assert trace.compile().damage().empty


def test_numbered_annotations_are_steps(trace):
    found = trace.steps

    assert found["name"].tolist() == ["train"] * 5
    assert set(found["found_by"]) == {"step number"}
    assert (found["dur_ns"] > 20_000_000).all()


def test_the_other_annotations_are_functions(trace):
    """Each step calls it once."""
    found = trace.compile().window("trace").operator_breakdown().set_index("name")

    assert found.loc["make_batch", "n_calls"] == 5


def test_a_step_is_no_range_of_the_user(trace):
    dag = trace.compile().dag
    _, ranges = user_ranges(dag, np.arange(len(dag.events)))

    assert ranges.tolist() == [""]


@pytest.mark.parametrize(
    ("more", "repaired"), [({}, []), ({"name": "lost"}, ["no phase"]), ({"args": {}}, ["no phase"])]
)
def test_only_an_empty_event_is_padding(more, repaired):
    event = {"ph": "X", "name": "work", "pid": 1, "tid": 1, "ts": 0, "dur": 10}
    text = json.dumps({"traceEvents": [event, more]})

    assert hg.load(text.encode()).repairs["kind"].tolist() == repaired
