"""The Kineto reader: bytes, scanner, one numbering, cleaning rules, the model's tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from htagraph.errors import TraceFormatError
from htagraph.model.arrays import I64
from htagraph.model.recording import STACKS, Origin, Recording
from htagraph.readers.byte_stream import ByteStream
from htagraph.readers.defects import Defect
from htagraph.readers.event_filter import EventFilter
from htagraph.readers.kineto.cleaning import cleaned
from htagraph.readers.kineto.compiled.scanner import (
    KEEP,
    LEAVE_ALL,
    LEAVE_FLOWS,
    Rules,
    new_rules,
)
from htagraph.readers.kineto.event_args import ArgsIndex
from htagraph.readers.kineto.event_kinds import LAUNCH_FLOWS, is_plain
from htagraph.readers.kineto.event_table import counter_samples, event_table
from htagraph.readers.kineto.header import (
    MAX_TIME_NS,
    base_time_of,
    decoded,
    devices_of,
    note_losses,
    rank_of,
    world_size_of,
)
from htagraph.readers.kineto.merging import Assembly, Columns
from htagraph.readers.kineto.pieces import PieceStream
from htagraph.readers.kineto.sampled_stacks import KEYS, with_sampled_stacks
from htagraph.readers.kineto.trace_document import Document
from htagraph.readers.kineto.worker import Part, Worker
from htagraph.readers.repair_log import RepairLog

_THREADS = 2
"""Scanning threads (chosen)."""

_THREADS_FROM = 1 << 19
"""File size in bytes from which a second thread pays (chosen)."""

EVERYTHING = (-MAX_TIME_NS, MAX_TIME_NS)
"""The window of all times."""

USER_RANGES = "user_annotation"
"""Category of ranges that programs name, including the profiler's steps."""

KNOWN_STACKS, KNOWN_USER_RANGES = 1, 2
"""Codes of categories in every worker that reads all of them."""


def read_kineto(
    source: str | Path | bytes,
    *,
    stacks: bool = False,
    categories: Collection[str] | None = None,
    window: tuple[int, int] | None = None,
) -> Recording:
    """The recording in a Kineto file, repaired where the file is broken; see `htagraph.load`.

    The file or content is JSON, or gzip of it, whatever its name.
    """
    return load_file(source, EventFilter(stacks, categories, window))


def load_file(
    source: str | Path | bytes, wanted: EventFilter, *, n_threads: int | None = None
) -> Recording:
    """The recording in a file.

    With a window the file is read twice, first for its base time, which may follow the events.
    """
    log, window = RepairLog(Defect), EVERYTHING
    if wanted.window is not None:
        stream, nothing = ByteStream(source), EventFilter(categories=())
        header = scanned(stream, nothing, EVERYTHING, RepairLog(Defect), lambda _: None)
        window = times_in_file(wanted.window, header)
    stream = ByteStream(source, log, reports=True)
    assembly = Assembly(stream.share)
    metadata = scanned(stream, wanted, window, log, assembly.add, n_threads=n_threads)
    if assembly.nonsense >= 0 and not assembly.has_events:
        raise TraceFormatError(
            "nothing in the event list is an event",
            path=stream.path,
            offset=assembly.nonsense,
            hint="an event is an object with `ph`.",
        )
    log.merge(assembly.repairs)
    found = Found(source, stream.path, assembly.columns(), assembly.metas, metadata)
    return recording_of(found, None if wanted.window is None else window, wanted.categories, log)


class Found(NamedTuple):
    """What was read of a file: columns of events, metadata events and the header."""

    source: str | Path | bytes
    path: Path | None
    columns: Columns
    metas: list[bytes]
    metadata: Mapping[str, Any]


