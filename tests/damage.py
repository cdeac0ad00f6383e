"""Damages traces and jobs in structure, as profilers, copies and clocks do.

A trace is the parsed JSON document of Kineto, a job the documents of its files by name. What is
given stays as it is. A loss of a trace (`LOSSES`) is a function of a document and a random
generator; it returns the damaged document and what was lost in words, which are empty if the trace
has nothing to lose of that kind. `damaged` brings several upon one trace, `damaged_job` upon ranks
of a job, of which a rank may also be absent, and one trace be there under two ranks.

    files, lost = damaged_job(read_job(folder), np.random.default_rng(1), ["lost_step"])
    write_job(files, elsewhere)
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.real_traces import traces_in

Event = dict[str, Any]
Document = dict[str, Any]
Files = dict[str, Document]
Loss = Callable[[Document, np.random.Generator], tuple[Document, str]]

_CUT = "cut at"
"""Key of a document whose file is to be cut at this share of its bytes when it is written."""

_WORK = frozenset(
    ["kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset", "concurrent_kernel"]
)
_OF_DEVICE = _WORK | {"cuda_sync", "gpu_user_annotation"}
"""Categories of what CUPTI records, and of what Kineto derives of it."""
_CALLS = frozenset(["cuda_runtime", "cuda_driver", "Runtime", "hip_runtime"])

_STEP = re.compile(r"ProfilerStep#?\s*\d+")
_COLLECTIVE_KERNEL = re.compile(r"^(nccl|ncclDev|rccl)\w*Kernel", re.IGNORECASE)
_COLLECTIVE_RANGE = re.compile(r"^gloo:")
_COLLECTIVE_CALL = re.compile(r"^(c10d::|record_param_comms|nccl:)")

_MOST = 0.4
"""Largest part of a trace that a block takes: most of it is left to answer from."""
_ONE = 0.7
"""How often a loss hits one rank only."""
_TIMES_LARGER = 10
_SMALL = 20_000
"""Events of a trace that is made larger: ten times that takes a second to read."""


def _ts(event: Event) -> float:
    return float(event.get("ts") or 0)


def _end(event: Event) -> float:
    return _ts(event) + float(event.get("dur") or 0)


def _is_slice(event: Event) -> bool:
    return event.get("ph") == "X" and event.get("cat") != "Trace"


def _is_host(event: Event) -> bool:
    return _is_slice(event) and event.get("cat") not in _OF_DEVICE


def _is_flow(event: Event) -> bool:
    return event.get("ph") in ("s", "t", "f") and event.get("cat") != "fwdbwd"


def _is_work(event: Event) -> bool:
    return _is_slice(event) and event.get("cat") in _WORK


def _arg(event: Event, key: str) -> Any:
    args = event.get("args")
    return args.get(key) if isinstance(args, dict) else None


def _thread(event: Event) -> tuple[Any, Any]:
    return event.get("pid"), event.get("tid")


def _with(document: Document, events: Iterable[Event]) -> Document:
    return document | {"traceEvents": list(events)}


def _without(document: Document, lost: Iterable[Event]) -> Document:
    """A trace without some events, and without the arrows from and to them."""
    lost = list(lost)
    gone = {id(event) for event in lost}
    ends = {(*_thread(event), event.get("ts")) for event in lost}
    events = document["traceEvents"]
    arrows = {
        (event.get("cat"), event.get("id"))
        for event in events
        if event.get("ph") in ("s", "f") and (*_thread(event), event.get("ts")) in ends
    }
    return _with(
        document,
        (
            event
            for event in events
            if id(event) not in gone
            and not (
                event.get("ph") in ("s", "t", "f") and (event.get("cat"), event.get("id")) in arrows
            )
        ),
    )


def _sorted(document: Document, which: Callable[[Event], bool]) -> list[Event]:
    return sorted(filter(which, document["traceEvents"]), key=_ts)


def _block(events: Sequence[Event], rng: np.random.Generator) -> list[Event]:
    """Consecutive events, up to the largest part."""
    if not events:
        return []
    n = max(1, int(len(events) * rng.uniform(0.03, _MOST)))
    first = int(rng.integers(len(events) - n + 1))
    return list(events[first : first + n])


def _instant(events: Sequence[Event], rng: np.random.Generator) -> float:
    """A time within some events, after at least a tenth of them."""
    return _ts(events[int(len(events) * rng.uniform(0.1, 0.95))])


def _place(n: int, rng: np.random.Generator) -> int:
    """The first, the last, or one in the middle of some things."""
    return int(rng.choice([0, n - 1, rng.integers(n)]))


def lost_step(document: Document, rng: np.random.Generator) -> tuple[Document, str]:
    """A step is lost, with all that the host ran within it and the device work of that."""
    steps = _steps(document)
    return (
        _lost_step(document, steps, _place(len(steps), rng)) if len(steps) > 1 else (document, "")
    )


def lost_inner_step(document: Document, rng: np.random.Generator) -> tuple[Document, str]:
    """A step between two others is lost."""
    steps = _steps(document)
    if len(steps) < 3:
        return document, ""
    return _lost_step(document, steps, int(rng.integers(1, len(steps) - 1)))


def _steps(document: Document) -> list[Event]:
    return _sorted(
        document, lambda event: _is_host(event) and bool(_STEP.match(str(event.get("name"))))
    )


def _lost_step(document: Document, steps: list[Event], number: int) -> tuple[Document, str]:
    step = steps[number]
    start = _ts(step)
    end = _end(step) - 2 * float(np.spacing(start))  # the next step begins at its very end
    host = [e for e in document["traceEvents"] if _is_host(e) and start <= _ts(e) < end]
    calls = {_arg(event, "correlation") for event in host} - {None}
    device = [
        event
        for event in document["traceEvents"]
        if _is_slice(event)
        and event.get("cat") in _OF_DEVICE
        and (_arg(event, "correlation") in calls or event.get("name") == step["name"])
    ]
    lost = host + device
    which = {0: "first", len(steps) - 1: "last"}.get(number, "middle")
    return _without(document, lost), f"{which} step {step['name']} ({len(lost)} events)"


def lost_collectives(document: Document, rng: np.random.Generator) -> tuple[Document, str]:
    """Kernels or host ranges of some collectives are lost; their calls stay."""
    return _lost_collectives(document, rng, with_calls=False)


def lost_collective_calls(document: Document, rng: np.random.Generator) -> tuple[Document, str]:
    """Some collectives are lost with their calls."""
    return _lost_collectives(document, rng, with_calls=True)


def _lost_collectives(
    document: Document, rng: np.random.Generator, *, with_calls: bool
) -> tuple[Document, str]:
    found = _sorted(
        document,
        lambda event: (
            bool(_COLLECTIVE_KERNEL.match(str(event.get("name"))))
            if _is_work(event)
            else _is_host(event) and bool(_COLLECTIVE_RANGE.match(str(event.get("name"))))
        ),
    )
    if not found:
        return document, ""
    n = int(rng.integers(1, max(2, len(found) // 4)))
    first = min(_place(len(found), rng), len(found) - n)
    lost = found[first : first + n]
    which = {0: "first", len(found) - n: "last"}.get(first, "middle")
    said = f"{which} {n} of {len(found)} collectives"
    if not with_calls:
        return _without(document, lost), said
    calls = _collective_calls(document, found, lost)
    return _without(document, lost + calls), f"{said}, with {len(calls)} calls"


def _collective_calls(
    document: Document, found: Sequence[Event], lost: Sequence[Event]
) -> list[Event]:
    """What the host ran to start some of the collectives found: calls, and everything within.

    Calls and ranges of workers are paired by order; a kernel was launched within its call.
    """
    host = _sorted(document, _is_host)
    calls = [event for event in host if _COLLECTIVE_CALL.match(str(event.get("name")))]
    if not calls:
        return []
    launches = {_arg(event, "correlation"): _ts(event) for event in host}
    if len(calls) == len(found) and not _is_work(found[0]):
        places = [found.index(event) for event in lost]
    else:
        started = [launches.get(_arg(event, "correlation"), _ts(event)) for event in lost]
        starts = [_ts(event) for event in calls]
        places = [int(at) - 1 for at in np.searchsorted(starts, started, side="right")]
    spans = [(_thread(calls[at]), _ts(calls[at]), _end(calls[at])) for at in {*places} if at >= 0]
    return [
        event
        for event in host
        if any(
            thread == _thread(event) and start <= _ts(event) and _end(event) <= end
            for thread, start, end in spans
        )
    ]


def cut_file(document: Document, rng: np.random.Generator) -> tuple[Document, str]:
    """The file ends early."""
    share = float(rng.uniform(0.3, 0.98))
    return document | {_CUT: share}, f"file cut at {share:.0%}"


def lost_buffer(document: Document, rng: np.random.Generator) -> tuple[Document, str]:
    """All that the device recorded for some time is lost, as if CUPTI dropped a buffer."""
    lost = _block(_sorted(document, _is_work), rng)
    return _without(document, lost), f"block of {len(lost)} kernels" if lost else ""


def lost_flows(document: Document, rng: np.random.Generator) -> tuple[Document, str]:
    """Arrows from launches to device work are lost for some time."""
    starts = _block(_sorted(document, lambda e: _is_flow(e) and e["ph"] == "s"), rng)
    lost = {(event.get("cat"), event.get("id")) for event in starts}
    kept = (
        event
        for event in document["traceEvents"]
        if not _is_flow(event) or (event.get("cat"), event.get("id")) not in lost
    )
    return _with(document, kept), f"block of {len(lost)} flows" if lost else ""


def lost_correlations(document: Document, rng: np.random.Generator) -> tuple[Document, str]:
    """Device work of some time does not say which call launched it."""
    lost = _block(_sorted(document, _is_work), rng)
    gone = {id(event) for event in lost}
    ids = ("correlation", "External id", "external id")
    bare = [
        event | {"args": {k: v for k, v in event.get("args", {}).items() if k not in ids}}
        for event in document["traceEvents"]
        if id(event) in gone
    ]
    rest = _without(document, lost)["traceEvents"]
    return _with(document, rest + bare), f"correlations of {len(lost)} kernels" if lost else ""


def lost_calls(document: Document, rng: np.random.Generator) -> tuple[Document, str]:
    """Runtime calls of some time are lost."""
    lost = _block(_sorted(document, lambda e: _is_slice(e) and e.get("cat") in _CALLS), rng)
    return _without(document, lost), f"block of {len(lost)} runtime calls" if lost else ""


def stopped_stream(document: Document, rng: np.random.Generator) -> tuple[Document, str]:
    """From some time on, a stream records nothing."""
    work = _sorted(document, _is_work)
    if not work:
        return document, ""
    stream = _thread(work[int(rng.integers(len(work)))])
    of_stream = [event for event in work if _thread(event) == stream]
    at = _instant(of_stream, rng)
    lost = [event for event in of_stream if _ts(event) >= at]
    return _without(document, lost), f"stream {stream[1]} stops: {len(lost)} events"


def stopped_thread(document: Document, rng: np.random.Generator) -> tuple[Document, str]:
    """From some time on, a thread records nothing; an event is recorded when it ends."""
    host = _sorted(document, _is_host)
    if not host:
        return document, ""
    thread = _thread(host[int(rng.integers(len(host)))])
    of_thread = [event for event in host if _thread(event) == thread]
    at = _instant(of_thread, rng)
    lost = [event for event in of_thread if _end(event) > at]
    return _without(document, lost), f"thread {thread[1]} stops: {len(lost)} events"


def stopped_recording(document: Document, rng: np.random.Generator) -> tuple[Document, str]:
    """From some time on, nothing is recorded; the file is whole."""
    events = _sorted(document, _is_slice)
    if not events:
        return document, ""
    at = _instant(events, rng)
    lost = [event for event in events if _end(event) > at]
    return _without(document, lost), f"recording stops: {len(lost)} events"


def silent_device(document: Document, rng: np.random.Generator) -> tuple[Document, str]:
    """A device records nothing."""
    devices = sorted(
        {str(event.get("pid")) for event in document["traceEvents"] if _is_work(event)}
    )
    if not devices:
        return document, ""
    device = str(rng.choice(devices))
    lost = [
        event
        for event in document["traceEvents"]
        if _is_slice(event) and event.get("cat") in _OF_DEVICE and str(event.get("pid")) == device
    ]
    return _without(document, lost), f"device {device} silent: {len(lost)} events"


def doubled(document: Document, rng: np.random.Generator) -> tuple[Document, str]:
    """Every event is there twice."""
    return _with(document, [*document["traceEvents"]] * 2), "every event twice"


def shifted_clock(document: Document, rng: np.random.Generator) -> tuple[Document, str]:
    """The clock is off, by 1 us to 10 s."""
    by_us = float(rng.choice([-1, 1]) * 10 ** rng.uniform(0, 7))
    events = (_moved(event, by_us) for event in document["traceEvents"])
    return _with(document, events), f"clock shifted by {by_us:.0f} us"


def clock_set(document: Document, rng: np.random.Generator) -> tuple[Document, str]:
    """The clock is set during the capture, once or a few times, by up to seconds."""
    return _clock_set(document, rng, signs=(-1, 1))


def clock_set_back(document: Document, rng: np.random.Generator) -> tuple[Document, str]:
    """The same, but always back, to a time within the capture.

    Forward, it would look like a pause of the whole machine; back beyond the start, like another
    order of the program.
    """
    return _clock_set(document, rng, signs=(-1,), is_within=True)


def _clock_set(
    document: Document,
    rng: np.random.Generator,
    signs: tuple[int, ...],
    *,
    is_within: bool = False,
) -> tuple[Document, str]:
    events = _sorted(document, _is_slice)
    if not events:
        return document, ""
    at = np.sort([_instant(events, rng) for _ in range(int(rng.integers(1, 4)))])
    # Less is not told from clocks that are always a little off.
    far_us = 10 ** rng.uniform(2.7, 6.5, len(at))
    if is_within:
        far_us = np.minimum(far_us, rng.uniform(0.1, 0.9) * (at - _ts(events[0])) / len(at))
    by_us = np.append(0, rng.choice(signs, len(at)) * far_us)
    times = [_ts(event) for event in document["traceEvents"]]
    shifts: NDArray[np.float64] = np.cumsum(by_us)[np.searchsorted(at, times, side="right")]
    moved = (_moved(e, by) for e, by in zip(document["traceEvents"], shifts.tolist(), strict=True))
    return _with(document, moved), f"clock set {len(at)} times, by {by_us[1:].round().tolist()} us"


def _moved(event: Event, by_us: float) -> Event:
    return event | {"ts": round(_ts(event) + by_us, 3)} if "ts" in event else event


def larger(document: Document, rng: np.random.Generator) -> tuple[Document, str]:
    """Every operator has many short ones within: a small file is ten times larger."""
    if len(document["traceEvents"]) > _SMALL:
        return document, ""
    ops = [event for event in document["traceEvents"] if event.get("cat") in ("cpu_op", "Operator")]
    n_each = round(_TIMES_LARGER * len(document["traceEvents"]) / max(len(ops), 1))
    tiny = [
        {"ph": "X", "cat": op["cat"], "name": "aten::tiny", "pid": op["pid"], "tid": op["tid"],
         "ts": op["ts"], "dur": 0, "args": {}}
        for op in ops for _ in range(n_each)
    ]  # fmt: skip
    return _with(document, document["traceEvents"] + tiny), f"{len(tiny)} more events" * bool(ops)


LOSSES: dict[str, Loss] = {
    function.__name__: function
    for function in (
        lost_inner_step, lost_collectives, cut_file, lost_buffer, lost_flows, lost_correlations,
        lost_calls, stopped_stream, stopped_thread, silent_device, doubled, shifted_clock,
        clock_set_back, larger,
    )
}  # fmt: skip
"""Losses that can be seen in the trace itself.

