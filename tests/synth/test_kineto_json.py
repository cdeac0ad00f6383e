"""What a simulated trace looks like as a file."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings

from htagraph.readers.kineto.reader import read_kineto
from tests.synth.kineto_json import _ARGS, _TRIPLES
from tests.synth.program import Clock, JobProgram
from tests.synth.simulated import SimulatedRank
from tests.synth.simulator import simulate, simulate_job
from tests.synth.strategies import programs
from tests.synth.training import training_rank


@pytest.fixture(scope="module")
def rank() -> SimulatedRank:
    """A training rank with a clock that is off, so that nothing is round."""
    program = training_rank(steps=2, layers=2, seed=3)
    return simulate_job(
        JobProgram((program,), (Clock(offset_ns=-1_234_567, drift_ppb=4_321),))
    ).ranks[0]


@pytest.fixture(scope="module")
def file(rank: SimulatedRank) -> dict[str, Any]:
    """The file as any JSON parser sees it, with exact decimals."""
    return json.loads(rank.to_json(), parse_float=Decimal)


def slices(file: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in file["traceEvents"] if event["ph"] == "X"]


def test_every_sparse_column_is_in_the_file(rank: SimulatedRank, file: dict[str, Any]) -> None:
    """No column is lost on the way, and none is made up."""
    events, written = rank.events, slices(file)

    assert set(events.columns) <= set(_ARGS) | {
        name for names in _TRIPLES.values() for name in names
    }
    for name, column in events.columns.items():
        texts = column.value.dtype == "int32"
        values = events.symbols.array[column.value].tolist() if texts else column.value.tolist()
        if name in _ARGS:
            found = {
                i: s["args"][_ARGS[name]] for i, s in enumerate(written) if _ARGS[name] in s["args"]
            }
        else:
            key, axis = next(
                (k, names.index(name)) for k, names in _TRIPLES.items() if name in names
            )
            found = {i: s["args"][key][axis] for i, s in enumerate(written) if key in s["args"]}
        exact = {i: float(v) if isinstance(v, Decimal) else v for i, v in found.items()}
        assert exact == dict(zip(column.event.tolist(), values, strict=True))


@settings(max_examples=15)
@given(program=programs())
def test_the_reader_returns_the_table(program: object) -> None:
    """Whatever was simulated: what is written and read again is what was there."""
    rank = simulate(program)  # type: ignore[arg-type]
    read = read_kineto(rank.to_json()).events

    assert read.frame().equals(rank.events.frame())
    assert read.flows.ts_ns.tolist() == rank.events.flows.ts_ns.tolist()
    assert sorted(read.columns) == sorted(rank.events.columns)
