"""A trace larger than memory is judged in parts, with the answers of the whole."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import htagraph as hg
from htagraph.model.progress import Progress
from tests.benchmarks.tiles import write_tiled
from tests.real_traces import located
from tests.synth.simulator import simulate
from tests.synth.training import Fault, training_rank

_FAULTS: tuple[Fault, ...] = (
    "none",  # the device lags behind its host by several steps
    "dataloader",
    "sync_in_loop",
    "small_kernels",
    "blocking_copy",
    "full_queue",
    "recompile",
)


def _trace(folder: Path, fault: Fault = "dataloader", steps: int = 9) -> Path:
    return simulate(training_rank(steps=steps, fault=fault)).write(folder / f"{fault}.json")


def _times(verdict: object) -> dict[str, tuple[int, int, int]]:
    findings = getattr(verdict, "findings")  # noqa: B009
    return {one.cause: (one.dur_ns, one.n_segments, one.longest_ns) for one in findings}


@pytest.mark.parametrize("fault", _FAULTS)
def test_the_path_read_in_parts_is_the_path_of_the_whole_trace(tmp_path, fault):
    file = _trace(tmp_path, fault)
    whole = hg.load(file).compile()
    parts = hg.stepwise_verdict(file, part_bytes=file.stat().st_size // 8)

    assert parts.n_parts >= 2
    for by, found in (("bound", parts.by_bound), ("op", parts.by_op)):
        assert found.to_dict("index") == whole.critical_path().breakdown(by=by).to_dict("index")
    assert _times(parts.verdict) == _times(whole.verdict())
    assert parts.verdict.damage == whole.verdict().damage == ()


@pytest.mark.parametrize("fault", ["dataloader", "sync_in_loop", "small_kernels"])
def test_the_first_finding_of_all_parts_is_that_of_the_whole_trace(tmp_path, fault):
    file = _trace(tmp_path, fault)
    one, other = (
        verdict.findings[0]
        for verdict in (
            hg.load(file).compile().verdict(),
            hg.stepwise_verdict(file, part_bytes=file.stat().st_size // 8).verdict,
        )
    )
    assert (one.title, one.evidence[0].label) == (other.title, other.evidence[0].label)
    assert (one.first_step, one.last_step) == (other.first_step, other.last_step)
    assert other.drag_ns == pytest.approx(one.drag_ns, rel=0.1)


def test_one_part_has_the_verdict_of_the_whole_trace(tmp_path):
    file = _trace(tmp_path)
    parts = hg.stepwise_verdict(file)
    assert parts.n_parts == 1
    body = [text for text in parts.verdict.paragraphs if text.role != "title"]
    assert body == [
        text for text in hg.load(file).compile().verdict().paragraphs if text.role != "title"
    ]


def test_a_verdict_on_parts_says_what_is_of_a_part_only(tmp_path):
    file = _trace(tmp_path)
    said = " ".join(str(hg.stepwise_verdict(file, part_bytes=file.stat().st_size // 3)).split())
    assert re.match(r"What bounds 9 steps, read in \d parts \(", said)
    assert "device clock, usual delays and recurring waits are those of a part" in said
    assert "Predicted from " in said


def test_a_trace_without_steps_is_cut_evenly(tmp_path):
    file = _trace(tmp_path, "sync_in_loop")
    bare = tmp_path / "bare.json"
    bare.write_bytes(re.sub(rb"ProfilerStep#(\d)", rb"loop \1", file.read_bytes()))
    parts = hg.stepwise_verdict(bare, part_bytes=bare.stat().st_size // 4)
    whole = hg.load(bare).compile().critical_path().breakdown()
    assert parts.n_parts >= 3
    assert parts.n_steps == 0
    assert parts.by_bound.to_dict("index") == whole.to_dict("index")


def _judged(heard: list[Progress]) -> set[str]:
    """The parts that were read, by their stages."""
    return {one.stage for one in heard if one.stage.startswith("Judging part")}


def test_parts_that_are_kept_are_not_read_again(tmp_path):
    file, kept = _trace(tmp_path), tmp_path / "kept"
    size = file.stat().st_size // 8
    first = hg.stepwise_verdict(file, part_bytes=size, cache=kept)
    heard: list[Progress] = []
    again = hg.stepwise_verdict(file, part_bytes=size, cache=kept, progress=heard.append)
    assert str(again) == str(first)
    assert first.n_parts > 2
    assert not _judged(heard)


_KILLED = """
import sys
import htagraph as hg
hg.stepwise_verdict(sys.argv[1], part_bytes=int(sys.argv[2]), cache=sys.argv[3])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_killed_verdict_continues_with_the_parts_that_are_left(tmp_path):
    file, kept = _trace(tmp_path, steps=60), tmp_path / "kept"
    size = file.stat().st_size // 50
    with subprocess.Popen([sys.executable, "-c", _KILLED, file, str(size), kept]) as process:
        deadline = time.monotonic() + 120
        while len(list(kept.glob("*.npz"))) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    n_kept = len(list(kept.glob("*.npz"))) - 1  # one is the index
    assert process.returncode == -signal.SIGKILL
    heard: list[Progress] = []
    found = hg.stepwise_verdict(file, part_bytes=size, cache=kept, progress=heard.append)
    assert 3 <= n_kept < found.n_parts
    assert len(_judged(heard)) == found.n_parts - n_kept
    assert str(found) == str(hg.stepwise_verdict(file, part_bytes=size))


@pytest.mark.slow
@pytest.mark.public
@pytest.mark.skipif(sys.platform != "linux", reason="limits of addresses differ")
def test_a_trace_larger_than_memory_gets_its_verdict(tmp_path):
    """500 MB of text in 2.2 GB of addresses, of which libraries take 1.7."""
    source = located("hta/nccl_parser_config") / "nccl_data.json.gz"
    file = write_tiled(tmp_path, 500, source)

    def report(*options: str) -> str:
        command = f"ulimit -v 2200000 && {sys.executable} -m htagraph report {file}"
        return subprocess.run(
            ["/bin/sh", "-c", " ".join([command, *options])],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "HTAGRAPH_GRAPH_CACHE": str(tmp_path / "kept"), "NO_COLOR": "1"},
        ).stdout

    whole = report("-q")
    assert "Judged in" in whole
    assert "1. The host sets the pace: 100.0% of the path" in whole
    step = report("-q", "--no-files", "-w", "ProfilerStep#5")
    assert "What bounds ProfilerStep#5 (220 ms)" in step
