"""A file is kept as columns, chunk by chunk: a window of them is the window of the file."""

from __future__ import annotations

import gzip
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import htagraph as hg
from htagraph.model.progress import Progress
from htagraph.readers.byte_stream import content_of
from htagraph.readers.event_filter import EventFilter
from htagraph.readers.kineto import pieces
from htagraph.readers.kineto.reader import load_file
from htagraph.run import chunks
from htagraph.run.chunks import Chunks


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files have several chunks, of several pieces."""
    monkeypatch.setattr(pieces, "BLOCK", 1 << 14)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1 << 17)


def _same(one: hg.Trace, other: hg.Trace) -> bool:
    frames = (one.events, other.events), (one.repairs, other.repairs), (one.sizes, other.sizes)
    same = all(a.astype(str).equals(b.astype(str)) for a, b in frames)
    return same and one.skipped == other.skipped and one.metadata == other.metadata


def _halves(path: Path) -> Path:
    """A Chrome trace whose events begin and end in different places of the file."""
    events = [
        {"ph": ph, "name": f"f{k}", "pid": 1, "tid": k % 3, "ts": 10 * k + (5 if ph == "E" else 0)}
        for ph in "BE"
        for k in range(20_000)
    ]
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def _damaged(path: Path) -> Path:
    """A trace with broken events, other keys between two lists, and flows with texts as ids."""
    text = content_of(hg.demo_trace("none"))
    flow = b'{"ph": "s", "cat": "mine", "name": "f", "id": "a", "pid": 1, "tid": 1, "ts": 5.5},'
    text = text.replace(b'"ph": "X"', b'"ph": "X, "cat": "torn"', 1)
    text = text.replace(b'"traceEvents": [', b'"traceEvents": [' + flow, 1)
    path.write_bytes(gzip.compress(text + b"\n" + text.replace(b"ProfilerStep", b"Step", 3)))
    return path


_FILES = {
    "none": lambda _: hg.demo_trace("none"),
    "dataloader": lambda _: hg.demo_trace("dataloader"),
    "halves": lambda folder: _halves(folder / "halves.json"),
    "damaged": lambda folder: _damaged(folder / "damaged.json.gz"),
}


def _windows(file: Path) -> Iterator[tuple[int, int]]:
    span = hg.load(file).compile().dag.span
    for begin, end in ((0, 1), (1, 3), (2, 9), (8, 9), (9, 12)):
        yield span.start_ns + begin * span.dur_ns // 9, span.start_ns + end * span.dur_ns // 9


@pytest.mark.some(1)
@pytest.mark.parametrize("name", _FILES)
@pytest.mark.parametrize("stacks", [False, True])
@pytest.mark.usefixtures("small_chunks")
def test_a_window_of_chunks_is_the_window_read_from_the_whole_file(
    tmp_path: Path, name: str, *, stacks: bool
) -> None:
    file, kept = _FILES[name](tmp_path), tmp_path / "kept"
    made, opened = Chunks(file, kept), Chunks(file, kept)
    assert len(np.unique(opened.zones.chunk)) >= 2
    for times in _windows(file):
        wanted = EventFilter(stacks, None, times)
        whole = hg.Trace(load_file(file, wanted))
        assert _same(hg.Trace(made.read(wanted)), whole)
        assert _same(hg.Trace(opened.read(wanted)), whole)


def test_a_window_has_the_same_events_with_a_cache(tmp_path: Path) -> None:
    file = hg.demo_trace("none")
    parts = [hg.load(file, window="ProfilerStep#1", cache=tmp_path) for _ in range(2)]
    assert all(_same(part, hg.load(file, window="ProfilerStep#1")) for part in parts)
    assert len(list(tmp_path.iterdir())) == 2  # a chunk, and the whole


def _big(path: Path, n: int = 60_000) -> Path:
    """Operators, each of another name."""
    names = np.random.default_rng(0).integers(10**12, size=n).tolist()
    events = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": f"op {name}",
            "pid": 1,
            "tid": 1,
            "ts": 10 * k,
            "dur": 5,
        }
        for k, name in enumerate(names)
    ]
    text = json.dumps({"schemaVersion": 1, "traceEvents": events, "traceName": "big"}).encode()
    path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
    return path


def _n_read() -> int:
    """Bytes that this process has read so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(lines[0].partition(":")[2])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="Linux counts what is read")
