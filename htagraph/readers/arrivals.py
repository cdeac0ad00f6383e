"""Trace files that arrive in a folder, each once it is whole; and those recorded together."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

from htagraph.errors import TraceError
from htagraph.model.recording import DamageKind
from htagraph.readers.byte_stream import ByteStream, first_bytes
from htagraph.readers.defects import Defect
from htagraph.readers.discover import TRACE_SUFFIXES, rank_paths
from htagraph.readers.heads import TraceHead, read_heads
from htagraph.readers.recorded_together import grouped
from htagraph.readers.repair_log import RepairLog
from htagraph.readers.storage import SQLITE, file_of, files_within

SETTLED_S = 2.0
"""How long a file has not changed before it is read: a writer of a file that is not whole is rarely
silent as long. Chosen: what is cut off is told by its content all the same."""

_BLOCK = 1 << 20
"""Decompressed bytes read at once: chosen."""

_END = 4_096
"""Bytes in which the last bracket of a trace is, after it only white space: chosen."""


class Sign(NamedTuple):
    """What changes whenever a file does."""

    n_bytes: int
    changed_ns: int


@dataclass
class Arrivals:
    """The files of a folder that are not known yet. Only those are held in memory."""

    folder: Path
    known: set[Sign] = field(default_factory=set)  # What was reported, or is no trace
    _since: dict[Path, tuple[Sign, float]] = field(default_factory=dict)  # As found, and when
    _has_end: dict[tuple[Path, Sign], bool] = field(default_factory=dict)

    @property
    def changing(self) -> list[Path]:
        """Files that may still grow, or that were not reported yet; not those that are cut off."""
        found = self._since.items()
        return [path for path, (sign, _) in found if self._has_end.get((path, sign), True)]

    def sign(self, path: Path) -> Sign:
        """What a file was when it was found."""
        return self._since[path][0]

    def cut_off(self, path: Path) -> None:
        """Leave a file alone until it changes: its end is missing."""
        self._has_end[path, self.sign(path)] = False

    def whole(self) -> list[Path]:
        """The new files that have settled, and are whole from their first byte to their end."""
        now_s, found = time.monotonic(), {}
        for path in files_within(self.folder):
            if path.name.startswith(".") or not path.name.endswith(TRACE_SUFFIXES):
                continue
            with suppress(OSError):  # it was renamed meanwhile
                state = path.stat()
                sign = Sign(state.st_size, state.st_mtime_ns)
                if sign not in self.known:
                    before = self._since.get(path)
                    found[path] = before if before and before[0] == sign else (sign, now_s)
        self._since, checked = found, self._has_end
        self._has_end = {
            (path, sign): checked[path, sign] if (path, sign) in checked else has_end(path)
            for path, (sign, since_s) in found.items()
            if now_s - since_s >= SETTLED_S
        }
        return [path for (path, _), has in self._has_end.items() if has]


def has_end(path: Path) -> bool:
    """Whether a file decompresses to its end, and that is the end of a JSON document."""
    if first_bytes(path, len(SQLITE)) == SQLITE:
        return True
    log, end = RepairLog(Defect), b""
    try:
        with closing(ByteStream(path, log)) as stream:
            while block := stream.read(_BLOCK):
                end = (end + block)[-_END:]
    except (TraceError, OSError):
        return False
    is_cut = any(repair.damage == DamageKind.CUT_FILE for repair in log.repairs())
    return not is_cut and end.rstrip().endswith((b"}", b"]"))


class Together(NamedTuple):
    """Files that were recorded together: one trace, or the ranks of a job."""

    paths: list[Path]
    start_ns: int
    is_complete: bool  # All ranks are here, as far as the files tell

    @classmethod
    def of(cls, heads: list[TraceHead], *, is_complete: bool = True) -> Self:
        """The files with these heads, in the order of their ranks."""
        ordered = sorted(heads, key=lambda head: (head.rank or 0, head.path))
        return cls([head.path for head in ordered], ordered[0].start_ns or 0, is_complete)

    @property
    def files(self) -> list[Path]:
        """The files: one may hold several ranks."""
        return list(dict.fromkeys(map(file_of, self.paths)))


def together(files: list[Path]) -> tuple[list[Together], list[Path]]:
    """Files by capture, in order of time, and those that are no traces.

    Only files that name their rank are taken as parts of a job: of the others, nothing tells which
    is still to come.
    """
    heads = read_heads([rank for file in files for rank in rank_paths(file)])
    traces = [head for head in heads if not head.foreign]
    ranks = [head for head in traces if head.rank is not None]
    found = [Together.of([head]) for head in traces if head.rank is None]
    for one in grouped(ranks) if ranks else []:
        # Nothing tells to which of several jobs they belong, or which of two is a copy.
        are_apart = one.in_doubt or len(one.by_rank) < len(one.heads)
        parts = [[head] for head in one.heads] if are_apart else [one.heads]
        found += [Together.of(part, is_complete=one.is_complete) for part in parts]
    found.sort(key=lambda run: run.start_ns)
    return found, [file_of(head.path) for head in heads if head.foreign]
