"""Files that are written: whole or not at all, and their bytes."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

from htagraph.errors import OutputError
from htagraph.model import perfetto_fields
from htagraph.writers.output_file import output_file
from htagraph.writers.slice_packets import (
    assemble,
    fixed64_field,
    message_field,
    varint,
    varint_field,
)


def test_a_file_that_fails_halfway_leaves_the_old_one(tmp_path: Path) -> None:
    """What was there before stays, and nothing else is left in the folder."""
    out = tmp_path / "x.dot"
    out.write_text("old")
    with pytest.raises(TypeError), output_file(out) as file:
        file.writelines([b"new", "no bytes"])
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x.dot", "old")]


def test_a_name_that_ends_in_gz_is_compressed(tmp_path: Path) -> None:
    """Equal content gives equal bytes: there is no time of writing in the file."""
    for name in ("a.gz", "b.gz"):
        with output_file(tmp_path / name) as file:
            file.write(b"content" * 100)
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == b"content" * 100
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """The error names the file, and what to do."""
    with pytest.raises(
        OutputError, match=r"absent.x\.dot: the folder does not exist. Hint: mkdir -p"
    ):
        output_file(tmp_path / "absent" / "x.dot").__enter__()


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    """A folder's name is refused before anything is written."""
    with pytest.raises(OutputError, match="it is a folder"):
        output_file(tmp_path).__enter__()


def test_a_disk_error_is_an_output_error(tmp_path: Path) -> None:
    """The name of the temporary file is too long for the file system."""
    with pytest.raises(OutputError, match="cannot be written: File name too long"):
        output_file(tmp_path / ("x" * 250)).__enter__()


_ENDLESS = """
import sys
from htagraph.writers.output_file import output_file

with output_file(sys.argv[1]) as file:
    while True:
        file.write(b"x" * 65536)
        print("wrote", flush=True)
"""


@pytest.mark.parametrize("name", ["trace.json", "trace.pftrace.gz", "graph.npz"])
def test_a_killed_writer_leaves_no_file(tmp_path, name):
    """The bytes go to a temporary file, which takes the name only when it is whole."""
    out = tmp_path / name
    with subprocess.Popen(
        [sys.executable, "-c", _ENDLESS, str(out)], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"wrote\n"
        writer.send_signal(signal.SIGKILL)
        writer.wait(timeout=60)

    assert not out.exists()


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_killed_writer_leaves_the_old_file(tmp_path, name):
    """What was there before stays as it was."""
    out = Path(tmp_path) / name
    out.write_bytes(b"old")
    with subprocess.Popen(
        [sys.executable, "-c", _ENDLESS, str(out)], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"wrote\n"
        writer.send_signal(signal.SIGKILL)
        writer.wait(timeout=60)

    assert out.read_bytes() == b"old"


INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(INT64, min_size=1, max_size=20))
def test_numbers_of_a_column_are_read_back(numbers: list[int]) -> None:
    """Varints padded to the width of the longest are still varints."""
    column = np.array(numbers, dtype=np.int64)
    rows = assemble(len(numbers), varint_field(4, column))
    assert [
        perfetto_trace_pb2.DebugAnnotation.FromString(row.tobytes()).int_value for row in rows
    ] == numbers


@given(
    st.lists(
        st.tuples(st.floats(allow_nan=False), st.integers(0, 2**63 - 1)), min_size=1, max_size=20
    )
)
def test_fixed_width_fields_are_read_back(pairs: list[tuple[float, int]]) -> None:
    """Counter values and flow ids have a fixed width of 8 bytes."""
    values, ids = (np.array(column) for column in zip(*pairs, strict=True))
    rows = assemble(
        len(pairs), [*fixed64_field(44, values), *fixed64_field(47, ids.astype(np.int64))]
    )
    events = [perfetto_trace_pb2.TrackEvent.FromString(row.tobytes()) for row in rows]
    assert [(event.double_counter_value, event.flow_ids[0]) for event in events] == pairs


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 2**40), min_size=1, max_size=5))
def test_messages_nest(constant: int, column: list[int]) -> None:
    """What is equal in all rows is passed once and repeated in each."""
    packet = [*varint_field(8, constant), *message_field(11, varint_field(10, np.array(column)))]
    trace = perfetto_trace_pb2.Trace.FromString(
        assemble(len(column), message_field(1, packet)).tobytes()
    )
    assert [packet.timestamp for packet in trace.packet] == [constant] * len(column)
    assert [packet.track_event.name_iid for packet in trace.packet] == column


def test_a_varint_is_as_short_as_it_can_be() -> None:
    """The examples of the protobuf documentation."""
    assert [varint(number).hex() for number in (0, 1, 127, 128, 150)] == [
        "00",
        "01",
        "7f",
        "8001",
        "9601",
    ]


MESSAGES = {
    "TRACE_": schema.Trace,
    "PACKET_": schema.TracePacket,
    "EVENT_": schema.TrackEvent,
    "ANNOTATION_": schema.DebugAnnotation,
    "DESCRIPTOR_": schema.TrackDescriptor,
}
ENUMS = {
    "TYPE_": schema.TrackEvent.Type,
    "SEQ_": schema.TracePacket.SequenceFlags,
    "BUILTIN_CLOCK_": schema.BuiltinClock,
    "EXPLICIT": schema.TrackDescriptor.ChildTracksOrdering,
    "PROCESS_ORDERING_": schema.TrackDescriptor.ProcessOrdering,
}


NUMBERS = {
    name: number
    for name, number in vars(perfetto_fields).items()
    if name.isupper() and isinstance(number, int) and name[0] != "_" and name != "FIELD"
}
"""All but that of our own field."""


@pytest.mark.parametrize(("name", "number"), NUMBERS.items())
def test_a_number_is_that_of_the_schema(name: str, number: int) -> None:
    """Of a field its message is the prefix; a value of an enumeration has its whole name."""
    for prefix, enum in ENUMS.items():
        if name.startswith(prefix):
            assert enum.Value(name) == number
            return
    (prefix,) = (one for one in MESSAGES if name.startswith(one))
    fields = MESSAGES[prefix].DESCRIPTOR.fields_by_name
    assert fields[name.removeprefix(prefix).lower()].number == number