@pytest.mark.usefixtures("small_chunks")
def test_the_second_window_reads_a_small_part(tmp_path: Path) -> None:
    file, kept = _big(tmp_path / "trace.json"), tmp_path / "kept"
    read = []
    for _ in range(2):
        before = _n_read()
        hg.load(file, window=(300_000_000, 300_100_000), cache=kept)
        read.append(_n_read() - before)
    assert read[0] >= file.stat().st_size
    assert read[1] < file.stat().st_size / 10
    before = _n_read()
    with pytest.raises(hg.errors.WindowNotFoundError):  # and no other range is a step
        hg.load(file, window="ProfilerStep#5", cache=kept)
    assert _n_read() - before < file.stat().st_size / 10


@pytest.mark.slow
@pytest.mark.usefixtures("small_chunks")
def test_a_chunk_that_is_lost_or_damaged_is_made_anew(tmp_path: Path) -> None:
    file, kept = _big(tmp_path / "trace.json"), tmp_path / "kept"
    wanted = EventFilter(window=(100_000_000, 500_000_000))
    whole, found = hg.Trace(load_file(file, wanted)), Chunks(file, kept)
    for number, entry in enumerate(sorted(kept.iterdir())):
        if number % 2:
            entry.unlink()
        else:
            entry.write_bytes(entry.read_bytes()[:-100])
        assert _same(hg.Trace(found.read(wanted)), whole)


class _StopError(Exception):
    """What ends a pass in the middle of a file."""


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
@pytest.mark.usefixtures("small_chunks")
def test_a_pass_that_ended_goes_on_behind_its_last_chunk(tmp_path: Path, name: str) -> None:
    file, kept = _big(tmp_path / name), tmp_path / "kept"

    def stop(now: Progress) -> None:
        if now.part == "bytes" and now.done > now.total / 2:
            raise _StopError

    with pytest.raises(_StopError):
        hg.stepwise_verdict(file, cache=kept, progress=stop)
    first = {entry: entry.stat().st_mtime_ns for entry in kept.glob("*.npz")}
    assert len(first) >= 10
    found = Chunks(file, kept)
    assert first.items() <= {one: one.stat().st_mtime_ns for one in kept.iterdir()}.items()
    assert found.metadata == {"schemaVersion": 1, "traceName": "big"}
    for times in _windows(file):
        wanted = EventFilter(window=times)
        assert _same(hg.Trace(found.read(wanted)), hg.Trace(load_file(file, wanted)))


@pytest.mark.usefixtures("small_chunks")
def test_a_file_that_changed_is_read_anew(tmp_path: Path) -> None:
    file, kept = _big(tmp_path / "trace.json"), tmp_path / "kept"
    window = 100_000_000, 200_000_000
    assert len(hg.load(file, window=window, cache=kept).events) == 10_000
    _big(file, 15_000)
    assert len(hg.load(file, window=window, cache=kept).events) == 5_000


@contextmanager
def _full_disk() -> Iterator[None]:
    """No file can grow beyond some kilobytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_said_and_what_to_do(tmp_path: Path) -> None:
    file, window = _big(tmp_path / "trace.json"), (100_000_000, 100_050_000)
    said = "nothing is kept: .* cannot be written"
    with _full_disk(), pytest.warns(hg.errors.IncompleteTraceWarning, match=said):
        assert len(hg.load(file, window=window, cache=tmp_path / "kept").events) == 5
    with _full_disk(), pytest.raises(hg.errors.OutputError, match="cannot be written") as caught:
        hg.stepwise_verdict(file, cache=tmp_path / "kept")
    assert "HTAGRAPH_GRAPH_CACHE" in str(caught.value)
    assert not list((tmp_path / "kept").iterdir())


def test_args_are_read_from_a_compressed_file_in_any_order(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 10 * k, "dur": 5}
        | {"args": {"noise": draw.bytes(20).hex()}}
        for k in range(20_000)
    ]
    text = json.dumps({"traceEvents": events}).encode()
    for name, content in (("t.json.gz", gzip.compress(text)), ("t.json", text)):
        (tmp_path / name).write_bytes(content)
        trace = hg.load(tmp_path / name)
        for rows in ([19_999, 3, 3, 0], range(20_000), [5_000, 5_001, 12_000]):
            assert trace.args(rows) == [events[row]["args"] for row in rows]
