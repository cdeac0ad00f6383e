"""A reader of a new format is one function: `EventTable.of` takes its columns."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from htagraph.errors import QueryError
from htagraph.model.events import EventTable
from htagraph.model.kinds import EventKind
from htagraph.model.recording import Recording
from htagraph.run.trace import Trace

_CSV = """\
name,kind,pid,tid,start_us,dur_us,launch,registers
aten::mm,op,100,1,0,30,,
cudaLaunchKernel,runtime,100,1,10,10,1,
gemm,kernel,0,7,25,40,1,64
cudaDeviceSynchronize,runtime,100,1,30,40,,
"""


def read_csv(source: str | Path | bytes, **_options: object) -> Recording:
    """The recording in a table of events."""
    assert isinstance(source, Path)
    with source.open(newline="") as file:
        rows = list(csv.DictReader(file))
    on_device = [row["kind"] == "kernel" for row in rows]
    lane = [(int(row["pid"]), int(row["tid"])) for row in rows]
    return Recording(
        EventTable.of(
            ts_ns=[1000 * int(row["start_us"]) for row in rows],
            dur_ns=[1000 * int(row["dur_us"]) for row in rows],
            kind=[EventKind.parse(row["kind"]) for row in rows],
            name=[row["name"] for row in rows],
            lane=lane,
            device=[pid if is_on else -1 for (pid, _), is_on in zip(lane, on_device, strict=True)],
            stream=[tid if is_on else -1 for (_, tid), is_on in zip(lane, on_device, strict=True)],
            correlation=[int(row["launch"] or -1) for row in rows],
            columns={"registers": [int(row["registers"] or 0) or None for row in rows]},
        )
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The table on disk."""
    file = tmp_path / "events.csv"
    file.write_text(_CSV)
    return file


def test_a_reader_of_csv_gives_a_path(path: Path) -> None:
    """The call launches the kernel, and the last call waits for it."""
    path_through = Trace(read_csv(path)).compile().critical_path()

    by_bound = path_through.breakdown()["dur_ns"].to_dict()
    assert by_bound == {"compute": 40_000, "launch": 15_000, "host": 10_000, "sync": 5_000}


def test_columns_lanes_and_flows_are_kept() -> None:
    """A column holds what is not None; lanes have names; ends of arrows have lane and time."""
    events = EventTable.of(
        ts_ns=[0, 5],
        dur_ns=3,
        kind=EventKind.OP,
        name=["forward", "backward"],
        lane=[(1, 1), (1, 2)],
        columns={"dtype": [None, "BFloat16"], "share": [0.5, 1]},
        flows=[("fwdbwd", 0, 9, (1, 1), 0), ("fwdbwd", 2, 9, (1, 2), 5)],
        lanes={(1, 2): {"thread": "autograd"}},
    )

    assert events.frame()["category"].tolist() == ["op", "op"]
    assert events.symbols.array[events.columns["dtype"].value].tolist() == ["BFloat16"]
    assert events.columns["share"].value.tolist() == [0.5, 1.0]
    assert [events.lanes.thread[lane] for lane in events.lane] == ["", "autograd"]
    assert events.flows.lane.tolist() == events.lane.tolist()
    assert events.flows.ts_ns.tolist() == [0, 5]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"ts_ns": [0]}, "column 'ts_ns' has 1 values, and there are 2 names"),
        ({"lane": [(1, 1)]}, "column 'lane' has 1 values"),
        ({"category": ["op"]}, "column 'category' has 1 values"),
        ({"columns": {"bytes": [1, 2, 3]}}, "column 'bytes' has 3 values"),
        ({"kind": 99}, "no kind 99"),
        ({"flows": [("fwdbwd", 0, 1, (9, 9), 3)]}, r"lane \(9, 9\), which has no events"),
    ],
)
def test_columns_that_do_not_fit_are_refused(wrong, said) -> None:
    """One value is not taken for all events unless it is a number alone."""
    columns = {"ts_ns": [0, 5], "dur_ns": 1, "kind": EventKind.OP, "name": ["a", "b"]}

    with pytest.raises(QueryError, match=said):
        EventTable.of(**{**columns, "lane": [(1, 1)] * 2, **wrong})
