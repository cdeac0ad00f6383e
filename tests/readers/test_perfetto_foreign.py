"""Perfetto traces of other tools: tracks are lanes, slices events, flows and counters are kept."""

from __future__ import annotations

import zlib

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import CounterDescriptor

import htagraph as hg
from htagraph.errors import TraceFormatError
from htagraph.model.kinds import EventKind
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

_CLEARED, _NEEDS_STATE = 1, 2


def rows(recording: Recording) -> list[tuple[str, int, int, str]]:
    """Name, start, duration and kind of each event."""
    frame = recording.events.frame()
    return list(
        frame[["name", "ts_ns", "dur_ns", "kind"]].astype(object).itertuples(index=False, name=None)
    )


def repaired(recording: Recording) -> dict[str, int]:
    """Counts of repairs."""
    return {repair.kind: repair.n for repair in recording.repairs}


def test_slices_of_threads_are_operators_with_their_nesting() -> None:
    """Begins and ends are matched by track, whatever their order in the file."""
    inner, outer = sliced("inner", 120, 30), sliced("outer", 100, 100)
    other = sliced("other", 90, 40, uuid=2)
    data = trace_of(
        track(9, process={"pid": 1, "process_name": "app"}),
        thread(1, tid=11),
        thread(2, tid=12, name="worker"),
        outer[0],
        *inner,
        outer[1],
        *reversed(other),
    )
    recording = read_perfetto(data)
    lanes = recording.events.lanes

    assert rows(recording) == [
        ("other", 90, 40, "op"),
        ("outer", 100, 100, "op"),
        ("inner", 120, 30, "op"),
    ]
    assert [(lanes.tid[lane], lanes.thread[lane]) for lane in recording.events.lane] == [
        (12, "worker"),
        (11, "main"),
        (11, "main"),
    ]
    assert lanes.process == ("app", "app")
    graph = hg.Trace(recording).compile()
    assert graph.critical_path().segments["dur_ns"].sum() == graph.dur_ns == 110


def test_numbers_of_texts_are_of_a_sequence_and_of_the_state_since_it_was_cleared() -> None:
    """The same number is another name after the state was cleared, and on another sequence."""

    def named(sequence: int, text: str, ts: int) -> list:
        names = {"event_names": [{"iid": 1, "name": text}]}
        defaults = {"track_event_defaults": {"track_uuid": 1}}
        return [
            packet(
                sequence,
                sequence_flags=_CLEARED,
                interned_data=names,
                trace_packet_defaults=defaults,
            ),
            event(ts, BEGIN, None, sequence, name_iid=1, flags=_NEEDS_STATE),
            event(ts + 5, END, None, sequence, flags=_NEEDS_STATE),
        ]

    lost = event(70, INSTANT, 1, 3, name_iid=4)
    data = trace_of(thread(1, 11), *named(1, "a", 0), *named(2, "b", 20), *named(1, "c", 40), lost)
    recording = read_perfetto(data)

    assert [(name, ts_ns) for name, ts_ns, _, _ in rows(recording)] == [
        ("a", 0),
        ("b", 20),
        ("c", 40),
        ("", 70),
    ]
    assert repaired(recording) == {"unknown interned id": 1}


def test_a_time_that_is_too_far_only_with_the_day_is_left_out() -> None:
    """146 years since boot, which was in this century: sums of two such times overflowed."""
    day_ns, far = 1_700_000_000_000_000_000, 1 << 61
    clocks = [{"clock_id": 6, "timestamp": 0}, {"clock_id": 1, "timestamp": 2 * day_ns}]
    data = trace_of(
        packet(clock_snapshot={"clocks": clocks}), *sliced("near", 5, 9), *sliced("far", far, 1)
    )
    recording = read_perfetto(data)

    assert rows(recording) == [("near", 2 * day_ns + 5, 9, "op")]
    assert repaired(recording) == {"time out of range": 2}


