"""Every answer has its schema, also where there is nothing to tell."""

from __future__ import annotations

import numpy as np
import pytest

from htagraph import Trace
from htagraph.model import answers, frames, job_answers
from htagraph.model.schema import Schema
from htagraph.synth import timeline

SCHEMAS = {
    name: schema
    for module in (frames, answers, job_answers)
    for name, schema in vars(module).items()
    if isinstance(schema, Schema)
}
EMPTY = Trace.from_events(timeline(""))
GRAPH = EMPTY.compile()
PATH = GRAPH.critical_path()

ANSWERS = {
    "EVENTS": lambda: GRAPH.events,
    "EDGES": lambda: GRAPH.edges,
    "STEPS": lambda: GRAPH.steps,
    "SEGMENTS": lambda: PATH.segments,
    "BREAKDOWN": PATH.breakdown,
    "REPAIRS": lambda: EMPTY.repairs,
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_says_dtype_unit_and_meaning_of_every_column(name):
    """The schema is the documentation of an answer."""
    schema = SCHEMAS[name]

    assert schema.name == name
    assert all(column.unit and column.meaning for column in schema.columns.values())
    assert all(
        column.dtype == "int64"
        for key, column in schema.columns.items()
        if column.unit == "ns" and key[-8:] != "_mean_ns" and "mean" not in key and "std" not in key
    )
    assert all(
        np.dtype(column.dtype) for column in schema.columns.values() if column.dtype != "category"
    )


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_on_an_empty_trace_have_the_schema(name):
    """Same columns, same dtypes, same order; questions are in tests/laws/test_query_laws.py."""
    frame = ANSWERS[name]()

    assert {key: str(dtype) for key, dtype in frame.dtypes.items()} == {
        key: column.dtype for key, column in SCHEMAS[name].columns.items()
    }
