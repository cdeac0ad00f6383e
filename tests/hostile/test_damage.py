"""Damaged and oversized input."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import htagraph as hg
from htagraph.comparison import run_profile
from htagraph.compiler.structure import MAX_STREAMS
from htagraph.job import job, rehearsal
from htagraph.job.delay_costs import MOST_COMPARED
from htagraph.job.windows import MOST_COLLECTIVES
from htagraph.model.recording import MAX_RANKS
from htagraph.readers.beside import ncu_tables
from htagraph.readers.byte_stream import MAX_RATIO
from htagraph.readers.kineto.compiled.lexer import MAX_DEPTH
from htagraph.readers.kineto.header import MAX_TIME_NS
from htagraph.readers.kineto.trace_document import MAX_BROKEN, MAX_DOCUMENTS, MAX_VALUE
from htagraph.replay import replay

N = 3_000
TEXT = json.dumps(
    {
        "traceEvents": [
            {
                "ph": "X", "cat": "cpu_op", "name": f"aten::op_{number % 97}", "pid": 1, "tid": 1,
                "ts": 1_700_000_000_000_000 + 10 * number, "dur": 8,
                "args": {"External id": number},
            }
            for number in range(N)
        ]
    }
).encode()  # fmt: skip
PACKED = gzip.compress(TEXT, 6)


def repairs_of(trace: hg.Trace) -> dict[str, int]:
    return dict(zip(trace.repairs["kind"], trace.repairs["n"], strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_after_a_flipped_bit_nothing_that_makes_no_sense_is_read(seed: int) -> None:
    """The checksum shows the damage, so no event is repaired."""
    chosen = np.random.default_rng(seed)
    damaged = bytearray(PACKED)
    damaged[chosen.integers(100, len(PACKED) - 8)] ^= 1 << chosen.integers(8)
    repairs = repairs_of(hg.load(bytes(damaged)))

    assert repairs["gzip damaged"] == 1
    assert not repairs.keys() & {"raw quote", "bare word", "torn event", "comma", "bad escape"}


def test_a_whole_file_of_broken_names_is_mended_to_its_end() -> None:
    """Its checksum is right: that is how the profiler wrote it."""
    broken = TEXT.replace(b'"aten::op_5"', b'"aten::"op"_5"')
    trace = hg.load(gzip.compress(broken))

    assert len(trace.events) == N
    assert repairs_of(trace) == {"raw quote": broken.count(b'"op"')}


def test_damage_in_a_later_part_of_a_gzip_file_keeps_what_came_before() -> None:
    half = TEXT.index(b"{", len(TEXT) // 2)
    first, second = gzip.compress(TEXT[:half]), bytearray(gzip.compress(TEXT[half:]))
    second[12] ^= 4
    trace = hg.load(first + bytes(second) + os.urandom(1 << 20))

    assert len(trace.events) >= N // 2 - 1
    assert repairs_of(trace)["gzip damaged"] == 1


def test_a_gzip_file_of_many_empty_parts_is_read() -> None:
    """Each once: what follows a part is not read anew."""
    trace = hg.load(gzip.compress(b"") * 20_000 + PACKED)

    assert (len(trace.events), repairs_of(trace)) == (N, {})


_DOCUMENT = Path(__file__).parents[2] / "docs" / "limits.md"


def test_the_limits_that_are_stated_are_those_there_are() -> None:
    stated = re.findall(r"^\| ([^|]+) \| ([0-9,]+)", _DOCUMENT.read_text(), re.MULTILINE)
    more = f"{job._EVENTS_OF_A_RANK:,}"

    assert {what: int(most.replace(",", "")) for what, most in stated} == {
        "an event, or a value outside the events": MAX_VALUE,
        "lists and objects within each other": MAX_DEPTH,
        "JSON documents that follow each other in a file": MAX_DOCUMENTS,
        "broken keys and values outside the events": MAX_BROKEN,
        "what gzip unpacks to, from 256 MiB on": MAX_RATIO,
        "times, before and after 1970": MAX_TIME_NS,
        "streams that run work, of all devices": MAX_STREAMS,
        "streams whose work a call for the whole device waits for in a replay, those used last": (
            replay._MOST_STREAMS
        ),
        "ranks of a job": MAX_RANKS - 1,
        "collectives of a job, of its last steps": MOST_COLLECTIVES,
        "waits of a job that `delay_costs` compares, the longest": MOST_COMPARED,
        f"events of a job that a report replays, with {more} more for each rank": (
            job._REPLAYED_EVENTS
        ),
        "events of a job that `what-if` replays": rehearsal._MOST_EVENTS,
        "values of Nsight Compute": ncu_tables._MOST_VALUES,
        "a stored baseline": run_profile._MOST_BYTES,
    }


_AS_NOBODY = [
    *("setpriv", "--reuid=65534", "--clear-groups", "--bounding-set=-sys_resource,-sys_admin"),
    *("--inh-caps=-all,+dac_override", "--ambient-caps=+dac_override"),
]
"""Root has no limit on processes; nobody has one, and may read and write here."""


def _is_limited() -> bool:
    """Whether a command can be run as a user with a limit on processes."""
    if not all(map(shutil.which, ("setpriv", "prlimit"))):
        return False
    return subprocess.run([*_AS_NOBODY, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not _is_limited(), reason="needs root, setpriv and prlimit")
@pytest.mark.parametrize(
    ("source", "says"), [("job", "error: no more threads"), ("dataloader.pt.trace.json.gz", "")]
)
def test_without_threads_it_works_or_says_so_in_a_line(
    source: str, says: str, tmp_path: Path
) -> None:
    """`ulimit -u`, as on the login nodes of clusters; numpy began threads that it never used."""
    package = Path(__file__).parents[2]
    trace = package / "htagraph" / "synth" / "demo_traces" / source
    command = [sys.executable, "-m", "htagraph.cli.start", "path", str(trace), "-q"]
    run = subprocess.run(
        [*_AS_NOBODY, "prlimit", "--nproc=1", *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": str(package), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )

    assert run.stderr.startswith(says)
    assert (run.returncode, len(run.stderr.splitlines())) == ((1, 1) if says else (0, 0))
