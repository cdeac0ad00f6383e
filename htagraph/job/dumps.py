"""Dumps: the Flight Recorder dumps of a job, and where it hangs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import pandas as pd

from htagraph.errors import TraceFormatError
from htagraph.job.hangs import Group, Hang, groups_of, hangs_of, ranks_in_words
from htagraph.model.frames import HANGS, LAST_COLLECTIVES
from htagraph.model.units import human_count, human_duration, human_time
from htagraph.readers.flight_recorder import Dump, Entry, find_dumps, read_dump
from htagraph.writers.answering import answers

_LIBRARY = (
    *("-packages/torch/", "-packages\\torch\\", "/torch/distributed/"),
    *("<frozen ", "/threading.py", "/multiprocessing/"),
)
"""Frames of PyTorch and Python, not of the program."""


@dataclass(frozen=True, repr=False)
class Dumps:
    """The Flight Recorder dumps of a job; made by `load_dumps`.

    Parameters
    ----------
    dumps : tuple of Dump
        In order of ranks.
    failures : tuple of str
        Why files could not be read: they count as missing.
    """

    dumps: tuple[Dump, ...]
    failures: tuple[str, ...] = ()

    @property
    def ranks(self) -> list[int]:
        """Ranks with a dump."""
        return [dump.rank for dump in self.dumps]

    @cached_property
    def missing_ranks(self) -> list[int]:
        """Members of groups that left no dump."""
        return sorted({rank for group in self._groups for rank in group.members} - {*self.ranks})

    @cached_property
    def _groups(self) -> list[Group]:
        return groups_of(self.dumps)

    @cached_property
    def _hangs(self) -> list[Hang]:
        return hangs_of(self.dumps, self._groups)

    @answers(HANGS)
    def hangs(self) -> pd.DataFrame:
        """The first collective of each group that its members did not enter together.

        Returns
        -------
        DataFrame, schema `frames.HANGS`
            What explains other rows comes first. Empty if all members entered the same collectives.
        """
        rows = [
            {
                "kind": hang.kind,
                "operation": hang.operation,
                "seq": hang.seq,
                "group": hang.group.name,
                "description": hang.group.description,
                "ranks": ranks_in_words(hang.ranks),
                "entered": ranks_in_words(hang.entered),
                "since_ns": hang.since_ns,
                "waited_ns": hang.waited_ns,
                "is_open": hang.is_open,
                "is_explained": _is_explained(hang),
                "detail": _in_words(hang),
            }
            for hang in self._hangs
        ]
        return HANGS.frame({name: [row[name] for row in rows] for name in HANGS.columns})

    @answers(LAST_COLLECTIVES)
    def last_collectives(self) -> pd.DataFrame:
        """What each rank entered last, since when, and from which line.

        Returns
        -------
        DataFrame, schema `frames.LAST_COLLECTIVES`
            A rank without a recorded collective has no row.
        """
        states = {
            (group.name, rank)
            for group in self._groups
            if group.has_states
            for rank in group.entered
        }
        stuck: dict[int, list[Entry]] = {}
        for hang in self._hangs:
            for rank, entry in hang.stuck.items() if not hang.is_open else ():
                stuck.setdefault(rank, []).append(entry)
        rows = []
        for dump in self.dumps:
            if not dump.entries:
                continue
            mine = stuck.get(dump.rank, ())
            last = max(mine or dump.entries, key=lambda one: one.created_ns)
            rows.append(
                {
                    "rank": dump.rank,
                    "operation": last.operation,
                    "seq": last.seq,
                    "group": last.group,
                    "start_ns": last.created_ns,
                    "is_waiting": bool(mine),
                    "state": last.state if (last.group, dump.rank) in states else "",
                    # The innermost frame of the program
                    "code": next(
                        (at for at in last.frames if not any(one in at for one in _LIBRARY)), ""
                    ),
                    "stack": "\n".join(last.frames),
                }
            )
        columns = LAST_COLLECTIVES.columns
        return LAST_COLLECTIVES.frame({name: [row[name] for row in rows] for name in columns})

    def verdict(self) -> str:
        """Where the job hangs, in a few lines: the first cause, who waits since when and where."""
        certain = [hang for hang in self._hangs if not hang.is_open]
        others = [hang for hang in self._hangs if hang.is_open]
        if not certain:
            lines = ["No hang found: no member lacks a collective that another one left waiting."]
            if not self._groups:
                lines = ["The dumps hold no collectives: nothing can be compared."]
        else:
            lines = []
            missing = [hang for hang in certain if hang.kind == "missing"]
            if missing and all(map(_is_explained, missing)) and not self.missing_ranks:
                ranks = {rank for hang in missing for rank in hang.ranks}
                lines = [
                    f"{_ranks([*ranks])} wait for each other, in different groups.".capitalize()
                ]
            lines += [_in_words(certain[0])]
            lines += [f"Also: {_in_words(hang)}" for hang in certain[1:]]
        lines += [_in_words(hang) for hang in others]
        lines += [f"Left out: {failure}" for failure in self.failures[:_N_LISTED]]
        waiting = self.last_collectives().query("is_waiting")
        for row in waiting.head(_N_LISTED).to_dict("records"):
            at = f", at {row['code']}" if row["code"] else ""
            lines.append(
                f"Rank {row['rank']} waits in {row['operation']} #{row['seq']} of group "
                f"{row['group']} since {human_time(row['start_ns'])}{at}."
            )
        if len(waiting) > _N_LISTED:
            lines.append(f"… and {human_count(len(waiting) - _N_LISTED, 'rank')} more.")
        return "\n".join(lines)

    def __repr__(self) -> str:
        """Summarise the dumps in a line."""
        n = human_count(len(self.dumps), "rank")
        return f"Dumps({n}, {human_count(len(self._groups), 'group')})"


_N_LISTED = 16
"""Chosen: ranks, or unreadable files, that a verdict lists; the tables have all ranks."""


def load_dumps(where: str | Path | Sequence[str | Path]) -> Dumps:
    """The Flight Recorder dumps of a job.

    Parameters
    ----------
    where : str, Path or sequence of them
        A folder with its subfolders, in which other files are ignored; or the files. Each is named
        by its rank, as ``nccl_trace_rank_3``. JSON or pickle: nothing in a pickle is run.

    Returns
    -------
    Dumps

    Raises
    ------
    TraceFormatError
        If there is no dump, none can be read, or two are of one rank.
    """
    read, failures = [], []
    for path in find_dumps(where):
        try:
            read.append(read_dump(path))
        except TraceFormatError as exc:
            failures.append(exc)
    if not read:
        raise failures[0]
    dumps = sorted(read, key=lambda dump: dump.rank)
    for one, other in pairwise(dumps):
        if one.rank == other.rank:
            raise TraceFormatError(
                f"this and {one.path} are both of rank {one.rank}.",
                path=other.path,
                hint="give the folder of one dump, or its files.",
            )
    return Dumps(tuple(dumps), tuple(failure.message for failure in failures))


def _is_explained(hang: Hang) -> bool:
    return bool(hang.causes) and set(hang.ranks) <= set(hang.causes)


def _in_words(hang: Hang) -> str:
    """A hang as a sentence."""
    what = f"{hang.operation} #{hang.seq} of {hang.group}"
    ranks, entered = _ranks(hang.ranks), _ranks(hang.entered)
    match hang.kind:
        case "no dump":
            return (
                f"R{ranks[1:]} left no dump, and may have crashed: whether {what} was entered "
                f"there, the last of {entered}, is not known."
            )
        case "missing":
            never = "had not entered" if hang.is_open else "never entered"
            said = f"{ranks} {never} {what}, which {entered} entered"
        case "too late":
            limit = human_duration(max(one.timeout_ns for one in hang.stuck.values()))
            return (
                f"R{ranks[1:]} entered {what} {human_duration(hang.waited_ns)} after {entered}, "
                f"who came at {human_time(hang.since_ns)} and wait {limit} at most."
            )
        case "no counterpart":
            said = f"{ranks} never posted the other half of {what}, which {entered} posted"
        case "not completed":
            parts = "; ".join(f"{state} on {_ranks(of)}" for state, of in hang.given.items())
            said = f"All members entered {what}, and it did not complete ({parts})"
        case _:
            parts = "; ".join(f"{_ranks(of)}: {name}" for name, of in hang.given.items())
            said = f"{hang.group} did not enter the same collective as #{hang.seq} ({parts})"
    said = said[0].upper() + said[1:]
    if hang.kind in ("missing", "no counterpart", "not completed"):
        waited = f", {human_duration(hang.waited_ns)} before the files were written"
        said += f" at {human_time(hang.since_ns)}{waited if hang.waited_ns >= 0 else ''}"
    if hang.is_open:
        return f"{said}: this may be in flight."
    if hang.causes:
        return f"{said}; {_ranks(hang.causes)} waits elsewhere."
    return f"{said}."


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {ranks_in_words(ranks)}"
