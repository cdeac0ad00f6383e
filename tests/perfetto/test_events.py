"""Every event of a table is a slice of the trace processor, with its name, time and place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from htagraph.model.events import EventTable, LaneTable, SparseColumn
from htagraph.model.kinds import EventKind
from htagraph.model.symbols import SymbolTable
from htagraph.run.trace import load
from htagraph.writers.pftrace import CounterTrack, write_pftrace

pytestmark = pytest.mark.perfetto

EPOCH_NS = 1_712_195_495_519_689_047
SLICES = (
    "select s.name, s.ts - (select min(ts) from slice), s.dur from slice s order by 2, 3 desc, 1"
)


def events_of(
    *rows: tuple[str, int, int],
    lanes: tuple[tuple[int | str, int | str], ...] = ((1, 1),),
    on: tuple[int, ...] = (),
    kind: int = EventKind.OP,
) -> EventTable:
    """Events of a name, a start and a duration, each on a lane; on the first by default."""
    n = len(rows)
    symbols, codes = SymbolTable.intern([*(name for name, _, _ in rows), "cpu_op"])
    kinds = np.full(n, kind, dtype=np.int8)
    on_device = kind == EventKind.KERNEL
    return EventTable(
        ts_ns=np.array([start for _, start, _ in rows], dtype=np.int64),
        dur_ns=np.array([dur for _, _, dur in rows], dtype=np.int64),
        kind=kinds,
        name=codes[:n],
        category=np.full(n, codes[n], dtype=np.int32),
        lane=np.array(on or [0] * n, dtype=np.int32),
        device=np.full(n, 0 if on_device else -1, dtype=np.int32),
        stream=np.full(n, 7 if on_device else -1, dtype=np.int64),
        correlation=np.full(n, -1, dtype=np.int64),
        external_id=np.full(n, -1, dtype=np.int64),
        symbols=symbols,
        lanes=LaneTable(
            pid=tuple(pid for pid, _ in lanes),
            tid=tuple(tid for _, tid in lanes),
            process=("python",) * len(lanes),
            thread=("",) * len(lanes),
            process_sort=(0,) * len(lanes),
            thread_sort=(0,) * len(lanes),
            process_labels=("",) * len(lanes),
        ),
    )


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", [EventKind.OP, EventKind.KERNEL])
def test_events_that_overlap_partially_keep_their_durations(
    tmp_path: Path, ask, kind: EventKind
) -> None:
    """A viewer ends the slice that began last, so each row must nest strictly."""
    events = events_of(("a", 0, 10), ("b", 5, 10), ("c", 12, 10), kind=kind)
    (slices,) = ask(write_pftrace(tmp_path / "x.pftrace", events), SLICES)
    assert slices == [["a", 0, 10], ["b", 5, 10], ["c", 12, 10]]


def test_rows_of_a_stream_are_drawn_as_one_track(tmp_path: Path, ask) -> None:
    """Sibling tracks of one name are merged by the viewer."""
    events = events_of(("a", 0, 10), ("b", 5, 10), kind=EventKind.KERNEL)
    (names,) = ask(
        write_pftrace(tmp_path / "x.pftrace", events),
        "select s.name, t.name, p.name from slice s "
        "join track t on s.track_id = t.id join track p on t.parent_id = p.id",
    )
    assert names == [["a", "stream 1", "GPU 0"], ["b", "stream 1", "GPU 0"]]


def test_events_without_duration_are_kept_between_their_neighbors(tmp_path: Path, ask) -> None:
    """Clocks of whole microseconds make many durations zero."""
    events = events_of(("a", 0, 5), ("zero", 5, 0), ("b", 5, 5), ("zero", 10, 0), ("zero", 10, 0))
    (slices,) = ask(write_pftrace(tmp_path / "x.pftrace", events), SLICES)
    assert slices == [["a", 0, 5], ["b", 5, 5], ["zero", 5, 0], ["zero", 10, 0], ["zero", 10, 0]]


def test_many_slices_are_compressed_and_all_are_there(tmp_path: Path, ask) -> None:
    """40,000 slices take 1.6 MB as they are; the trace processor and our reader unpack them."""
    n = 40_000
    events = events_of(*((f"op {k % 7}", 10 * k, 3 + k % 5) for k in range(n)))
    out = write_pftrace(tmp_path / "x.pftrace", events)

    assert out.stat().st_size < 800_000
    counts = "select count(*), count(distinct name), sum(dur), max(ts + dur) from slice"
    (slices,) = ask(out, counts)
    assert slices == [[n, 7, 5 * n, 10 * (n - 1) + 7]]
    again = load(out).recording.events
    assert np.array_equal(again.ts_ns, events.ts_ns)
    assert np.array_equal(again.dur_ns, events.dur_ns)


def test_threads_and_processes_have_their_own_ids(tmp_path: Path, ask) -> None:
    """Those that no thread can have get tracks of names."""
    lanes = (
        (7, 7),
        (7, 8),
        (9, 8),
        (7, -1),
        (7, 1 << 31),
        (7, (1 << 33) + 1),
        ("Spans", "PyTorch"),
    )
    rows = [(f"on {tid} of {pid}", 0, 10) for pid, tid in lanes]
    events = events_of(*rows, lanes=lanes, on=tuple(range(7)))
    (threads, tracks) = ask(
        write_pftrace(tmp_path / "x.pftrace", events),
        "select s.name, p.pid, t.tid, p.name, t.name from slice s "
        "join thread_track k on s.track_id = k.id join thread t using (utid) "
        "join process p using (upid) order by s.id",
        "select s.name, t.name, coalesce(g.name, p.name) from slice s "
        "join track t on s.track_id = t.id left join track g on t.parent_id = g.id "
        "left join process_track k on t.id = k.id left join process p using (upid) "
        "where t.id not in (select id from thread_track) order by s.id",
    )
    assert threads == [
        ["on 7 of 7", 7, 7, "python", "thread"],
        ["on 8 of 7", 7, 8, "python", "thread"],
        ["on 8 of 9", 9, 8, "python", "thread"],
    ]
    assert tracks == [
        ["on -1 of 7", "thread -1", "python"],
        ["on 2147483648 of 7", "thread 2147483648", "python"],
        ["on 8589934593 of 7", "thread 8589934593", "python"],
        ["on PyTorch of Spans", "python (Spans): PyTorch", "python"],
    ]


def test_lanes_without_any_process_have_their_own_tracks(tmp_path: Path, ask) -> None:
    """Named by what the file calls them: no track is called "no process"."""
    lanes = (("Spans", "PyTorch"), ("Spans", "Trace"), ("Host", "worker"))
    rows = [(f"on {tid}", 0, 10) for _, tid in lanes]
    events = events_of(*rows, lanes=lanes, on=(0, 1, 2))
    (tracks,) = ask(
        write_pftrace(tmp_path / "x.pftrace", events),
        "select s.name, t.name, p.name from slice s join track t on s.track_id = t.id "
        "join track p on t.parent_id = p.id order by s.name",
    )
    assert tracks == [
        ["on PyTorch", "PyTorch", "python (Spans)"],
        ["on Trace", "Trace", "python (Spans)"],
        ["on worker", "worker", "python (Host)"],
    ]


def test_times_since_the_epoch_are_exact(tmp_path: Path, ask) -> None:
    """An epoch time in nanoseconds exceeds a float64; the file holds the origin and differences."""
    events = events_of(("a", EPOCH_NS, 3), ("b", EPOCH_NS + 3, 1))
    slices, clock = ask(
        write_pftrace(tmp_path / "x.pftrace", events),
        SLICES,
        "select abs_time_str(min(ts)) from slice",
    )
    assert slices == [["a", 0, 3], ["b", 3, 1]]
    assert clock == [["2024-04-04T01:51:35.519689047"]]


def test_what_is_known_of_an_event_is_there_to_be_selected(tmp_path: Path, ask) -> None:
    """Sparse columns become arguments: numbers, floats and names."""
    table = events_of(("a", 0, 1), ("b", 1, 1))
    columns = {
        "bytes": SparseColumn(np.array([1]), np.array([4096])),
        "memory_bandwidth": SparseColumn(np.array([1]), np.array([1.5])),
        "collective": SparseColumn(
            np.array([0]), np.array([table.symbols.code("cpu_op")], dtype=np.int32)
        ),
    }
    events = EventTable(
        **{**{k: getattr(table, k) for k in table.__dataclass_fields__}, "columns": columns}
    )
    args = ", ".join(
        f"extract_arg(arg_set_id, 'debug.{name}')"
        for name in ("bytes", "memory_bandwidth", "collective", "critical")
    )
    path = write_pftrace(tmp_path / "x.pftrace.gz", events, critical_events=[0])
    query = "select name, category, " + args + " from slice order by ts"  # noqa: S608  our names
    (found,) = ask(path, query)
    assert found == [
        ["a", "cpu_op", None, None, "cpu_op", 1],
        ["b", "cpu_op", 4096, 1.5, None, None],
    ]


def test_a_counter_stands_below_what_it_counts(tmp_path: Path, ask) -> None:
    """That of a stream below the stream, that of a device in the device; with all samples."""
    events = events_of(("k", 0, 10), ("late", 5, 10), kind=EventKind.KERNEL)
    stream = CounterTrack(
        "queue length", "launches", np.array([0, 4, 9]), np.array([1, 2, 0]), device=0, stream=7
    )
    device = CounterTrack("bandwidth", "GB/s", np.array([3]), np.array([1.5]), device=0)
    share = CounterTrack("share", "%", np.array([5]), np.array([0.25]))
    (samples,) = ask(
        write_pftrace(tmp_path / "x.pftrace", events, counters=[stream, device, share]),
        "select p.name, t.name, c.ts, c.value from counter c "
        "join track t on c.track_id = t.id left join track p on t.parent_id = p.id "
        "order by 1 desc, 3",
    )
    assert samples == [
        ["stream 1", "queue length", 0, 1.0],
        ["stream 1", "queue length", 4, 2.0],
        ["stream 1", "queue length", 9, 0.0],
        ["GPU 0", "bandwidth", 3, 1.5],
        [None, "share", 5, 0.25],
    ]


def test_a_point_in_time_is_an_instant_in_its_range(tmp_path: Path, ask) -> None:
    """Memory events are instants; they have no end that a viewer could take for another's."""
    table = events_of(("op", 0, 10), ("[memory]", 10, 0), ("[memory]", 4, 0))
    kind = np.array([EventKind.OP, EventKind.INSTANT, EventKind.INSTANT], dtype=np.int8)
    events = EventTable(
        **{**{k: getattr(table, k) for k in table.__dataclass_fields__}, "kind": kind}
    )
    (slices,) = ask(write_pftrace(tmp_path / "x.pftrace", events), SLICES)
    assert slices == [["op", 0, 10], ["[memory]", 4, 0], ["[memory]", 10, 0]]


