"""`htagraph watch`: each trace is reported when it is whole, and once, whatever ends a watcher."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import htagraph as hg
from htagraph.readers import arrivals
from tests.comparison.profiles import slowed
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank

KERNEL = {"kernel": "ampere_sgemm_128x64_nn"}


def trace(number: int, *, by: float = 1.0) -> bytes:
    """The file of the run of a number: a minute after the one before it."""
    program = training_rank(steps=4, layers=2, seed=number)
    body = tuple(slowed(one, **KERNEL, by=by) for one in program.body)
    start_ns = program.start_ns + number * 60 * 10**9
    with tempfile.TemporaryDirectory() as folder:
        run = simulate(replace(program, body=body, start_ns=start_ns))
        return run.write(Path(folder) / "run.json.gz").read_bytes()


def started(folder: Path, *options: str) -> subprocess.Popen[str]:
    """A watcher of a folder, in a process of its own."""
    command = [sys.executable, "-m", "htagraph", "watch", str(folder), "--quiet", *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def watched(folder: Path, *options: str) -> list[str]:
    """What a watcher prints that ends when all is reported."""
    out, errors = started(folder, "--once", "--wait", "0", *options).communicate()
    assert errors.replace("compiling, once on this machine …\n", "") == ""
    return out.splitlines()


@pytest.mark.slow
def test_a_run_is_compared_with_the_last_one_that_is_comparable(tmp_path):
    """In order of time, and each once; what is no trace, or not whole, is left out."""
    (tmp_path / "slow.json.gz").write_bytes(trace(3, by=1.3))
    (tmp_path / "a.json.gz").write_bytes(trace(1))
    (tmp_path / "same.json.gz").write_bytes(trace(2))
    (tmp_path / "copy.json.gz").write_bytes(trace(2))
    (tmp_path / "cut.json.gz").write_bytes(trace(4)[:-9])
    (tmp_path / "settings.json").write_text('{"lr": 0.1}')
    lines = watched(tmp_path, "--each", f"cat >> {tmp_path}/rows.txt; echo >> {tmp_path}/rows.txt")
    (tmp_path / "cut.json.gz").write_bytes(trace(4))
    (tmp_path / "a.json.gz").rename(tmp_path / "renamed.json.gz")
    rows = [json.loads(row) for row in (tmp_path / "rows.txt").read_text().splitlines()]

    assert [row["name"] for row in rows] == ["a", sent_twice := rows[1]["name"], "slow"]
    assert sent_twice in ("same", "copy")
    assert [line.partition(":")[0] for line in lines] == [row["name"] for row in rows]
    assert [row["is_change"] for row in rows] == [False, False, True]
    assert "% slower (noise " in lines[2]
    assert [line.partition(":")[0] for line in watched(tmp_path)] == ["cut"]
    assert watched(tmp_path) == []


@pytest.mark.slow
def test_ranks_of_a_job_are_one_run(tmp_path):
    """Whose line comes when the last of them is whole."""
    simulate_job(training_job(ranks=2, steps=3)).write(tmp_path / "job")
    [line] = watched(tmp_path)

    assert line.startswith("job, 2 ranks: ")


@pytest.mark.slow
def test_two_watchers_do_not_share_a_folder(tmp_path):
    """The second one says so, and ends."""
    first = started(tmp_path)
    while not (tmp_path / ".htagraph" / "watch.lock").exists():
        time.sleep(0.1)
    time.sleep(0.5)
    second = started(tmp_path)
    _, errors = second.communicate()
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)

    assert (second.returncode, first.returncode) == (1, 0)
    assert "another `htagraph watch` is at work" in errors


def dropped(folder: Path, n: int, source: random.Random) -> Iterator[float]:
    """Drop traces into a folder as programs do; yields how long to wait until the next."""
    for number in range(n):
        content, name = trace(number), folder / f"run{number:03}.json.gz"
        match source.randrange(4):
            case 0:  # whole, by an atomic rename
                (folder / f".{name.name}.tmp").write_bytes(content)
                (folder / f".{name.name}.tmp").rename(name)
            case 1:  # growing, with a pause in the middle
                half = source.randrange(1, len(content))
                name.write_bytes(content[:half])
                yield source.choice((0.1, arrivals.SETTLED_S + 1.5))
                with name.open("ab") as file:
                    file.write(content[half:])
            case 2:  # plain text, growing by lines: a part may look like a whole
                text, name = gzip.decompress(content), name.with_suffix("")
                half = text.rindex(b"}", 0, source.randrange(len(text) // 2, len(text))) + 1
                name.write_bytes(text[:half])
                yield source.choice((0.1, arrivals.SETTLED_S + 1.5))
                with name.open("ab") as file:
                    file.write(text[half:])
            case _:  # renamed, perhaps after it was reported
                name.write_bytes(content)
                yield source.choice((0.1, arrivals.SETTLED_S + 3))
                name.rename(folder / f"moved{number:03}.json.gz")
        yield source.choice((0.0,) * 9 + (3.0,))  # bursts


def memory_bytes(process: int) -> int:
    """The resident memory of a process and of those that it started."""
    psutil = pytest.importorskip("psutil")
    try:
        one = psutil.Process(process)
        return sum(each.memory_info().rss for each in (one, *one.children(recursive=True)))
    except psutil.Error:
        return 0


def burst(folder: Path, n: int, log: Path) -> dict[str, Any]:
    """Drop traces in bursts; two watchers are killed meanwhile: what the three printed, and how."""
    source, peaks = random.Random(7), []  # noqa: S311  no secret
    kills, n_lines = [n // 4, n // 2], 0
    with log.open("w") as out:
        command = [sys.executable, "-m", "htagraph", "watch", str(folder), "--wait", "0", "-q"]
        start = partial(
            subprocess.Popen,
            command,
            stdout=out,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        watcher = start()
        drops, deadline_s = dropped(folder, n, source), time.monotonic() + 20 * n
        while n_lines < n and time.monotonic() < deadline_s:
            time.sleep(next(drops, 1.0))
            peaks.append(memory_bytes(watcher.pid))
            n_lines = len(log.read_text().splitlines())
            if kills and n_lines >= kills[0]:
                os.killpg(watcher.pid, signal.SIGKILL)
                watcher.wait()
                kills, watcher = kills[1:], start()
        time.sleep(2 * arrivals.SETTLED_S + 2)  # whatever else it may print
        watcher.send_signal(signal.SIGINT)
        code = watcher.wait(60)
    return {"lines": log.read_text().splitlines(), "code": code, "kills": kills, "peaks": peaks}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_each_of_many_traces_is_reported_once_although_watchers_are_killed(tmp_path):
    """Half-written, renamed and in bursts; 300 with `python -m tests.cli.test_watch`."""
    check(burst(tmp_path, 24, tmp_path / "log.txt"), tmp_path, 24)


def check(found: dict[str, Any], folder: Path, n: int) -> None:
    """Each trace has one line and one row, and memory is no larger at the end."""
    numbers = Counter(
        line.partition(":")[0].removeprefix("run").removeprefix("moved") for line in found["lines"]
    )
    rows = list(hg.KeptRuns(folder))
    peaks = [peak for peak in found["peaks"] if peak]
    third = len(peaks) // 3
    early, late = max(peaks[third : 2 * third]), max(peaks[2 * third :])

    assert found["kills"] == []
    assert numbers == {f"{number:03}": 1 for number in range(n)}
    assert sorted({row.key for row in rows}) == sorted(row.key for row in rows)
    assert (len(rows), found["code"]) == (n, 0)
    assert late < 1.25 * early + (50 << 20)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True)
    n_runs = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    result = burst(place, n_runs, place.with_suffix(".log"))
    print(len(result["lines"]), "lines,", len(set(result["lines"])), "different")
    print([peak >> 20 for peak in result["peaks"][:: max(len(result["peaks"]) // 20, 1)]], "MiB")
    check(result, place, n_runs)
    print("each once, none lost, memory flat")