def recording_of(
    found: Found,
    window: tuple[int, int] | None,
    categories: Collection[str] | None,
    log: RepairLog,
) -> Recording:
    """The recording of what was read; uses up its columns. `window` is on the clock of the file."""
    metadata, columns = found.metadata, found.columns
    base_time_ns = base_time_of(metadata, log)
    note_losses(metadata, log)
    plain = is_plain(columns.n_bytes)
    columns = cleaned(columns, log, window, categories, base_time_ns)
    threads = with_sampled_stacks(columns, metadata, log, window, categories, is_plain=plain)
    metadata = {key: value for key, value in metadata.items() if key not in KEYS}
    metadata_events = chain(threads, _metadata_events(found.metas, log))
    devices = devices_of(metadata)
    events = event_table(columns, metadata_events, base_time_ns, devices, is_plain=plain)
    source = found.source if isinstance(found.source, bytes) else Path(found.source)
    args = ArgsIndex(source, columns.rows["offset"], columns.rows["length"])
    if plain:
        samples, n_left_out = counter_samples(events, args)
        events = replace(events, samples=samples)
        columns.skipped |= {"counter value that is no number": n_left_out} if n_left_out else {}
    rank, rank_source = rank_of(metadata, found.path, log)
    return Recording(
        events=events,
        rank=rank,
        rank_source=rank_source,
        world_size=world_size_of(metadata, log),
        repairs=log.repairs(),
        skipped=columns.skipped,
        n_bytes=columns.n_bytes,
        origin=Origin(source, base_time_ns, args, metadata),
    )


def times_in_file(window: tuple[int, int], metadata: Mapping[str, Any]) -> tuple[int, int]:
    """A window on the clock of a file with this header."""
    base_time_ns = base_time_of(metadata)
    start_ns, end_ns = (
        min(max(time_ns - base_time_ns, EVERYTHING[0]), EVERYTHING[1]) for time_ns in window
    )
    return start_ns, end_ns


def _metadata_events(texts: list[bytes], log: RepairLog) -> Iterator[Mapping[str, Any]]:
    for text in texts:
        try:
            event = decoded(text)
        except ValueError:
            event = None
        if isinstance(event, dict) and isinstance(event.get("name"), str):
            yield event
        else:
            log.add(Defect.BAD_METADATA)


def scanned(
    stream: ByteStream,
    wanted: EventFilter,
    window: tuple[int, int],
    log: RepairLog,
    keep: Callable[[Part], bool | None],
    *,
    notes_all: bool = False,
    n_threads: int | None = None,
    since: tuple[int, I64] | None = None,
) -> Mapping[str, Any]:
    """Scan a file, and close it; its header.

    `window`: on the clock of the file, without its base time. `keep`, `since`: as of `Document`.
    `notes_all`: whether a part holds the bytes of all events, not only of metadata events.
    """
    with closing(stream):
        worth_threads = stream.n_compressed >= _THREADS_FROM
        n = n_threads or (min(_THREADS, os.cpu_count() or 1) if worth_threads else 1)
        known, rules = _rules(wanted, window, notes_all=notes_all)

        def workers() -> list[Worker]:
            return [Worker(known, rules, stream.path) for _ in range(n)]

        document = Document(PieceStream(stream), workers, log, keep, since)
        document.read()
    if not document.has_event_list:
        raise TraceFormatError(
            "this JSON has no event list (`traceEvents`)",
            path=stream.path,
            hint="is it a trace of torch.profiler?",
        )
    return document.metadata


def _rules(
    wanted: EventFilter, window: tuple[int, int], *, notes_all: bool
) -> tuple[list[str], Rules]:
    """The symbols known beforehand, and what to do with those that are categories."""
    if wanted.categories is None:
        treatment = {"": KEEP, STACKS: KEEP if wanted.stacks else LEAVE_ALL, USER_RANGES: KEEP}
        treatment |= dict.fromkeys(LAUNCH_FLOWS, LEAVE_FLOWS)
    else:
        treatment = {"": LEAVE_ALL} | dict.fromkeys(wanted.categories, KEEP)
        treatment |= {
            category: LEAVE_FLOWS if category in wanted.categories else LEAVE_ALL
            for category in LAUNCH_FLOWS
        }
    rules = new_rules(len(treatment), notes_all=notes_all)
    rules.dropped[:] = list(treatment.values())
    others = KEEP if wanted.categories is None else LEAVE_ALL
    return list(treatment), rules._replace(others=others, start_ns=window[0], end_ns=window[1])
