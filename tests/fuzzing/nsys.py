"""Throws broken exports at the reader of Nsight Systems' SQLite.

Mutations of a simulated export: columns and tables that are missing, NULLs, values of any type and
size, rows that are repeated, bytes that are changed or cut off. For each of them the reader gives a
trace whose rows all are events or counted, and that compiles, or an error of the package.
"""

from __future__ import annotations

import random
import sqlite3
import tempfile
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any

from htagraph import load
from htagraph.errors import HTAGraphError
from htagraph.readers.nsys.ranks import nsys_ranks
from tests.readers.nsys_files import SCHEMA, NsysFile, global_id
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

_EVENT_RECORDS = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"


_VALUES: tuple[Any, ...] = (
    None, 0, -1, 1, 7, 1 << 31, (1 << 32) - 1, 1 << 62, (1 << 63) - 1, -(1 << 63), 0.5, 1e300,
    "", "text", "12", "\x00", "aten::mm, seq = 99999999999999999999, op_id = 1", b"\xff\x00",
)  # fmt: skip


_WITH_TIMES = [
    table
    for table, columns in SCHEMA.items()
    if ("start," in columns or "timestamp," in columns)
    and table not in (_EVENT_RECORDS, "SCHED_EVENTS")
]


def export(path: Path) -> Path:
    """An export with some rows in each table that is read."""
    file = NsysFile(old=path.stem.endswith("old"))
    file.starts(1_700_000_000_000_000_000)
    file.add_process(simulate(training_rank(steps=1, layers=2)).events)
    (thread,) = {row["globalTid"] for row in file.rows["NVTX_EVENTS"][:1]}
    start = file.rows["NVTX_EVENTS"][0]["start"]
    for number in range(4):
        times = {"start": start + 10 * number, "end": start + 10 * number + 5}
        name = file.string(("poll", "read", "sem_wait", "ioctl")[number])
        file.add("OSRT_API", **times, globalTid=thread, nameId=name)
        file.add("PROFILER_OVERHEAD", **times, globalTid=thread, nameId=name)
        file.add("GPU_METRICS", timestamp=times["start"], typeId=256, metricId=number, value=50)
        place = {"globalPid": thread >> 24 << 24, "deviceId": 0, "contextId": 1, "streamId": 7}
        file.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **times, **place, graphId=number)
        file.add("CUPTI_ACTIVITY_KIND_MEMSET", **times, **place, bytes=8, memKind=2)
    file.add("ThreadNames", nameId=file.string("main"), globalTid=thread)
    file.add("TARGET_INFO_GPU", id=0, name="GPU", cuDevice=0, smCount=4, threadsPerWarp=32)
    file.add("TARGET_INFO_GPU_METRICS", typeId=256, metricId=1, metricName="SMs [Throughput %]")
    file.add_range("ncclCommInitRank", start=start, end=start + 1, globalTid=global_id(9, 9),
                   jsonText='{"Rank": 1, "No. of ranks": 2}')  # fmt: skip
    return file.write(path)


@cache
def corpus() -> list[bytes]:
    """What mutations start from."""
    with tempfile.TemporaryDirectory() as folder:
        return [export(Path(folder) / f"{name}.sqlite").read_bytes() for name in ("new", "old")]


def mutated(rng: random.Random) -> bytes:
    """An export with some damage."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "broken.sqlite"
        path.write_bytes(rng.choice(corpus()))
        damage(path, rng)
        if rng.random() < 0.25:
            broken_bytes(path, rng)
        return path.read_bytes()


def damage(path: Path, rng: random.Random) -> None:
    """Change rows, columns or tables of an export."""
    with closing(sqlite3.connect(path)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
        for _ in range(rng.choice((1, 2, 4, 12))):
            table = rng.choice(tables)
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            if not columns:
                continue
            column, what = rng.choice(columns), rng.randrange(6)
            some = rng.choice(("1", "rowid % 7 = 0", "rowid = 3"))
            with suppress(sqlite3.OperationalError):  # the last column of a table
                if what == 0:
                    connection.execute(f"DROP TABLE {table}")
                elif what == 1:
                    connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
                elif what == 2:
                    connection.execute(f"INSERT INTO {table} SELECT * FROM {table} WHERE {some}")  # noqa: S608
                else:
                    value = rng.choice(_VALUES)
                    connection.execute(f"UPDATE {table} SET {column} = ? WHERE {some}", (value,))  # noqa: S608
        connection.commit()


def broken_bytes(path: Path, rng: random.Random) -> None:
    """Change or cut the bytes of an export."""
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 3, 30))):
        content[rng.randrange(len(content))] = rng.randrange(256)
    path.write_bytes(content[: rng.randrange(len(content)) if rng.random() < 0.3 else None])


def answered(data: bytes) -> str:
    """Read an export; return how it went, raise `AssertionError` if that must not be."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "broken.sqlite"
        path.write_bytes(data)
        return _read(path)


def _read(path: Path) -> str:
    try:
        ranks = nsys_ranks(path)
        traces = [
            load(path if len(ranks) == 1 else path / f"rank-{rank.rank}") for rank in ranks[:2]
        ]
        in_memory = [load(path.read_bytes())] if len(ranks) == 1 else traces[:1]
    except HTAGraphError as error:
        return type(error).__name__
    for trace in traces:
        events = trace.recording.events
        assert (events.dur_ns >= 0).all()
        assert len(trace.events) == len(events)
        with suppress(HTAGraphError):
            trace.compile().critical_path()
    if traces:
        assert in_memory[0].events.equals(traces[0].events)
    if len(ranks) == 1:
        (trace,) = traces
        events = trace.recording.events
        dropped = sum(repair.n for repair in trace.recording.repairs if repair.kind == "no start")
        known = len(events) + len(events.samples) + sum(trace.skipped.values()) + dropped
        assert n_rows(path) == known
    return "repaired" if any(trace.recording.repairs for trace in traces) else "valid"


def n_rows(path: Path) -> int:
    """Rows of all event tables but one, which makes no events."""
    with closing(sqlite3.connect(path)) as connection:
        there = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        return sum(
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
            for table in _WITH_TIMES
            if table in there
        )
