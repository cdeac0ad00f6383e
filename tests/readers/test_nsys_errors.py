"""Files that are no export, or unreadable: each error tells what the file is and what to do."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from htagraph import load
from htagraph.errors import QueryError, TraceFormatError, TraceNotFoundError
from htagraph.readers.nsys.export import export_nsys
from htagraph.readers.nsys.ranks import nsys_ranks
from tests.readers.nsys_files import NsysFile, simulated_file
from tests.synth.simulator import simulate
from tests.synth.training import training_rank


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
