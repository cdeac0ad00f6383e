"""Where an event belongs: its operator, annotation, track and Python frame, and their names."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from htagraph.arrays.ancestors import nearest
from htagraph.arrays.codes import distinct, gather
from htagraph.arrays.matching import last_before
from htagraph.arrays.nesting import nest
from htagraph.model.arrays import I64, Bools, Rows, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind, among
from htagraph.model.names import without_step_number
from htagraph.model.symbols import alphabetical

DATA_LOADING = re.compile(
    r"(?i)data[ _-]?load(er|ing)|data_?pipe|_next_data\b|fetch_next_batch"
    r"|\b(load|fetch|read)(ing)?[ _-](the[ _-])?(next[ _-])?(data|batch)(es)?\b"
)
"""Usual names of host ranges that load data."""


def loads_data(dag: Dag) -> Bools:
    """Whether a host range of each name loads data: a usual name, or one that the user gave."""
    symbols = dag.events.symbols
    found = symbols.searched(DATA_LOADING)
    for name in dag.data_loading:
        found = found | symbols.named(name)
    return found


def host_of(dag: Dag, events: Rows) -> Rows:
    """Host event of each event: itself, or the call that launched it; -1 for none."""
    is_device = gather(dag.events.is_device, events, default=False)
    return np.where(is_device, gather(dag.launch, events), events)


def innermost(dag: Dag, events: Rows, kinds: tuple[EventKind, ...]) -> Rows:
    """Innermost host event of some kinds around each event, itself included; -1 for none.

    Device events belong to where they were launched.
    """
    return nearest(dag.parent, host_of(dag, events), among(dag.events.kind, kinds))


def around(dag: Dag, events: I64) -> Bools:
    """Whether each event of the trace encloses one of some host events."""
    out = np.zeros(len(dag.events), dtype=bool)
    current = events
    while len(current):
        current = dag.parent[current].astype(np.int64)
        current = distinct(current[current >= 0])
        current = current[~out[current]]
        out[current] = True
    return out


def under(dag: Dag, events: Rows, mask: Bools) -> Bools:
    """Whether an event, or a host event around it, is in a mask over host events."""
    if not mask.any():
        return np.zeros(len(events), dtype=bool)
    return nearest(dag.parent, host_of(dag, events), mask) >= 0


def under_pattern(dag: Dag, events: Rows, pattern: re.Pattern[str]) -> Bools:
    """Whether the name of an event, or of a host event around it, matches."""
    matches = dag.events.searched(pattern)
    return under(dag, events, matches & dag.events.is_host)


def track_labels(dag: Dag, events: Rows) -> Texts:
    """Label of the track of each event: ``stream 7``, or the thread id of host events.

    With several devices, streams are named with theirs: ``gpu 0 stream 7``.
    """
    codes, texts = track_codes(dag, events)
    return np.asarray(texts[codes])


def track_codes(dag: Dag, events: Rows) -> tuple[Rows, Texts]:
    """Code of the track of each event, and the label of each code; `""` for -1."""
    table = dag.events
    threads = [str(tid) for tid in table.lanes.tid]
    codes = gather(table.lane, events, len(threads))
    on_device = np.flatnonzero(gather(table.is_device, events, default=False))
    work = events[on_device]
    stream, streams = pd.factorize(table.stream[work])
    device, devices = pd.factorize(table.device[work])
    pair, pairs = pd.factorize(device * max(len(streams), 1) + stream)
    codes[on_device] = len(threads) + 1 + pair
    several = bool(np.ptp(table.device[table.is_device])) if table.is_device.any() else False
    names = [
        f"{f'gpu {devices[key // len(streams)]} ' if several else ''}"
        f"stream {streams[key % len(streams)]}"
        for key in pairs.tolist()
    ]
    return codes, np.array([*threads, "", *names], dtype=object)


_MODULE = re.compile(r"^nn\.Module: ")
"""Names of the Python frames that stand for modules."""


def names_or_empty(dag: Dag, events: I64) -> Texts:
    """Name of each event, ``""`` for -1."""
    out = np.full(len(events), "", dtype=object)
    known = events >= 0
    out[known] = dag.events.names(events[known])
    return out


def spelling(dag: Dag) -> I64:
    """Place of each symbol in alphabetical order: sorts names independently of the file's order."""
    return alphabetical(dag.events.symbols.texts)[1]


def op_names(dag: Dag, events: I64) -> Texts:
    """Innermost operator or annotation that each event ran in, or was launched from.

    ``""`` for none. Replayed work ran in the operator of its capture, if that was added.
    """
    dag = dag.unrolled
    return names_or_empty(dag, innermost(dag, events, (EventKind.OP, EventKind.ANNOTATION)))


def gap_places(dag: Dag, tail: Rows, head: Rows) -> Texts:
    """Place of untraced code between two nodes of a thread: ``after aten::mm``, else ``before …``.

    ``""`` if the tail is no end, and the head no start. Findings, opportunities, comparisons and
    the page name code so; a step is one neighbour, whatever its number.
    """
    ended, begins = tail & 1 == 1, head & 1 == 0
    code, place = np.unique(dag.events.name[np.where(ended, tail, head) >> 1], return_inverse=True)
    texts = dag.events.symbols.array[code].tolist()
    names = np.array([*map(without_step_number, texts), ""], dtype=object)[place]
    places: Texts = np.where(ended, "after " + names, np.where(begins, "before " + names, ""))
    return places


def frames_at(dag: Dag, lane: Rows, ts_ns: I64, pattern: re.Pattern[str] | None = None) -> I64:
    """Innermost Python frame of a thread at a time, of those that match; -1 for none."""
    events = dag.events
    wanted = events.kind == EventKind.PYTHON
    if pattern is not None:
        wanted &= events.searched(pattern)
    return innermost_at(dag, np.flatnonzero(wanted), lane, ts_ns)[0]


def modules_at(dag: Dag, host: I64) -> I64:
    """Frame of the innermost module in which each host event began, -1 for none."""
    lane = gather(dag.events.lane.astype(np.int64), host)
    return frames_at(dag, lane, gather(dag.events.ts_ns, host, 0), _MODULE)


def innermost_at(dag: Dag, ranges: I64, lane: Rows, ts_ns: I64) -> tuple[I64, I64]:
    """Innermost of some ranges on a lane at a time, -1 for none, and the parent of each event.

    The parent is the range that encloses a range, -1 for none and for all other events.
    """
    events = dag.events
    parent = np.full(len(events), -1, dtype=np.int64)
    if not len(ranges):
        return np.full(len(lane), -1, dtype=np.int64), parent
    found = nest(events.lane[ranges], events.ts_ns[ranges], events.end_ns[ranges])
    parent[ranges] = gather(ranges, found.parent)
    owner = ranges[found.boundary >> 1]
    time = events.node_ts_ns[2 * owner + (found.boundary & 1)]
    # Right after the time: a range that begins there counts, one that ends there does not.
    position = last_before(events.lane[owner].astype(np.int64), time, lane, ts_ns + 1)
    return gather(ranges, gather(found.innermost, position)), parent
