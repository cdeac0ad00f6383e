"""Samples of Chrome's trace event format, read as Python frames: where these begin and end."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import htagraph as hg
from htagraph.arrays.nesting import nest
from htagraph.errors import HTAGraphError
from htagraph.model.kinds import EventKind
from htagraph.model.recording import SAMPLED, Recording
from htagraph.readers.kineto.reader import read_kineto

STEP, LOAD, READ, SAVE = "1", "2", "3", "4"
FRAMES = {
    STEP: {"name": "train.py(1): step"},
    LOAD: {"name": "train.py(9): load", "parent": STEP, "line": 3},
    READ: {"name": "<file.read>", "parent": LOAD, "line": 10},
    SAVE: {"name": "train.py(20): save", "parent": STEP, "line": 4},
}
Rows = list[tuple[str, int, int]]


def op(start_us: float, dur_us: float, name: str = "aten::mm", **more: object) -> dict[str, Any]:
    """An operator on thread 1."""
    event = {"ph": "X", "cat": "cpu_op", "name": name, "pid": 5, "tid": 1, "ts": start_us}
    return {**event, "dur": dur_us, **more}


def sample(ts_us: float, sf: str | None, tid: int = 1, **more: object) -> dict[str, Any]:
    """What a thread runs at a time."""
    return {"ts": ts_us, "tid": tid, **({} if sf is None else {"sf": sf}), **more}


def content(
    samples: object, *ops: dict[str, Any], frames: object = None, interval_ms: float | None = 1.0
) -> bytes:
    """A file of a thread with operators and samples."""
    own = {} if interval_ms is None else {"sampler": {"interval_ms": interval_ms, "pid": 5}}
    file = {
        "traceEvents": [*(ops or (op(0, 1), op(100_000, 1)))],
        "stackFrames": FRAMES if frames is None else frames,
        "samples": samples,
        **own,
    }
    return json.dumps(file).encode()


def rows(recording: Recording) -> Rows:
    """Name, start and length in us of each frame."""
    events = recording.events
    found = np.flatnonzero(events.kind == EventKind.PYTHON)
    return [
        (name.rpartition(": ")[2], start // 1000, dur // 1000)
        for name, start, dur in zip(
            events.names(found),
            events.ts_ns[found].tolist(),
            events.dur_ns[found].tolist(),
            strict=True,
        )
    ]


def column(recording: Recording, name: str) -> list[int]:
    """A column of the frames."""
    events = recording.events
    return [int(one) for one in events.column(name)[events.kind == EventKind.PYTHON]]


def test_samples_with_a_common_prefix_are_one_frame():
    """`step` lasts over all of them; `load` until half way to the sample without it."""
    found = read_kineto(content([sample(2000, LOAD), sample(3000, LOAD), sample(4000, SAVE)]))

    assert rows(found) == [("step", 2000, 2000), ("load", 2000, 1500), ("save", 3500, 500)]
    assert column(found, "n_samples") == [3, 2, 1]
    assert found.repairs == ()


def test_code_changes_where_no_operator_runs():
    """The first sample has its operator to the end; one in the middle goes to the nearer side."""
    two = [sample(2000, LOAD), sample(3000, SAVE)]

    assert rows(read_kineto(content(two, op(1900, 300))))[1:] == [
        ("load", 2000, 600),  # half way from the end of the operator, 2200, to 3000
        ("save", 2600, 400),
    ]
    assert rows(read_kineto(content(two, op(2450, 200))))[1] == ("load", 2000, 450)
    assert rows(read_kineto(content(two, op(2350, 200))))[1] == ("load", 2000, 550)
    assert rows(read_kineto(content(two, op(2350, 200), op(2400, 10))))[1] == ("load", 2000, 550)
    assert rows(read_kineto(content(two, op(2100, 2000))))[1] == ("load", 2000, 50)


def test_a_late_sample_was_due_before_what_held_it_up():
    """C code that holds the GIL for 9 ms is not shared with the code in front of it."""
    found = read_kineto(content([sample(2000, LOAD), sample(12_000, SAVE, late=9000)]))

    assert rows(found)[1:] == [("load", 2000, 500), ("save", 2500, 9500)]


def test_what_made_a_sample_late_ran_before_a_function_that_had_only_begun():
    """`load` held the GIL, if `save` begins next to it; not if its caller is new, too."""
    late = sample(12_000, SAVE, late=9000, enters=1)

    assert rows(read_kineto(content([sample(2000, LOAD), late, sample(12_400, SAVE)])))[1:] == [
        ("load", 2000, 10_000),
        ("save", 12_000, 400),
    ]
    late = sample(12_000, STEP, late=9000)  # got control back
    assert rows(read_kineto(content([sample(2000, LOAD), late, sample(12_400, STEP)])))[1:] == [
        ("load", 2000, 10_000)
    ]
    late = sample(12_000, READ, late=9000, enters=1)
    assert rows(read_kineto(content([sample(2000, SAVE), late])))[1:3] == [
        ("save", 2000, 500),
        ("load", 2500, 9500),
    ]


def test_a_row_may_stand_for_many_samples_and_a_thread_may_run_no_python():
    """The sampler writes the first and last of equal samples, and a row without a frame."""
    found = read_kineto(
        content([sample(2000, LOAD), sample(9000, LOAD, weight=7), sample(10_000, None)])
    )

    assert rows(found) == [("step", 2000, 7500), ("load", 2000, 7500)]
    assert column(found, "n_samples") == [8, 8]


def test_samples_of_others_do_not_bridge_what_they_did_not_see():
    """Six times as far apart as usual: the thread did something else, here and there."""
    near = [sample(1000 * k, LOAD) for k in range(5)]
    found = read_kineto(content([*near, sample(10_500, LOAD)], interval_ms=None))

    assert rows(found) == [
        ("step", 0, 4500),
        ("load", 0, 4500),
        ("step", 10_000, 500),
        ("load", 10_000, 500),
    ]


def test_frames_know_the_line_that_calls_them_and_their_cpu_time():
    """Read at boundaries between two samples by interpolation: `save` waits, `load` does not."""
    found = read_kineto(
        content(
            [
                sample(2000, LOAD, cpu_us=100),
                sample(4000, READ, cpu_us=2100),
                sample(6000, SAVE, cpu_us=2300),
                sample(8000, SAVE, cpu_us=2300, weight=3),
            ]
        )
    )
    texts = found.events.symbols.texts

    assert rows(found) == [
        ("step", 2000, 6000),
        ("load", 2000, 3000),
        ("<file.read>", 3000, 2000),
        ("save", 5000, 3000),
    ]
    assert column(found, "cpu_ns") == [2_200_000, 2_100_000, 1_100_000, 100_000]
    assert [texts[code] if code >= 0 else "" for code in column(found, "call_from")] == [
        "",
        "train.py:3",
        "train.py:10",
        "train.py:4",
    ]


def test_threads_are_those_of_the_events_and_others_get_lanes_of_their_own():
    """Without a process, a thread is the one with this number; names are the sampler's."""
    seen = [sample(ts, sf, tid) for ts in (2000, 3000) for sf, tid in ((LOAD, 1), (READ, 9))]
    file = json.loads(content(seen))
    file["sampler"]["threads"] = {"9": "loader"}
    found = read_kineto(json.dumps(file).encode())
    lanes, of = found.events.lanes, found.events.lane[found.events.kind == EventKind.PYTHON]

    assert [(lanes.pid[lane], lanes.tid[lane], lanes.thread[lane]) for lane in of] == [
        *[(5, 1, "")] * 2,
        *[(5, 9, "loader")] * 3,
    ]


