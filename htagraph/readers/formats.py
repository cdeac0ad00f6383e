"""Formats by the first bytes of a file: Perfetto, and those of tools that htagraph does not read.

The latter are recognized by their names where their bytes tell nothing; an error says what the file
is, and which tool reads it. Nothing is unpickled: a pickle runs the code that it names. Dumps of
the Flight Recorder have a reader of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import NamedTuple, NoReturn

from htagraph.errors import TraceFormatError
from htagraph.readers.byte_stream import first_bytes
from htagraph.readers.storage import file_of

_HEAD = 1 << 12
"""First bytes in which a format shows (chosen): the name of the first plane, or the first keys."""


class OtherFormat(NamedTuple):
    """A format that is not read."""

    name: str  # With its article, for a sentence
    hint: str  # Which tool reads it, or how to get a file that htagraph reads
    begins: Callable[[bytes], bool]  # Whether a file begins like that
    suffixes: tuple[str, ...] = ()  # Of names, for files whose beginning tells nothing

    def hint_on(self, path: Path) -> str:
        """The hint, with commands as a shell takes them."""
        said = self.hint.replace("FILE", quote(str(path)))
        return said.replace("FOLDER", quote(str(path.parent)))


FLIGHT_RECORDER = "a flight recorder dump of PyTorch"
"""Name of what `htagraph.load_dumps` reads."""
WORKER_TIMELINE = "a timeline of all workers of a job"
"""Name of one file with the steps of all ranks: each thread of each process is one."""

FROM_ROCM = (
    "`rocpd convert -i FILE --output-format pftrace` (rocprofv3) or `rpd2tracing.py FILE OUT.json` "
    "(rocmProfileData) writes a trace that is read here."
)
"""How to get a trace from a database of ROCm."""

_PLANE = re.compile(
    rb"\x0a[\x00-\xff]{1,6}(\x08[\x00-\xff]{1,10})?\x12[\x01-\x7f](/host:|/device:|/job:|Task Env)"
)
"""The first plane of an XPlane: an id, and a name."""
_VERSION = re.compile(rb"[\x05-\x7f]\x01?\x0a[\x03-\x10]v?\d{1,3}\.\d{1,3}")
"""The first message of a Chakra trace: the version of its schema."""
_FIRST_KEY = re.compile(rb'\s{0,9}\{\s{0,9}"(comm_lib_version|nccl_version|version|entries)"')
_OF_DUMPS = (b"pg_config", b"collective_seq_id", b"nccl_comm_state")
_OF_TRACES = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"', b'"distributedInfo"')


_EVENTS = re.compile(rb'\s{0,9}(?:\{\s{0,9}"traceEvents"\s{0,9}:\s{0,9})?\[')
_OF_BATCHES = (b'"mb_id"', b'"seq_id"', b'"model_chunk"')
_PIPELINE = b'"PP rank 0, TP rank 0, '


def _is_pickle(head: bytes, *words: bytes) -> bool:
    return head[:1] == b"\x80" and head[1:2] in b"\2\3\4\5" and all(word in head for word in words)


def _is_dump(head: bytes) -> bool:
    """Whether it is a dump, as a pickle or as JSON. Headers of traces name process groups, too."""
    if not any(word in head for word in _OF_DUMPS):
        return False
    is_json = _FIRST_KEY.match(head) is not None and not any(key in head for key in _OF_TRACES)
    return is_json or _is_pickle(head)


def _is_worker_timeline(head: bytes) -> bool:
    """Whether it is a list of events of micro-batches, or of threads of pipeline ranks."""
    is_events = _EVENTS.match(head) is not None
    return is_events and (all(key in head for key in _OF_BATCHES) or _PIPELINE in head)


_FORMATS = (
    OtherFormat(
        WORKER_TIMELINE,
        "StragglerAnalysis of ByteDance reads it; `htagraph report` takes one trace per rank.",
        _is_worker_timeline,
    ),
    OtherFormat(
        "a memory snapshot of PyTorch",
        "open it at https://pytorch.org/memory_viz.",
        lambda head: _is_pickle(head, b"segments") or _is_pickle(head, b"device_traces"),
    ),
    OtherFormat(
        FLIGHT_RECORDER,
        "`htagraph hang FOLDER` reads the dumps of all ranks.",
        _is_dump,
    ),
    OtherFormat(
        "a pickle",
        "it may be a memory snapshot (https://pytorch.org/memory_viz) or a flight recorder dump "
        "(`htagraph hang FOLDER`) of PyTorch.",
        _is_pickle,
        (".pickle", ".pkl"),
    ),
    OtherFormat(
        "an XPlane of XProf (JAX, TensorFlow)",
        "TensorBoard with XProf opens it; the *.trace.json.gz in its folder is read here.",
        lambda head: _PLANE.match(head) is not None,
        (".xplane.pb", ".xplane.pb.gz"),
    ),
    OtherFormat(
        "a report of Nsight Compute",
        "`ncu --import FILE --csv --page raw > FILE.csv` writes a table, which --beside adds to a "
        "trace.",
        lambda head: head.startswith(b"NVR\0"),
        (".ncu-rep", ".ncu-repz"),
    ),
    OtherFormat(
        "a database of ROCm",
        FROM_ROCM,
        lambda _: False,  # its tables tell: the reader of SQLite names it
        (".rpd",),
    ),
    OtherFormat(
        "a Chakra execution trace in protobuf",
        "the tools of Chakra read it; the PyTorch execution trace (.json) that it was made from is "
        "added by --beside.",
        lambda head: _VERSION.match(head) is not None,
        (".et",),
    ),
)
_TEXT = (b"{", b"[")
"""With these begins JSON, whatever its name."""


def other_format(source: str | Path | bytes) -> OtherFormat | None:
    r"""The format of a file, or of its content, that is not read; None for all others."""
    path = None if isinstance(source, bytes) else file_of(Path(source))
    head = first_bytes(source if path is None else path, _HEAD)
    if (found := next((one for one in _FORMATS if one.begins(head)), None)) is not None:
        return found
    if path is None or head.lstrip().startswith(_TEXT):
        return None
    return next((one for one in _FORMATS if path.name.endswith(one.suffixes)), None)


def is_other_format(source: str | Path | bytes) -> bool:
    """Whether a file, or its content, is of a format that is not read."""
    return other_format(source) is not None


def refuse_other_format(source: str | Path | bytes, **_options: object) -> NoReturn:
    """Raise, with the name of the format and the tool that reads it."""
    found = other_format(source)
    assert found is not None
    path = None if isinstance(source, bytes) else Path(source)
    hint = found.hint if path is None else found.hint_on(path)
    is_read = found.name == FLIGHT_RECORDER
    what = "which is no trace of one rank" if is_read else "which htagraph does not read"
    raise TraceFormatError(f"this is {found.name}, {what}.", path=path, hint=hint)


_FIRST_PACKET_HEAD = 1 << 16
"""Bytes in which the first packet should end (chosen)."""

_PACKET = b"\x0a"
"""Tag of `Trace.packet`; also a newline, with which text may begin."""

_WORTH_A_LOOK = 64
"""First bytes that are all printable in text, and not in a packet (chosen)."""

_LONGEST_VARINT = 6
"""Bytes of the tag and of a length below 2**35."""


def is_perfetto(source: str | Path | bytes) -> bool:
    r"""Whether a file, or its content, is a Perfetto trace: it begins with a packet."""
    head = first_bytes(
        source if isinstance(source, bytes) else file_of(Path(source)), _FIRST_PACKET_HEAD
    )
    is_text = all(byte in b"\t\r\n" or 0x20 <= byte < 0x7F for byte in head[1:_WORTH_A_LOOK])
    if not head.startswith(_PACKET) or is_text:
        return False
    from google.protobuf.message import DecodeError  # noqa: PLC0415
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2  # noqa: PLC0415

    trace = perfetto_trace_pb2.Trace()
    at, length = 1, 0
    for at in range(1, min(len(head), _LONGEST_VARINT)):
        length |= (head[at] & 0x7F) << 7 * (at - 1)
        if head[at] < 0x80:
            break
    end = at + 1 + length
    if end > len(head):  # the packet is longer than what was read
        fields = perfetto_trace_pb2.TracePacket.DESCRIPTOR.fields_by_number
        return len(head) > at + 1 and head[at + 1] >> 3 in fields
    try:
        trace.ParseFromString(head[:end])
    except DecodeError:
        return False
    is_followed = head[end : end + 1] in {b"", _PACKET}
    return is_followed and bool(trace.packet[0].ListFields())
