"""What the sampler sees of planted runs, and that it never takes one down.

What a busy machine may change is slow: these measure real threads in real time.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import htagraph as hg
from htagraph.capture import sampler as module
from htagraph.capture.sampler import Sampler
from htagraph.errors import QueryError
from htagraph.model.kinds import EventKind
from tests.capture.profiler import Action, Profiler, settled

BASE_NS = 1_700_000_000_000_000_000
LOCK = threading.Lock()
NAPS = [time.sleep]
WAIT_S = 0.03


def unpacked() -> None:
    time.sleep(*[WAIT_S])


def of_a_list() -> None:
    NAPS[0](WAIT_S)


def over_lines() -> None:
    time.sleep(
        WAIT_S,
    )


def in_a_lambda() -> None:
    (lambda: time.sleep(WAIT_S))()  # noqa: PLC3002  as users write it


def held() -> None:
    with LOCK:
        pass


def computes(seconds: float = WAIT_S) -> int:
    end, n = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        n += 1
    return n


@contextmanager
def sampled(folder: Path, interval_ms: float = 1.0) -> Iterator[Sampler]:
    """Sample a block, then write it into a trace."""
    sampler = Sampler(interval_ms)
    sampler.start()
    yield sampler
    sampler.stop()
    written(sampler, folder)


def written(sampler: Sampler, folder: Path) -> dict[str, Any]:
    """The file that a sampler wrote into."""
    file = folder / "trace.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "op", "pid": os.getpid(), "tid": 1, "ts": 0}
    head = {"baseTimeNanoseconds": BASE_NS, "traceEvents": [event | {"dur": 1}]}
    file.write_text(json.dumps(head))
    sampler.write_into(file)
    return json.loads(file.read_text())


def frames(folder: Path) -> list[tuple[str, int, int, str]]:
    """Function, length, CPU time, and calling line of each frame that was read."""
    events = hg.load(folder / "trace.json").recording.events
    rows = np.flatnonzero(events.kind == EventKind.PYTHON)
    texts = (*events.symbols.texts, "")
    return [
        (name.rpartition(": ")[2], dur, cpu, texts[call].rpartition("/")[2])
        for name, dur, cpu, call in zip(
            events.names(rows),
            events.dur_ns[rows].tolist(),
            events.column("cpu_ns")[rows].tolist(),
            events.column("call_from")[rows].tolist(),
            strict=True,
        )
    ]


def line_of(function: Callable[..., object], after: int = 1) -> str:
    """A line of a function, as frames name it."""
    return f"test_sampler.py:{function.__code__.co_firstlineno + after}"


@pytest.mark.slow
def test_functions_are_named_with_what_they_call_and_where(tmp_path):
    """As the source has it: with arguments unpacked, of a list, over lines, in a lambda."""
    planted = (unpacked, of_a_list, over_lines, in_a_lambda)
    with sampled(tmp_path):
        for function in planted:
            function()
    seen = {name: call for name, _, _, call in frames(tmp_path)}
    calls = Counter((name, call) for name, _, _, call in frames(tmp_path))

    assert {function.__name__ for function in planted} <= seen.keys()
    assert "in_a_lambda.<locals>.<lambda>" in seen
    assert calls["<time.sleep>", line_of(unpacked)]
    assert calls["<NAPS[0]>", line_of(of_a_list)]
    assert calls["<time.sleep>", line_of(over_lines)]


@pytest.mark.slow
def test_times_are_those_of_the_run_and_the_cpu_clock_tells_who_waits(tmp_path):
    """On the clock of the trace: a sleep and a loop, a tenth of a second each."""
    with sampled(tmp_path):
        began = time.time_ns()
        time.sleep(0.1)
        computes(0.1)
    found = {name: (dur, cpu) for name, dur, cpu, _ in frames(tmp_path)}
    events = hg.load(tmp_path / "trace.json").recording.events
    (slept,) = np.flatnonzero(events.named(events.symbols.named("<time.sleep>")))

    assert found["<time.sleep>"][0] == pytest.approx(1e8, abs=3e7)
    assert found["computes"][0] == pytest.approx(1e8, abs=3e7)
    assert found["<time.sleep>"][1] < 0.1 * found["<time.sleep>"][0]
    assert found["computes"][1] > 0.2 * found["computes"][0]  # the machine does other things, too
    assert abs(int(events.ts_ns[slept]) - began) < 3e7


@pytest.mark.slow
def test_a_lock_is_named_by_the_with_that_waits_for_it(tmp_path):
    """No record of the profiler shows it."""
    with sampled(tmp_path), LOCK:
        waiting = threading.Thread(target=held)
        waiting.start()
        time.sleep(WAIT_S)
    waiting.join()

    assert ("<with LOCK>", line_of(held)) in {(name, call) for name, _, _, call in frames(tmp_path)}


@pytest.mark.slow
def test_c_code_that_holds_the_gil_is_not_lost(tmp_path):
    """Sorting lets no other thread run: the samples that were due then are late."""
    numbers = [(number * 7919) % 100_003 for number in range(400_000)]
    with sampled(tmp_path):
        computes(0.05)
        began = time.perf_counter_ns()
        sorted(numbers)
        took = time.perf_counter_ns() - began
        time.sleep(0.05)
    (found,) = (dur for name, dur, _, _ in frames(tmp_path) if name == "<sorted>")

    assert found == pytest.approx(took, rel=0.3, abs=3e6)


def test_a_file_that_has_samples_is_as_it_was_in_all_else(tmp_path):
    """The keys come last; each thread that waits is two rows, however long it does."""
    with sampled(tmp_path) as sampler:
        time.sleep(0.1)
    file = json.loads((tmp_path / "trace.json").read_text())
    main = [row for row in file["samples"] if row["tid"] == threading.get_native_id()]

    assert list(file)[-3:] == ["stackFrames", "samples", "sampler"]
    assert sum(row.get("weight", 1) for row in main) == pytest.approx(sampler.n_samples, abs=2)
    assert len(main) < 12
    assert file["sampler"]["interval_ms"] == 1.0
    assert hg.load(tmp_path / "trace.json").repairs.empty


def test_what_sampling_changes_is_as_before_afterwards():
    """The switch interval, unless the run sets it meanwhile; and the garbage collector."""
    before = sys.getswitchinterval()
    for is_enabled in (True, False):
        (gc.enable if is_enabled else gc.disable)()
        sampler = Sampler(0.1)
        sampler.start()
        assert sys.getswitchinterval() == pytest.approx(0.0005)
        computes()
        sampler.stop()
        assert gc.isenabled() is is_enabled
        assert sys.getswitchinterval() == before
    gc.enable()
    sampler = Sampler()
    sampler.start()
    sys.setswitchinterval(0.02)
    sampler.stop()

    assert sys.getswitchinterval() == pytest.approx(0.02)
    sys.setswitchinterval(before)


FORKS = """
import gc, os, sys, time
from htagraph.capture.sampler import Sampler
before, sampler = sys.getswitchinterval(), Sampler(0.2)
sampler.start()
for _ in range(20):
    time.sleep(0.003)
    child = os.fork()
    if not child:
        is_fine = sys.getswitchinterval() == before and gc.isenabled()
        sampler.stop()  # belongs to the parent
        os._exit(0 if is_fine and len(os.listdir("/proc/self/task")) == 1 else 3)
    assert os.waitpid(child, 0)[1] == 0, "child"
