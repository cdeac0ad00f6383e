"""Exports of Nsight Systems: what was simulated comes back, and rows mean what they say."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from htagraph import Trace, load
from htagraph.errors import MissingEventsError
from htagraph.model.kinds import EventKind
from htagraph.model.progress import Progress, listening
from htagraph.readers.nsys.ranks import nsys_ranks
from htagraph.readers.nsys.reader import read_nsys
from tests.public_traces import PUBLIC_TRACES
from tests.readers.nsys_files import NsysFile, global_id, simulated_file
from tests.real_traces import cases, located
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

UTC_NS = 1_700_000_000_000_000_000
PROCESS, THREAD = global_id(900), global_id(900, 901)
PLACE = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": PROCESS}


@pytest.fixture(name="file")
def file_() -> NsysFile:
    """An export with nothing but one kernel, from 1000 to 2000."""
    file = NsysFile()
    file.starts(UTC_NS)
    place = {**PLACE, "correlationId": 5}
    file.add(
        "CUPTI_ACTIVITY_KIND_KERNEL", start=1000, end=2000, demangledName=file.string("k"), **place
    )
    return file


def read(file: NsysFile, tmp_path: Path) -> Trace:
    """The trace of an export."""
    return load(file.write(tmp_path / "run.sqlite"))


def named(trace: Trace, kind: EventKind) -> list[str]:
    """Names of the events of a kind."""
    events = trace.recording.events
    return events.names(np.flatnonzero(events.kind == kind)).tolist()


def test_a_table_with_cells_of_other_types_is_read_as_sqlite_casts_them(file, tmp_path):
    """Numbers that are no integers are cut off, bytes are a text."""
    file.add(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        **PLACE,
        start=3000.5,
        end=4000,
        demangledName=file.string("l"),
        registersPerThread="many",
    )
    range_ = {"start": 500, "end": 2500, "eventType": 59, "globalTid": THREAD}
    file.add("NVTX_EVENTS", **range_, text=b"aten::mm, seq = 7")

    events = read(file, tmp_path).recording.events

    assert sorted(events.names().tolist()) == ["aten::mm", "k", "l"]
    assert sorted(events.dur_ns.tolist()) == [1000, 1000, 2000]
    assert events.column("sequence").max() == 7
    assert "registers" not in events.columns


def test_a_process_with_a_damaged_number_is_read(tmp_path, file):
    """Numbers of its threads would have more than 64 bits."""
    process = (1 << 63) - 5
    file.rows["CUPTI_ACTIVITY_KIND_KERNEL"][0]["globalPid"] = process
    file.add_range("aten::mm, seq = 7", start=500, end=2500, globalTid=process + 1)

    assert named(read(file, tmp_path), EventKind.OP) == ["aten::mm"]


@pytest.mark.parametrize("old", [False, True], ids=["today", "old"])
@pytest.mark.parametrize("fault", ["none", "sync_in_loop", "synchronous_copy"])
def test_an_export_has_the_path_of_the_run_that_was_simulated(tmp_path, fault, old):
    """To the nanosecond, with the names of what ran; the PyTorch profiler's trace has the same."""
    rank = simulate(training_rank(fault=fault))

    read = load(simulated_file(tmp_path / "run.sqlite", [rank.events], old=old))

    columns = ["start_ns", "dur_ns", "bound", "name"]
    expected = Trace.from_events(rank.events).compile().critical_path().segments[columns]
    found = read.compile().critical_path().segments[columns]
    assert found.astype(str).equals(expected.astype(str))
    assert read.steps["name"].tolist() == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]


def test_content_in_memory_and_packed_content_are_read_as_the_file(tmp_path):
    """From memory instead of from the file."""
    path = simulated_file(tmp_path / "run.sqlite", [simulate(training_rank(steps=1)).events])
    packed = tmp_path / "run.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))

    events = load(path).events

    assert load(path.read_bytes()).events.equals(events)
    assert load(packed).events.equals(events)


def test_times_are_since_the_epoch_on_either_clock(tmp_path, file):
    """Exports of today count from when the machine was started, older ones from the session."""
    assert read(file, tmp_path).recording.events.ts_ns.tolist() == [UTC_NS + 1000]


