"""Dumps of the Flight Recorder: one file per rank, as JSON or as a pickle."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

from htagraph.errors import TraceFormatError, TraceLimitError
from htagraph.readers.byte_stream import content_of
from htagraph.readers.formats import FLIGHT_RECORDER, other_format
from htagraph.readers.plain_pickle import plain_data
from htagraph.readers.storage import (
    files_within,
    is_folder,
    is_remote,
    path_of,
    rank_in_name,
    url_of,
)

_NUMBER_IN_NAME = re.compile(r"(\d{1,9})(?:\.(?:json|pickle|pkl|bin|gz))*$")
"""The rank at the end of a name, as ``nccl_trace_rank_3`` or a prefix of the user's."""
_PEERS = re.compile(r"(\d{1,9})\s*(->|<-)\s*(\d{1,9})")
"""Source and destination of ``send 0->1``, or destination and source of ``recv 1<-0``."""
_RANK = re.compile(r"\d{1,9}")
_MAX_DUMPS = 1 << 20
"""Files at most: a job has no more ranks. A limit of memory."""

_LARGEST = 2**62
"""Numbers beyond it are damage: times since 1970 are smaller, and differences fit 64 bits."""
_N_STACKS = 256
"""Last entries of a dump whose stacks are kept (chosen): what a rank waits in is among them. Only
the memory for thousands of ranks changes with it."""


class Entry(NamedTuple):
    """One collective, send or receive that a rank entered."""

    group: str
    description: str
    seq: int  # Its number among the collectives of the group, from 1
    backend: str
    operation: str
    # Elements that every member gives, or of a gather by all gets; -1 if members may differ
    n_elements: int
    dtype: str
    peers: tuple[int, int] | None  # Source and destination in the group, of a send or receive
    created_ns: int
    completed_ns: int  # When the backend noticed it; 0 if it did not, or notices nothing
    state: str
    is_retired: bool
    timeout_ns: int
    # Stack of the caller, innermost first; empty in JSON, and of entries long before the end
    frames: tuple[str, ...]


@dataclass(frozen=True)
class Dump:
    """What one rank wrote."""

    path: Path
    rank: int
    # Ranks of each group that the dump names. gloo names none: it keeps only the last group under
    # an empty name, with ranks counted in the group.
    members: Mapping[str, tuple[int, ...]]
    entries: Sequence[Entry]
    written_ns: int  # When the file was written, 0 if unknown: for a copy, when it was copied
    is_whole: bool  # Whether it begins with the first entry: the recorder keeps the last ones


def find_dumps(where: str | Path | Sequence[str | Path]) -> list[Path]:
    """The dumps of a folder with its subfolders, or among some files."""
    given = [where] if isinstance(where, str | Path) else list(where)
    found: list[Path] = []
    for path in map(path_of, given):
        files = files_within(path) if is_folder(path) else [path]
        found += [file for file in files if _is_dump(file)]
    if not found:
        raise TraceFormatError(
            "no dumps of the Flight Recorder.",
            path=url_of(str(given[0])),
            hint="set TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1 to get them.",
        )
    if len(found) > _MAX_DUMPS:
        raise TraceLimitError(f"{len(found):,} dumps.", hint="give the folder of one job.")
    return sorted(set(found))


def _is_dump(path: Path) -> bool:
    found = other_format(path)
    return found is not None and found.name == FLIGHT_RECORDER


def read_dump(path: Path) -> Dump:
    """A dump, of the rank in its file's name. A pickle is read without running what it names."""
    content = content_of(path)
    try:
        is_json = content.lstrip()[:1] == b"{"
        document: Any = json.loads(content) if is_json else plain_data(content)
        has_entries = "entries" in document or "pg_config" not in document
        raw = list(document["entries"]) if has_entries else []
        n_old = len(raw) - _N_STACKS
        entries = [_entry(one, has_stack=at >= n_old) for at, one in enumerate(raw)]
        is_whole = not raw or _whole(raw[0].get("record_id")) == 0
        members = _members(document.get("pg_config") or {})
    except TraceFormatError as exc:
        raise TraceFormatError(exc.message, path=path, hint=exc.hint) from exc
    except (
        ArithmeticError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
    ) as exc:
        raise TraceFormatError(
            "the dump is damaged, or of an unknown version.",
            path=path,
            hint="it may have been cut off: copy the file again.",
        ) from exc
    rank = _rank_of(path)
    written_ns = 0 if is_remote(path) else path.stat().st_mtime_ns
    return Dump(path, rank, members, entries, written_ns, is_whole)


