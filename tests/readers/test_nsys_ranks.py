"""Exports of Nsight Systems with several ranks, and broken ones."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from htagraph import load
from htagraph.errors import QueryError, TraceError, TraceFormatError, TraceNotFoundError
from htagraph.readers.nsys.export import export_nsys
from htagraph.readers.nsys.ranks import nsys_ranks
from htagraph.readers.storage import file_and_part
from tests.readers.nsys_files import NsysFile, global_id, simulated_file
from tests.synth.simulator import simulate
from tests.synth.training import training_rank


def two_processes(*, devices: tuple[int, int] = (1, 0)) -> NsysFile:
    """An export of two processes with a kernel each, a launcher, and a call of either process."""
    file = NsysFile()
    file.starts(10_000)
    for pid, device in zip((500, 600), devices, strict=True):
        place = {"deviceId": device, "contextId": 1, "streamId": 7, "correlationId": 5}
        name = file.string(f"kernel of {pid}")
        file.add("CUPTI_ACTIVITY_KIND_KERNEL", start=100, end=200, demangledName=name,
                 globalPid=global_id(pid), **place)  # fmt: skip
        file.add("PROCESSES", globalPid=global_id(pid), pid=pid, name="python3")
    for pid in (400, 500, 600):
        file.add_call("cudaLaunchKernel_v7000", global_id(pid, pid), 50, 60, correlationId=5)
    return file


def test_ranks_are_the_processes_with_device_work_in_order_of_their_devices(tmp_path):
    """The launcher is none; where devices have one number, process ids order the ranks."""
    path = two_processes().write(tmp_path / "run.sqlite")
    alike = two_processes(devices=(0, 0)).write(tmp_path / "alike.sqlite")

    ranks = nsys_ranks(path)

    assert [(rank.rank, rank.pid, rank.devices) for rank in ranks] == [
        (0, 600, (0,)),
        (1, 500, (1,)),
    ]
    assert {rank.rank_source for rank in ranks} == {"order of devices"}
    assert (ranks[0].process, ranks[0].host, ranks[0].world_size) == ("python3", "node-1", None)
    assert (ranks[0].start_ns, ranks[0].end_ns) == (10_100, 10_200)
    assert [(rank.pid, rank.rank_source) for rank in nsys_ranks(alike)] == [
        (500, "order of processes"),
        (600, "order of processes"),
    ]


def test_nccl_says_the_rank_in_the_largest_communicator(tmp_path):
    """Its payloads are in exports made with ``--include-json true``."""
    file = two_processes()
    for pid, rank in ((500, 4), (600, 6)):
        for n_ranks, number in ((2, rank // 6), (8, rank)):
            payload = json.dumps({"p": [{"No. of ranks": n_ranks, "Rank": number}]})
            file.add_range("ncclCommInitRank", start=1, end=2, globalTid=global_id(pid, pid),
                           jsonText=payload)  # fmt: skip

    ranks = nsys_ranks(file.write(tmp_path / "run.sqlite"))

    assert [(rank.rank, rank.pid, rank.world_size) for rank in ranks] == [(4, 500, 8), (6, 600, 8)]
    assert {rank.rank_source for rank in ranks} == {"NCCL"}


def test_one_rank_is_read_by_a_path_below_the_file(tmp_path):
    """Its events only; what belongs to no rank is counted."""
    path = two_processes().write(tmp_path / "run.sqlite")

    trace = load(path / "rank-1")

    assert trace.events["name"].tolist() == ["cudaLaunchKernel", "kernel of 500"]
    assert (trace.rank, trace.rank_source) == (1, "order of devices")
    assert trace.skipped == {"CUPTI_ACTIVITY_KIND_RUNTIME of processes that are no rank": 1}
    assert file_and_part(path / "rank-1") == (path, "rank-1")


def test_an_export_with_several_ranks_says_how_to_read_one(tmp_path):
    """And one that is not there, which there are."""
    path = two_processes().write(tmp_path / "run.sqlite")

    with pytest.raises(TraceError, match=r"2 ranks .*pid 600 .*run.sqlite/rank-0.*--rank N"):
        load(path)
    with pytest.raises(TraceError, match=r"no rank-7.*run.sqlite/rank-1"):
        load(path / "rank-7")


def test_without_device_work_the_busiest_process_is_the_rank(tmp_path):
    """An export of a program on the host only."""
    file = NsysFile()
    file.starts(10_000)
    for pid, n in ((500, 1), (600, 3)):
        for number in range(n):
            file.add_range("work", start=number, end=number + 1, globalTid=global_id(pid, pid))

    trace = load(file.write(tmp_path / "run.sqlite"))

    assert len(trace.events) == 3
    assert trace.recording.events.lanes.pid == (600,)


def test_a_path_without_a_part_is_the_file():
    """Whether or not it is there."""
    assert file_and_part(Path("nowhere/run.sqlite")) == (Path("nowhere/run.sqlite"), "")


@pytest.fixture(name="report")
def report_(tmp_path: Path) -> Path:
    """A report that is not exported yet."""
    path = tmp_path / "my run.nsys-rep"
    path.write_bytes(b"QDSTRM")
    return path


def fake_nsys(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of this name on the path."""
    program = folder / "bin" / "nsys"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


