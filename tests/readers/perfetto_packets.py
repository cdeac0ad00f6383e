"""Small Perfetto traces, packet by packet, as other tools write them."""

from __future__ import annotations

from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


def trace_of(*packets: TracePacket) -> bytes:
    """Packets as a file."""
    return bytes(Trace(packet=packets).SerializeToString())


def packet(sequence: int = 1, **fields: Any) -> TracePacket:
    """A packet of a sequence."""
    return TracePacket(trusted_packet_sequence_id=sequence, **fields)


def track(uuid: int, **fields: Any) -> TracePacket:
    """The descriptor of a track."""
    return packet(track_descriptor={"uuid": uuid, **fields})


def thread(uuid: int, tid: int, pid: int = 1, name: str = "main") -> TracePacket:
    """The descriptor of a thread of a process called ``app``."""
    return track(uuid, thread={"pid": pid, "tid": tid, "thread_name": name})


def event(
    ts: int, type_: int, uuid: int | None = 1, sequence: int = 1, **fields: Any
) -> TracePacket:
    """An event on a track; `clock` and `flags` are of the packet."""
    of_packet = {
        name: fields.pop(short)
        for short, name in (("clock", "timestamp_clock_id"), ("flags", "sequence_flags"))
        if short in fields
    }
    on = {} if uuid is None else {"track_uuid": uuid}
    return packet(sequence, timestamp=ts, track_event={"type": type_, **on, **fields}, **of_packet)


def sliced(name: str, ts: int, dur: int, uuid: int = 1, **fields: Any) -> list[TracePacket]:
    """A slice as its two packets."""
    return [event(ts, BEGIN, uuid, name=name, **fields), event(ts + dur, END, uuid)]


def noted(**values: Any) -> list[dict[str, Any]]:
    """Annotations with names that are not interned."""
    forms = {bool: "bool_value", int: "int_value", float: "double_value", str: "string_value"}
    return [{"name": name, forms[type(value)]: value} for name, value in values.items()]