n = sampler.n_samples
time.sleep(0.05)
assert sampler.n_samples > n
sampler.stop()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_is_not_sampled_and_its_parent_is():
    """As workers of a loader: nothing of the sampler is left in them."""
    command = [sys.executable, "-W", "ignore", "-c", FORKS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")


class Reading(Sampler):
    """A sampler that tells whether garbage may be collected while it reads frames."""

    def _take(self, own: int, late_ns: int) -> None:
        self.told = {*getattr(self, "told", ()), gc.isenabled()}
        super()._take(own, late_ns)
        self.told.add(gc.isenabled())


def test_no_garbage_is_collected_while_frames_are_read():
    """On 3.11 the process died by a signal: what was collected let others run, and return."""
    sampler = Reading()
    sampler.start()
    computes()
    sampler.stop()

    assert sampler.told == {sys.version_info >= (3, 12)}
    assert gc.isenabled()


class Broken(Sampler):
    """A sampler with an error inside, in its third sample."""

    def _take(self, own: int, late_ns: int) -> None:
        if self.n_samples == 2:
            raise ZeroDivisionError("planted")
        super()._take(own, late_ns)


def test_an_error_inside_ends_the_samples_with_a_note(tmp_path, capfd):
    """The run does not see it; the trace has what was sampled before."""
    sampler = Broken()
    sampler.start()
    while not sampler.note:
        computes()
    sampler.stop()
    file = written(sampler, tmp_path)

    assert file["sampler"]["note"] == "sampling ended early: ZeroDivisionError('planted')"
    assert len(file["samples"]) > 0
    assert capfd.readouterr().err == ""


class Collecting(Sampler):
    """A sampler that collects garbage in its third sample, for a tenth of a second."""

    def _take(self, own: int, late_ns: int) -> None:
        end = time.thread_time() + 0.1 * (self.n_samples == 2)
        super()._take(own, late_ns)
        while time.thread_time() < end:
            pass


@pytest.mark.slow
def test_one_sample_that_takes_long_does_not_stop_the_next_ones():
    """Else there were none for three seconds."""
    sampler = Collecting()
    sampler.start()
    computes(1.0)
    sampler.stop()

    assert sampler.n_samples > 20


class Unwritable(Sampler):
    """A sampler whose samples cannot be told."""

    def _parts(self, _: int) -> Iterator[str]:
        yield ',"stackFrames": {'
        raise ZeroDivisionError("planted")


def test_an_error_while_writing_leaves_the_trace_and_a_note(tmp_path):
    """All that the profiler wrote is there."""
    sampler = Unwritable()
    sampler.start()
    computes()
    sampler.stop()
    file = written(sampler, tmp_path)

    assert list(file) == ["baseTimeNanoseconds", "traceEvents", "sampler"]
    assert "ZeroDivisionError" in file["sampler"]["note"]


def test_a_full_disk_leaves_the_trace_as_it_was(tmp_path):
    """No half of the samples."""
    sampler = Sampler()
    sampler.start()
    while not sampler.n_samples:
        computes()
    sampler.stop()
    file = tmp_path / "trace.json"
    file.write_text('{"traceEvents": []}')
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            sampler.write_into(file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert json.loads(file.read_text()) == {"traceEvents": []}


@pytest.mark.parametrize("text", ["", "[]", '[{"ph": "X"}', '{"traceEvents": [{"ph'])
def test_a_file_that_is_no_whole_object_gets_no_samples(tmp_path, text):
    """A bare list, or one that the profiler could not finish."""
    sampler = Sampler()
    sampler.start()
    computes()
    sampler.stop()
    file = tmp_path / "trace.json"
    file.write_text(text)
    sampler.write_into(file)

    assert file.read_text() == text


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "most"), [("_MOST_RUNS", 20), ("_MOST_FRAMES", 300)])
def test_memory_is_bounded_by_an_end_of_the_samples(tmp_path, monkeypatch, limit, most):
    """Here after 20 runs or 300 frames; the trace says so, and has what was sampled before."""
    monkeypatch.setattr(module, limit, most)

    def deep(n: int) -> None:
        deep(n - 1) if n else computes(0.002)

    with sampled(tmp_path, 0.2) as sampler:
        for n in range(200):
            deep(n % 40)
    file = json.loads((tmp_path / "trace.json").read_text())

    assert "too often to keep them all" in file["sampler"]["note"]
    assert len(sampler._runs) <= 8 * (20 + 2 * len(sampler._threads)) or limit == "_MOST_FRAMES"
    assert sampler._n_frames <= 300 + 200 or limit == "_MOST_RUNS"
    assert frames(tmp_path)