def test_times_are_carried_to_one_clock_and_to_the_time_of_day() -> None:
    """Clock 64 of a sequence counts microseconds from its last time; REALTIME is the day."""
    day_ns = 1_712_195_495_000_000_000
    data = trace_of(
        thread(1, 11),
        packet(
            clock_snapshot={
                "clocks": [
                    {"clock_id": 6, "timestamp": 1_000},
                    {"clock_id": 1, "timestamp": day_ns + 1_000},
                    {"clock_id": 3, "timestamp": 400},
                    {
                        "clock_id": 64,
                        "timestamp": 5,
                        "is_incremental": True,
                        "unit_multiplier_ns": 1_000,
                    },
                ]
            }
        ),
        event(2, BEGIN, name="by 64", clock=64),  # 5 us + 2 us: 2 us after the snapshot
        event(3, END, clock=64),
        event(460, BEGIN, name="by monotonic", clock=3),
        event(470, END, clock=3),
        event(7, INSTANT, name="nobody compared it", clock=9),
    )
    recording = read_perfetto(data)

    assert [(name, ts_ns - day_ns, dur_ns) for name, ts_ns, dur_ns, _ in rows(recording)] == [
        ("nobody compared it", 7, 0),
        ("by monotonic", 1_060, 10),
        ("by 64", 3_000, 3_000),
    ]
    assert repaired(recording) == {"unknown clock": 1}


def test_flows_are_chains_of_slices_until_they_end() -> None:
    """An id is free again after a terminating flow; a lone end of a flow is none."""
    data = trace_of(
        thread(1, 11),
        thread(2, 12),
        *sliced("a", 0, 5, flow_ids=[7]),
        *sliced("b", 10, 5, uuid=2, flow_ids=[7]),
        *sliced("c", 20, 5, terminating_flow_ids=[7]),
        *sliced("d", 30, 5, flow_ids=[7, 8]),
        *sliced("e", 40, 5, uuid=2, flow_ids=[7]),
    )
    events = read_perfetto(data).events
    flows = events.flows

    assert [
        (chain, phase, name)
        for chain, phase, name in zip(
            flows.id.tolist(), flows.phase.tolist(), events.names(flows.event), strict=True
        )
    ] == [(0, 0, "a"), (0, 1, "b"), (0, 2, "c"), (1, 0, "d"), (1, 2, "e")]


def test_counters_are_samples_with_their_units() -> None:
    """Incremental values add up, and a multiplier is applied."""
    kib = {"unit": CounterDescriptor.UNIT_SIZE_BYTES, "unit_multiplier": 1_024}
    data = trace_of(
        track(5, name="heap", counter=kib | {"is_incremental": True}),
        track(6, name="load", counter={"unit_name": "%"}),
        event(10, COUNTER, 5, counter_value=3),
        event(20, COUNTER, 6, double_counter_value=0.5),
        event(30, COUNTER, 5, counter_value=-1),
    )
    recording = read_perfetto(data)
    samples = recording.events.samples

    assert [(series.name, series.unit) for series in samples.all_series] == [
        ("heap", "bytes"),
        ("load", "%"),
    ]
    assert samples.ts_ns.tolist() == [10, 30, 20]
    assert samples.value.tolist() == [3_072.0, 2_048.0, 0.5]


def test_annotations_that_the_profiler_also_writes_are_columns() -> None:
    """Their names may be those of the profiler; an annotation of the end counts, too."""
    begin, end = sliced("k", 0, 5, debug_annotations=noted(bytes=64, Seq=3, critical="no"))
    end.track_event.debug_annotations.add(name="External id", int_value=9)
    events = read_perfetto(trace_of(thread(1, 11), begin, end)).events

    assert {name: column.value.tolist() for name, column in events.columns.items()} == {
        "bytes": [64],
        "seq": [3],
    }
    assert events.external_id.tolist() == [9]


def test_what_is_on_no_thread_is_context_unless_there_are_no_threads() -> None:
    """Asynchronous ranges overlap; where a tool has named tracks only, they are its threads."""
    request = [track(3, name="request 5"), *sliced("request", 0, 50, uuid=3)]
    work = [thread(1, 11), *sliced("work", 10, 5)]

    assert rows(read_perfetto(trace_of(*request, *work)))[0] == ("request", 0, 50, "async")
    assert rows(read_perfetto(trace_of(*request))) == [("request", 0, 50, "op")]


