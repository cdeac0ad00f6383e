"""What it costs to open a large export of Nsight Systems, against a sum over its kernels.

Run as ``python -m tests.benchmarks.bench_nsys [FILE [GB]]``: repeats a real export (by default a
public one of two GPUs) until it has so many gigabytes (1 by default), opens each of its ranks, and
prints CPU time, wall time, memory, and how often SQLite could have summed up the durations of all
kernels meanwhile. The large export stays in the temporary folder and is used again.
"""

from __future__ import annotations

import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from htagraph import load
from htagraph.readers.nsys.ranks import nsys_ranks
from tests.real_traces import located

_TIMES = ("start", "end", "timestamp")
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_SUM = f"SELECT sum(end - start) FROM {_KERNELS}"  # noqa: S608


def tiled(path: Path, n_bytes: int, into: Path) -> Path:
    """An export that repeats another, one copy after the other, until it has so many bytes."""
    n_copies = max(1, round(n_bytes / path.stat().st_size))
    with closing(sqlite3.connect(into, uri=True)) as made:
        made.execute("PRAGMA journal_mode = OFF")
        made.execute("PRAGMA synchronous = OFF")
        made.execute("ATTACH ? AS source", (f"{path.resolve().as_uri()}?immutable=1",))
        tables = made.execute("SELECT name, sql FROM source.sqlite_master WHERE type = 'table'")
        tables = dict(tables.fetchall())
        columns = {
            table: [row[1] for row in made.execute(f"PRAGMA source.table_info({table})")]
            for table in tables
        }
        found = made.execute(
            f"SELECT min(start), max(end), max(correlationId) + 1 FROM source.{_KERNELS}"  # noqa: S608
        )
        first, last, ids = found.fetchone()
        made.execute("CREATE TEMP TABLE copy (n)")
        made.executemany("INSERT INTO copy VALUES (?)", [(n,) for n in range(n_copies)])
        shifts = dict.fromkeys(_TIMES, f" + n * {2 * (last - first)}")
        shifts["correlationId"] = f" + n * {ids}"
        for table, sql in tables.items():
            made.execute(sql)
            cells = [f"{name}{shifts.get(name, '')}" for name in columns[table]]
            many = ", copy ORDER BY n" if {*_TIMES} & {*columns[table]} else ""
            if not many:
                cells = columns[table]
            rows = f"SELECT {', '.join(cells)} FROM source.{table}{many}"  # noqa: S608
            made.execute(f"INSERT INTO main.{table} {rows}")
        made.commit()
    return into


def timed(what: Callable[[], object]) -> tuple[float, float, object]:
    """Seconds that something takes, those in which it computes, and what it returns."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    made = what()
    return time.perf_counter() - begin, time.process_time() - begin_cpu, made


def main() -> None:
    """Tile, sum, open, print."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else located("nsys/mfu_2gpu_before.sqlite")
    n_bytes = int(float(sys.argv[2] if len(sys.argv) > 2 else 1) * 1e9)
    large = Path(tempfile.gettempdir()) / f"tiled-{n_bytes}-{path.name}"
    if not large.exists():
        tiled(path, n_bytes, large)
    with closing(sqlite3.connect(f"{large.as_uri()}?immutable=1", uri=True)) as export:
        export.execute(_SUM).fetchone()
        _, sum_s, _ = timed(lambda: export.execute(_SUM).fetchone())
        n_kernels = export.execute(f"SELECT count(*) FROM {_KERNELS}").fetchone()[0]  # noqa: S608
    print(f"{large.stat().st_size / 1e9:.2f} GB, {n_kernels:,} kernels; their sum {sum_s:.2f} s")
    load(path if len(nsys_ranks(path)) == 1 else path / "rank-0")  # compiles
    wall_s, cpu_s, ranks = timed(lambda: nsys_ranks(large))
    print(f"ranks: {cpu_s:.2f} s ({wall_s:.1f} s on the clock)")
    for rank in ranks:
        name = large if len(ranks) == 1 else large / f"rank-{rank.rank}"
        wall_s, cpu_s, trace = timed(lambda name=name: load(name))
        n = len(trace.recording.events)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(
            f"rank {rank.rank}: {n:,} events in {cpu_s:.1f} s ({wall_s:.1f} s on the clock), "
            f"{n / cpu_s / 1e6:.2f} M/s, {cpu_s / sum_s:.0f} sums; peak {peak:.2f} GB so far"
        )
        del trace


if __name__ == "__main__":
    main()