def test_copies_and_fills_are_named_as_by_the_pytorch_profiler(tmp_path, file):
    """With bytes, and the bandwidth that follows."""
    times = {"start": 3000, "end": 5000, **PLACE}
    file.add("CUPTI_ACTIVITY_KIND_MEMCPY", **times, bytes=4000, copyKind=1, srcKind=0, dstKind=2)
    file.add("CUPTI_ACTIVITY_KIND_MEMSET", **times, bytes=100, memKind=2)

    trace = read(file, tmp_path)

    assert named(trace, EventKind.MEMCPY) == ["Memcpy HtoD (Pageable -> Device)"]
    assert named(trace, EventKind.MEMSET) == ["Memset (Device)"]
    columns = trace.recording.events.columns
    assert columns["bytes"].value.tolist() == [4000, 100]
    assert columns["memory_bandwidth"].value.tolist() == [2.0, 0.05]


def test_a_launch_of_a_graph_whose_nodes_were_not_traced_is_one_piece_of_work(tmp_path, file):
    """One without times is counted, not read."""
    for end in (4000, 0):
        times = {"start": 3000 if end else 0, "end": end, "correlationId": 6}
        file.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **times, **PLACE, graphId=3)

    trace = read(file, tmp_path)

    assert named(trace, EventKind.KERNEL) == ["k", "CUDA graph 3"]
    assert trace.skipped == {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE without times": 1}


def test_the_call_says_what_a_wait_is_and_its_context_on_which_device(tmp_path, file):
    """Real exports number types from 0 or from 1, and write device 0 for every wait."""
    file.add_call("cudaStreamSynchronize_v3020", THREAD, 100, 2100, correlationId=8)
    file.add_call("cudaEventQuery_v3020", THREAD, 2200, 2300, correlationId=9)
    file.rows["CUPTI_ACTIVITY_KIND_KERNEL"][0]["deviceId"] = 1
    for number in (8, 9, 10):
        values = {**PLACE, "start": 2000, "end": 2090, "correlationId": number, "syncType": 4}
        file.add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **values)

    trace = read(file, tmp_path)

    events = trace.recording.events
    assert named(trace, EventKind.SYNC) == ["Stream Sync", "Synchronization", "Context Sync"]
    assert set(events.device[events.kind == EventKind.SYNC].tolist()) == {1}


def test_ranges_are_operators_annotations_and_calls_of_nccl(tmp_path, file):
    """By what PyTorch writes into the text; a user's range with a colon or a comma stays one."""
    texts = (
        "aten::mm, seq = 7, op_id = 12, sizes = [[2, 3], []]",
        "MyFunction, seq = 8",
        "FSDP::pre_forward (layer), op_id = 13",
        "Lower::index",
        "epoch, seq = first",
        "ncclAllReduce",
    )
    for number, text in enumerate(texts):
        file.add_range(text, start=10 * number, end=10 * number + 5, globalTid=THREAD)

    trace = read(file, tmp_path)

    events = trace.recording.events
    assert named(trace, EventKind.OP) == ["aten::mm", "MyFunction"]
    assert named(trace, EventKind.ANNOTATION) == [
        "FSDP::pre_forward (layer)",
        "Lower::index",
        "epoch, seq = first",
    ]
    assert named(trace, EventKind.RUNTIME) == ["ncclAllReduce"]
    assert events.columns["sequence"].value.tolist() == [7, 8]
    assert events.external_id[events.kind == EventKind.OP].tolist() == [12, -1]


def test_a_backward_function_comes_from_the_last_operator_with_its_number(tmp_path, file):
    """Where operators of two threads have the number, nothing is claimed."""
    other = global_id(900, 902)
    for text, start, thread in (
        ("aten::linear, seq = 7", 10, THREAD),
        ("aten::addmm, seq = 7", 12, THREAD),
        ("aten::relu, seq = 8", 20, THREAD),
        ("aten::relu, seq = 8", 21, other),
        ("AddmmBackward0, seq = 7", 50, other),
        ("ReluBackward0, seq = 8", 60, other),
    ):
        file.add_range(text, start=start, end=start + 1, globalTid=thread)

    events = read(file, tmp_path).recording.events

    assert events.names(events.flows.event).tolist() == ["aten::addmm", "AddmmBackward0"]
    assert events.flows.phase.tolist() == [0, 2]


def test_what_is_broken_is_repaired_and_counted(tmp_path, file):
    """Ranges that were open at the end of the capture, and rows that cannot be."""
    file.add_range("open", start=10, end=None, globalTid=THREAD)
    file.add_range("no start", start=None, end=5, globalTid=THREAD)
    file.add_call("cudaFree_v3020", THREAD, 100, 90)
    file.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=1, end=2, nameId=1_000_000, globalTid=THREAD)

    trace = read(file, tmp_path)

    assert dict(zip(trace.repairs["kind"], trace.repairs["n"], strict=True)) == {
        "no end": 1,
        "no start": 1,
        "ends before it starts": 1,
        "unknown name": 1,
    }
    events = trace.events.set_index("name")
    assert events.loc["open", "dur_ns"] == 1990
    assert events.loc["cudaFree", "dur_ns"] == 0
    assert "no start" not in events.index


