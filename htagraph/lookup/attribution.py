"""Which operator, annotation and track an event belongs to."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from htagraph.algorithms.ancestors import nearest
from htagraph.algorithms.codes import distinct
from htagraph.algorithms.gather import gather
from htagraph.model.arrays import I64, Bools, Rows, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind, among

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
    matches = dag.events.named(dag.events.symbols.searched(pattern))
    return under(dag, events, matches & dag.events.is_host)


def track_labels(dag: Dag, events: Rows) -> Texts:
    """Label of the track of each event: ``stream 7``, or the thread id of host events.

    With several devices, streams are named with theirs: ``gpu 0 stream 7``.
    """
    codes, texts = track_codes(dag, events)
    labels: Texts = texts[codes]
    return labels


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
