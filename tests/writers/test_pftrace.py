"""The file as protobuf reads it: one packet per boundary, one range of ids, strings once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

import htagraph as hg
from htagraph.errors import OutputError
from htagraph.model.events import EventTable
from htagraph.writers.pftrace import write_pftrace
from tests.synth.program import Launch, Machine, Program, Synchronize, Work
from tests.synth.simulator import simulate

DRAWING = """
  cpu 1    |[aten::linear           ]  [sync                ]  [aten::relu  ]
  cpu 1    |  [launch >a] [launch >b]
  stream 7 |     [kernel <a          ][kernel2 <b    ]
"""


@pytest.fixture
def events() -> EventTable:
    """Seven events of a thread and a stream."""
    return hg.synth.timeline(DRAWING)


def packets(path: Path) -> Iterator[TracePacket]:
    """The packets of a file."""
    yield from Trace.FromString(path.read_bytes()).packet


def test_each_event_has_a_begin_and_an_end(tmp_path: Path, events: EventTable) -> None:
    """Nothing is dropped, and nothing is written twice."""
    found = [
        packet.track_event for packet in packets(write_pftrace(tmp_path / "x.pftrace", events))
    ]
    begins = [event for event in found if event.type == TrackEvent.TYPE_SLICE_BEGIN]
    ends = [event for event in found if event.type == TrackEvent.TYPE_SLICE_END]
    assert (len(begins), len(ends)) == (len(events), len(events))


def test_each_string_is_written_once(tmp_path: Path, events: EventTable) -> None:
    """Slices refer to names by number; the numbers come before the slices."""
    found = list(packets(write_pftrace(tmp_path / "x.pftrace", events)))
    interned = [entry.name for packet in found for entry in packet.interned_data.event_names]
    assert sorted(interned) == sorted(set(events.names().tolist()))
    assert not [packet for packet in found if packet.track_event.name]
    first_slice = next(k for k, packet in enumerate(found) if packet.HasField("track_event"))
    assert all(packet.HasField("interned_data") is False for packet in found[first_slice:])


def test_ids_of_two_ranks_have_nothing_in_common(tmp_path: Path, events: EventTable) -> None:
    """So the files can be concatenated; only the root of all tracks is shared."""
    links = (np.array([1], dtype=np.int32), np.array([5], dtype=np.int32))
    ids = []
    taken: set[int] = set()
    for rank in (0, 1):
        file = tmp_path / f"{rank}.pftrace"
        found = list(packets(write_pftrace(file, events, rank=rank, links=links, taken=taken)))
        described = [packet.track_descriptor for packet in found]
        tracks = {("track", one.uuid) for one in described if one.uuid}
        processes = {("pid", one.process.pid) for one in described if one.HasField("process")}
        flows = {("flow", flow) for packet in found for flow in packet.track_event.flow_ids}
        sequences = {("sequence", packet.trusted_packet_sequence_id) for packet in found}
        ids.append(tracks | processes | flows | sequences)
    assert ids[0].isdisjoint(ids[1])
    assert len(ids[0]) == len(ids[1])


def test_processes_are_in_the_order_of_the_parts_of_the_file(
    tmp_path: Path, events: EventTable
) -> None:
    """Not of rank: a pipeline's are in the order of stages."""
    found = list(packets(write_pftrace(tmp_path / "1.pftrace", events, rank=1, place=7)))
    described = [packet.track_descriptor for packet in found]
    root, *_ = (one for one in described if one.HasField("process_ordering"))
    assert (root.uuid, root.process_ordering) == (0, root.PROCESS_ORDERING_EXPLICIT)
    assert {one.sibling_order_rank for one in described if one.HasField("process")} == {7}


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path, events: EventTable) -> None:
    """Nothing in the file depends on when, or where, it was written."""
    first, second = (
        write_pftrace(tmp_path / name, events).read_bytes() for name in ("a.pftrace", "b.pftrace")
    )
    assert first == second


def test_a_trace_without_events_is_a_file(tmp_path: Path, events: EventTable) -> None:
    """It has descriptors only."""
    none = np.empty(0, dtype=np.int64)
    columns = {
        name: getattr(events, name)[none]
        for name in ("ts_ns", "dur_ns", "kind", "name", "category", "lane")
    }
    columns |= {
        name: getattr(events, name)[none]
        for name in ("device", "stream", "correlation", "external_id")
    }
    empty = EventTable(**columns, symbols=events.symbols, lanes=events.lanes)
    found = list(packets(write_pftrace(tmp_path / "x.pftrace", empty)))
    assert not [packet for packet in found if packet.HasField("track_event")]


