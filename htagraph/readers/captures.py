"""Captures: which files of a folder were recorded together, and which capture is meant.

`tensorboard_trace_handler` writes one file per rank and cycle into one folder, run after run. Files
are of one capture if their ranks and processes differ, their world sizes and steps agree, and they
were recorded at one time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pandas as pd

from htagraph.errors import CaptureNotChosenError, QueryError, TraceFormatError
from htagraph.model.frames import CAPTURES
from htagraph.model.units import human_count, human_duration, human_size, human_time
from htagraph.readers.discover import find_traces
from htagraph.readers.heads import TraceHead, read_heads

__all__ = [
    "CaptureName",
    "captures_in_words",
    "choose_capture",
    "discover",
    "files_in_words",
]

CaptureName = int | Literal["latest"]
"""Which capture is meant: its number, or the latest complete one."""

_CLOCKS_NS = 10_000_000_000
"""By how much clocks of hosts may differ; only for files that say that they are different ranks."""

_N_LISTED = 20


class _Capture:
    """Files that were recorded together."""

    def __init__(self, heads: Iterable[TraceHead] = ()) -> None:
        self.heads: list[TraceHead] = []
        self.by_rank: dict[int, TraceHead] = {}
        self.processes: set[tuple[str, int]] = set()
        self.world_size = 0
        self.start_ns: int | None = None
        self.end_ns = 0
        self.in_doubt = False
        self._files: dict[object, list[TraceHead]] = {}
        self._hosts: dict[str, tuple[int, int]] = {}
        for head in heads:
            self.add(head)

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
        self.end_ns = max(self.end_ns, _end_ns(head))
        if head.host and head.end_ns is not None:
            start_ns, end_ns = self._hosts.get(head.host, (head.start_ns, head.end_ns))
            self._hosts[head.host] = min(start_ns, head.start_ns), max(end_ns, head.end_ns)

    @property
    def is_complete(self) -> bool:
        """All ranks are there, as far as the files say how many there are."""
        return len(self.heads) >= max(self.world_size, max(self.by_rank, default=0) + 1)

    def has_copy(self, head: TraceHead) -> bool:
        """Whether a file is there already: no process records two things at once."""
        return head.process is not None and any(
            head.written_ns == other.written_ns and _overlap(head, other)
            for other in self._files.get(_writer(head), [])
        )

    def can_hold(self, head: TraceHead, slack_ns: int) -> bool:
        """Whether a file can be of the capture."""
        if self.has_copy(head):
            return True
        first = self.heads[0]
        says_rank = head.rank is not None and first.rank is not None
        is_full = bool(self.world_size) and len(self.heads) >= self.world_size
        if (
            _are_different_sizes(self.world_size, head.world_size or 0)
            or (head.rank is None and is_full)
            or head.rank in self.by_rank
            or (not says_rank and head.process in self.processes)
            or not _share_steps(head, first)
        ):
            return False
        return self._is_near(head, slack_ns if says_rank else 0)

    def _is_near(self, head: TraceHead, slack_ns: int) -> bool:
        """Whether a file was recorded at the time of the capture; true where that is not known.

        Files of one host share a clock: they are no further apart than they are long.
        """
        if head.start_ns is None or self.start_ns is None:
            return True
        start_ns, end_ns = self._hosts.get(head.host, (self.start_ns, self.end_ns))
        if head.host in self._hosts and head.end_ns is not None:
            slack_ns = min(slack_ns, max(end_ns - start_ns, head.end_ns - head.start_ns))
        return max(head.start_ns - end_ns, start_ns - _end_ns(head)) <= slack_ns


def discover(where: str | Path | Iterable[str | Path]) -> pd.DataFrame:
    """The captures in a folder: one row per file, found from its first and last bytes.

    Parameters
    ----------
    where : str, Path, or iterable of them
        A folder (searched with its subfolders), a glob, or files.

    Returns
    -------
    DataFrame, schema `frames.CAPTURES`
        In order of time. Files that are no traces come last, with capture 0 and a note.

    Raises
    ------
    TraceFormatError
        If there is no trace.
    """
    heads = read_heads(find_traces(where))
    traces = [head for head in heads if not head.foreign]
    others = [head for head in heads if head.foreign]
    if not traces:
        said = ", ".join(f"{head.path.name} ({head.foreign})" for head in others[:_N_LISTED])
        raise TraceFormatError(
            "no traces found.", path=_named(where), hint=f"what is here is none: {said}."
        )
    captures = _grouped(traces)
    rows = [
        _row(head, number, capture)
        for number, capture in enumerate(captures, start=1)
        for head in sorted(capture.heads, key=lambda head: (_rank(head), head.path))
    ]
    rows += [_row(head, 0, None) for head in others]
    return CAPTURES.frame({name: [row[name] for row in rows] for name in CAPTURES.columns})


def choose_capture(
    captures: pd.DataFrame, where: object, capture: CaptureName = "latest"
) -> tuple[list[Path], str]:
    """The files of one capture, and what to say about the choice; nothing where there is none.

    Parameters
    ----------
    captures : DataFrame, schema `frames.CAPTURES`
    where : object
        Where they were found, for messages.
    capture : int or "latest"
        Its number; by default the latest complete one.

    Raises
    ------
    CaptureNotChosenError
        If the captures are of unrelated runs, or nothing tells which file is of which.
    QueryError
        If there is no such capture.
    """
    traces = captures[captures["capture"] > 0]
    found = {number: traces[traces["capture"] == number] for number in _numbers(traces)}
    if capture != "latest":
        if capture not in found:
            raise QueryError(
                f"no capture {capture!r} in {_named(where)}.",
                hint=f"there are {len(found)}: 1 to {len(found)}; `latest` is the latest complete.",
            )
        chosen, said = capture, ""
    elif len(found) == 1:
        chosen, said = next(iter(found)), ""
    else:
        chosen = _latest(found, captures, where)
        said = _said(found, chosen, where)
    if found[chosen]["note"].astype(bool).any():
        raise CaptureNotChosenError(
            f"{_named(where)}: captures of several jobs overlap, and nothing says which rank is "
            "of which.",
            listing=captures_in_words(captures),
            hint="put each job into a folder of its own, or list the files.",
        )
    return _paths(found[chosen]), said


def _numbers(traces: pd.DataFrame) -> list[int]:
    return sorted(set(traces["capture"].tolist()))


def _paths(rows: pd.DataFrame) -> list[Path]:
    """The files of a capture; of a process that says no rank, without copies."""
    is_copy = rows.duplicated(["host", "pid", "start_ns"]) & (rows["pid"] >= 0) & (rows["rank"] < 0)
    return [Path(path) for path in rows.loc[~is_copy, "path"]]


def captures_in_words(captures: pd.DataFrame) -> str:
    """Captures as lines of text, one each.

    Parameters
    ----------
    captures : DataFrame, schema `frames.CAPTURES`
    """
    found = list(captures[captures["capture"] > 0].groupby("capture"))
    lines = [("capture", "ranks", "steps", "time (UTC)", "length", "size", "first file")]
    root = _root(captures)
    for number, rows in found[-_N_LISTED:]:
        n_ranks, world_size = len(rows), int(rows["world_size"].max())
        first = rows.iloc[0]
        end_ns = int((rows["start_ns"] + rows["dur_ns"]).max())
        lines.append(
            (
                str(number),
                f"{n_ranks} of {world_size}" if world_size else str(n_ranks),
                *_time_in_words(first["steps"], int(rows["start_ns"].min()), end_ns),
                human_size(int(rows["n_bytes"].sum())),
                os.path.relpath(first["path"], root),
            )
        )
    text = _aligned(lines)
    if len(found) > _N_LISTED:
        text.insert(1, f"… {len(found) - _N_LISTED:,} earlier ones: hg.discover lists them")
    return "\n".join(text)


def files_in_words(captures: pd.DataFrame) -> str:
    """The files of captures as lines of text, one each.

    Parameters
    ----------
    captures : DataFrame, schema `frames.CAPTURES`
    """
    root = _root(captures)
    lines = [("capture", "rank", "steps", "time (UTC)", "length", "size", "file", "")]
    for row in captures.to_dict("records"):
        end_ns = row["start_ns"] + row["dur_ns"]
        lines.append(
            (
                str(row["capture"]) if row["capture"] else "-",
                str(row["rank"]) if row["rank"] >= 0 else "-",
                *_time_in_words(row["steps"], row["start_ns"], end_ns),
                human_size(row["n_bytes"]),
                os.path.relpath(row["path"], root),
                row["note"] and f"({row['note']})",
            )
        )
    return "\n".join(_aligned(lines))


def _time_in_words(steps: str, start_ns: int, end_ns: int) -> tuple[str, str, str]:
    """Steps, start and length."""
    length = human_duration(end_ns - start_ns) if end_ns > start_ns else "-"
    return steps or "-", human_time(start_ns), length


def _root(captures: pd.DataFrame) -> str:
    """The folder that all files are in."""
    return os.path.commonpath([Path(path).parent.absolute() for path in captures["path"]])


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines, columns under each other."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _named(where: object) -> str:
    return str(where) if isinstance(where, str | Path) else "the list of files"


def _rank(head: TraceHead) -> int:
    return -1 if head.rank is None else head.rank


def _end_ns(head: TraceHead) -> int:
    """When a file's capture ended, else when it began."""
    return head.end_ns if head.end_ns is not None else head.start_ns or 0


