"""Every answer has its schema, also where there is nothing to tell."""

from __future__ import annotations

import pytest

from htagraph import Trace
from htagraph.model.columns import SCHEMAS, heading
from htagraph.model.schema import Quantity
from htagraph.synth import timeline

COLUMNS = [
    (schema, name, column) for schema, of in SCHEMAS.items() for name, column in of.columns.items()
]
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


UNITS = {
    Quantity.INSTANT: ("ns",),
    Quantity.DURATION: ("ns",),
    Quantity.SHARE: ("share",),
    Quantity.FLAG: ("flag",),
    Quantity.TEXT: ("text",),
}
DTYPES = {
    Quantity.INSTANT: ("int64",),
    Quantity.DURATION: ("int64", "float64"),
    Quantity.SHARE: ("float64",),
    Quantity.COUNT: ("int64",),
    Quantity.NUMBER: ("int64", "float64"),
    Quantity.IDENTIFIER: ("int64", "object"),
    Quantity.FLAG: ("bool",),
    Quantity.LABEL: ("category", "object"),
    Quantity.NAME: ("object",),
    Quantity.TEXT: ("object",),
}


def test_every_column_has_a_meaning():
    """The reference and the page show it."""
    assert [row[:2] for row in COLUMNS if not row[2].meaning.strip()] == []


def test_units_and_dtypes_are_those_of_the_quantity():
    assert [
        row
        for row in COLUMNS
        if row[2].unit not in UNITS.get(row[2].quantity, (row[2].unit,))
        or row[2].dtype not in DTYPES[row[2].quantity]
    ] == []


def test_the_end_of_a_name_is_its_unit():
    """`_ns` is time, `_share` a part of 1, `n_` a count, `is_` a flag."""
    ends = [(name.endswith("_ns"), column.unit == "ns") for _, name, column in COLUMNS]
    assert [COLUMNS[at] for at, (named, is_time) in enumerate(ends) if named != is_time] == []
    assert {c.quantity for _, name, c in COLUMNS if name.endswith("_share")} == {Quantity.SHARE}
    assert {c.quantity for _, name, c in COLUMNS if name.startswith("is_")} == {Quantity.FLAG}
    counts = {c.quantity for _, name, c in COLUMNS if name.startswith("n_") and name != "n_delta"}
    assert counts == {Quantity.COUNT}


def test_a_name_is_one_quantity_in_all_schemas():
    """Derived tables look a column up by its name; words apart from numbers, and categories."""
    known = {}
    for schema, name, column in COLUMNS:
        key = (name, column.dtype == "object", column.dtype == "category")
        first = known.setdefault(key, (schema, column.quantity))
        assert column.quantity == first[1], f"{name} of {schema}, {name} of {first[0]}"


def test_a_heading_is_given_in_every_schema_with_the_column():
    assert [
        (schema, name)
        for schema, name, column in COLUMNS
        if column.heading not in ("", heading(name))
    ] == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_has_its_own_name_and_shows_its_own_columns(name):
    schema = SCHEMAS[name]

    assert schema.name == name
    for first in (schema.first, *schema.first_by.values()):
        assert [column for column in first.split() if column not in schema.columns] == []


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_on_an_empty_trace_have_the_schema(name):
    """Same columns, same dtypes, same order; questions are in tests/laws/test_query_laws.py."""
    frame = ANSWERS[name]()

    assert {key: str(dtype) for key, dtype in frame.dtypes.items()} == {
        key: column.dtype for key, column in SCHEMAS[name].columns.items()
    }
