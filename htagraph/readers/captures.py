"""Captures: which files of a folder were recorded together, and which capture to use.

`tensorboard_trace_handler` writes one file per rank and cycle into one folder, run after run. Files
belong to one capture if their ranks and processes differ, their world sizes and steps agree, and
their times overlap.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import pandas as pd

from htagraph.errors import (
    CaptureNotChosenError,
    IncompleteTraceWarning,
    QueryError,
    TraceFormatError,
)
from htagraph.model.frames import CAPTURES
from htagraph.model.units import human_count, human_duration, human_size, human_time
from htagraph.readers.discover import find_traces
from htagraph.readers.heads import EXECUTION_TRACE, TraceHead, read_heads
from htagraph.readers.recorded_together import Capture, end_ns_of, grouped, rank_of
from htagraph.readers.storage import path_of

CaptureName = int | Literal["latest"]
"""The number of a capture, or the latest complete one."""

_N_LISTED = 20
"""Captures, or files, that a message lists (chosen: fits a terminal)."""


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
        listed = ", ".join(f"{head.path.name} ({head.foreign})" for head in others[:_N_LISTED])
        raise TraceFormatError(
            "no traces found.", path=_named(where), hint=f"other files here: {listed}."
        )
    captures = grouped(traces)
    rows = [
        _row(head, number, capture)
        for number, capture in enumerate(captures, start=1)
        for head in sorted(capture.heads, key=lambda head: (rank_of(head), head.path))
    ]
    rows += [_row(head, 0, None) for head in others]
    return CAPTURES.frame({name: [row[name] for row in rows] for name in CAPTURES.columns})


class Chosen(NamedTuple):
    """The traces of one capture: one is a trace, several are the ranks of a job."""

    paths: list[Path]
    beside: Mapping[Path, tuple[Path, ...]]  # Execution traces that the process of each wrote
    note: str  # On the choice among captures; empty if there was none to make
    is_rest: bool = False  # One that was found, not named: other ranks may be missing

    def said(self) -> Chosen:
        """The same, after a warning that tells the choice."""
        if self.note:
            warnings.warn(self.note, IncompleteTraceWarning, stacklevel=3)
        return self


def chosen(where: str | Path | Iterable[str | Path], capture: CaptureName = "latest") -> Chosen:
    """The traces of a capture in a folder, a glob or a file; a list is used as it is."""
    paths = find_traces(where)
    if not isinstance(where, str | Path) or (len(paths) == 1 and capture == "latest"):
        is_rest = isinstance(where, str | Path) and paths[0] != path_of(where)
        return Chosen(paths, {}, "", is_rest)
    return of_capture(discover(paths), where, capture)


def of_capture(found: pd.DataFrame, where: object, capture: CaptureName) -> Chosen:
    """The traces of a capture among files whose heads were read (`frames.CAPTURES`).

    `where` they were found is for messages.
    """
    traces = found[found["capture"] > 0]
    numbers = sorted(set(traces["capture"].tolist()))
    captures = {number: traces[traces["capture"] == number] for number in numbers}
    if capture != "latest":
        if capture not in captures:
            n = len(captures)
            raise QueryError(
                f"no capture {capture!r} in {_named(where)}.",
                hint=f"there are {n}: 1 to {n}; `latest` is the latest complete.",
            )
        chosen, note = capture, ""
    elif len(captures) == 1:
        chosen, note = numbers[0], ""
    else:
        chosen = _latest(captures, found, where)
        note = _choice_in_words(captures, chosen, where)
    rows = captures[chosen]
    if rows["note"].astype(bool).any():
        raise CaptureNotChosenError(
            f"{_named(where)}: captures of several jobs overlap, and nothing tells which rank "
            "belongs to which.",
            listing=captures_in_words(found),
            hint="put each job into a folder of its own, or list the files.",
        )
    # Without copies that record the same process and no rank.
    is_copy = rows.duplicated(["host", "pid", "start_ns"]) & (rows["pid"] >= 0) & (rows["rank"] < 0)
    paths = [Path(path) for path in rows.loc[~is_copy, "path"]]
    has_companions = (found["note"] == EXECUTION_TRACE).any()
    beside = {path: companions(found, path) for path in paths} if has_companions else {}
    return Chosen(paths, beside, note, is_rest=len(paths) == 1)


def companions(captures: pd.DataFrame, trace: Path) -> tuple[Path, ...]:
    """Execution traces in a trace's folder that its process wrote."""
    folders = captures["path"].map(lambda path: Path(path).parent)
    here = captures[folders == trace.parent]
    beside = here[here["note"] == EXECUTION_TRACE]
    of_trace = here.loc[here["path"] == str(trace), "pid"]
    pid = int(of_trace.iloc[0]) if len(of_trace) else -1
    n_processes = here.loc[here["capture"] > 0, "pid"].nunique()
    is_its = (beside["pid"] == pid) | ((n_processes == 1) & ((pid < 0) | (beside["pid"] < 0)))
    return tuple(Path(path) for path in beside.loc[is_its, "path"])