def test_frames_are_of_a_category_of_their_own_and_read_unless_stacks_are():
    """Recorded stacks are exact: next to them, samples are left out, and counted."""
    frame = op(0, 9000, "train.py(1): step") | {"cat": "python_function"}
    file = content([sample(2000, LOAD), sample(3000, LOAD)], op(0, 1), frame)

    assert read_kineto(file).skipped == {"python_function": 1}
    assert rows(read_kineto(file)) == [("step", 2000, 1000), ("load", 2000, 1000)]
    assert rows(read_kineto(file, stacks=True)) == [("step", 0, 9000)]
    assert read_kineto(file, stacks=True).skipped == {SAMPLED: 2}
    assert read_kineto(file, categories=["cpu_op"]).skipped[SAMPLED] == 2
    assert rows(read_kineto(file, categories=[SAMPLED])) == [
        ("step", 2000, 1000),
        ("load", 2000, 1000),
    ]


def test_a_window_has_the_frames_that_reach_into_it():
    """As long as in the whole file."""
    file = content([sample(2000, LOAD), sample(3000, LOAD), sample(4000, SAVE)])

    assert rows(read_kineto(file, window=(3_600_000, 3_700_000))) == [
        ("step", 2000, 2000),
        ("save", 3500, 500),
    ]


def test_no_event_of_the_file_changes_and_samples_leave_the_header():
    """What a trace without samples has stays as it is: rows, header and `args`."""
    ops = [op(2000, 500, args={"External id": 3}), op(4000, 500)]
    file = json.loads(content([sample(2000, LOAD), sample(3000, SAVE)], *ops))
    trace = hg.load(json.dumps(file).encode())
    bare = hg.load(json.dumps({"traceEvents": ops, "sampler": file["sampler"]}).encode())

    assert trace.events.iloc[: len(ops)].equals(bare.events)
    assert len(trace.events) == len(ops) + 3
    assert trace.metadata == bare.metadata
    assert trace.args(range(5)) == [{"External id": 3}, {}, {}, {}, {}]