@pytest.mark.slow
def test_frames_that_are_not_written_leave_their_time_to_those_around(tmp_path, monkeypatch):
    """Where there are more than readers take."""
    monkeypatch.setattr(module, "_MOST_NODES", 3)
    with sampled(tmp_path):
        computes()
    file = json.loads((tmp_path / "trace.json").read_text())

    assert len(file["stackFrames"]) == 3
    assert {row["sf"] for row in file["samples"] if "sf" in row} <= {1, 2, 3}


@pytest.mark.slow
def test_two_hundred_threads_cost_a_small_part_of_the_time(tmp_path):
    """All move, so samples become rarer; each thread is there, by its name."""
    ends = threading.Event()

    def moves() -> None:
        while not ends.wait(0.1):
            sum(range(50))

    threads = [threading.Thread(target=moves, name=f"mover-{n}") for n in range(200)]
    for thread in threads:
        thread.start()
    with sampled(tmp_path) as sampler:
        began = time.perf_counter()
        time.sleep(1)
        clock = time.pthread_getcpuclockid(sampler._thread.ident)
        share = time.clock_gettime(clock) / (time.perf_counter() - began)
    ends.set()
    for thread in threads:
        thread.join()
    file = json.loads((tmp_path / "trace.json").read_text())

    assert share < 0.15  # 3%, and what waking up takes
    assert {f"mover-{n}" for n in range(200)} <= set(file["sampler"]["threads"].values())
    assert len({row["tid"] for row in file["samples"]}) > 200


def test_a_handler_needs_no_torch_and_refuses_what_is_no_interval(tmp_path):
    """Simulated profilers tell nobody when they record: their traces have no samples."""
    Profiler(hg.handler(tmp_path, report=False), schedule=lambda _: Action.RECORD).run(2)
    settled()
    (trace,) = tmp_path.glob("*.gz")

    assert "sampler" not in hg.load(trace).metadata
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(QueryError, match="sample_ms"):
            hg.handler(tmp_path, sample_ms=wrong)