def _rank_of(path: Path) -> int:
    found = rank_in_name(path)
    if found is not None:
        return found
    if (match := _NUMBER_IN_NAME.search(path.name)) is None:
        raise TraceFormatError(
            "the name of this dump has no rank.",
            path=path,
            hint="name dumps by their rank, as in nccl_trace_rank_3.",
        )
    return int(match[1])


def _members(groups: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Ranks of groups by name; lists of ranks are text in a dump."""
    found = {}
    for name, group in groups.items():
        ranks = group["ranks"]
        read = _RANK.findall(ranks) if isinstance(ranks, str) else ranks
        found[str(name)] = tuple(sorted({_whole(rank) for rank in read}))
    return found


def _entry(raw: Mapping[str, Any], *, has_stack: bool) -> Entry:
    """An entry of a dump, whose numbers may be text, and whose absent times are None or 0."""
    backend, _, name = _text(raw["profiling_name"]).rpartition(":")
    operation, _, peers = name.partition(" ")
    is_p2p = bool(raw.get("is_p2p"))
    group, description = raw["process_group"]
    by_output = operation in _BY_OUTPUT
    sizes = raw["output_sizes" if by_output else "input_sizes"] or ()
    dtypes = raw.get("output_dtypes" if by_output else "input_dtypes") or ()
    return Entry(
        _text(group),
        _text(description),
        _whole(raw["p2p_seq_id" if is_p2p else "collective_seq_id"]),
        backend,
        operation,
        -1
        if operation in _UNEVEN
        else sum(reduce(lambda n, one: _whole(n * _whole(one)), size, 1) for size in sizes),
        ", ".join(dict.fromkeys(map(_text, dtypes))),
        _peers(peers) if is_p2p else None,
        _whole(raw["time_created_ns"]),
        _whole(raw.get("time_discovered_completed_ns")),
        _text(raw.get("state", "")),
        bool(raw.get("retired")),
        _whole(raw.get("timeout_ms")) * 1_000_000,
        tuple(_frame(one) for one in raw.get("frames") or ()) if has_stack else (),
    )


_BY_OUTPUT = ("scatter", "all_gather")
"""Operations of which members get as much each, though they may give other numbers of elements."""
_UNEVEN = frozenset(
    (
        *("all_to_all", "all_to_all_single", "all_to_all_v_single"),
        *("all_gather_v", "reduce_scatter_v", "send", "recv", "coalesced"),
        *("_broadcast_oop", "_reduce_oop", "ALLGATHER_coalesced", "REDUCE_SCATTER_coalesced"),
    )
)
"""Operations whose members may give different numbers of elements."""


def _peers(text: str) -> tuple[int, int]:
    """Source and destination; -1, -1 if not recorded."""
    found = _PEERS.search(text)
    if found is None:
        return -1, -1
    first, second = int(found[1]), int(found[3])
    return (first, second) if found[2] == "->" else (second, first)


def _whole(value: Any) -> int:  # noqa: ANN401  a number, its text, or None
    number = int(value or 0)
    if abs(number) > _LARGEST:
        raise ValueError(f"{number} is too large")
    return number


def _text(value: Any) -> str:  # noqa: ANN401  text or a number: of a list, text may be endless
    if not isinstance(value, str | int | float):
        raise TypeError
    return str(value)


def _frame(frame: Mapping[str, Any]) -> str:
    return f"{_text(frame['filename'])}:{_text(frame['line'])} {_text(frame['name'])}"