def test_a_range_that_ends_on_another_thread_is_kept_out_of_both(tmp_path, file):
    """And a mark is an instant."""
    values = {"start": 10, "globalTid": THREAD}
    file.add_range("request", end=900, eventType=60, endGlobalTid=global_id(900, 902), **values)
    file.add_range("here", end=None, eventType=34, **values)
    file.add_range("MyDomain", end=None, eventType=75, **values)

    trace = read(file, tmp_path)

    assert named(trace, EventKind.OTHER) == ["request"]
    assert named(trace, EventKind.INSTANT) == ["here"]
    assert trace.skipped == {"NVTX_EVENTS: no ranges or marks": 1}


def test_calls_of_the_operating_system_count_outside_of_cuda_only(tmp_path, file):
    """What the driver calls while CUDA waits is no work of the program."""
    file.add_call("cudaStreamSynchronize_v3020", THREAD, 100, 2100)
    for name, start, thread in (
        ("ioctl", 200, THREAD),
        ("read", 2200, THREAD),
        ("poll", 200, global_id(900, 902)),
    ):
        times = {"start": start, "end": start + 50, "globalTid": thread}
        file.add("OSRT_API", nameId=file.string(name), **times)
    mark = {"start": 1, "end": 1, "globalTid": PROCESS}
    file.add("OSRT_API", nameId=file.string("profiling started"), **mark)

    trace = read(file, tmp_path)

    assert named(trace, EventKind.RUNTIME) == ["cudaStreamSynchronize", "read", "poll"]
    assert trace.skipped == {
        "OSRT_API: marks of the profiler": 1,
        "OSRT_API: inside of CUDA calls": 1,
    }


def test_hardware_counters_are_samples_of_the_devices_of_the_rank(tmp_path, file):
    """With the unit in their names; other devices are counted."""
    file.add("TARGET_INFO_GPU", id=2, name="H100", cuDevice=0, smCount=132, threadsPerWarp=32,
             maxWarpsPerSm=64)  # fmt: skip
    file.add("TARGET_INFO_GPU", id=3, name="H100", cuDevice=1, smCount=132)
    for gpu in (2, 3):
        name = {"metricId": 4, "metricName": "SMs Active [Throughput %]"}
        file.add("TARGET_INFO_GPU_METRICS", typeId=256 + gpu, **name)
        for time, value in ((2000, 80), (1000, 70)):
            sample = {"timestamp": time, "metricId": 4, "value": value}
            file.add("GPU_METRICS", typeId=256 + gpu, **sample)

    trace = read(file, tmp_path)

    events = trace.recording.events
    (series,) = events.samples.all_series
    assert (series.name, series.unit, series.device) == ("SMs Active", "%", 0)
    assert events.samples.value.tolist() == [70, 80]
    assert events.samples.ts_ns.tolist() == [UTC_NS + 1000, UTC_NS + 2000]
    assert [(gpu.device, gpu.n_sms, gpu.threads_per_sm) for gpu in events.devices] == [
        (0, 132, 2048),
        (1, 132, 0),
    ]
    assert trace.skipped == {"GPU_METRICS of other devices": 2}


def test_only_what_is_asked_for_is_loaded_and_the_rest_is_counted(tmp_path, file):
    """By category, and by window."""
    file.add_call("cudaFree_v3020", THREAD, 100, 200)
    file.add("SCHED_EVENTS", start=5, cpu=1, isSchedIn=1, globalTid=THREAD)
    path = file.write(tmp_path / "run.sqlite")

    by_category = load(path, categories=["kernel"])
    by_window = load(path, window=(UTC_NS, UTC_NS + 500))

    assert by_category.events["name"].tolist() == ["k"]
    assert by_category.skipped == {"cuda_runtime": 1, "SCHED_EVENTS": 1}
    assert by_window.events["name"].tolist() == ["cudaFree"]
    assert by_window.skipped == {"outside the window": 1, "SCHED_EVENTS": 1}


