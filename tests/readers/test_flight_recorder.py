"""Dumps of the Flight Recorder are read without running what a pickle names."""

from __future__ import annotations

import builtins
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import htagraph as hg
from htagraph.errors import TraceFormatError
from htagraph.readers.flight_recorder import read_dump
from htagraph.readers.plain_pickle import plain_data
from tests.real_traces import CAPTURES

DUMPS = CAPTURES / "flight_recorder" / "hangs" / "missing_member"
PLAIN = {
    "text": "é" * 300,
    "numbers": [0, 255, 256, 70_000, -1, 1 << 40, -(1 << 70), 0.5],
    "others": (None, True, False, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
    "same": [[], {}, {"a": 1, 7: "b"}],
}


class Calls:
    """What calls a function when it is unpickled."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[object, ...]:
        """Call it."""
        return self.function, self.arguments


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data_is_what_pickle_reads(protocol: int) -> None:
    """Of every protocol that PyTorch or a script may write."""
    assert plain_data(pickle.dumps(PLAIN, protocol)) == PLAIN


def test_real_dumps_are_what_pickle_reads() -> None:
    for file in sorted(DUMPS.glob("nccl_trace_rank_[12]")):
        content = file.read_bytes()

        assert plain_data(content) == pickle.loads(content)  # noqa: S301  htagraph wrote it


def hostile(mark: str) -> dict[str, bytes]:
    """Pickles that would run code, or take all memory."""
    run = f"open({mark!r}, 'w')"
    return {
        "os.system": pickle.dumps({"pg_config": Calls(os.system, f"touch {mark}")}),
        "eval": pickle.dumps({"entries": [Calls(builtins.eval, run)]}),
        "eval of protocol 0": pickle.dumps({"entries": Calls(builtins.eval, run)}, 0),
        "build": b"\x80\x02cio\nStringIO\n)\x81}X\x01\x00\x00\x00aK\x01sb.",
        "extension": b"\x80\x02\x82\x01)R.",
        "persistent": b"\x80\x02Pfile\n.",
        "instance": f"(S{run!r}\nibuiltins\neval\n.".encode(),
        "nested keys": b"\x80\x02}" + b")" + b"\x85" * 100_000 + b"K\x01s.",
    }


@pytest.mark.parametrize("name", hostile(""))
def test_a_hostile_pickle_runs_nothing(name: str, tmp_path: Path) -> None:
    """The error names the file, and says what it is."""
    mark = tmp_path / "ran"
    file = tmp_path / "nccl_trace_rank_0"
    file.write_bytes(hostile(str(mark))[name])

    with pytest.raises(TraceFormatError, match=r"more than plain data|is damaged") as caught:
        read_dump(file)
    assert str(file) in str(caught.value)
    assert not mark.exists()


def test_a_large_memo_index_takes_no_memory() -> None:
    """Pickle itself would allocate 32 GiB for this one."""
    assert plain_data(b"\x80\x02]r\xff\xff\xff\x7f.") == []


def test_lists_shared_many_times_are_refused(tmp_path: Path) -> None:
    """A short file, whose text would be 10^16 values long; a list in itself is endless."""
    shared: object = 1
    for _ in range(16):
        shared = [shared] * 10
    endless: list[object] = []
    endless.append(endless)
    file = tmp_path / "nccl_trace_rank_0"
    for value in (shared, endless):
        file.write_bytes(pickle.dumps({"entries": [], "pg_config": {"0": {"ranks": value}}}))
        with pytest.raises(TraceFormatError, match="refers to its own lists too often"):
            read_dump(file)


@pytest.mark.parametrize("key", ["state", "profiling_name", "input_dtypes", "process_group"])
def test_names_are_text_or_numbers(key: str, tmp_path: Path) -> None:
    """A list is no name: its text may be longer than the file."""
    document = pickle.loads((DUMPS / "nccl_trace_rank_2").read_bytes())  # noqa: S301
    document["entries"][0][key] = [[["Float"]]] * 2
    file = tmp_path / "nccl_trace_rank_2"
    file.write_bytes(pickle.dumps(document))

    with pytest.raises(TraceFormatError, match="damaged"):
        read_dump(file)


def test_a_size_is_no_larger_than_memory(tmp_path: Path) -> None:
    """The product of a million sizes would take minutes."""
    document = pickle.loads((DUMPS / "nccl_trace_rank_2").read_bytes())  # noqa: S301
    document["entries"][0]["input_sizes"] = [[2**40] * 1_000_000]
    file = tmp_path / "nccl_trace_rank_2"
    file.write_text(json.dumps(document))

    with pytest.raises(TraceFormatError, match="damaged"):
        read_dump(file)


@pytest.mark.parametrize("rest", [b"\x8d" + b"\xff" * 8 + b"abc.", b"]e.", b"t.", b"}u."])
def test_a_length_beyond_the_end_or_a_missing_mark_is_damage(rest: bytes) -> None:
    with pytest.raises(TraceFormatError, match="damaged"):
        plain_data(b"\x80\x04" + rest)


def test_damaged_dumps_are_refused(tmp_path: Path) -> None:
    """Cut anywhere, and with bytes changed: answered or refused, nothing else."""
    draw = np.random.default_rng(7).integers
    for whole in sorted(DUMPS.iterdir()):
        content = whole.read_bytes()
        file = tmp_path / whole.name
        for _ in range(150):
            broken = bytearray(content[: draw(1, len(content))])
            for _ in range(draw(3)):
                broken[draw(len(broken))] = draw(256)
            file.write_bytes(broken)
            with pytest.raises(TraceFormatError):
                read_dump(file)


def test_the_rank_is_in_the_name(tmp_path: Path) -> None:
    """With the prefix that a user chose."""
    content = (DUMPS / "nccl_trace_rank_0.json").read_bytes()
    for name, rank in (("comm_lib_trace_rank_12", 12), ("fr7", 7), ("dump_31.json", 31)):
        file = tmp_path / name
        file.write_bytes(content)
        assert read_dump(file).rank == rank

    file = tmp_path / "dump"
    file.write_bytes(content)
    with pytest.raises(TraceFormatError, match="no rank"):
        read_dump(file)


def test_json_and_pickle_of_a_dump_are_the_same(tmp_path: Path) -> None:
    """Numbers may be text in JSON, times 0 or None; only a pickle has stacks."""
    document = pickle.loads((DUMPS / "nccl_trace_rank_2").read_bytes())  # noqa: S301
    text = tmp_path / "rank_2.json"
    for entry in document["entries"]:
        del entry["frames"]
    text.write_text(json.dumps(document))
    as_text, as_pickle = read_dump(text), read_dump(DUMPS / "nccl_trace_rank_2")

    assert [one._replace(frames=()) for one in as_pickle.entries] == list(as_text.entries)
    assert all(one.frames for one in as_pickle.entries)


@pytest.mark.slow
def test_the_command_says_where_the_job_hangs() -> None:
    command = [sys.executable, "-m", "htagraph.cli.start", "hang", str(DUMPS), "--stacks"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.startswith(
        "Rank 1 never entered all_reduce #3 of group 0 (default_pg) of ranks 0-2, which ranks 0, 2 "
        "entered at "
    )
    assert "\nRank 2\n" in done.stdout
    assert "distributed_c10d.py:4174 all_reduce\n" in done.stdout
    assert len(hg.load_dumps(DUMPS).hangs()) == 1
