"""Throws broken bytes at the reader of Perfetto traces.

Inputs are mutations of traces written here, and of one that we write. For each the reader gives a
recording or an error of the package; no slice that is in the file is missing without a count, and
what was read compiles.
"""

from __future__ import annotations

import random
import tempfile
import zlib
from functools import cache
from pathlib import Path

from google.protobuf.message import DecodeError
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket

import htagraph as hg
from htagraph.errors import HTAGraphError
from htagraph.model.recording import Recording
from htagraph.readers.formats import is_perfetto
from htagraph.readers.perfetto.reader import read_perfetto
from tests.readers.perfetto_packets import (
    BEGIN,
    COUNTER,
    END,
    INSTANT,
    event,
    noted,
    packet,
    sliced,
    thread,
    trace_of,
    track,
)
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

_LEAST_BYTES = 6
"""Of a packet with a slice; what is in bytes that are no packets is counted by its bytes."""
_LEFT_OUT = ("no timestamp", "time out of range", "bad packet")
_TOKENS = [
    b"\x0a", b"\xff" * 10, b"\x00", b"\x0a\x00", b"\x0a\xff\xff\xff\xff\x0f", b"\x68\x01",
    b"\x5a\x04", b"\x48\x01", b"\x80" * 9 + b"\x01", b"\x0b", b"\x40" + b"\xff" * 8 + b"\x7f",
]  # fmt: skip


@cache
def corpus() -> list[bytes]:
    """What mutations start from."""
    names = {
        "event_names": [{"iid": 1, "name": "mm"}],
        "debug_annotation_names": [{"iid": 2, "name": "bytes"}],
    }
    clocks = [
        {"clock_id": 6, "timestamp": 10},
        {"clock_id": 1, "timestamp": 1_700_000_000_000_000_000},
        {"clock_id": 64, "timestamp": 0, "is_incremental": True},
    ]
    noted_by_number = [{"name_iid": 2, "int_value": 7}]
    foreign = [
        track(9, process={"pid": 1, "process_name": "app"}),
        thread(1, 11),
        track(3, name="COMPUTE AGENT [4] STREAM [1] (GPU)"),
        track(5, name="heap", counter={"is_incremental": True}),
        packet(sequence_flags=1, interned_data=names, clock_snapshot={"clocks": clocks}),
        event(5, BEGIN, name_iid=1, flags=2, clock=64, debug_annotations=noted_by_number),
        event(7, END, clock=64),
        *sliced("hipLaunch", 30, 4, categories=["hip_api"], debug_annotations=noted(corr_id=4)),
        *sliced("k", 40, 9, 3, categories=["kernel_dispatch"], debug_annotations=noted(corr_id=4)),
        *sliced("a", 60, 9, flow_ids=[5]),
        *sliced("b", 80, 9, 9, terminating_flow_ids=[5]),
        event(90, INSTANT, name="point"),
        event(91, COUNTER, 5, counter_value=3),
    ]
    packed = packet(compressed_packets=zlib.compress(trace_of(*foreign[4:])))
    graph = hg.Trace.from_events(simulate(training_rank(steps=1)).events).compile()
    with tempfile.TemporaryDirectory() as folder:
        own = graph.critical_path().to_perfetto(Path(folder) / "x.pftrace").read_bytes()
    return [trace_of(*foreign), trace_of(*foreign[:4], packed), own]


def mutated(rng: random.Random) -> bytes:
    """Bytes, or packets, with some damage."""
    return _bytes(rng) if rng.random() < 0.6 else _packets(rng)


def _packets(rng: random.Random) -> bytes:
    """Packets that come twice, late, never, at other times, on other tracks or sequences."""
    packets = [*Trace.FromString(rng.choice(corpus())).packet]
    for _ in range(rng.choice((1, 2, 3, 8, 30))):
        at, other, how = rng.randrange(len(packets)), rng.choice(packets), rng.randrange(9)
        one = TracePacket.FromString(packets[at].SerializeToString())
        if how == 0:
            packets.insert(rng.randrange(len(packets)), one)
        elif how == 1 and len(packets) > 1:
            del packets[at : min(at + rng.choice((1, 1, 10)), len(packets) - 1)]
        elif how == 2:
            packets[at], packets[-1] = packets[-1], packets[at]
        elif how == 3:
            one.timestamp = rng.choice((0, 1, other.timestamp, 2**62, 2**63 - 1, 2**64 - 1))
        elif how == 4:
            one.timestamp_clock_id = rng.choice((0, 1, 6, 63, 64, 64, 127, 2**31))
        elif how == 5:
            one.trusted_packet_sequence_id = rng.choice((0, 1, 2, 2**32 - 1))
            one.sequence_flags = rng.randrange(4)
        elif how == 6 and one.HasField("track_event"):
            one.track_event.type = rng.choice((0, BEGIN, END, INSTANT, COUNTER))
            one.track_event.track_uuid = rng.choice((0, 1, other.track_event.track_uuid, 2**64 - 1))
        elif how == 7 and one.HasField("track_descriptor"):
            one.track_descriptor.uuid = other.track_descriptor.uuid
            one.track_descriptor.parent_uuid = rng.choice((0, one.track_descriptor.uuid))
        elif how == 8:
            one.MergeFrom(other)
        packets[min(at, len(packets) - 1)] = one
    return trace_of(*packets)


def _bytes(rng: random.Random) -> bytes:
    """Bytes with some damage."""
    out = bytearray(rng.choice(corpus()))
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at, what = rng.randrange(len(out) + 1), rng.randrange(6)
        if what == 0 and at < len(out):
            out[at] = rng.randrange(256)
        elif what == 1:
            del out[at : at + rng.choice((1, 1, 5, 40))]
        elif what == 2:
            out[at:at] = rng.choice(_TOKENS)
        elif what == 3:
            del out[at:]
        elif what == 4:
            a = rng.randrange(len(out) + 1)
            out[at:at] = out[a : a + rng.choice((3, 30, 300))]
        else:
            other = rng.choice(corpus())
            out[at : at + 8] = other[rng.randrange(len(other)) :][:8]
    return bytes(out)


def _n_slices(data: bytes) -> int | None:
    """Begins, points and samples of whole packets; None where protobuf reads no trace."""
    try:
        packets = Trace.FromString(data).packet
    except DecodeError:
        return None
    if any(one.HasField("compressed_packets") for one in packets):
        return None
    return sum(_is_kept(one) for one in packets)


def _is_kept(one: TracePacket) -> bool:
    return one.HasField("track_event") and one.track_event.type in {BEGIN, INSTANT, COUNTER}


def _n_counted(recording: Recording) -> int:
    """Slices and samples that were read, skipped or left out, as the recording says."""
    repaired = sum(one.n for one in recording.repairs if one.kind in _LEFT_OUT)
    return (
        len(recording.events)
        + len(recording.events.samples)
        + sum(recording.skipped.values())
        + repaired
    )


def answered(data: bytes) -> str:
    """Read some bytes; return how it went, raise `AssertionError` if that must not be."""
    is_perfetto(data)
    try:
        recording = read_perfetto(data, stacks=True)
    except HTAGraphError as error:
        return type(error).__name__
    assert (recording.events.dur_ns >= 0).all()
    n_lost = (_n_slices(data) or 0) - _n_counted(recording)
    damaged = sum(one.n for one in recording.repairs if one.kind == "damaged")
    assert n_lost <= damaged // _LEAST_BYTES, n_lost
    try:
        hg.Trace(recording).compile()
    except HTAGraphError as error:
        return f"read, {type(error).__name__}"
    return "repaired" if recording.repairs else "valid"
