"""What other tools wrote, cut, tampered with or far too many of it: few steps, and nothing run."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket

import htagraph as hg
from htagraph.errors import TraceFormatError, TraceLimitError
from htagraph.model.perfetto_fields import FIELD, Supplement
from htagraph.readers import byte_stream
from htagraph.readers.beside.execution_nodes import read_nodes
from htagraph.readers.beside.ncu import _runs
from htagraph.readers.beside.ncu_tables import read_launches
from htagraph.readers.byte_stream import content_of
from htagraph.readers.captures import discover
from htagraph.readers.perfetto.reader import read_perfetto
from tests.hostile.cpu_time import cpu_seconds
from tests.readers.nsys_files import NsysFile, global_id, simulated_file
from tests.readers.perfetto_packets import BEGIN, END, event, packet, sliced, trace_of
from tests.synth.simulator import simulate
from tests.synth.training import training_rank


def test_clocks_that_lead_from_one_to_the_next_are_followed_a_few_steps() -> None:
    """3,000 took 2 s, 16,000 a minute; a time is carried over eight at most."""
    n = 3_000
    shown = [(6, 200), *((200 + k, 201 + k) for k in range(n))]
    snapshots = [
        packet(clock_snapshot={"clocks": [{"clock_id": one, "timestamp": 10} for one in pair]})
        for pair in shown
    ]
    slices = [
        event(ts, kind, clock=200 + clock, name="op")
        for clock, ts, kind in ((5, 20, BEGIN), (5, 30, END), (n, 20, BEGIN), (n, 30, END))
    ]
    data = trace_of(*snapshots, *slices)

    assert cpu_seconds(lambda: read_perfetto(data)) < 1
    repairs = {one.kind: one.n for one in read_perfetto(data).repairs}
    assert repairs["unknown clock"] == 2


def test_clocks_of_thousands_of_sequences_are_each_carried_once() -> None:
    """4,000 took 5 s, 16,000 a minute and a half."""
    own = [{"clock_id": 6, "timestamp": 10}, {"clock_id": 64, "is_incremental": True}]
    data = trace_of(
        *(
            one
            for k in range(4_000)
            for one in (
                packet(k + 1, clock_snapshot={"clocks": own}),
                event(5, BEGIN, k + 10, sequence=k + 1, clock=64, name="op"),
                event(7, END, k + 10, sequence=k + 1, clock=64),
            )
        )
    )

    assert cpu_seconds(lambda: read_perfetto(data)) < 1
    assert set(read_perfetto(data).events.ts_ns.tolist()) == {15}


def length(n: int) -> bytes:
    """A length in three bytes."""
    return bytes([n & 0x7F | 0x80, n >> 7 & 0x7F | 0x80, n >> 14])


def test_bytes_that_seem_to_be_packets_within_packets_are_looked_at_a_few_times() -> None:
    """Each begin of 4,600 in 64 kB fits to the end, and holds a broken event: 10 s a megabyte."""
    units = [
        b"\x09\x0a" + length(14 * (4_600 - k) - 5) + b"\x10\0\x10\0\x50\x01\x5a\x01\xff"
        for k in range(4_600)
    ]
    data = trace_of(*sliced("op", 1, 5)) + (
        b"\xff" + b"".join(units) + trace_of(*[packet()] * 4)
    ) * 4  # fmt: skip

    assert cpu_seconds(lambda: read_perfetto(data)) < 1
    found = read_perfetto(data)
    assert found.events.names().tolist() == ["op"]
    assert {one.kind for one in found.repairs} >= {"damaged", "bad packet"}


def varint(n: int) -> bytes:
    """A number as protobuf has it."""
    return bytes([n]) if n < 0x80 else bytes([n & 0x7F | 0x80]) + varint(n >> 7)


@pytest.mark.parametrize(
    ("name", "value"), [("later_ns", -(2**62)), ("longer_ns", -(2**62)), ("n_sms", {})]
)
def test_a_supplement_that_was_changed_is_left_out(
    tmp_path: Path, name: str, value: object
) -> None:
    """Its times went beyond 64 bits, and the path did not tile; a device was no number."""
    events = simulate(training_rank(steps=1, layers=1)).events
    file = (
        hg.Trace.from_events(events).compile().critical_path().to_perfetto(tmp_path / "x.pftrace")
    )
    found = hg.load(file)
    content = file.read_bytes()
    changed = changed_supplement(content, name, value)
    again = hg.load(changed)
    graph = again.compile()

    assert len(again.events) == len(found.events)
    assert [one.kind for one in again.recording.repairs] == ["supplement does not fit"]
    assert int(graph.critical_path().segments["dur_ns"].sum()) == graph.dur_ns


def changed_supplement(content: bytes, name: str, value: object) -> bytes:
    """A trace written by htagraph, with changed facts or columns."""
    packets = []
    for one in Trace.FromString(content).packet:
        packed = [field.data for field in UnknownFieldSet(one) if field.field_number == FIELD]
        body = one.SerializeToString()
        if packed:
            told = Supplement.unpacked(packed[0])
            facts, columns = dict(told.facts), dict(told.columns)
            if name in columns:
                columns[name] = np.full(len(columns[name]), value)
            else:
                facts["devices"] = [{"device": 0, name: value}]
            again = Supplement(facts, columns).packed()
            of = TracePacket(trusted_packet_sequence_id=one.trusted_packet_sequence_id)
            body = of.SerializeToString() + varint(FIELD << 3 | 2) + varint(len(again)) + again
        packets.append(b"\x0a" + varint(len(body)) + body)
    return b"".join(packets)


def ranges(path: Path, n: int) -> Path:
    """An export of a kernel and as many ranges, each with a text of its own."""
    file = NsysFile()
    file.starts(1_700_000_000_000_000_000)
    place = {"globalPid": global_id(1), "deviceId": 0, "contextId": 1, "streamId": 7}
    name = file.string("kernel")
    file.add("CUPTI_ACTIVITY_KIND_KERNEL", start=1, end=5, **place, shortName=name)
    for k in range(n):
        times = {"start": 10 * k, "end": 10 * k + 5}
        thread = {"eventType": 59, "globalTid": global_id(1, 1)}
        file.add("NVTX_EVENTS", **times, **thread, textId=file.string(f"range {k}"))
    return file.write(path)


def test_texts_of_a_copied_export_are_found_without_a_key(tmp_path: Path) -> None:
    """``CREATE TABLE ... AS SELECT`` loses it: 32,000 texts took 26 s."""
    file = ranges(tmp_path / "run.sqlite", 10_000)

    assert cpu_seconds(lambda: hg.load(file)) < 1
    assert hg.load(file).events["name"].nunique() == 10_001


def test_an_export_may_have_thousands_of_processes(tmp_path: Path) -> None:
    """SQLite refused a condition of more than a thousand, and the file was called damaged."""
    file = NsysFile()
    file.starts(1_700_000_000_000_000_000)
    for pid in range(1, 1_501):
        place = {"globalPid": global_id(pid), "deviceId": 0, "contextId": 1, "streamId": 7}
        file.add("CUPTI_ACTIVITY_KIND_KERNEL", start=10 * pid, end=10 * pid + 5, **place)
    path = file.write(tmp_path / "run.sqlite")

    assert len(hg.load(path / "rank-7").events) == 1


def test_a_virtual_table_of_an_export_is_not_run(tmp_path: Path) -> None:
    """Code of SQLite answers for it; a view, too, may go on for ever."""
    file = simulated_file(tmp_path / "run.sqlite", [simulate(training_rank(steps=1)).events])
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE VIRTUAL TABLE OSRT_API USING fts4(start, end, globalTid)")
        connection.execute("INSERT INTO OSRT_API VALUES (1, 2, 3)")
        connection.commit()

    assert not [name for name in hg.load(file).skipped if "OSRT_API" in name]


@pytest.mark.parametrize("name", ["run.sqlite.gz", "log.csv.gz"])
def test_files_beside_a_trace_are_no_bombs(tmp_path: Path, name: str, monkeypatch) -> None:
    """As for traces: no file unpacks to more than 200 times its size."""
    monkeypatch.setattr(byte_stream, "RATIO_FROM", 1 << 20)
    head = b"SQLite format 3\0" if "sqlite" in name else b"timestamp, power.draw [W]\n"
    file = tmp_path / name
    file.write_bytes(gzip.compress(head + bytes(1 << 23)))

    with pytest.raises(TraceLimitError, match="more than 200 times its size"):
        content_of(file)
    if "sqlite" in name:
        with pytest.raises(TraceLimitError):
            hg.load(file)


def test_a_head_of_thousands_of_processes_is_read_once(tmp_path: Path) -> None:
    """Half a megabyte of process ids, or of different ones, took 18 s, each file of a folder."""
    same, other = tmp_path / "rank0.json", tmp_path / "rank1.json"
    same.write_bytes(b'{"schemaVersion": 1, "traceEvents": [' + b'"pid":0,' * 60_000)
    pids = ",".join(f'{{"ph":"X","pid":{k}}}' for k in range(100, 30_000))
    other.write_text(f'{{"schemaVersion": 1, "traceEvents": [{pids}]}}')

    assert cpu_seconds(lambda: discover([same, other])) < 1


def test_a_node_of_thousands_of_tensors_is_read_once(tmp_path: Path) -> None:
    """40,000 in and out took 10 s."""
    n, file = 20_000, tmp_path / "et.json"
    inputs, outputs = (
        {"values": [[[k, k, 0, 1, 4, "cuda:0"] for k in range(1 + at, n + at)]]} for at in (0, n)
    )
    node = {"id": 1, "name": "aten::cat", "inputs": inputs, "outputs": outputs}
    file.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": [node]}))

    assert cpu_seconds(lambda: read_nodes(file)) < 1
    assert int(read_nodes(file).access_is_write.sum()) == n - 1


codes = st.lists(st.integers(0, 1), min_size=1, max_size=12)


@given(codes, codes)
def test_a_part_is_found_wherever_it_stands(whole: list[int], part: list[int]) -> None:
    found = [at for at in range(len(whole) - len(part) + 1) if whole[at:][: len(part)] == part]

    assert _runs(np.array(whole), np.array(part)).tolist() == (
        found if len(part) <= len(whole) else []
    )


def test_launches_that_are_all_alike_are_found_in_few_steps() -> None:
    """40,000 launches of one kernel in 80,000 took 3 s."""
    whole = np.zeros(80_000, dtype=np.int64)

    assert cpu_seconds(lambda: _runs(whole, whole[:40_000])) < 0.5


def test_metrics_that_each_launch_has_one_of_are_too_many() -> None:
    """A value for each launch and metric: 40,000 lines became 13 GB."""
    head = '"ID","Process ID","Kernel Name","Metric Name","Metric Value"'
    lines = [f'"{k}","1","gemm","metric {k}","5"' for k in range(20_000)]

    with pytest.raises(TraceLimitError, match="20,000 metrics of 20,000 launches"):
        read_launches([head, *lines])
    assert len(read_launches([head, *lines[:100]])) == 100


@pytest.mark.parametrize(
    ("part", "value"),
    [("std_ns", "NaN"), ("std_ns", "1e308"), ("calls", "1" + "0" * 400), ("name", '"\\ud800"')],
)
def test_a_baseline_that_was_changed_is_none(tmp_path: Path, part: str, value: str) -> None:
    """Numbers beyond 64 bits, or none, ended in errors of numpy and pandas."""
    run = hg.run_profile(hg.Trace.from_events(simulate(training_rank(steps=4)).events))
    file = run.save(tmp_path / "baseline.json")
    document = json.loads(file.read_text())
    kernel = next(one for one in document["profile"]["parts"] if one["part"] == "kernel")
    kernel[part] = "CHANGED"
    file.write_text(json.dumps(document).replace('"CHANGED"', value))

    with pytest.raises(TraceFormatError, match="not a baseline"):
        hg.RunProfile.read(file)


@pytest.mark.parametrize("version", [None, 0, 2, "1"])
def test_a_baseline_of_another_version_is_refused(tmp_path: Path, version: object) -> None:
    """Its numbers may mean something else."""
    run = hg.run_profile(hg.Trace.from_events(simulate(training_rank(steps=4)).events))
    file = run.save(tmp_path / "baseline.json")
    assert hg.RunProfile.read(file) == run
    document = json.loads(file.read_text())
    document["profile"]["version"] = version
    file.write_text(json.dumps(document))

    with pytest.raises(TraceFormatError, match=f"it is of version {version}, and this htagraph re"):
        hg.RunProfile.read(file)
