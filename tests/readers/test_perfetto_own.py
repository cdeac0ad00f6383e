"""Perfetto traces by htagraph are restored as recorded, and compile to the same graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import htagraph as hg
from htagraph.errors import MissingEventsError, TraceError
from htagraph.model.devices import DeviceProperties
from htagraph.model.edges import EdgeTable
from htagraph.model.events import EVENT_DTYPES, LIST_COLUMNS, EventTable
from htagraph.model.recording import STACKS
from htagraph.model.samples import SampleTable, Series
from htagraph.readers.perfetto.reader import read_perfetto
from htagraph.writers.pftrace import CounterTrack, write_pftrace
from tests.queries.recorded_shapes import Op, recorded
from tests.readers.conftest import event, file_of
from tests.real_traces import cases, located
from tests.synth.program import Program
from tests.synth.simulator import simulate, simulate_job
from tests.synth.strategies import programs
from tests.synth.training import training_job

_REAL = (
    "captures/single/loader2.pt.trace.json.gz",
    "hta/trace_diff/control/control.json.gz",
    "tracelens/sglang_Qwen3-8B_decode.json.gz",
    "hta/mtia_inference_trace/mtia_inference_rank_0.json.gz",
    "hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
    "hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
)


def content(events: EventTable) -> dict[str, Any]:
    """Everything in a table, without the numbering of its texts."""
    texts, flows = events.symbols.array, events.flows
    out: dict[str, Any] = {name: getattr(events, name) for name in EVENT_DTYPES}
    out |= {"name": events.names(), "category": texts[events.category]}
    for name, column in events.columns.items():
        if len(column.event):
            is_text = column.value.dtype == np.int32
            of_column = events.lists.array if name in LIST_COLUMNS else texts
            out |= {
                f"{name} of": column.event,
                name: of_column[column.value] if is_text else column.value,
            }
    for name in ("ts_ns", "id", "lane", "phase", "event"):
        out[f"flow {name}"] = getattr(flows, name)
    out["flow category"] = texts[flows.category]
    return out | {"lanes": events.lanes, "devices": events.devices}


def assert_equal(ours: EventTable, theirs: EventTable) -> None:
    """Two tables say the same."""
    one, other = content(ours), content(theirs)
    assert one.keys() == other.keys()
    assert [name for name in one if not np.array_equal(one[name], other[name])] == []


def edges(graph: hg.TraceGraph) -> list[list[int]]:
    """The edges of a graph."""
    return [getattr(graph.dag.edges, name).tolist() for name in EdgeTable.__dataclass_fields__]


def assert_same(first: hg.Trace, again: hg.Trace) -> None:
    """Two traces say the same, and compile to the same graph with the same path."""
    assert_equal(first.recording.events, again.recording.events)
    ours, theirs = first.compile(), again.compile()
    assert edges(ours) == edges(theirs)
    assert ours.critical_path().segments.equals(theirs.critical_path().segments)


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(programs())
def test_a_simulated_trace_is_read_back_as_it_was(tmp_path: Path, program: Program) -> None:
    """Law: writing and reading change nothing, path and graph included."""
    first = hg.Trace.from_events(simulate(program).events)
    again = hg.load(first.compile().critical_path().to_perfetto(tmp_path / "x.pftrace"))
    assert_same(first, again)
    assert not again.recording.repairs


HEADER = {
    "baseTimeNanoseconds": 1_712_195_495_000_000_000,
    "distributedInfo": {"rank": 3, "world_size": 4},
    "deviceProperties": [{"id": 0, "name": "GPU A", "numSms": 108}],
}


def kineto_trace(**asked: Any) -> hg.Trace:
    """A trace with what slices cannot hold: odd ids, overlaps, points, stacks, flows, no order."""
    kernel = {"cat": "kernel", "pid": 0, "tid": 7}
    flow = {"cat": "fwdbwd", "name": "fwdbwd", "id": 5}
    return hg.load(
        file_of(
            event("k2", **kernel, ts=14, dur=6, args={"stream": 7, "device": 0, "correlation": 2}),
            event(
                "k1",
                **kernel,
                ts=12,
                dur=4,
                args={"stream": 7, "device": 0, "correlation": 1, "grid": [1, 2, 3]},
            ),
            event(
                "cudaLaunchKernel",
                cat="cuda_runtime",
                ts=9,
                dur=2,
                args={"correlation": 1, "External id": 4},
            ),
            event("cudaLaunchKernel", cat="cuda_runtime", ts=11, dur=2, args={"correlation": 2}),
            event("aten::mm", ts=8, dur=6, args={"External id": 4, "Sequence number": 0}),
            event("nothing", ts=8, dur=0),
            event("on odd ids", pid="Spans", tid="PyTorch Profiler", cat="Trace", ts=1, dur=40),
            event("negative", tid=-4, ts=8, dur=3),
            event("forward", cat=STACKS, ts=5, dur=30, args={"Python id": 1}),
            event("[memory]", cat="cpu_instant_event", ph="i", ts=9.5, args={"Bytes": -64}),
            event("mmBackward", tid=2, ts=20, dur=5),
            event(**flow, ph="s", ts=8.5),
            event(**flow, ph="f", bp="e", tid=2, ts=20),
            event("thread_name", ph="M", args={"name": "python"}),
            event("thread_name", ph="M", tid=99, args={"name": "idle"}),
            **HEADER,
        ),
        **asked,
    )


def test_what_slices_cannot_hold_is_read_back(tmp_path: Path) -> None:
    """Row order, lanes with ids of no process, rows of one stream, points, flows, the header."""
    first = kineto_trace(stacks=True)
    path = first.compile().critical_path().to_perfetto(tmp_path / "x.pftrace.gz")
    again = hg.load(path, stacks=True)

    assert_same(first, again)
    assert (again.rank, again.rank_source, again.world_size) == (3, "distributedInfo", 4)
    assert again.metadata == first.metadata
    assert again.recording.origin is not None
    assert again.recording.origin.base_time_ns == HEADER["baseTimeNanoseconds"]
    assert again.skipped["critical path"] > 0
    assert hg.load(path).skipped[STACKS] == 1


def test_stacks_that_were_not_read_are_still_known_to_be_missing(tmp_path: Path) -> None:
    """The written file does not hold them either, and its reader reports it."""
    path = kineto_trace().compile().critical_path().to_perfetto(tmp_path / "x.pftrace")
    assert hg.load(path).skipped[STACKS] == 1


def test_categories_and_a_window_are_chosen_as_of_any_trace(tmp_path: Path) -> None:
    """Flows and columns follow; what is left out is counted."""
    path = kineto_trace().compile().critical_path().to_perfetto(tmp_path / "x.pftrace")
    base_ns = HEADER["baseTimeNanoseconds"]
    kernels = hg.load(path, categories={"kernel"})
    window = (base_ns, base_ns + 11_000)
    early, recorded_early = hg.load(path, window=window), kineto_trace(window=window)

    assert kernels.events["name"].tolist() == ["k2", "k1"]
    assert kernels.recording.events.columns["grid_y"].event.tolist() == [1]
    assert early.events.equals(recorded_early.events)
    assert early.skipped["outside the window"] == 4


def test_the_device_clock_is_moved_back(tmp_path: Path) -> None:
    """A kernel that seems to start before its launch is moved by the compiler, not in the file."""
    drawing = """
        cpu 1    |     [launch >a]      [op]
        stream 7 |  [k1 <a ]
    """
    first = hg.Trace.from_events(hg.synth.timeline(drawing))
    graph = first.compile()
    assert graph.dag.calibration.clock_shift_ns > 0
    assert_same(first, hg.load(graph.critical_path().to_perfetto(tmp_path / "x.pftrace")))


def test_devices_and_samples_stand_beside_the_events(tmp_path: Path) -> None:
    """Samples are read back as they were; the tracks that draw counters are not."""
    power = Series("power.draw", "W", 0, "nvidia-smi", 2_000_000)
    samples = SampleTable.of([(power, [3, 9], [300.0, 310.5])])
    events = replace(
        hg.synth.timeline("cpu 1 |[a     ]"),
        devices=(DeviceProperties(0, "GPU A", 108),),
        samples=samples,
    )
    counters = [
        CounterTrack("power.draw", "W", samples.ts_ns, samples.value, device=0),
        CounterTrack("queue length", "launches", np.array([1]), np.array([2])),
    ]
    recording = read_perfetto(
        write_pftrace(tmp_path / "x.pftrace", events, counters=counters).read_bytes()
    )
    read = recording.events.samples

    assert recording.events.devices == events.devices
    assert (read.all_series, read.ts_ns.tolist(), read.value.tolist()) == (
        (power,),
        [3, 9],
        [300.0, 310.5],
    )
    assert recording.skipped == {"drawn counter": 3}


def test_a_rank_of_a_job_is_read_on_its_own_clock(tmp_path: Path) -> None:
    """It is named by a path below the file; the events of others are counted."""
    simulate_job(training_job()).write(tmp_path / "job")
    ranks = [hg.load(file) for file in sorted((tmp_path / "job").iterdir())]
    written = hg.load_job(tmp_path / "job").critical_path().to_perfetto(tmp_path / "job.pftrace")
    with pytest.raises(TraceError, match=r"holds 4 ranks, .* job.pftrace/rank-0, job"):
        hg.load(written)

    again = hg.load(written / "rank-1")
    assert_equal(ranks[1].recording.events, again.recording.events)
    assert (again.rank, again.skipped["rank 0"]) == (1, len(ranks[0].recording.events))


def test_of_a_file_that_is_cut_off_the_rest_is_read(tmp_path: Path) -> None:
    """The supplement is about the slices in the file."""
    first = kineto_trace(stacks=True)
    data = write_pftrace(tmp_path / "x.pftrace", first.recording.events).read_bytes()
    cut = read_perfetto(data[: -len(data) // 8], stacks=True)
    there = set(
        zip(cut.events.names(), cut.events.ts_ns.tolist(), cut.events.lane.tolist(), strict=True)
    )
    whole = first.recording.events

    assert 0 < len(there) < len(whole)
    assert there <= set(zip(whole.names(), whole.ts_ns.tolist(), whole.lane.tolist(), strict=True))
    assert "truncated" in {repair.kind for repair in cut.repairs}


def test_slices_are_read_without_a_supplement_that_is_damaged(tmp_path: Path) -> None:
    """Times, names, kinds and streams of device work are in the slices; the path is no event."""
    first = kineto_trace(stacks=True)
    data = bytearray(first.compile().critical_path().to_perfetto(tmp_path / "x").read_bytes())
    data[data.index(b"\x78\x9c") + 40] ^= 0xFF  # within zlib's data
    again = read_perfetto(bytes(data), stacks=True)
    events = again.events

    assert [repair.kind for repair in again.repairs] == ["supplement does not fit"]
    assert sorted(events.names()) == sorted(first.recording.events.names())
    assert events.stream[events.is_device].tolist() == [7, 7]
    assert again.skipped["critical path"] > 0


def test_original_json_cannot_be_written_from_a_perfetto_trace(tmp_path: Path) -> None:
    """There are no bytes of it to keep; the error tells what can be written."""
    written = kineto_trace().compile().critical_path().to_perfetto(tmp_path / "x.pftrace")
    path = hg.load(written).compile().critical_path()
    with pytest.raises(MissingEventsError, match=r"is not JSON.* Hint: write a Perfetto trace"):
        path.to_chrome_json(tmp_path / "x.json")


@pytest.mark.parametrize("name", cases(_REAL))
def test_a_real_trace_is_read_back_as_it_was(tmp_path: Path, name: str) -> None:
    """The same rows, edges and segments."""
    first = hg.load(located(name))
    path = first.compile().critical_path().to_perfetto(tmp_path / "x.pftrace")
    again = hg.load(path)

    assert_same(first, again)
    assert (again.rank, again.rank_source, again.world_size) == (
        first.rank,
        first.rank_source,
        first.world_size,
    )


def test_arguments_about_the_roof_are_no_part_of_the_recording(tmp_path):
    """They are drawn on kernels and operators, and left out when the file is read."""
    graph = recorded(Op("aten::mm", [[4096, 4096], [4096, 4096]], [("gemm", 200)]))
    out = graph.critical_path().to_perfetto(tmp_path / "again.pftrace")

    assert b"roof_share" in out.read_bytes()
    assert_equal(graph.dag.events, hg.load(out).compile().dag.events)
