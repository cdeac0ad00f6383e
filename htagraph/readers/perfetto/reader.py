"""The Perfetto reader: a file in, a recording out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

from htagraph.errors import TraceError, TraceFormatError
from htagraph.model.events import EventTable
from htagraph.model.recording import STACKS, Origin, Recording
from htagraph.readers.event_filter import EventFilter, filtered
from htagraph.readers.graph_checks import check_events
from htagraph.readers.kineto.header import rank_of, world_size_of
from htagraph.readers.perfetto.clock_snapshots import Clocks
from htagraph.readers.perfetto.defects import Defect
from htagraph.readers.perfetto.foreign_events import foreign_events
from htagraph.readers.perfetto.htagraph_events import WrittenRank, htagraph_events, supplements
from htagraph.readers.perfetto.packet_sequences import Sequences, Symbols
from htagraph.readers.perfetto.packets import scanned
from htagraph.readers.perfetto.scan import Scan
from htagraph.readers.perfetto.trace_content import TraceContent, Tracks, find_slices
from htagraph.readers.repair_log import RepairLog
from htagraph.readers.storage import file_and_part, rank_in_name

_MOST_NAMED = 4
"""Kinds of packets that an error lists (chosen)."""


def read_perfetto(
    source: str | Path | bytes,
    *,
    stacks: bool = False,
    categories: Collection[str] | None = None,
    window: tuple[int, int] | None = None,
) -> Recording:
    """The recording in a Perfetto trace, plain or gzip; see `htagraph.load`.

    Of a file by htagraph with several ranks, a path below it names one: ``job.pftrace/rank-1``. Of
    a file with several runs, the first; the events of others are counted in `skipped`.
    """
    wanted = EventFilter(stacks, categories, window)
    part, file, path = "", source, None
    if not isinstance(source, bytes):
        file, part = file_and_part(Path(source))
        path = file
    found, container = _content(file)
    if not len(found.slices) and not len(found.slices.sample_packet):
        raise _nothing(found.scan, path)
    written = [own for own in supplements(found) if own.facts["n_events"]]
    own = _chosen(written, part, path)
    events = None
    if own is not None:
        events = _restored(found, own, [one for one in written if one is not own])
    if events is None:
        own, events = None, foreign_events(found)
    events = filtered(events, found.skipped, wanted)
    metadata = own.facts.get("metadata", {}) if own else {}
    rank, rank_source = _rank(own, metadata, path)
    return Recording(
        events=events,
        rank=rank,
        rank_source=rank_source,
        world_size=world_size_of(metadata),
        repairs=container + found.log.repairs(),
        skipped=found.skipped,
        origin=Origin(
            source if isinstance(source, bytes) else Path(source),
            _integer(own.facts.get("base_time_ns")) if own else 0,
            None,
            metadata,
        ),
    )


def read_opening(file: Path) -> tuple[dict[str, int], list[str]]:
    """Where a file by htagraph opens, as `DrawnPath.opening` says, and its findings."""
    for own in supplements(_content(file)[0]):
        opens, findings = own.facts.get("opens_at"), own.facts.get("findings")
        if isinstance(opens, dict) and isinstance(findings, list):
            found = {name: at for name, at in opens.items() if isinstance(at, int)}
            return found, [text for text in findings if isinstance(text, str)]
    return {}, []


def _content(source: str | Path | bytes) -> tuple[TraceContent, tuple[Any, ...]]:
    log, symbols, skipped = RepairLog(Defect), Symbols(), dict[str, int]()
    file = scanned(source, log)
    sequences = Sequences(file, log, symbols)
    clocks = Clocks(sequences.specials, file.scan)
    slices = find_slices(file.scan, sequences, clocks, log, skipped)
    content = TraceContent(
        file.scan,
        sequences,
        symbols,
        Tracks(sequences.specials),
        slices,
        clocks.day_ns(),
        log,
        skipped,
    )
    return content, file.container.repairs()


def _restored(
    found: TraceContent, own: WrittenRank, others: list[WrittenRank]
) -> EventTable | None:
    """The events of a rank as htagraph wrote them; None if the file was changed since."""
    skipped = dict(found.skipped)
    try:
        events = htagraph_events(found, own, others)
        check_events(events)
    except ValueError:
        found.log.add(Defect.SUPPLEMENT)
        found.skipped.clear()
        found.skipped.update(skipped)
        return None
    found.skip(STACKS, _integer(own.facts.get("n_unread_stacks")))
    return events


def _chosen(written: list[WrittenRank], part: str, path: Path | None) -> WrittenRank | None:
    """The requested rank, or the only one; None in a trace by another tool."""
    ranks = list(dict.fromkeys(own.rank for own in written))
    name = path.name if path else "job.pftrace"
    listed = ", ".join(f"{name}/rank-{rank}" for rank in ranks)
    if part:
        wanted = rank_in_name(Path(part))
        found = next((own for own in written if own.rank == wanted), None)
        if found is None:
            hint = f"there is {listed}." if listed else "it has no ranks of htagraph."
            raise TraceError(f"this trace has no {part}.", path=path, hint=hint)
        return found
    if len(ranks) > 1:
        raise TraceError(
            f"this trace holds {len(ranks)} ranks, and none is named.",
            path=path,
            hint=f"name one: {listed}.",
        )
    return written[0] if written else None


def _rank(own: WrittenRank | None, metadata: dict[str, Any], path: Path | None) -> tuple[int, str]:
    if own is None:
        return rank_of(metadata, path)
    rank, source = rank_of(metadata, Path(str(own.facts.get("file"))))
    written = max(own.rank, 0)
    return (rank, source) if written == rank else (written, "given")


def _integer(value: object) -> int:
    """An integer of a supplement; 0 for anything else."""
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else 0


def _nothing(scan: Scan, path: Path | None) -> TraceFormatError:
    """Error for a trace without events, with what it holds instead."""
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2  # noqa: PLC0415

    names = perfetto_trace_pb2.TracePacket.DESCRIPTOR.fields_by_number
    counts = Counter(scan.other[scan.other > 0].tolist())
    listed = [
        f"{n:,} packets of {names[field].name if field in names else f'field {field}'}"
        for field, n in counts.most_common(_MOST_NAMED)
    ]
    what = f"this Perfetto trace holds no track events, but {', '.join(listed)}"
    return TraceFormatError(
        what if listed else "this Perfetto trace holds no events",
        path=path,
        hint="record slices on tracks (track_event); system traces (ftrace) have none.",
    )
