"""Groups files that were recorded together, by rank, process, time and steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from htagraph.readers.heads import TraceHead, read_heads

_CLOCKS_NS = 10_000_000_000
"""How far clocks of hosts may be apart (chosen); only for files that record different ranks."""


class Capture:
    """Files that were recorded together: one per rank, of one job and one time."""

    def __init__(self) -> None:
        self.heads: list[TraceHead] = []
        self.by_rank: dict[int, TraceHead] = {}
        self.processes: set[tuple[str, int]] = set()
        self.world_size = 0
        self.start_ns: int | None = None
        self.end_ns = 0
        self.in_doubt = False
        self._files: dict[object, list[TraceHead]] = {}
        self._hosts: dict[str, tuple[int, int]] = {}

    def add(self, head: TraceHead) -> None:
        """Add a file."""
        self.heads.append(head)
        self._files.setdefault(_writer(head), []).append(head)
        self.world_size = max(self.world_size, head.world_size or 0)
        if head.rank is not None:
            self.by_rank.setdefault(head.rank, head)
        if head.process:
            self.processes.add(head.process)
        if head.start_ns is None:
            return
        self.start_ns = (
            head.start_ns if self.start_ns is None else min(self.start_ns, head.start_ns)
        )
        self.end_ns = max(self.end_ns, end_ns_of(head))
        if head.host and head.end_ns is not None:
            start_ns, end_ns = self._hosts.get(head.host, (head.start_ns, head.end_ns))
            self._hosts[head.host] = min(start_ns, head.start_ns), max(end_ns, head.end_ns)

    @property
    def is_complete(self) -> bool:
        """Whether all ranks are here, as far as the files record how many there are."""
        return len(self.heads) >= max(self.world_size, max(self.by_rank, default=0) + 1)

    def has_copy(self, head: TraceHead) -> bool:
        """Whether a file is here already: no process records two captures at once."""
        return head.process is not None and any(
            head.written_ns == other.written_ns and _overlap(head, other)
            for other in self._files.get(_writer(head), [])
        )

    def can_hold(self, head: TraceHead, slack_ns: int) -> bool:
        """Whether a file can belong to the capture."""
        if self.has_copy(head):
            return True
        first = self.heads[0]
        says_rank = head.rank is not None and first.rank is not None
        sizes = self.world_size, head.world_size or 0
        is_full = bool(self.world_size) and len(self.heads) >= self.world_size
        if (
            (min(sizes) > 1 and sizes[0] != sizes[1])  # a world of 1 may be unaware of others
            or (head.rank is None and is_full)
            or head.rank in self.by_rank
            or (not says_rank and head.process in self.processes)
            or not _share_steps(head, first)
        ):
            return False
        return self._is_near(head, slack_ns if says_rank else 0)

    def _is_near(self, head: TraceHead, slack_ns: int) -> bool:
        """Whether a file was recorded at the time of the capture; true if that is unknown.

        Files of one host share a clock: they are no further apart than they are long.
        """
        if head.start_ns is None or self.start_ns is None:
            return True
        start_ns, end_ns = self._hosts.get(head.host, (self.start_ns, self.end_ns))
        if head.host in self._hosts and head.end_ns is not None:
            slack_ns = min(slack_ns, max(end_ns - start_ns, head.end_ns - head.start_ns))
        return max(head.start_ns - end_ns, start_ns - end_ns_of(head)) <= slack_ns


def grouped(heads: list[TraceHead]) -> list[Capture]:
    """Files by capture, in order of time."""
    if not _is_plainly_one(heads):
        heads = _in_time(_with_ends(heads))
    captures = _swept(heads)
    for several in _mixed(captures):
        captures = [one for one in captures if one not in several] + _told_apart(several)
    return sorted(captures, key=lambda capture: capture.start_ns or 0)


def _is_plainly_one(heads: Sequence[TraceHead]) -> bool:
    """Whether all files are different ranks of one job that began at one time."""
    starts = [head.start_ns for head in heads if head.start_ns is not None]
    return (
        len({head.rank for head in heads} - {None}) == len(heads) == len(starts)
        and max(starts) - min(starts) < _CLOCKS_NS
    )


def _with_ends(heads: Sequence[TraceHead]) -> list[TraceHead]:
    """The heads; gzip files without a time in their name are read to their ends."""
    unknown = [head.path for head in heads if head.end_ns is None and head.n_bytes]
    ended = dict(zip(unknown, read_heads(unknown, whole=True), strict=True))
    return [ended.get(head.path, head) for head in heads]


def _in_time(heads: Sequence[TraceHead]) -> list[TraceHead]:
    """The heads, at the times in their names if their contents overlap within one process.

    That happens if base times are lost, or in simulated traces.
    """
    pairs = (pairwise(_by_time(several)) for several in _by_writer(heads).values())
    if not any(
        _overlap(earlier, later) and earlier.written_ns != later.written_ns
        for several in pairs
        for earlier, later in several
    ):
        return list(heads)
    return [
        replace(
            head,
            start_ns=head.written_ns - (end_ns_of(head) - (head.start_ns or 0)),
            end_ns=head.written_ns,
        )
        if head.written_ns is not None
        else head
        for head in heads
    ]


def _swept(heads: Sequence[TraceHead]) -> list[Capture]:
    """Captures by one pass over the files in order of time, those with a rank first."""
    slack_ns = _slack_ns(heads)
    timed = [head for head in heads if head.start_ns is not None]
    captures: list[Capture] = []
    for several in (
        _by_time(head for head in timed if head.rank is not None),
        _by_time(head for head in timed if head.rank is None),
        [head for head in heads if head.start_ns is None],
    ):
        near = captures.copy()
        for head in several:
            if head.start_ns is not None:
                near = [one for one in near if one.end_ns + _CLOCKS_NS >= head.start_ns]
            capture = next((one for one in reversed(near) if one.can_hold(head, slack_ns)), None)
            if capture is None:
                capture = Capture()
                captures.append(capture)
                near.append(capture)
            capture.add(head)
    return captures


def _slack_ns(heads: Sequence[TraceHead]) -> int:
    """How far apart the files of a capture may be: less than the cycles of one process."""
    gaps = [
        (later.start_ns or 0) - end_ns_of(earlier)
        for several in _by_writer(heads).values()
        for earlier, later in pairwise(_by_time(several))
    ]
    return min([_CLOCKS_NS, *(gap // 2 for gap in gaps if gap > 0)])


def _writer(head: TraceHead) -> tuple[Path, int | None, tuple[str, int] | None]:
    return head.path.parent, head.rank, head.process


def _by_writer(heads: Sequence[TraceHead]) -> dict[object, list[TraceHead]]:
    found: dict[object, list[TraceHead]] = {}
    for head in heads:
        if head.start_ns is not None:
            found.setdefault(_writer(head), []).append(head)
    return found


def _by_time(heads: Iterable[TraceHead]) -> list[TraceHead]:
    return sorted(heads, key=lambda head: (head.start_ns or 0, head.written_ns or 0, head.path))


def _share_steps(head: TraceHead, other: TraceHead) -> bool:
    """Whether two files may have recorded the same steps."""
    if not (head.is_whole and other.is_whole and head.steps and other.steps):
        return True
    return bool(set(head.steps) & set(other.steps))


def _overlap(head: TraceHead, other: TraceHead) -> bool:
    if head.start_ns is None or other.start_ns is None:
        return False
    return head.start_ns <= end_ns_of(other) and other.start_ns <= end_ns_of(head)


def _mixed(captures: Sequence[Capture]) -> list[list[Capture]]:
    """Captures of several jobs at one time, whose ranks may be mixed up."""
    clusters: list[list[Capture]] = []
    near: list[list[Capture]] = []
    for capture in sorted(captures, key=lambda one: one.start_ns or 0):
        if not capture.by_rank:
            continue
        near = [some for some in near if max(one.end_ns for one in some) >= (capture.start_ns or 0)]
        several = next((some for some in near if any(_conflict(capture, one) for one in some)), [])
        if not several:
            clusters.append(several)
            near.append(several)
        several.append(capture)
    return [some for some in clusters if max(len(one.heads) for one in some) > 1 < len(some)]


def _conflict(capture: Capture, other: Capture) -> bool:
    """Whether a rank is in both captures at one time, and nothing else separates them."""
    if capture.world_size != other.world_size or not (
        (capture.start_ns or 0) <= other.end_ns and (other.start_ns or 0) <= capture.end_ns
    ):
        return False
    return any(
        _overlap(head, other.by_rank[rank]) and _share_steps(head, other.by_rank[rank])
        for rank, head in capture.by_rank.items()
        if rank in other.by_rank
    )


def _told_apart(several: Sequence[Capture]) -> list[Capture]:
    """Captures of several jobs at one time, by folder, else by host and process.

    Process ids of a job on one host are consecutive, so in their order a repeated rank starts the
    next job. That holds if every job is complete; if not, all are in doubt.
    """
    heads = [head for capture in several for head in capture.heads]
    by_folder: dict[Path, Capture] = {}
    for head in heads:
        by_folder.setdefault(head.path.parent, Capture()).add(head)
    folders = list(by_folder.values())
    if len(folders) > 1 and all(len(one.by_rank) == len(one.heads) > 1 for one in folders):
        return folders
    runs = [Capture()]
    for head in sorted(heads, key=lambda head: (head.host, head.pid)):
        if head.rank in runs[-1].by_rank:
            runs.append(Capture())
        runs[-1].add(head)
    if all(one.world_size and one.is_complete for one in runs):
        return runs
    for capture in several:
        capture.in_doubt = True
    return list(several)


def rank_of(head: TraceHead) -> int:
    """The rank of a file, -1 if unknown."""
    return -1 if head.rank is None else head.rank


def end_ns_of(head: TraceHead) -> int:
    """When a file's capture ended, or else began."""
    return head.end_ns if head.end_ns is not None else head.start_ns or 0
