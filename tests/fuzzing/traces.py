"""Breaks traces event by event.

Where `tests.fuzzing.kineto` breaks bytes, this breaks what the bytes mean: values trade places
between events, keys vanish, types change, ids occur twice, times go far away, events are shuffled.
Each trace is loaded, compiled, asked for its path and for everything else. All of that gives an
answer, or an error of the package that the trace deserves; a `GraphError` is a defect of ours.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from functools import cache
from typing import Any

from htagraph.errors import GraphError, HTAGraphError
from htagraph.queries.questions import QUESTIONS
from htagraph.reports.json_document import json_document
from htagraph.reports.summary import Summary
from htagraph.run.graph import TraceGraph
from htagraph.run.trace import Trace, load
from tests.real_traces import TRACES, located
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

MAX_EVENTS = 300
"""Events of one input, cut from a file: few are enough to break everything."""
MAX_FILE_BYTES = 60_000

Document = dict[str, Any]
Event = dict[str, Any]

_TIMES = (
    0, -1, 1, 0.0005, 1e3, 1e9, 1e15, -1e15, 4.6e15, -4.6e15, 9.2e15, 9223372036854775.807,
    -9223372036854775.808, 1e18, 4.6e18, 9.3e18, -9.3e18, 1e30, "1", "1e400",
)  # fmt: skip
_NUMBERS = (
    0, 1, -1, 2, 7, 127, 128, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**62,
    2**63 - 1, 2**63, -(2**31) - 1, -(2**62), -(2**63), 2**64 - 1, 10**30, 0.5, -0.0, 1e308,
    float("nan"), float("inf"), float("-inf"),
)  # fmt: skip
_BASES = (1_759_000_000_000_000_000, 2**62 - 1, 2**63 - 10**9, -(2**63) + 10**9, "²", "--5")
_OTHERS = (
    None, True, False, "", " ", "0", "-1", "x", "²", "--5", "7" * 400, "\u0000", "\ud800",
    "stream 7", [], [1], [1, 2, 3], [None], {}, {"a": 1}, [[]],
)  # fmt: skip
_NAMES = (
    "ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#", "cudaDeviceSynchronize", "cudaMemcpy",
    "cudaLaunchKernel", "cudaEventRecord", "cudaStreamWaitEvent", "cudaEventSynchronize",
    "cudaEventQuery", "ncclDevKernel_AllReduce", "Memcpy DtoH (Device -> Pageable)", "[memory]",
    "Stream Wait Event", "Event Sync", "Context Sync", "aten::item", "gloo:all_reduce",
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "nn.Module: Linear_0", "a" * 300,
    "thread_name", "process_name", "thread_sort_index", "process_sort_index", "process_labels",
)  # fmt: skip
_HEADERS = ("distributedInfo", "deviceProperties", "schemaVersion", "x")


@cache
def sources() -> tuple[Document, ...]:
    """What mutations start from: small real traces, and simulated ones."""
    faults = ("none", "sync_in_loop", "synchronous_copy", "exposed_allreduce")
    texts = [simulate(training_rank(steps=2, layers=2, fault=fault)).to_json() for fault in faults]
    for path in map(located, TRACES):
        if path.is_file() and path.stat().st_size < MAX_FILE_BYTES:
            data = path.read_bytes()
            texts.append(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    found = []
    for text in texts:
        try:
            document = json.loads(text)
        except ValueError:  # the reader repairs it
            continue
        found.append({"traceEvents": document} if isinstance(document, list) else document)
    return tuple(found)


def _stretch(document: Document, rng: random.Random) -> Document:
    """A copy of some consecutive events by time, and of all events that name threads."""
    events = [event for event in document["traceEvents"] if isinstance(event, dict)]
    names = [event for event in events if event.get("ph") == "M"]
    others = [event for event in events if event.get("ph") != "M"]
    others.sort(key=lambda event: float(event.get("ts", 0)))
    n = rng.choice((5, 40, MAX_EVENTS))
    first = rng.randrange(max(1, len(others) - n))
    kept = names[:40] + others[first : first + n]
    copied: Document = json.loads(json.dumps(document | {"traceEvents": kept}))
    return copied


def _place(event: Event, rng: random.Random) -> tuple[Event, str] | None:
    """A key of an event, or of its args."""
    args = event.get("args")
    inner = isinstance(args, dict) and args and rng.random() < 0.5
    holder = args if inner else event
    return (holder, rng.choice(list(holder))) if holder else None  # type: ignore[type-var, arg-type, return-value]


def _swap(events: list[Event], rng: random.Random) -> None:
    """Two events trade the values of a key."""
    place = _place(rng.choice(events), rng)
    other = rng.choice(events)
    if place is None:
        return
    holder, key = place
    args = other.get("args")
    target = args if isinstance(args, dict) and key in args else other
    if key in target:
        holder[key], target[key] = target[key], holder[key]


def _delete(events: list[Event], rng: random.Random) -> None:
    """A key of an event vanishes."""
    place = _place(rng.choice(events), rng)
    if place is not None:
        del place[0][place[1]]


def _retype(events: list[Event], rng: random.Random) -> None:
    """A value becomes one of another type, or one at the edge of its own."""
    place = _place(rng.choice(events), rng)
    if place is not None:
        place[0][place[1]] = rng.choice(_OTHERS if rng.random() < 0.5 else _NUMBERS)


def _retime(events: list[Event], rng: random.Random) -> None:
    """A time goes elsewhere, near or far."""
    event, key = rng.choice(events), rng.choice(("ts", "ts", "dur"))
    near = event.get(key)
    if isinstance(near, int | float) and rng.random() < 0.5:
        event[key] = near + rng.choice((-1, 1)) * 10.0 ** rng.randrange(-3, 19)
    else:
        event[key] = rng.choice(_TIMES)


def _renumber(events: list[Event], rng: random.Random) -> None:
    """An id of one event becomes the id of another, or one that is no id."""
    key = rng.choice(("correlation", "External id", "stream", "device", "wait_on_stream"))
    args = [event["args"] for event in events if isinstance(event.get("args"), dict)]
    having = [each for each in args if key in each] or args
    if having:
        new = rng.choice(_NUMBERS) if rng.random() < 0.3 else rng.choice(having).get(key, 1)
        for each in rng.sample(having, min(len(having), rng.choice((1, 1, 5, 1000)))):
            each[key] = new


def _rename(events: list[Event], rng: random.Random) -> None:
    """An event becomes what another is called, or something that has a meaning."""
    event, other = rng.choice(events), rng.choice(events)
    key = rng.choice(("name", "cat", "ph", "pid", "tid"))
    if key in other:
        event[key] = other[key]
    if key == "name" and rng.random() < 0.5:
        event[key] = rng.choice(_NAMES)
    if key == "ph" and rng.random() < 0.5:
        event[key] = rng.choice("XBEisftMCbenNDO")


def _double(events: list[Event], rng: random.Random) -> None:
    """An event occurs twice."""
    events.append(json.loads(json.dumps(rng.choice(events))))


def _drop(events: list[Event], rng: random.Random) -> None:
    """A few events are lost."""
    at = rng.randrange(len(events))
    del events[at : at + rng.choice((1, 3, 20))]


def _shuffle(events: list[Event], rng: random.Random) -> None:
    """The order in the file is another."""
    rng.shuffle(events)


def _shift(events: list[Event], rng: random.Random) -> None:
    """All that one process, thread or category recorded is at another time."""
    key, step = (
        rng.choice(("pid", "tid", "cat")),
        rng.choice((-1, 1)) * 10.0 ** rng.randrange(-3, 16),
    )
    value = rng.choice(events).get(key)
    for event in events:
        if event.get(key) == value and isinstance(event.get("ts"), int | float):
            event["ts"] += step


def _grid(events: list[Event], rng: random.Random) -> None:
    """Times are coarse, as of an old profiler: events touch and coincide."""
    unit = rng.choice((1, 10, 1000))
    for event in events:
        for key in ("ts", "dur"):
            value = event.get(key)
            if isinstance(value, int | float) and abs(value) < 1e15:
                event[key] = int(value) // unit * unit


_MUTATIONS: tuple[Callable[[list[Event], random.Random], None], ...] = (
    _swap, _swap, _delete, _delete, _retype, _retype, _retime, _retime, _retime, _renumber,
    _renumber, _rename, _rename, _double, _drop, _shuffle, _shift, _grid,
)  # fmt: skip


def mutated(rng: random.Random) -> bytes:
    """A stretch of a trace with some damage."""
    return json.dumps(damaged(_stretch(rng.choice(sources()), rng), rng)).encode()


def damaged(document: Document, rng: random.Random) -> Document:
    """A trace after some mutations."""
    events = document["traceEvents"]
    for _ in range(rng.choice((1, 1, 2, 3, 8, 30, 100))):
        if events:
            rng.choice(_MUTATIONS)(events, rng)
    if rng.random() < 0.2:
        document["baseTimeNanoseconds"] = rng.choice((*_NUMBERS, *_BASES, *_OTHERS))
    if rng.random() < 0.1:
        value = rng.choice((*_NUMBERS, *_OTHERS))
        is_job = rng.random() < 0.5
        document[rng.choice(_HEADERS)] = {"rank": value, "world_size": value} if is_job else value
    return document


def asked(trace: Trace) -> TraceGraph:
    """The graph of a trace, after every question to it and to one of its steps."""
    graph = trace.compile()
    for view in (graph, *(graph.window(name, instance=0) for name in graph.steps["name"][:1])):
        path = view.critical_path()
        assert int(path.segments["dur_ns"].sum()) == view.dur_ns
        assert int(path.attributed_time["dur_ns"].sum()) == view.dur_ns
        for question in QUESTIONS:
            try:
                view.ask(question)
            except GraphError:
                raise
            except HTAGraphError:  # it needs what this trace does not have
                continue
        json.dumps(json_document(Summary(trace, view)), allow_nan=False)
    return graph


def answered(data: bytes) -> str:
    """How it went to load and ask a trace; raise what no trace deserves."""
    try:
        trace = load(data, stacks=True)
    except GraphError:
        raise
    except HTAGraphError as error:
        return type(error).__name__
    assert (trace.recording.events.dur_ns >= 0).all()
    try:
        asked(trace)
    except GraphError:
        raise
    except HTAGraphError as error:
        return type(error).__name__
    return "repaired" if trace.recording.repairs else "valid"