def _row(head: TraceHead, number: int, capture: _Capture | None) -> dict[str, object]:
    """A row of `frames.CAPTURES`."""
    return {
        "capture": number,
        "rank": _rank(head),
        "world_size": head.world_size or 0,
        "steps": head.steps_in_words,
        "start_ns": head.start_ns or 0,
        "dur_ns": max(_end_ns(head) - (head.start_ns or 0), 0),
        "n_bytes": head.n_bytes,
        "host": head.host,
        "pid": head.pid,
        "is_complete": capture is not None and capture.is_complete,
        "path": str(head.path),
        "note": head.foreign
        or ("may be of another capture" if capture is not None and capture.in_doubt else ""),
    }


def _grouped(heads: list[TraceHead]) -> list[_Capture]:
    """Files by capture, in order of time."""
    if not _is_plainly_one(heads):
        heads = _in_time(_with_ends(heads))
    captures = _swept(heads)
    for several in _mixed(captures):
        captures = [one for one in captures if one not in several] + _told_apart(several)
    return sorted(captures, key=lambda capture: capture.start_ns or 0)


def _is_plainly_one(heads: Sequence[TraceHead]) -> bool:
    """All files say different ranks of one job, and began at one time: no need to read on."""
    starts = [head.start_ns for head in heads if head.start_ns is not None]
    return (
        len({head.rank for head in heads} - {None}) == len(heads) == len(starts)
        and max(starts) - min(starts) < _CLOCKS_NS
    )


