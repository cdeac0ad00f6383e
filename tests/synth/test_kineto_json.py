"""What a simulated trace looks like as a file."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from htagraph.errors import OutputError
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


def test_the_header_says_who_wrote_it(file: dict[str, Any]) -> None:
    """A reader needs rank and base time from it."""
    assert file["distributedInfo"]["rank"] == 0
    assert file["distributedInfo"]["world_size"] == 8
    assert file["distributedInfo"]["pg_config"][0]["ranks"] == list(range(8))
    assert file["baseTimeNanoseconds"] == 1_767_225_600_000_000_000
    assert file["deviceProperties"][0]["numSms"] == 132


def test_times_are_exact_to_the_nanosecond(rank: SimulatedRank, file: dict[str, Any]) -> None:
    """Three decimals of a microsecond; base plus text is the integer of the table."""
    base = file["baseTimeNanoseconds"]
    events = rank.events

    assert [base + int(s["ts"] * 1000) for s in slices(file)] == events.ts_ns.tolist()
    assert [int(s["dur"] * 1000) for s in slices(file)] == events.dur_ns.tolist()


def test_the_table_equals_what_the_file_says(rank: SimulatedRank, file: dict[str, Any]) -> None:
    """Both come from the same rows; a test must not depend on which one it takes."""
    events, written = rank.events, slices(file)
    frame = events.frame()

    assert [s["name"] for s in written] == frame["name"].tolist()
    assert [s["cat"] for s in written] == frame["category"].tolist()
    assert [(s["pid"], s["tid"]) for s in written] == list(
        zip(frame["pid"], frame["tid"], strict=True)
    )
    for key, column in (("correlation", "correlation"), ("External id", "external_id")):
        assert [s["args"].get(key, -1) for s in written] == frame[column].tolist()
    on_device = [s for s in written if "stream" in s["args"]]
    assert [s["args"]["stream"] for s in on_device] == [s["tid"] for s in on_device]


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


def test_every_launch_has_its_arrows(rank: SimulatedRank, file: dict[str, Any]) -> None:
    """One start per call that launched, one finish per work, each at the start of its event."""
    arrows = [event for event in file["traceEvents"] if event.get("cat") == "ac2g"]
    counts = Counter(arrow["ph"] for arrow in arrows)
    starts = {(s["pid"], s["tid"], s["ts"]) for s in slices(file)}

    assert counts["f"] == int(rank.events.is_device.sum())
    assert counts["s"] == len({arrow["id"] for arrow in arrows})
    assert all((arrow["pid"], arrow["tid"], arrow["ts"]) in starts for arrow in arrows)


def test_forward_and_backward_are_joined(file: dict[str, Any]) -> None:
    """Two layers of two operators, twice, each with a start and a finish on another thread."""
    arrows = [event for event in file["traceEvents"] if event.get("cat") == "fwdbwd"]

    assert Counter(arrow["ph"] for arrow in arrows) == {"s": 8, "f": 8}
    assert len({arrow["tid"] for arrow in arrows}) == 2


@settings(max_examples=15)
@given(program=programs())
def test_the_reader_returns_the_table(program: object) -> None:
    """Whatever was simulated: what is written and read again is what was there."""
    rank = simulate(program)  # type: ignore[arg-type]
    read = read_kineto(rank.to_json()).events

    assert read.frame().equals(rank.events.frame())
    assert read.flows.ts_ns.tolist() == rank.events.flows.ts_ns.tolist()
    assert sorted(read.columns) == sorted(rank.events.columns)


def test_a_file_is_compressed_by_its_name(rank: SimulatedRank, tmp_path: Path) -> None:
    """And the same program gives the same bytes."""
    plain = rank.write(tmp_path / "deep" / "rank0.json")
    packed = rank.write(tmp_path / "rank0.json.gz")

    assert plain.read_bytes() == gzip.decompress(packed.read_bytes()) == rank.to_json()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "rank0.json.gz"]


def test_a_file_that_cannot_be_written_is_an_error(rank: SimulatedRank, tmp_path: Path) -> None:
    """A folder stands where a file should be, and nothing is left behind."""
    (tmp_path / "taken").mkdir()
    with pytest.raises(OutputError, match="taken"):
        rank.write(tmp_path / "taken")

    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
