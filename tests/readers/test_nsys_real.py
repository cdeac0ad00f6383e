"""Real exports of three versions of Nsight Systems: nothing is lost, and sums are SQL's sums."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from htagraph import Trace, load
from htagraph.model.kinds import EventKind
from htagraph.readers.nsys.export import Process
from htagraph.readers.nsys.ranks import nsys_ranks
from tests.public_traces import PUBLIC_TRACES
from tests.real_traces import cases, located

EXPORTS = [trace.name for trace in PUBLIC_TRACES if trace.name.endswith(".sqlite")]
_TIMES = {"start", "timestamp"}
_NO_RANK = "of processes that are no rank"


@pytest.fixture(name="ranks", params=cases(EXPORTS), scope="module")
def ranks_(request: pytest.FixtureRequest) -> dict[Process, Trace]:
    """The traces of all ranks of an export, by process."""
    path = located(request.param)
    found = nsys_ranks(path)
    paths = [path] if len(found) == 1 else [path / f"rank-{rank.rank}" for rank in found]
    return {Process(rank.global_id): load(where) for rank, where in zip(found, paths, strict=True)}


@pytest.fixture(name="export")
def export_(ranks: dict[Process, Trace]) -> Iterator[sqlite3.Connection]:
    """The export as a database."""
    where = next(iter(ranks.values())).path
    assert where is not None
    path = where if where.is_file() else Path(where.parent)
    with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as connection:
        yield connection


def test_each_row_is_an_event_or_counted(ranks, export):
    """Of all tables with times, over all ranks."""
    n_rows = 0
    for (table,) in export.execute("SELECT name FROM sqlite_master").fetchall():
        columns = {row[1] for row in export.execute(f"PRAGMA table_info({table})")}
        if columns & _TIMES:
            n_rows += export.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608

    own = [
        len(trace.events) + sum(n for what, n in trace.skipped.items() if _NO_RANK not in what)
        for trace in ranks.values()
    ]
    others = [n for what, n in next(iter(ranks.values())).skipped.items() if _NO_RANK in what]

    assert sum(own) + sum(others) == n_rows
    assert all(trace.repairs.empty for trace in ranks.values())


def test_kernels_have_the_names_and_the_time_that_sql_finds(ranks, export):
    """For each name, the same number and the same nanoseconds."""
    for process, trace in ranks.items():
        sql = """SELECT value, count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL
                 JOIN StringIds ON StringIds.id = demangledName WHERE globalPid = ? GROUP BY 1"""
        expected = {name: tuple(rest) for name, *rest in export.execute(sql, (process.global_id,))}

        events = trace.events
        kernels = events[events["kind"] == EventKind.KERNEL.label].groupby("name")["dur_ns"]
        found = kernels.agg(["count", "sum"])

        assert {name: tuple(row) for name, *row in found.itertuples()} == expected


def test_device_work_hangs_on_its_calls_and_the_path_on_records(ranks):
    """Of the path, at most 2% is unknown waits; its segments tile the window, or it would raise."""
    for trace in ranks.values():
        graph = trace.compile()
        quality = graph.quality().set_index("check")
        segments = graph.critical_path().segments
        unexplained_ns = segments.loc[segments["bound"] == "unknown_waits", "dur_ns"].sum()

        assert quality.loc["device work linked to its launch", "share"] > 0.99
        assert quality.loc["long synchronizations matched with device work", "verdict"] == "good"
        assert unexplained_ns < 0.02 * segments["dur_ns"].sum()