def _with_ends(heads: Sequence[TraceHead]) -> list[TraceHead]:
    """The heads; compressed files whose names tell no time are read to their ends."""
    unknown = [head.path for head in heads if head.end_ns is None and head.n_bytes]
    ended = dict(zip(unknown, read_heads(unknown, whole=True), strict=True))
    return [ended.get(head.path, head) for head in heads]


def _in_time(heads: Sequence[TraceHead]) -> list[TraceHead]:
    """The heads, at the times in their names if their content has a process record twice at once.

    It does so where a base time is lost, or a trace was simulated.
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
            start_ns=head.written_ns - (_end_ns(head) - (head.start_ns or 0)),
            end_ns=head.written_ns,
        )
        if head.written_ns is not None
        else head
        for head in heads
    ]


def _swept(heads: Sequence[TraceHead]) -> list[_Capture]:
    """Captures by a pass over the files in order of time; first over those that say their rank."""
    slack_ns = _slack_ns(heads)
    timed = [head for head in heads if head.start_ns is not None]
    captures: list[_Capture] = []
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
                capture = _Capture()
                captures.append(capture)
                near.append(capture)
            capture.add(head)
    return captures


def _slack_ns(heads: Sequence[TraceHead]) -> int:
    """How far apart the files of one capture may be: less than the cycles of one process."""
    gaps = [
        (later.start_ns or 0) - _end_ns(earlier)
        for several in _by_writer(heads).values()
        for earlier, later in pairwise(_by_time(several))
    ]
    return min([_CLOCKS_NS, *(gap // 2 for gap in gaps if gap > 0)])


def _writer(head: TraceHead) -> tuple[Path, int | None, tuple[str, int] | None]:
    """Who wrote a file where."""
    return head.path.parent, head.rank, head.process


def _by_writer(heads: Sequence[TraceHead]) -> dict[object, list[TraceHead]]:
    """The files of known time, by who wrote them."""
    found: dict[object, list[TraceHead]] = {}
    for head in heads:
        if head.start_ns is not None:
            found.setdefault(_writer(head), []).append(head)
    return found


def _by_time(heads: Iterable[TraceHead]) -> list[TraceHead]:
    return sorted(heads, key=lambda head: (head.start_ns or 0, head.written_ns or 0, head.path))


def _are_different_sizes(world_size: int, other: int) -> bool:
    """Whether two files are of jobs of different sizes; a world of one may be unaware of others."""
    return min(world_size, other) > 1 and world_size != other


def _share_steps(head: TraceHead, other: TraceHead) -> bool:
    """Whether two files may have recorded the same steps."""
    if not (head.is_whole and other.is_whole and head.steps and other.steps):
        return True
    return bool(set(head.steps) & set(other.steps))


def _overlap(head: TraceHead, other: TraceHead) -> bool:
    """Whether two files were recorded at one time."""
    if head.start_ns is None or other.start_ns is None:
        return False
    return head.start_ns <= _end_ns(other) and other.start_ns <= _end_ns(head)


def _mixed(captures: Sequence[_Capture]) -> list[list[_Capture]]:
    """Captures of several jobs at one time, whose ranks may have been mixed."""
    clusters: list[list[_Capture]] = []
    near: list[list[_Capture]] = []
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


def _conflict(capture: _Capture, other: _Capture) -> bool:
    """Whether a rank is in both captures at one time, and nothing else tells them apart."""
    if capture.world_size != other.world_size or not (
        (capture.start_ns or 0) <= other.end_ns and (other.start_ns or 0) <= capture.end_ns
    ):
        return False
    return any(
        _overlap(head, other.by_rank[rank]) and _share_steps(head, other.by_rank[rank])
        for rank, head in capture.by_rank.items()
        if rank in other.by_rank
    )


def _told_apart(several: Sequence[_Capture]) -> list[_Capture]:
    """Captures of several jobs at one time, by folder, else by host and process.

    A job's processes on a host are numbered in one go, so in their order a rank that comes again is
    of the next job. That holds if every job is complete; if not, all are in doubt.
    """
    heads = [head for capture in several for head in capture.heads]
    by_folder: dict[Path, _Capture] = {}
    for head in heads:
        by_folder.setdefault(head.path.parent, _Capture()).add(head)
    folders = list(by_folder.values())
    if len(folders) > 1 and all(len(one.by_rank) == len(one.heads) > 1 for one in folders):
        return folders
    runs = [_Capture()]
    for head in sorted(heads, key=lambda head: (head.host, head.pid)):
        if head.rank in runs[-1].by_rank:
            runs.append(_Capture())
        runs[-1].add(head)
    if all(one.world_size and one.is_complete for one in runs):
        return runs
    for capture in several:
        capture.in_doubt = True
    return list(several)


def _latest(found: dict[int, pd.DataFrame], captures: pd.DataFrame, where: object) -> int:
    """The latest complete capture of the one job that a folder is about.

    Raises
    ------
    CaptureNotChosenError
        If it is about several.
    """
    jobs = _jobs(found)
    of_ranks = [job for job in jobs if max(len(found[number]) for number in job) > 1]
    if len(jobs) > 1 and len(of_ranks) == 1:  # a job, and single files beside it
        jobs = [job for job in of_ranks if any(_has_all_ranks(found[number]) for number in job)]
    if len(jobs) != 1:
        what = "several jobs" if len(of_ranks) > 1 else "traces of unrelated runs, not of one job"
        raise CaptureNotChosenError(
            f"{_named(where)} holds {what}.",
            listing=captures_in_words(captures),
            hint="name one file, one subfolder, or a capture by its number "
            "(--capture N, load_job(…, capture=N)).",
        )
    most = max(len(found[number]) for number in jobs[0])

    def order(number: int) -> tuple[bool, int, int]:
        rows = found[number]
        is_complete = _has_all_ranks(rows) or (_is_complete(rows) and len(rows) == most)
        return is_complete, 0 if is_complete else len(rows), number

    return max(jobs[0], key=order)


def _is_complete(rows: pd.DataFrame) -> bool:
    return bool(rows["is_complete"].all())


def _has_all_ranks(rows: pd.DataFrame) -> bool:
    """Whether a capture says how many ranks there are, and has them."""
    return _is_complete(rows) and bool(rows["world_size"].max() > 0)


def _jobs(found: dict[int, pd.DataFrame]) -> list[list[int]]:
    """Captures by job: its cycles share processes, its runs have as many ranks in one place."""
    job_of = {number: [number] for number in found}
    last_with: dict[object, int] = {}
    for number, rows in found.items():
        known = rows[rows["pid"] >= 0]
        processes = set(zip(known["host"], known["pid"], known["rank"], strict=True))
        signs: list[object] = [
            sign
            for sign in processes
            if sign not in last_with or _is_after(rows, found[last_with[sign]])
        ]
        if len(rows) > 1:
            folders = frozenset(Path(path).parent for path in rows["path"])
            signs.append((int(rows["world_size"].max()), folders))
        for other in {last_with[sign] for sign in signs if sign in last_with}:
            if job_of[other] is not job_of[number]:
                job_of[other].extend(job_of[number])
                job_of |= dict.fromkeys(job_of[number], job_of[other])
        last_with |= dict.fromkeys(signs, number)
    return list({id(job): job for job in job_of.values()}.values())


def _is_after(rows: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Whether a capture began when another had ended: no process records two at once."""
    return int(rows["start_ns"].min()) >= int((other["start_ns"] + other["dur_ns"]).max())


def _said(found: dict[int, pd.DataFrame], chosen: int, where: object) -> str:
    """Which capture was chosen, and how to choose another."""
    rows = found[chosen]
    what = "the latest complete one" if rows["is_complete"].all() else "the fullest one"
    steps = str(rows["steps"].iloc[0])
    of_steps = f", steps {steps}" if steps else ""
    return (
        f"{_named(where)} holds {human_count(len(found), 'capture')}; {what} is used: capture "
        f"{chosen} ({human_count(len(rows), 'rank')}{of_steps}, "
        f"{human_time(int(rows['start_ns'].min()))} UTC). Choose another with --capture N, "
        "load_job(…, capture=N); hg.discover lists them."
    )
