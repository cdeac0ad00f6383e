"""A part of a file is read by its index: the same events, without the bytes before it."""

from __future__ import annotations

import gzip
import json
import zlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import htagraph as hg
from htagraph.readers.event_filter import EventFilter
from htagraph.readers.kineto import seek_points
from htagraph.readers.kineto.file_index import FileIndex
from htagraph.readers.kineto.reader import load_file
from htagraph.readers.kineto.seek_points import PointedStream, SeekPoints, TextReader

_CLOSE = 1 << 15
"""Bytes between points: small files have several."""


@pytest.fixture
def close_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points as dense in a small file as in a large one."""
    monkeypatch.setattr(seek_points, "SPACING", _CLOSE)


def _text(n_bytes: int, seed: int = 0) -> bytes:
    """Text that compresses like a trace, with a stretch that does not."""
    draw = np.random.default_rng(seed)
    words = [b'{"ph": "X", "ts": %d, "name": "aten::%d"},' % (k, k % 97) for k in range(5_000)]
    text = b"".join(words[k] for k in draw.integers(len(words), size=n_bytes // 40))
    return text[: n_bytes // 2] + draw.bytes(100_000) + text[n_bytes // 2 :]


def _points_of(path: Path) -> SeekPoints:
    stream = PointedStream(path)
    while stream.read(1 << 16):
        pass
    stream.close()
    return SeekPoints.of(stream.points.arrays())


@pytest.mark.parametrize("level", [0, 1, 6, 9])
@pytest.mark.parametrize("strategy", [zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY])
@pytest.mark.usefixtures("close_points")
def test_any_part_of_compressed_text_is_read_from_the_point_before_it(
    tmp_path: Path, level: int, strategy: int
) -> None:
    text, path = _text(600_000), tmp_path / "text.gz"
    packer = zlib.compressobj(level, zlib.DEFLATED, 31, 9, strategy)
    packed = b"".join(packer.compress(text[k : k + 50_000]) for k in range(0, len(text), 50_000))
    path.write_bytes(packed + packer.flush())
    points = _points_of(path)
    assert len(points.offset) >= 2
    draw = np.random.default_rng(level)
    with closing(TextReader(path, points)) as reader:
        for start in draw.integers(len(text), size=60).tolist():
            end = start + int(draw.integers(3 * _CLOSE))
            assert reader.read(start, end) == text[start:end]


@pytest.mark.usefixtures("close_points")
def test_text_is_read_across_gzip_members(tmp_path: Path) -> None:
    text, path = _text(400_000), tmp_path / "text.gz"
    path.write_bytes(gzip.compress(text[:300_000]) + b"\0" * 3 + gzip.compress(text[300_000:]))
    with closing(TextReader(path, _points_of(path))) as reader:
        assert reader.read(290_000, 310_000) == text[290_000:310_000]
        assert reader.read(399_000, 10**9) == text[399_000:]


@pytest.mark.usefixtures("close_points")
def test_the_end_of_a_file_is_read_without_its_beginning(tmp_path: Path) -> None:
    text, path = _text(4_000_000), tmp_path / "text.gz"
    path.write_bytes(gzip.compress(text))
    with closing(TextReader(path, _points_of(path))) as reader:
        assert reader.read(len(text) - 10, len(text)) == text[-10:]
    assert reader.n_inflated < 10 * _CLOSE < len(text) / 10


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


@pytest.mark.parametrize("name", ["none", "dataloader", "halves"])
@pytest.mark.parametrize("stacks", [False, True])
def test_a_window_by_its_index_is_the_window_read_from_the_whole_file(
    tmp_path: Path, name: str, *, stacks: bool
) -> None:
    file = _halves(tmp_path / "halves.json") if name == "halves" else hg.demo_trace(name)
    span = hg.load(file).compile().dag.span
    index = FileIndex.of(file, FileIndex.made(file).arrays())
    for begin, end in ((0, 1), (1, 3), (2, 9), (8, 9), (9, 12)):
        times = (span.start_ns + begin * span.dur_ns // 9, span.start_ns + end * span.dur_ns // 9)
        wanted = EventFilter(stacks, None, times)
        assert _same(hg.Trace(index.read(wanted)), hg.Trace(load_file(file, wanted)))


def test_a_window_has_the_same_events_with_a_cache(tmp_path: Path) -> None:
    file = hg.demo_trace("none")
    parts = [hg.load(file, window="ProfilerStep#1", cache=tmp_path) for _ in range(2)]
    assert all(_same(part, hg.load(file, window="ProfilerStep#1")) for part in parts)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.usefixtures("close_points")
def test_args_of_a_window_are_read_without_the_beginning_of_the_file(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 10 * k, "dur": 5}
        | {"args": {"noise": draw.bytes(20).hex()}}
        for k in range(20_000)
    ]
    file = tmp_path / "trace.json.gz"
    file.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    part = hg.load(file, window=(190_000_000, 190_100_000), cache=tmp_path / "kept")
    with file.open("r+b") as packed:
        packed.write(bytes(file.stat().st_size // 2))
    assert part.args(range(10)) == [event["args"] for event in events[19_000:19_010]]


def _n_read() -> int:
    """Bytes that this process has read so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(lines[0].partition(":")[2])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="Linux counts what is read")
def test_the_second_window_reads_a_small_part_of_the_file(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f"op {n}", "pid": 1, "tid": 1, "ts": 10 * k, "dur": 5}
        for k, n in enumerate(draw.integers(10**12, size=60_000).tolist())
    ]
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": events}))
    kept = tmp_path / "kept"
    read = []
    for _ in range(2):
        before = _n_read()
        hg.load(file, window=(300_000_000, 300_100_000), cache=kept)
        read.append(_n_read() - before)
    assert read[0] >= file.stat().st_size
    assert read[1] < read[0] / 2
    (entry,) = kept.iterdir()
    entry.write_bytes(entry.read_bytes()[:-100])  # damaged: made anew
    assert len(hg.load(file, window=(300_000_000, 300_100_000), cache=kept).events) == 10
