"""From a file to a recording: bytes, scanner, one numbering, cleaning rules, the model's tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from htagraph.errors import QueryError, TraceFormatError
from htagraph.model.recording import STACKS, Origin, Recording
from htagraph.model.window import pair_of
from htagraph.readers.kineto.arguments import ArgsIndex
from htagraph.readers.kineto.categories import LAUNCH_FLOWS, is_plain
from htagraph.readers.kineto.chunks import ByteStream
from htagraph.readers.kineto.counters import counter_samples
from htagraph.readers.kineto.header import (
    MAX_TIME_NS,
    base_time_of,
    decoded,
    devices_of,
    rank_of,
    world_size_of,
)
from htagraph.readers.kineto.repairs import Defect, RepairLog

if TYPE_CHECKING:
    from htagraph.readers.kineto.compiled.scanner import Rules
    from htagraph.readers.kineto.parts import Part
    from htagraph.readers.kineto.worker import Worker

__all__ = ["EVERYTHING", "Asked", "load_file", "scanned"]

_THREADS = 2
_THREADS_FROM = 1 << 19  # bytes of a file that are worth a second thread
EVERYTHING = (-MAX_TIME_NS, MAX_TIME_NS)
"""The window that holds all times."""


@dataclass(frozen=True)
class Asked:
    """The events that were asked for; see `read_kineto`."""

    stacks: bool = False
    categories: Collection[str] | None = None
    window: tuple[int, int] | None = None
    n_threads: int | None = None

    def __post_init__(self) -> None:
        """Check the window."""
        if self.window is None:
            return
        hint = "give (start_ns, end_ns) with start_ns <= end_ns."
        start_ns, end_ns = pair_of(self.window, hint=hint)
        if not start_ns <= end_ns:  # also of what is no number
            raise QueryError("the window ends before it starts.", hint=hint)


@dataclass(frozen=True)
class Scanned:
    """The header of a scanned file, and the workers that hold its symbols and lanes."""

    metadata: Mapping[str, Any]
    workers: list[Worker]


def load_file(source: str | Path | bytes, asked: Asked) -> Recording:
    """The recording in a file.

    With a window the file is read twice, first for its base time, which may stand after the events.
    """
    from htagraph.readers.kineto.cleaning import cleaned  # noqa: PLC0415 - only for this kind of file
    from htagraph.readers.kineto.merging import Assembly  # noqa: PLC0415
    from htagraph.readers.kineto.tables import event_table  # noqa: PLC0415

    log, window, assembly = RepairLog(), EVERYTHING, Assembly()
    if asked.window is not None:
        header = scanned(
            ByteStream(source, RepairLog()),
            Asked(categories=()),
            window,
            RepairLog(),
            lambda _: None,
        )
        base_time_ns = base_time_of(header.metadata)
        start_ns, end_ns = (
            min(max(time_ns - base_time_ns, EVERYTHING[0]), EVERYTHING[1])
            for time_ns in asked.window
        )
        window = start_ns, end_ns
    stream = ByteStream(source, log, reports=True)
    file = scanned(stream, asked, window, log, assembly.add)
    if assembly.nonsense >= 0 and not assembly.has_events:
        message = "nothing in the event list is an event"
        raise TraceFormatError(
            message,
            path=stream.path,
            offset=assembly.nonsense,
            hint="an event is an object with `ph`.",
        )
    log.merge(assembly.repairs)
    columns = assembly.columns(file.workers)
    base_time_ns = base_time_of(file.metadata, log)
    plain = is_plain(columns.n_bytes)
    asked_window = None if asked.window is None else window
    columns = cleaned(columns, log, asked_window, asked.categories, base_time_ns)
    metadata_events = _metadata_events(assembly.metas, log)
    devices = devices_of(file.metadata)
    events = event_table(columns, metadata_events, base_time_ns, devices, is_plain=plain)
    source = source if isinstance(source, bytes) else Path(source)
    args = ArgsIndex(source, columns.rows["offset"], columns.rows["length"])
    if plain:
        samples, n_left_out = counter_samples(events, args)
        events = replace(events, samples=samples)
        columns.skipped |= {"counter value that is no number": n_left_out} if n_left_out else {}
    rank, rank_source = rank_of(file.metadata, stream.path, log)
    return Recording(
        events=events,
        rank=rank,
        rank_source=rank_source,
        world_size=world_size_of(file.metadata, log),
        repairs=log.repairs(),
        skipped=columns.skipped,
        n_bytes=columns.n_bytes,
        origin=Origin(source, base_time_ns, args, file.metadata),
    )


def _metadata_events(texts: list[bytes], log: RepairLog) -> Iterator[Mapping[str, Any]]:
    """Yield the events that name processes and threads."""
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
    asked: Asked,
    window: tuple[int, int],
    log: RepairLog,
    keep: Callable[[Part], None],
    *,
    notes_all: bool = False,
) -> Scanned:
    """Scan a file, and close it.

    Parameters
    ----------
    window : (int, int), unit=ns
        On the clock of the file, without its base time.
    keep : callable
        Called with each part of the event list, in order.
    notes_all : bool
        Whether a part holds the bytes of all events, not only of metadata events.

    Raises
    ------
    TraceFormatError
        If it has no event list.
    """
    with closing(stream):
        from htagraph.readers.kineto.document import Document  # noqa: PLC0415 - only for this kind of file
        from htagraph.readers.kineto.stream import PieceStream  # noqa: PLC0415
        from htagraph.readers.kineto.worker import Worker  # noqa: PLC0415

        known, rules = _rules(asked, window, notes_all=notes_all)
        n = asked.n_threads or (_n_threads() if stream.n_compressed >= _THREADS_FROM else 1)
        workers = [Worker(number, known, rules, stream.path) for number in range(n)]
        document = Document(PieceStream(stream), workers, log, keep)
        document.read()
    if not document.has_event_list:
        raise TraceFormatError(
            "this JSON holds no events (`traceEvents`)",
            path=stream.path,
            hint="is it a trace of torch.profiler?",
        )
    return Scanned(document.metadata, workers)


def _rules(asked: Asked, window: tuple[int, int], *, notes_all: bool) -> tuple[list[str], Rules]:
    """The symbols known beforehand, and what to do with those that are categories."""
    from htagraph.readers.kineto.compiled.scanner import (  # noqa: PLC0415
        KEEP,
        LEAVE_ALL,
        LEAVE_FLOWS,
        new_rules,
    )

    if asked.categories is None:
        treatment = {"": KEEP, STACKS: KEEP if asked.stacks else LEAVE_ALL} | dict.fromkeys(
            LAUNCH_FLOWS, LEAVE_FLOWS
        )
    else:
        treatment = (
            {"": LEAVE_ALL}
            | dict.fromkeys(asked.categories, KEEP)
            | dict.fromkeys(LAUNCH_FLOWS, LEAVE_ALL)
        )
        treatment |= {
            category: LEAVE_FLOWS for category in LAUNCH_FLOWS if category in asked.categories
        }
    rules = new_rules(len(treatment), notes_all=notes_all)
    rules.dropped[:] = list(treatment.values())
    others = KEEP if asked.categories is None else LEAVE_ALL
    return list(treatment), rules._replace(others=others, start_ns=window[0], end_ns=window[1])


def _n_threads() -> int:
    """How many threads to scan with."""
    return min(_THREADS, os.cpu_count() or 1)