def test_files_of_ranks_can_be_concatenated(tmp_path: Path, ask) -> None:
    """One origin keeps their times together, `taken` apart what has one process id."""
    taken: set[int] = set()
    first, second = (
        events_of(("a", 100, 10), ("b", 120, 5)),
        events_of(("a", 103, 4), ("b", 121, 5)),
    )
    link = (np.array([0], dtype=np.int32), np.array([1], dtype=np.int32))
    parts = [
        write_pftrace(
            tmp_path / f"{rank}.pftrace.gz",
            events,
            rank=rank,
            links=link,
            origin_ns=100,
            taken=taken,
        ).read_bytes()
        for rank, events in enumerate((first, second))
    ]
    both = tmp_path / "both.pftrace.gz"
    both.write_bytes(parts[0] + parts[1])
    slices, flows = ask(
        both,
        "select s.name, s.ts, s.dur, p.name from slice s join thread_track k on s.track_id = k.id "
        "join thread using (utid) join process p using (upid) order by 2",
        "select a.ts, b.ts from flow "
        "join slice a on a.id = slice_out join slice b on b.id = slice_in order by 1",
    )
    assert slices == [
        ["a", 0, 10, "python, rank 0"],
        ["a", 3, 4, "python (pid 1), rank 1"],
        ["b", 20, 5, "python, rank 0"],
        ["b", 21, 5, "python (pid 1), rank 1"],
    ]
    assert flows == [[0, 20], [3, 21]]


@pytest.mark.slow
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 30), st.integers(0, 3)),
        min_size=1,
        max_size=150,
    )
)
def test_no_event_is_lost_or_changed_however_events_overlap(
    tmp_path: Path, ask, drawn: list[tuple[int, int, int]]
) -> None:
    """Law: what the trace processor has is what the table has."""
    rows = [(f"e{number}", start, dur) for number, (start, dur, _) in enumerate(drawn)]
    events = events_of(
        *rows, lanes=((1, 1), (1, 2), (2, 1), (2, -1)), on=tuple(lane for _, _, lane in drawn)
    )
    (slices,) = ask(
        write_pftrace(tmp_path / "x.pftrace", events, origin_ns=0),
        "select name, ts, dur from slice",
    )
    assert sorted(map(tuple, slices)) == sorted(rows)