def test_a_report_says_how_to_export_it(report, tmp_path, monkeypatch):
    """With the whole command, and whether it can be run here."""
    command = rf"`nsys export --type sqlite --output '{tmp_path}/my run.sqlite' '{report}'`"
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TraceFormatError, match="where nsys is installed") as caught:
        load(report)
    assert command in str(caught.value)

    fake_nsys(tmp_path, "exit 0", monkeypatch)
    with pytest.raises(TraceFormatError, match="nsys is on this machine"):
        nsys_ranks(report)


def test_nsys_exports_a_report_beside_it(report, tmp_path, monkeypatch):
    """The export is returned; the error quotes nsys if it fails."""
    fake_nsys(
        tmp_path, 'test "$1 $2 $3 $4" = "export --type sqlite --output" && echo > "$5"', monkeypatch
    )

    assert export_nsys(report) == tmp_path / "my run.sqlite"
    assert (tmp_path / "my run.sqlite").exists()


def test_nsys_that_fails_or_is_not_there_is_told(report, tmp_path, monkeypatch):
    """With its last words."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TraceFormatError, match="nsys is not on this machine"):
        export_nsys(report)

    fake_nsys(tmp_path, "echo 'too new' >&2; exit 3", monkeypatch)
    with pytest.raises(TraceFormatError, match=r"failed \(3\): too new"):
        export_nsys(report)
    with pytest.raises(TraceNotFoundError):
        export_nsys(tmp_path / "other.nsys-rep")


def test_another_database_is_no_export(tmp_path):
    """SQLite is a common format."""
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE people (name)")

    with pytest.raises(TraceFormatError, match="not an Nsight Systems export"):
        load(tmp_path / "other.db")


def test_an_export_without_events_says_how_to_record_some(tmp_path):
    """Nothing was traced."""
    file = NsysFile()
    file.starts(10)

    with pytest.raises(TraceFormatError, match=r"no events .*--trace cuda,nvtx"):
        load(file.write(tmp_path / "run.sqlite"))


def test_an_export_that_is_cut_off_is_damaged(tmp_path):
    """By the compiled loop and by way of Python."""
    content = simulated_file(
        tmp_path / "run.sqlite", [simulate(training_rank(steps=1)).events]
    ).read_bytes()
    cut = content[: len(content) // 2 & ~4095]
    (tmp_path / "cut.sqlite").write_bytes(cut)

    for source in (tmp_path / "cut.sqlite", cut):
        with pytest.raises(TraceFormatError, match="truncated or damaged"):
            load(source)


@pytest.mark.parametrize("ending", ["-wal", "-journal"])
def test_an_export_that_is_being_written_is_not_read(tmp_path, ending):
    """Rows in the log of the database would be missing."""
    path = simulated_file(tmp_path / "run.sqlite", [simulate(training_rank(steps=1)).events])
    path.with_name(path.name + ending).write_bytes(b"log")

    with pytest.raises(TraceFormatError, match="this file is still being written"):
        load(path)


def test_a_damaged_gzip_and_an_impossible_window_are_told(tmp_path):
    """As for other traces."""
    path = simulated_file(tmp_path / "run.sqlite", [simulate(training_rank(steps=1)).events])

    with pytest.raises(TraceFormatError, match="the gzip data is damaged"):
        load(gzip.compress(path.read_bytes())[:-9])
    with pytest.raises(QueryError, match="ends before it starts"):
        load(path, window=(2, 1))
    with pytest.raises(TraceNotFoundError):
        nsys_ranks(tmp_path / "nowhere.sqlite")
