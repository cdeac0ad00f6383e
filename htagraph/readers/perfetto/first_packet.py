"""Recognises Perfetto traces by their first packet."""

from __future__ import annotations

from pathlib import Path

from htagraph.readers.content import first_bytes
from htagraph.readers.rank_paths import file_of

_HEAD = 1 << 16
"""Bytes in which the first packet should end (chosen)."""

_PACKET = b"\x0a"
"""Tag of `Trace.packet`; also a newline, with which text may begin."""

_WORTH_A_LOOK = 64
"""First bytes that are all printable in text, and not in a packet (chosen)."""

_LONGEST_VARINT = 6
"""Bytes of the tag and of a length below 2**35."""


def is_perfetto(source: str | Path | bytes) -> bool:
    r"""Whether a file, or its content, is a Perfetto trace: it begins with a packet.

    Examples
    --------
    >>> is_perfetto(bytes.fromhex("0a04 4003 5001")), is_perfetto(b'\n{"traceEvents": []}')
    (True, False)
    """
    head = first_bytes(source if isinstance(source, bytes) else file_of(Path(source)), _HEAD)
    if not head.startswith(_PACKET) or _is_text(head[1:_WORTH_A_LOOK]):
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


def _is_text(part: bytes) -> bool:
    """Whether bytes are printable characters and spaces only."""
    return all(byte in b"\t\r\n" or 0x20 <= byte < 0x7F for byte in part)