Without its first or last step or its last seconds, a trace is that of a shorter capture; without a
collective and its call, that of another program."""

JOB_LOSSES: dict[str, Loss] = LOSSES | {
    function.__name__: function
    for function in (lost_step, lost_collective_calls, stopped_recording, clock_set)
}
"""Losses of some ranks of a job: the others have what these lost."""

ABSENT, TWICE = "absent_rank", "one_trace_twice"
KINDS = (*JOB_LOSSES, ABSENT, TWICE)
"""All losses of a job, by name."""


def damaged(
    document: Document, rng: np.random.Generator, kinds: Iterable[str]
) -> tuple[Document, str]:
    """A trace after losses of some kinds, and what was lost; empty if it has none of these."""
    said = []
    for kind in kinds:
        document, lost = JOB_LOSSES[kind](document, rng)
        said += [f"{kind}: {lost}"] * bool(lost)
    return document, "; ".join(said)


def damaged_job(files: Files, rng: np.random.Generator, kinds: Iterable[str]) -> tuple[Files, str]:
    """A job after losses of some kinds, each of one rank or some, not of all; and what was lost."""
    files, names, said = dict(files), sorted(files), []
    for kind in kinds:
        n_hit = 1 if len(names) < 3 or rng.random() < _ONE else int(rng.integers(2, len(names)))
        hit = [str(name) for name in rng.choice(names, n_hit, replace=False) if name in files]
        if kind == ABSENT:
            for name in hit[: len(files) - 1]:
                del files[name]
                said.append(f"{kind}: {name}")
        elif kind == TWICE:
            for taken in hit[:1]:
                given = str(rng.choice([name for name in files if name != taken] or [taken]))
                own = {
                    key: files[taken][key] for key in ("distributedInfo",) if key in files[taken]
                }
                files[taken] = files[given] | own
                said.append(f"{kind}: {given} as {taken}")
        else:
            for name in hit:
                files[name], lost = JOB_LOSSES[kind](files[name], rng)
                said += [f"{kind}: {name}: {lost}"] * bool(lost)
    return files, "; ".join(said)


def read_document(file: Path) -> Document:
    """The document of a trace; a bare list of events is one, too."""
    data = file.read_bytes()
    document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return {"traceEvents": document} if isinstance(document, list) else document


def read_job(folder: Path) -> Files:
    """The documents of the traces in a folder and its subfolders, by their place in it."""
    return {str(path.relative_to(folder)): read_document(path) for path in traces_in(folder)}


def write_document(document: Document, file: Path) -> Path:
    """Write a trace, cut if it is to be; compressed if the name says so."""
    share = document.get(_CUT, 1.0)
    text = json.dumps({key: value for key, value in document.items() if key != _CUT}).encode()
    text = text[: int(len(text) * share)]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(text, 1) if file.suffix == ".gz" else text)
    return file


def write_job(files: Files, folder: Path) -> Path:
    """Write the files of a job."""
    for name, document in files.items():
        write_document(document, folder / name)
    return folder
