"""Drawn timelines: text becomes boxes, and these an event table, so that a test shows its trace."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from htagraph.errors import QueryError
from htagraph.model.events import EventTable, Lane
from htagraph.model.kinds import EventKind

_LABEL = re.compile(
    r"\s*(?:(?P<host>cpu|thread) (?P<tid>\d+)|(?:gpu (?P<gpu>\d+) )?stream (?P<stream>\d+)|us)\s*\|"
)
_MARKER = re.compile(r"(?P<sign>~>|~<|[<>!?@])(?P<label>[\w.]+|\*)")
_TOKEN = re.compile(
    r"(?P<open>[\[{])|(?P<close>[\]}])|\^(?P<point>[^\s\[\]{}^]+)|(?P<text>[^\[\]{}^]+|\^)"
)
_CLOSING = {"[": "]", "{": "}"}


@dataclass(frozen=True)
class Line:
    """One track of a drawing; `device` is -1 for a host thread."""

    number: int
    text: str
    tid: int
    device: int

    def error(self, column: int, message: str, *, hint: str | None = None) -> QueryError:
        """An error at a place of the drawing."""
        return QueryError(f"timeline, line {self.number}, column {column}: {message}", hint=hint)


@dataclass
class Box:
    """One drawn event: ``start <= column < end``; `markers` are labels by sign."""

    line: Line
    bracket: str
    start: int
    end: int = -1
    text: str = ""
    name: str = ""
    markers: dict[str, str] = field(default_factory=dict)
    has_inner: bool = False

    @property
    def on_device(self) -> bool:
        """Whether the event is drawn on a stream."""
        return self.line.device >= 0

    def error(self, message: str, *, hint: str | None = None) -> QueryError:
        """An error at the place of this event."""
        return self.line.error(self.start, message, hint=hint)


def parse(drawing: str) -> list[Box]:
    """The events of a drawing, line by line, left to right.

    >>> [(box.name, box.start, box.end, box.markers) for box in parse("cpu 1 |[op [call >a]  ]")]
    [('op', 0, 16, {}), ('call', 4, 13, {'>': 'a'})]
    """
    return [box for line in _lines(drawing) for box in _boxes(line)]


def _lines(drawing: str) -> Iterator[Line]:
    """The tracks of a drawing, without rulers, comments and empty lines."""
    for number, text in enumerate(drawing.splitlines(), start=1):
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        label = _LABEL.match(text)
        if label is None:
            raise QueryError(
                f"timeline, line {number}, column 0: no track in {text.strip()[:20]!r}.",
                hint="begin with 'cpu 1 |', 'thread 1 |', 'stream 7 |' or 'gpu 0 stream 7 |'.",
            )
        if label["host"]:
            yield Line(number, text[label.end() :], int(label["tid"]), -1)
        elif label["stream"]:
            yield Line(number, text[label.end() :], int(label["stream"]), int(label["gpu"] or 0))


def _boxes(line: Line) -> list[Box]:
    """The events of a line, left to right."""
    found: list[Box] = []
    stack: list[Box] = []
    for token in _TOKEN.finditer(line.text):
        column = token.start()
        if token["open"] or token["point"]:
            if stack:
                stack[-1].has_inner = True
            found.append(Box(line, token[0][0], start=column, end=column))
        if token["open"]:
            stack.append(found[-1])
        elif token["point"]:
            found[-1].text = _MARKER.sub(r" \g<0>", token["point"])
        elif token["close"]:
            _close(line, stack, column)
        elif stack and not stack[-1].has_inner:
            stack[-1].text += token[0]
        elif token[0].strip():
            column += len(token[0]) - len(token[0].lstrip())
            raise line.error(
                column,
                f"{token[0].strip()!r} is outside an event.",
                hint="write the name right after '['.",
            )
    if stack:
        raise stack[-1].error(f"{stack[-1].bracket!r} is not closed.")
    return [_with_name(box) for box in found]


def _close(line: Line, stack: list[Box], column: int) -> None:
    """End the innermost box at a closing bracket."""
    bracket = line.text[column]
    if not stack or _CLOSING[stack[-1].bracket] != bracket:
        raise line.error(column, f"{bracket!r} has no opening bracket.")
    stack.pop().end = column + 1


def _with_name(box: Box) -> Box:
    """Split the text of a box into name and markers."""
    words = box.text.split()
    first = next((i for i, word in enumerate(words) if _MARKER.fullmatch(word)), len(words))
    box.name = " ".join(words[:first])
    if not box.name:
        raise box.error("an event needs a name.")
    for word in words[first:]:
        marker = _MARKER.fullmatch(word)
        if marker is None:
            raise box.error(
                f"{word!r} is not a marker.",
                hint="markers are >a <a ~>f ~<f !r ?r @7, after the name.",
            )
        box.markers[marker["sign"]] = marker["label"]
    return box


_HOST_PID = 1000
_STREAM = re.compile(r"(?:(?P<gpu>\d+)\.)?(?P<stream>\d+|\*)")
_API_CALL = re.compile(r"(cuda|hip|cu)[A-Z]")
_SHORTHAND = {
    "launch": "cudaLaunchKernel",
    "graph": "cudaGraphLaunch",
    "copy": "cudaMemcpyAsync",
    "record": "cudaEventRecord",
    "wait": "cudaStreamWaitEvent",
    "sync": "cudaDeviceSynchronize",
    "streamsync": "cudaStreamSynchronize",
    "eventsync": "cudaEventSynchronize",
}
_CORRELATED = (EventKind.RUNTIME, EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET)
_Row = dict[str, Any]
"""An event: its value in each dense column of `EventTable`, and ``values`` of sparse ones."""


def timeline(
    drawing: str,
    *,
    us_per_column: int = 1,
    names: Mapping[str, str] | None = None,
    columns: Mapping[str, Mapping[str, int | float | str]] | None = None,
) -> EventTable:
    """The events of a drawing.

    ::

        us       |0         10        20        30
        cpu 1    |{ProfilerStep#0                   }
        cpu 1    | [aten::mm [launch >a]]  [sync   ]
        stream 7 |                [gemm <a       ]

    One column is one microsecond, and column 0 follows the ``|``. An event starts at its ``[`` and
    ends right after its ``]``. Events nest inside one line, or on several lines with one label.

    ========================  ====================================================================
    ``cpu 1``, ``thread 1``   host thread with tid 1 (pid 1000)
    ``stream 7``              stream 7 of device 0; ``gpu 1 stream 7`` of device 1
    ``us``                    a ruler, ignored, like empty lines and lines that begin with ``#``
    ``[name ]``               on a thread an operator, or an API call if its name is one (``cudaX``,
                              ``hipX``, ``cuX``), if it is a shorthand, or if it has one of the
                              markers ``> ! ? @``; on a stream a kernel, or a copy or fill if its
                              name begins with Memcpy or Memset
    ``{name }``               annotation; on a stream, a host annotation projected onto the device
    ``^name``                 event of zero length at the column of the ``^``; markers follow
                              without spaces: ``^k<a``
    ========================  ====================================================================

    Markers follow the name, separated by spaces:

    =====================  =======================================================================
    ``>a`` and ``<a``      this call enqueued that device work: one correlation id; one ``>a``,
                           one or more ``<a``
    ``~>f`` and ``~<f``    a ``fwdbwd`` flow from the start of this operator to that of the other
    ``!r @7``              this call records event r on stream 7
    ``?r @9``              this call makes stream 9 wait for r; adds a ``Stream Wait Event`` record
    ``?r``                 this call waits for r; adds an ``Event Sync`` record
    ``@7``                 this call waits for stream 7; adds a ``Stream Sync`` record
    ``@*``                 this call waits for the device; adds a ``Context Sync`` record
    =====================  =======================================================================

    A stream of another device is written ``@1.7``. Shorthands are ``launch graph copy record wait
    sync streamsync eventsync``. A wait without a marker has no record, as in traces without
    ``cuda_sync`` events.

    Parameters
    ----------
    drawing : str
        Lines of one track each; any indentation.
    us_per_column : int, unit=us, default=1
    names : mapping of str to str, optional
        Full names of events by the short names that are drawn.
    columns : mapping of str to mapping, optional
        Values of sparse columns, by column and short name of the event.

    Returns
    -------
    EventTable
        Rows line by line, left to right, then sync records. Column 0 is 0 ns.

    Raises
    ------
    QueryError
        If the drawing cannot be read; the message names line and column.

    Examples
    --------
    >>> events = timeline('''
    ...     us       |0         10        20
    ...     cpu 1    |[aten::mm [launch >a]]
    ...     stream 7 |                [K <a]
    ... ''', names={"K": "ampere_sgemm_128x64_nn"})
    >>> events.frame()[["name", "kind", "ts_ns", "dur_ns", "correlation"]]
                         name     kind  ts_ns  dur_ns  correlation
    0                aten::mm       op      0   22000           -1
    1        cudaLaunchKernel  runtime  10000   11000            1
    2  ampere_sgemm_128x64_nn   kernel  16000    6000            1
    """
    boxes = parse(drawing)
    for name in [*(names or {}), *(name for column in (columns or {}).values() for name in column)]:
        if all(box.name != name for box in boxes):
            raise QueryError(
                f"timeline: {name!r} is not drawn.",
                hint=f"drawn are {sorted({b.name for b in boxes})}.",
            )
    rows = _rows(boxes, 1000 * us_per_column, names or {}, columns or {})
    _link(boxes, rows)
    rows += _sync_records(boxes, rows)
    sparse = dict.fromkeys(column for row in rows for column in row["values"])
    dense = ("ts_ns", "dur_ns", "kind", "name", "lane", "category")
    ids = ("device", "stream", "correlation")
    return EventTable.of(
        **{column: [row[column] for row in rows] for column in (*dense, *ids)},
        columns={column: [row["values"].get(column) for row in rows] for column in sparse},
        flows=_flows(boxes, rows),
        lanes=_lane_names(rows),
    )


def _kind(box: Box, name: str) -> tuple[EventKind, str]:
    """Kind of a box, and its category in a file."""
    if box.bracket == "{":
        if box.on_device:
            return EventKind.DEVICE_ANNOTATION, "gpu_user_annotation"
        return EventKind.ANNOTATION, "user_annotation"
    if box.on_device:
        special = {
            "Memcpy": (EventKind.MEMCPY, "gpu_memcpy"),
            "Memset": (EventKind.MEMSET, "gpu_memset"),
        }
        return special.get(name[:6], (EventKind.KERNEL, "kernel"))
    if _API_CALL.match(name) or box.markers.keys() & {">", "!", "?", "@"}:
        return EventKind.RUNTIME, "cuda_driver" if re.match("cu[A-Z]", name) else "cuda_runtime"
    return EventKind.OP, "cpu_op"


def _rows(
    boxes: Sequence[Box],
    ns_per_column: int,
    names: Mapping[str, str],
    columns: Mapping[str, Mapping[str, int | float | str]],
) -> list[_Row]:
    """One row per box; every API call and device event has a correlation id of its own."""
    rows = []
    correlations = count(1)
    for box in boxes:
        name = names.get(box.name) or (
            box.name if box.on_device else _SHORTHAND.get(box.name, box.name)
        )
        kind, category = _kind(box, name)
        rows.append(
            {
                "name": name,
                "kind": kind,
                "category": category,
                "lane": (box.line.device if box.on_device else _HOST_PID, box.line.tid),
                "ts_ns": box.start * ns_per_column,
                "dur_ns": (box.end - box.start) * ns_per_column,
                "device": box.line.device,
                "stream": box.line.tid if box.on_device else -1,
                "correlation": next(correlations) if kind in _CORRELATED else -1,
                "values": {
                    column: values[box.name]
                    for column, values in columns.items()
                    if box.name in values
                },
            }
        )
    return rows


def _named(boxes: Sequence[Box], sign: str) -> dict[str, int]:
    """The box of each label of a sign, of which each label may occur once."""
    found: dict[str, int] = {}
    for number, box in enumerate(boxes):
        label = box.markers.get(sign)
        if label is not None and label in found:
            raise box.error(f"{sign}{label} occurs twice.")
        if label is not None:
            found[label] = number
    return found


def _link(boxes: Sequence[Box], rows: Sequence[_Row]) -> None:
    """Give device work the correlation id of its call."""
    calls = _named(boxes, ">")
    for box, row in zip(boxes, rows, strict=True):
        label = box.markers.get("<")
        if label is not None and (label not in calls or not box.on_device):
            raise box.error(f"<{label} has no >{label} on a host thread, or is not on a stream.")
        if label is not None:
            row["correlation"] = rows[calls[label]]["correlation"]
    launched = {box.markers.get("<") for box in boxes}
    for label, number in calls.items():
        if label not in launched or boxes[number].on_device:
            raise boxes[number].error(
                f">{label} has no <{label} on a stream, or is not on a host thread."
            )


def _flows(boxes: Sequence[Box], rows: Sequence[_Row]) -> list[tuple[str, int, int, Lane, int]]:
    """Both ends of each flow."""
    starts, finishes = _named(boxes, "~>"), _named(boxes, "~<")
    for label in sorted(starts.keys() ^ finishes.keys()):
        box = boxes[(starts | finishes)[label]]
        raise box.error(f"flow {label!r} has only one end.", hint=f"write ~>{label} and ~<{label}.")
    return [
        ("fwdbwd", phase, number, rows[event]["lane"], rows[event]["ts_ns"])
        for number, label in enumerate(starts, start=1)
        for phase, event in ((0, starts[label]), (2, finishes[label]))
    ]


def _find_stream(box: Box) -> tuple[int, int]:
    """Device and stream after the ``@`` of a box, stream -1 for all or none."""
    label = box.markers.get("@", "*")
    found = _STREAM.fullmatch(label)
    if found is None:
        raise box.error(f"@{label} is not a stream.", hint="write @7, @1.7 (device 1) or @* (all).")
    return int(found["gpu"] or 0), -1 if found["stream"] == "*" else int(found["stream"])


def _sync_records(boxes: Sequence[Box], rows: Sequence[_Row]) -> list[_Row]:
    """The ``cuda_sync`` records of marked waits, each as long as its call."""
    recorded = _named(boxes, "!")
    records = []
    for box, call in zip(boxes, rows, strict=True):
        if "!" in box.markers or not box.markers.keys() & {"?", "@"}:
            continue
        device, stream = _find_stream(box)
        name, values = ("Stream Sync" if stream >= 0 else "Context Sync"), {}
        if (event := box.markers.get("?")) is not None:
            if event not in recorded:
                raise box.error(
                    f"no call records {event}.", hint=f"mark a call with !{event} @stream."
                )
            name = "Stream Wait Event" if stream >= 0 else "Event Sync"
            source = recorded[event]
            values = {
                "wait_on_stream": _find_stream(boxes[source])[1],
                "wait_on_event_record": rows[source]["correlation"],
                "wait_on_event": list(recorded).index(event) + 1,
            }
        place = {"lane": (device, stream), "device": device, "stream": stream}
        what = {"name": name, "kind": EventKind.SYNC, "category": "cuda_sync", "values": values}
        records.append(call | place | what)
    return records


def _lane_names(rows: Sequence[_Row]) -> dict[Lane, dict[str, str | int]]:
    """Names of lanes, as the profiler writes them."""
    names: dict[Lane, dict[str, str | int]] = {}
    for row in rows:
        device, stream, lane = row["device"], row["stream"], row["lane"]
        on_stream = f"stream {stream}" if stream >= 0 else f"Device {device}"
        names[lane] = {
            "process": "python",
            "thread": f"thread {lane[1]} (python)" if device < 0 else on_stream,
            "process_labels": "CPU" if device < 0 else f"GPU {device}",
            "process_sort": _HOST_PID if device < 0 else 5_000_000 + device,
            "thread_sort": 0 if device < 0 else stream,
        }
    return names