def test_threads_and_streams_have_their_names(tmp_path, file):
    """As in a trace of the PyTorch profiler."""
    file.add("PROCESSES", globalPid=PROCESS, pid=900, name="trainer")
    file.add("ThreadNames", nameId=file.string("pt_autograd_0"), globalTid=THREAD)
    file.add_call("cudaFree_v3020", THREAD, 100, 200)

    lanes = read(file, tmp_path).recording.events.lanes

    assert list(zip(lanes.pid, lanes.tid, lanes.process, lanes.thread, strict=True)) == [
        (900, 901, "trainer", "pt_autograd_0"),
        (0, 7, "trainer", "stream 7"),
    ]


def test_an_export_says_what_recorded_it_and_is_no_json_to_write_into(tmp_path, file):
    """A path is written as a trace of Perfetto instead."""
    trace = read(file, tmp_path)

    assert trace.metadata["recorded by"] == "NVIDIA Nsight Systems"
    with pytest.raises(MissingEventsError, match="to_perfetto"):
        trace.compile().critical_path().to_chrome_json(tmp_path / "out.json")


def test_progress_counts_the_tables(tmp_path, file):
    heard: list[Progress] = []

    with listening(heard.append):
        read_nsys(file.write(tmp_path / "run.sqlite"))

    assert {one.part for one in heard} == {"table"}
    assert heard[-1].done == heard[-1].total == len(heard) - 1


def test_an_only_rank_is_numbered_by_the_name_of_its_file(tmp_path, file):
    """As Nsight Systems names it with ``-o run.%q{RANK}``; without a number it is assumed."""
    assert nsys_ranks(file.write(tmp_path / "run.rank3.sqlite"))[0].rank == 3
    assert nsys_ranks(file.write(tmp_path / "run.sqlite"))[0].rank_source == "default"


EXPORTS = [trace.name for trace in PUBLIC_TRACES if trace.name.endswith(".sqlite")]
_TIMES = {"start", "timestamp"}
_NO_RANK = "of processes that are no rank"


@pytest.fixture(name="ranks", params=cases(EXPORTS), scope="module")
def ranks_(request: pytest.FixtureRequest) -> dict[int, Trace]:
    """The traces of all ranks of an export, by process."""
    path = located(request.param)
    found = nsys_ranks(path)
    paths = [path] if len(found) == 1 else [path / f"rank-{rank.rank}" for rank in found]
    return {rank.global_id: load(where) for rank, where in zip(found, paths, strict=True)}


@pytest.fixture(name="export")
def export_(ranks: dict[int, Trace]) -> Iterator[sqlite3.Connection]:
    """The export as a database."""
    where = next(iter(ranks.values())).path
    assert where is not None
    path = where if where.is_file() else Path(where.parent)
    with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as connection:
        yield connection


def test_each_row_is_an_event_or_counted(ranks, export):
    """Of all tables with times, over all ranks."""
    n_rows = 0
    for (table,) in export.execute("SELECT name FROM sqlite_master").fetchall():
        columns = {row[1] for row in export.execute(f"PRAGMA table_info({table})")}
        if columns & _TIMES:
            n_rows += export.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608

    own = [
        len(trace.events) + sum(n for what, n in trace.skipped.items() if _NO_RANK not in what)
        for trace in ranks.values()
    ]
    others = [n for what, n in next(iter(ranks.values())).skipped.items() if _NO_RANK in what]

    assert sum(own) + sum(others) == n_rows
    assert all(trace.repairs.empty for trace in ranks.values())


def test_kernels_have_the_names_and_the_time_that_sql_finds(ranks, export):
    """For each name, the same number and the same nanoseconds."""
    for process, trace in ranks.items():
        sql = """SELECT value, count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL
                 JOIN StringIds ON StringIds.id = demangledName WHERE globalPid = ? GROUP BY 1"""
        expected = {name: tuple(rest) for name, *rest in export.execute(sql, (process,))}

        events = trace.events
        kernels = events[events["kind"] == EventKind.KERNEL.label].groupby("name")["dur_ns"]
        found = kernels.agg(["count", "sum"])

        assert {name: tuple(row) for name, *row in found.itertuples()} == expected


def test_device_work_hangs_on_its_calls_and_the_path_on_records(ranks):
    """Of the path, at most 2% is unknown waits; its segments tile the window, or it would raise."""
    for trace in ranks.values():
        graph = trace.compile()
        quality = graph.quality().set_index("check")
        segments = graph.critical_path().segments
        unexplained_ns = segments.loc[segments["bound"] == "unknown_waits", "dur_ns"].sum()

        assert quality.loc["device work linked to its launch", "share"] > 0.99
        assert quality.loc["long synchronizations matched with device work", "verdict"] == "good"
        assert unexplained_ns < 0.02 * segments["dur_ns"].sum()
