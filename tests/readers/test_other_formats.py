"""Files of other profilers are named, with the tool that reads them."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import htagraph as hg
from htagraph.errors import TraceFormatError
from tests.real_traces import CAPTURES


class Runs:
    """What runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """Run it."""
        return os.system, (self.command,)


def field(number: int, content: bytes) -> bytes:
    """A field of a protobuf message: bytes with their length."""
    return bytes([number << 3 | 2, len(content)]) + content


SNAPSHOT = {"segments": [{"device": 0, "address": 1}], "device_traces": [[]]}
DUMP = {"version": "2.10", "pg_config": {"0": {}}, "entries": [{"collective_seq_id": 1}]}
PLANE = b"\x08\x01" + field(2, b"/device:GPU:0") + field(3, b"\x08\x07")
CONTENTS = {
    "a memory snapshot": (pickle.dumps(SNAPSHOT), "pytorch.org/memory_viz"),
    "a flight recorder dump": (pickle.dumps(DUMP), "htagraph hang"),
    "a flight recorder dump ": (json.dumps(DUMP).encode(), "htagraph hang"),
    "a pickle": (pickle.dumps([1, 2]), "memory snapshot"),
    "an XPlane": (field(1, PLANE), "TensorBoard"),
    "an XPlane ": (field(1, field(2, b"/host:CPU")), "trace.json.gz"),
    "a report of Nsight Compute": (b"NVR\0\x01\0\0\0", "ncu --import"),
    "a Chakra execution trace": (b"\x07" + field(1, b"0.0.4"), "Chakra"),
    "a timeline of all workers": (
        json.dumps(
            [{"name": "thread_name", "args": {"name": "PP rank 0, TP rank 0, compute"}}]
        ).encode(),
        "StragglerAnalysis",
    ),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_format_is_recognized_by_its_content(name: str, tmp_path: Path) -> None:
    """Whatever the file is called, and packed or not."""
    content, tool = CONTENTS[name]
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(content))

    for source in (content, packed):
        with pytest.raises(TraceFormatError, match=f"this is {name.strip()}") as caught:
            hg.load(source)
        assert tool in str(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("host.xplane.pb", "an XPlane"),
        ("gemm.ncu-rep", "a report of Nsight Compute"),
        ("snapshot.pickle", "a pickle"),
        ("rank0.et", "a Chakra"),
        ("run.rpd", "a database of ROCm"),
    ],
)
def test_else_by_its_name(name: str, what: str, tmp_path: Path) -> None:
    """A trace with such a name is a trace."""
    file = tmp_path / name
    file.write_bytes(b"\x03nothing known")
    with pytest.raises(TraceFormatError, match=f"this is {what}"):
        hg.load(file)

    file.write_bytes(gzip.decompress(hg.demo_trace("none").read_bytes()))
    assert len(hg.load(file).events)


def test_dumps_of_pytorch_are_recognized() -> None:
    (dump, *_) = sorted((CAPTURES / "flight_recorder").glob("*rank0*"))

    with pytest.raises(TraceFormatError, match="a flight recorder dump of PyTorch"):
        hg.load(dump)


def test_a_trace_that_names_process_groups_is_a_trace() -> None:
    """Its events are far behind; dumps of the flight recorder have the same keys."""
    groups = [{"pg_name": str(k), "pg_desc": "x" * 60} for k in range(90)]
    info = {"distributedInfo": {"rank": 3, "nccl_version": "2.10", "pg_config": groups}}
    event = {"ph": "X", "cat": "cpu_op", "name": "mm", "pid": 1, "tid": 1, "ts": 5, "dur": 2}
    for first in ({"schemaVersion": 1}, {}, {"version": 1}):
        document = first | info | {"traceEvents": [event]}

        assert hg.load(json.dumps(document).encode()).rank == 3


def test_a_database_of_rocm_is_told_by_its_tables(tmp_path: Path) -> None:
    file = tmp_path / "1_results.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE rocpd_kernel_dispatch_0 (id INTEGER)")

    with pytest.raises(TraceFormatError, match="a database of ROCm") as caught:
        hg.load(file)
    assert "rocpd convert" in str(caught.value.hint)


def test_traces_of_jax_are_read() -> None:
    """What XProf writes next to an XPlane is Chrome JSON."""
    rows = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
        {"ph": "X", "pid": 1, "tid": 7, "ts": 10.5, "dur": 3.25, "name": "fusion.1"},
        {},
    ]
    document = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": rows}

    assert hg.load(gzip.compress(json.dumps(document).encode())).events["name"].tolist() == [
        "fusion.1"
    ]


def said_of(path: Path) -> str:
    """The error of `htagraph info`, in one line."""
    command = [sys.executable, "-m", "htagraph.cli.start", "info", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    return done.stderr


def test_the_command_says_what_a_file_is_and_runs_nothing(tmp_path: Path) -> None:
    """Also in a folder without traces, whose files have no ending."""
    file = tmp_path / "nccl_trace_rank_0"
    file.write_bytes(pickle.dumps({"pg_config": Runs(f"touch {tmp_path}/ran")}))

    assert said_of(file) == (
        f"error: {file}: this is a flight recorder dump of PyTorch, which is no trace of one rank. "
        f"Hint: `htagraph hang {tmp_path}` reads the dumps of all ranks.\n"
    )
    assert "nccl_trace_rank_0 is a flight recorder dump of PyTorch" in said_of(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["nccl_trace_rank_0"]


def test_a_report_of_nsight_compute_is_not_a_companion(tmp_path: Path) -> None:
    file = tmp_path / "gemm.ncu-rep"
    file.write_bytes(b"NVR\0")

    with pytest.raises(TraceFormatError, match="a report of Nsight Compute") as caught:
        hg.load(hg.demo_trace("none"), beside=[file])
    assert "--csv --page raw" in str(caught.value.hint)