def captures_in_words(captures: pd.DataFrame) -> str:
    """One line of text per capture."""
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
        text.insert(1, f"… {len(found) - _N_LISTED:,} earlier: --capture list has all")
    return "\n".join(text)


def files_in_words(captures: pd.DataFrame) -> str:
    """One line of text per file."""
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
    length = human_duration(end_ns - start_ns) if end_ns > start_ns else "-"
    return steps or "-", human_time(start_ns), length


def _root(captures: pd.DataFrame) -> str:
    return os.path.commonpath([Path(path).parent.absolute() for path in captures["path"]])


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _named(where: object) -> str:
    return str(where) if isinstance(where, str | Path) else "the list of files"


def _row(head: TraceHead, number: int, capture: Capture | None) -> dict[str, object]:
    return {
        "capture": number,
        "rank": rank_of(head),
        "world_size": head.world_size or 0,
        "steps": head.steps_in_words,
        "start_ns": head.start_ns or 0,
        "dur_ns": max(end_ns_of(head) - (head.start_ns or 0), 0),
        "n_bytes": head.n_bytes,
        "host": head.host,
        "pid": head.pid,
        "is_complete": capture is not None and capture.is_complete,
        "path": str(head.path),
        "note": head.foreign
        or ("may be of another capture" if capture is not None and capture.in_doubt else ""),
    }


def _latest(found: dict[int, pd.DataFrame], captures: pd.DataFrame, where: object) -> int:
    """The latest complete capture of the one job in a folder."""
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
            "(--capture N, or capture=N). If these are ranks of one job whose clocks are "
            "more than 10 s apart, list the files, which are used as given.",
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
    """Whether the files record how many ranks there are, and all are here."""
    return _is_complete(rows) and bool(rows["world_size"].max() > 0)


def _jobs(found: dict[int, pd.DataFrame]) -> list[list[int]]:
    """Captures by job: its cycles share processes; its runs share a folder and a rank count."""
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
    """Whether a capture began after another had ended: no process records two at once."""
    return int(rows["start_ns"].min()) >= int((other["start_ns"] + other["dur_ns"]).max())


def _choice_in_words(found: dict[int, pd.DataFrame], chosen: int, where: object) -> str:
    rows = found[chosen]
    what = "the latest complete one" if rows["is_complete"].all() else "the fullest one"
    steps = str(rows["steps"].iloc[0])
    of_steps = f", steps {steps}" if steps else ""
    return (
        f"{_named(where)} holds {human_count(len(found), 'capture')}; {what} is used: capture "
        f"{chosen} ({human_count(len(rows), 'rank')}{of_steps}, "
        f"{human_time(int(rows['start_ns'].min()))} UTC). Choose another with --capture N (or "
        "capture=N); --capture list has all."
    )