def test_a_trace_of_rocprofv3_has_launches_streams_and_copies() -> None:
    """Its tracks are called by what they are; ``corr_id`` links a call and its work."""

    def amd(name: str, category: str, times: tuple[int, int], uuid: int, **said: int | str) -> list:
        flow, notes = [said["corr_id"]], noted(**said)
        return sliced(
            name, *times, uuid, categories=[category], debug_annotations=notes, flow_ids=flow
        )

    data = trace_of(
        thread(1, 11),
        track(2, name="THREAD 1 (12)", parent_uuid=1),
        track(3, name="COMPUTE AGENT [4] STREAM [1] (GPU)"),
        track(4, name="COPY to AGENT [0] STREAM [1] (CPU)"),
        *amd("hipLaunchKernel", "hip_api", (100, 10), 1, corr_id=21),
        *amd("gemm", "kernel_dispatch", (120, 50), 3, corr_id=21),
        *amd("hipMemcpyAsync", "hip_api", (112, 10), 2, corr_id=22),
        *amd(
            "to host", "memory_copy", (180, 20), 4, corr_id=22, copy_bytes=64, src_agent="Agent-4"
        ),
        *amd("forward", "marker_api", (90, 40), 1, corr_id=23),
    )
    recording = read_perfetto(data)
    events = recording.events
    of = {name: position for position, name in enumerate(events.names())}

    assert {name: EventKind(int(events.kind[row])).label for name, row in of.items()} == {
        "forward": "annotation",
        "hipLaunchKernel": "runtime",
        "hipMemcpyAsync": "runtime",
        "gemm": "kernel",
        "to host": "memcpy",
    }
    work = [of["gemm"], of["to host"]]
    assert (events.device[work].tolist(), events.stream[work].tolist()) == ([4, 4], [1, 1])
    assert events.columns["bytes"].value.tolist() == [64]
    assert len(events.flows) == 0  # they repeat the correlation id
    edges = hg.Trace(recording).compile().edges
    launches = edges[edges["kind"] == "launch"]
    assert sorted(launches["head_event"]) == sorted(work)


def test_compressed_packets_are_unpacked_in_their_place() -> None:
    """A trace is the same whether or not a part was compressed; what cannot be read is counted."""
    packets = [thread(1, 11), *sliced("a", 0, 5), *sliced("b", 10, 5)]
    inside = trace_of(*packets[1:3])
    data = trace_of(packets[0], packet(compressed_packets=zlib.compress(inside)), *packets[3:])
    broken = trace_of(packets[0], packet(compressed_packets=b"?"), *packets[3:])

    assert rows(read_perfetto(data)) == rows(read_perfetto(trace_of(*packets)))
    assert rows(read_perfetto(broken)) == [("b", 10, 5, "op")]
    assert repaired(read_perfetto(broken)) == {"bad compressed packets": 1}


def test_what_is_broken_is_mended_and_counted() -> None:
    """Slices without an end last to the end of the trace; ends without a begin are left out."""
    whole = trace_of(
        thread(1, 11),
        event(0, END),
        event(10, BEGIN, name="never ends"),
        *sliced("b", 20, 15),
        packet(track_event={"type": BEGIN, "name": "timeless"}),
    )
    bad_packet = bytes.fromhex("0a03 5a7f01")
    recording = read_perfetto(whole + bad_packet + trace_of(*sliced("c", 50, 5))[:-3])

    assert rows(recording) == [
        ("never ends", 10, 40, "op"),
        ("b", 20, 15, "op"),
        ("c", 50, 0, "op"),
    ]
    assert repaired(recording) == {
        "truncated": 1,
        "bad packet": 1,
        "no timestamp": 1,
        "end without begin": 1,
        "begin without end": 2,
    }


def test_after_bytes_that_are_no_packets_the_rest_is_read() -> None:
    """A length that is wrong hides where the next packet begins: it is looked for."""
    first, rest = trace_of(thread(1, 11), *sliced("a", 0, 5)), trace_of(*sliced("b", 10, 5) * 3)
    recording = read_perfetto(first + b"\x0a\x7f\xff\x00?" + rest)

    assert [name for name, *_ in rows(recording)] == ["a", "b", "b", "b"]
    assert sum(repaired(recording).values()) > 0


def test_a_system_trace_without_track_events_is_refused_by_what_it_holds() -> None:
    """It has schedules, not what a program did."""
    data = trace_of(packet(ftrace_events={"cpu": 1}), packet(timestamp=1, ftrace_events={"cpu": 2}))
    assert is_perfetto(data)
    with pytest.raises(TraceFormatError, match="no track events, but 2 packets of ftrace_events"):
        hg.load(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b'\n{"traceEvents": []}',
        b'{"traceEvents": []}',
        b"SQLite format 3\0",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x0a\x04\x00\x00\x00\x00",
        b"\n" + b" " * 40 + b'[{"ph": "X"}]' * 9,
    ],
)
def test_what_is_no_trace_of_perfetto_is_not_taken_for_one(data: bytes) -> None:
    """Formats are known by content."""
    assert not is_perfetto(data)