def test_frames_survive_a_smaller_trace(tmp_path):
    """A selection writes them as events, since it has no samples."""
    file = content([sample(2000, LOAD), sample(3000, SAVE)], op(2000, 500), op(2800, 300))
    graph = hg.load(file).compile()
    out = graph.select(name="*").to_chrome_json(tmp_path / "part.json")

    assert rows(read_kineto(out)) == rows(read_kineto(file))


BROKEN: dict[str, Any] = {
    "no list": {"samples": 7},
    "no tree": {"frames": [1, 2]},
    "no sample": {"samples": [3, None, sample(2000, LOAD)]},
    "no time": {"samples": [{"sf": LOAD, "tid": 1}, sample(2000, LOAD)]},
    "time that is none": {"samples": [sample(float("nan"), LOAD), sample(2000, LOAD)]},
    "far time": {"samples": [sample(1e300, LOAD), sample(2000, LOAD)]},
    "no thread": {"samples": [{"sf": LOAD, "ts": 2000}, sample(2000, LOAD)]},
    "unknown frame": {"samples": [sample(2000, "77"), sample(2000, LOAD)]},
    "frame of a list": {"samples": [sample(2000, [1]), sample(2000, LOAD)]},  # type: ignore[arg-type]
    "a circle": {
        "frames": {"1": {"name": "f", "parent": "2"}, "2": {"name": "g", "parent": "1"}},
        "samples": [sample(2000, "1")],
    },
    "unknown parent": {"frames": {LOAD: {"name": "f", "parent": "9"}}},
    "no name": {"frames": {LOAD: {}}},
    "a frame that is none": {"frames": {LOAD: 3}},
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_malformed_is_a_repair(name):
    """The file is read, and the defect counted."""
    given_ = {"samples": [sample(2000, LOAD)], **BROKEN[name]}
    found = read_kineto(content(given_["samples"], frames=given_.get("frames")))

    assert [repair.kind for repair in found.repairs if repair.kind == "bad sample"]
    assert len(found.events) >= 2


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
SAMPLES = st.fixed_dictionaries(
    {},
    optional={
        "ts": st.integers(-10, 200) | VALUES,
        "tid": st.integers(1, 3) | VALUES,
        "sf": st.sampled_from([*FRAMES, 1, 2]) | VALUES,
        "late": st.integers(0, 50) | VALUES,
        "weight": st.integers(1, 9) | VALUES,
        "cpu_us": st.integers(0, 90) | VALUES,
        "pid": VALUES,
    },
)


@given(
    samples=st.lists(SAMPLES | VALUES, max_size=12) | VALUES,
    frames=st.just(FRAMES) | VALUES | st.dictionaries(st.sampled_from("123"), VALUES),
    sampler=VALUES | st.fixed_dictionaries({"interval_ms": VALUES, "threads": VALUES}),
)
def test_anything_is_read_or_refused(samples, frames, sampler):
    """Whatever the keys hold."""
    file = {"traceEvents": [op(0, 1)], "stackFrames": frames, "samples": samples}
    try:
        found = read_kineto(json.dumps({**file, "sampler": sampler}).encode())
    except HTAGraphError:
        return
    assert found.events.dur_ns.min() >= 0


TIMES = st.lists(st.integers(1, 60), min_size=1, max_size=14)


@given(
    gaps=TIMES,
    stacks=st.lists(st.sampled_from([*FRAMES, None]), min_size=14, max_size=14),
    late=st.lists(st.integers(0, 40), min_size=14, max_size=14),
    ops=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 30)), max_size=8),
)
def test_frames_nest_and_each_sample_is_in_its_own(gaps, stacks, late, ops):
    """Exactly, to the nanosecond; operators do not overlap in part."""
    times = np.cumsum(gaps).tolist()
    listed = [
        sample(ts, sf, late=min(by, gap))
        for ts, sf, by, gap in zip(times, stacks, late, gaps, strict=False)
    ]
    disjoint, end = [], -1
    for start, dur in sorted(ops):
        if start > end:
            disjoint.append(op(start, dur))
            end = start + dur
    events = read_kineto(content(listed, *(disjoint or [op(0, 1)]))).events
    frames = np.flatnonzero(events.kind == EventKind.PYTHON)
    start, end_ns = events.ts_ns[frames], events.end_ns[frames]
    parent = nest(events.lane[frames], start, end_ns).parent
    inner = np.flatnonzero(parent >= 0)

    assert (start[inner] >= start[parent[inner]]).all()
    assert (end_ns[inner] <= end_ns[parent[inner]]).all()
    names = events.names(frames)
    for ts, one in list(zip(times, listed, strict=False))[1:-1]:
        around = names[(start <= ts * 1000) & (ts * 1000 <= end_ns)]
        assert "sf" not in one or FRAMES[one["sf"]]["name"] in around or not len(around)
