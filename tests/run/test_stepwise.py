"""A trace larger than memory is judged in parts, with the answers of the whole."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import htagraph as hg
from htagraph.model.progress import Progress
from htagraph.readers.byte_stream import content_of
from htagraph.writers.output_file import write_arrays
from tests.benchmarks.tiles import write_tiled
from tests.real_traces import cases, located
from tests.synth.simulator import simulate
from tests.synth.training import Fault, training_rank

_FAULTS: tuple[Fault, ...] = (
    "none",  # the device lags behind its host by several steps
    "dataloader",
    "sync_in_loop",
    "small_kernels",
    "synchronous_copy",
    "full_queue",
    "recompile",
)


def _trace(folder: Path, fault: Fault = "dataloader", steps: int = 9) -> Path:
    return simulate(training_rank(steps=steps, fault=fault)).write(folder / f"{fault}.json")


def _times(verdict: object) -> dict[str, tuple[int, int, int]]:
    findings = getattr(verdict, "findings")  # noqa: B009
    return {one.cause: (one.path_ns, one.n_segments, one.longest_ns) for one in findings}


@pytest.mark.some(1)
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


def _same_answers(file: Path, part_bytes: int) -> bool:
    """Whether parts, of which there are some, have path and causes of the whole."""
    whole = hg.load(file).compile()
    parts = hg.stepwise_verdict(file, part_bytes=part_bytes)
    assert parts.n_parts >= 2
    for by, found in (("bound", parts.by_bound), ("op", parts.by_op)):
        if found.to_dict("index") != whole.critical_path().breakdown(by=by).to_dict("index"):
            return False
    return _times(parts.verdict) == _times(whole.verdict())


def test_what_one_part_shows_of_the_device_clock_holds_for_all_parts(tmp_path):
    file = _trace(tmp_path, "sync_in_loop")
    document = json.loads(file.read_text())
    kernels = [event for event in document["traceEvents"] if event.get("cat") == "kernel"]
    first = min(kernels, key=lambda event: event["ts"])
    first["ts"] -= 200  # before its launch
    late = tmp_path / "late.json"
    late.write_text(json.dumps(document))
    assert hg.load(late).compile().dag.calibration.clock_shift_ns > 0
    assert hg.load(file).compile().dag.calibration.clock_shift_ns == 0
    assert _same_answers(late, late.stat().st_size // 8)


def test_holes_of_all_parts_are_told_as_those_of_the_whole_trace(tmp_path):
    document = json.loads(_trace(tmp_path, "small_kernels").read_text())
    events = document["traceEvents"]
    calls = [event for event in events if "aunch" in event["name"] and event["ph"] == "X"]
    lost = {id(call) for call in calls[600:640] + calls[1000:1020]}
    document["traceEvents"] = [event for event in events if id(event) not in lost]
    file = tmp_path / "holes.json"
    file.write_text(json.dumps(document))
    whole = hg.load(file).compile().verdict()
    parts = hg.stepwise_verdict(file, part_bytes=file.stat().st_size // 8)
    assert parts.n_parts >= 5
    assert "in 1 other place have no launch" in whole.damage[0]
    assert parts.verdict.damage[0] == whole.damage[0]
    assert parts.verdict.withheld.partition(":")[0] == whole.withheld.partition(":")[0]


_CUT_IN_STEPS = (
    "hta/df_index_resolver/df_index_resolver.json.gz",
    "hta/negative_queue_length_values_check/rank0.json.gz",  # work that recurs, rarely in a part
    "hta/trace_diff/control/control.json.gz",  # kernels that fill the device
    "hta/trace_diff/test/test.json.gz",
    "torchrec/sleep_on_rank2",  # clocks that drift
    "tracelens/resnet_act_checkpoint.json.gz",  # the device is two steps late
    "captures/single/baseline.pt.trace.json.gz",
    "captures/single/bgbusy_allthreads.pt.trace.json.gz",
)


@pytest.mark.parametrize("name", cases(_CUT_IN_STEPS))
def test_parts_of_a_real_trace_have_the_answers_of_the_whole(name):
    found = located(name)
    file = min(found.iterdir()) if found.is_dir() else found
    assert _same_answers(file, len(content_of(file)) // 8)


@pytest.mark.some(1)
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
    assert other.cost_ns == pytest.approx(one.cost_ns, rel=0.1)


def test_one_part_has_the_verdict_of_the_whole_trace(tmp_path):
    file = _trace(tmp_path)
    parts = hg.stepwise_verdict(file)
    assert parts.n_parts == 1
    assert parts.verdict.paragraphs == hg.load(file).compile().verdict().paragraphs


def test_a_verdict_on_parts_says_what_is_of_a_part_only(tmp_path):
    file = _trace(tmp_path)
    found = hg.stepwise_verdict(file, part_bytes=file.stat().st_size // 3)
    said = " ".join(str(found).split())
    assert re.match(r"8 steps, read in \d parts$", found.verdict.window)
    assert re.match(r"Data loading costs \d\d% of this run: 7.48 ms a step would be ", said)
    assert "Read in parts, with an eighth more around each: " in said
    assert "what threads wait for is learned from each part by itself" in said
    assert "usual delays and recurring waits are learned from" not in said  # but from all parts
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


def test_kept_parts_of_another_content_are_read_again(tmp_path):
    file, kept = _trace(tmp_path), tmp_path / "kept"
    size = file.stat().st_size // 8
    first = hg.stepwise_verdict(file, part_bytes=size, cache=kept)
    for entry in kept.glob("*.npz"):
        write_arrays(entry, {"other": np.zeros(1)})
    assert str(hg.stepwise_verdict(file, part_bytes=size, cache=kept)) == str(first)


def test_what_all_parts_learn_is_kept_before_one_is_read(tmp_path):
    """Else a run that is killed while it judges its first part has to learn again, every time."""
    file, kept = _trace(tmp_path), tmp_path / "kept"
    heard: list[str] = []

    def stop(now: Progress) -> None:
        heard.append(now.stage)
        if now.stage.startswith("Judging part 1 "):
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            hg.stepwise_verdict(
                file, part_bytes=file.stat().st_size // 8, cache=kept, progress=stop
            )
    assert len(list(kept.glob("*.npz"))) == 3  # a chunk, the whole, and what all parts learn
    second = heard[heard.index(next(one for one in heard if one.startswith("Judging"))) + 1 :]
    assert not any(stage.startswith("Learning") for stage in second)


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
        while len(list(kept.glob("*.npz"))) < 6 and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    n_kept = len(list(kept.glob("*.npz"))) - 3  # a chunk, the whole, and what all parts learn
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

    command = f"ulimit -v 2200000 && exec {sys.executable} -m htagraph report {file}"
    with subprocess.Popen(["/bin/sh", "-c", command], stderr=subprocess.PIPE, text=True) as begun:
        assert begun.stderr is not None
        hint = begun.stderr.readline()
        begun.kill()
    assert hint.startswith("HTAGRAPH_GRAPH_CACHE=FOLDER keeps what was read")
    whole = report("-q")
    assert "Judged in" in whole
    assert re.search(r"CPU work costs 8\d% of this run: 243 ms a step would be 4\d\.\d ms", whole)
    step = report("-q", "--no-files", "-w", "ProfilerStep#5")
    assert "CPU work costs 81% of this step: 220 ms would be 42.7 ms without it." in step


@pytest.mark.parametrize(
    ("widths", "n_left_out"),
    [((60, 40, *[20] * 22), 2), ((40, 20, *[20] * 22), 1), ((400, 300, *[20] * 30), 1)],
    ids=["two warm up", "one warms up", "most of the run"],
)
def test_the_default_window_read_in_parts_is_that_of_the_whole(tmp_path, widths, n_left_out):
    """Steps that warm up are left out of both, and said; but never more than half of the run."""
    file = tmp_path / "warm.json"
    file.write_text(json.dumps({"traceEvents": list(_warming_up(widths))}))
    whole = hg.load(file).compile()
    parts = hg.stepwise_verdict(file, part_bytes=3 * file.stat().st_size // 5)

    assert parts.n_parts >= 2
    assert len(widths) - whole.n_steps == n_left_out
    assert (parts.verdict.n_steps, parts.verdict.dur_ns) == (whole.n_steps, whole.dur_ns)
    assert parts.verdict.step_ns == whole.critical_path().step_ns
    assert str(parts.verdict.rests_on).startswith(f"Left out: {whole.left_out[0]}. ")


def _warming_up(widths):
    """Steps of some microseconds: two operators each, more where they take longer than 20 us."""
    start = 0
    for number, width in enumerate(widths):
        step = {"ph": "X", "pid": 1, "tid": 1, "ts": start, "dur": width}
        yield {**step, "cat": "user_annotation", "name": f"ProfilerStep#{number}"}
        n = 2 + (number + 1) * (width > 20)
        for at in range(n):
            one = {"ts": start + at * width // n, "dur": width // n - 1}
            yield {**step, **one, "cat": "cpu_op", "name": "aten::mm"}
        start += width