def test_names_that_utf8_cannot_hold_are_written(tmp_path: Path) -> None:
    """Names cut in the middle of a character come out of real files."""
    events = hg.synth.timeline("cpu 1 |[a     ]", names={"a": "cut\ud83d"})
    found = list(packets(write_pftrace(tmp_path / "x.pftrace", events)))
    assert [entry.name for packet in found for entry in packet.interned_data.event_names] == [
        "cut?"
    ]


def test_an_origin_after_the_first_event_is_refused(tmp_path: Path, events: EventTable) -> None:
    """Times of the file are not negative; the error suggests a valid origin."""
    first = int(events.ts_ns.min())
    with pytest.raises(
        OutputError, match=rf"before the origin that was given. Hint: give origin_ns <= {first}\."
    ):
        write_pftrace(tmp_path / "x.pftrace", events, origin_ns=first + 1)
    assert not list(tmp_path.iterdir())


def test_a_stream_that_is_called_stream_in_the_file_is_not_called_so_twice(tmp_path: Path) -> None:
    """Profilers of 2021 write ``"tid": "stream 7"``; those of today, the number."""
    kernel = (
        '{"ph": "X", "cat": "Kernel", "name": "k", "pid": 0, "tid": "stream 7", '
        '"ts": 1, "dur": 2, "args": {"stream": 7}}'
    )
    trace = hg.load(f'{{"traceEvents": [{kernel}]}}'.encode())
    names = [
        packet.track_descriptor.name
        for packet in packets(write_pftrace(tmp_path / "x.pftrace", trace.recording.events))
        if packet.HasField("track_descriptor")
    ]
    assert "stream 7" in names
    assert not [name for name in names if "stream stream" in name]


def said_of_slices(path: Path) -> list[dict[str, str | None]]:
    """The text annotations of each slice of a file."""
    found = list(packets(path))
    names = {
        entry.iid: entry.name
        for packet in found
        for entry in packet.interned_data.debug_annotation_names
    }
    values = {
        entry.iid: entry.str.decode()
        for packet in found
        for entry in packet.interned_data.debug_annotation_string_values
    }
    return [
        {names[arg.name_iid]: values.get(arg.string_value_iid) for arg in annotations}
        for packet in found
        if (annotations := packet.track_event.debug_annotations)
    ]


def test_inferred_segments_of_the_path_say_so(tmp_path: Path) -> None:
    """Profilers leave cudaEventSynchronize out: that the host waits for k1 is inferred."""
    names = {"L": "cudaLaunchKernel", "R": "cudaEventRecord", "E": "cudaEventElapsedTime"}
    drawing = """
        cpu 1    |[L >a][R         ]                                     [E         ][op           ]
        stream 7 |    [k1 <a                                          ]
    """
    path = hg.Trace.from_events(hg.synth.timeline(drawing, names=names)).compile().critical_path()
    said = said_of_slices(path.to_perfetto(tmp_path / "x.pftrace"))
    inferred = [args for args in said if args.get("evidence") == "inferred"]

    assert [(args["rule"], args["evidence"]) for args in inferred] == [("host polls", "inferred")]


def test_unexplained_segments_of_the_path_have_no_evidence(tmp_path: Path) -> None:
    """The launch is recorded; why the kernel starts long after it is not."""
    drawing = """
        cpu 1    |[launch >w]  [launch >a]
        stream 7 |    [w <w ]                                                                [k <a ]
    """
    path = hg.Trace.from_events(hg.synth.timeline(drawing)).compile().critical_path()
    said = said_of_slices(path.to_perfetto(tmp_path / "x.pftrace"))
    waits = [args.get("evidence") for args in said if args.get("cause") == "unknown waits"]

    assert waits == [None]


def test_a_full_device_says_what_waits(tmp_path: Path) -> None:
    """The slice is about the kernel that fills the device; what had no room comes next."""
    body = tuple(
        action
        for step in range(8)
        for action in (
            Launch(Work("fills", 500_000 + 40_000 * step, n_blocks=1_000, n_threads=1_024)),
            Launch(Work("ready", 20_000, n_blocks=4, n_threads=128), 20),
            Synchronize(),
        )
    )
    machine = Machine(launch_latency_ns=5_000, stream_gap_ns=800, n_sms=10)
    simulated = simulate(Program(body, machine, sync_records=False))
    path = hg.Trace.from_events(simulated.events).compile().critical_path()
    said = said_of_slices(path.to_perfetto(tmp_path / "x.pftrace"))
    waiting = [(args["rule"], args["waiting"]) for args in said if "waiting" in args]

    assert waiting == [("no free SMs", "ready")] * 8
