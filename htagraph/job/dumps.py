"""Dumps: the Flight Recorder dumps of a job, and where it hangs.

That is the first collective of a group that its members did not enter together. Collectives of a
group are numbered on every rank, so the same number is the same collective. What a rank entered is
a fact. Whether it ended is one only where the backend writes states (NCCL); gloo writes none, and
counts a collective that timed out as ended.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from htagraph.errors import TraceFormatError
from htagraph.model.frames import HANGS, LAST_COLLECTIVES
from htagraph.model.units import human_count, human_duration, human_time
from htagraph.readers.flight_recorder import Dump, Entry, find_dumps, read_dump
from htagraph.writers.answering import answers

_LONG_NS = 60 * 10**9
"""A wait as long is no delay of a slow rank: chosen, longer than a checkpoint usually takes. Pinned
by `test_a_wait_of_a_minute_is_a_hang`."""
_ONE_SIDED = frozenset(
    ("broadcast", "reduce", "gather", "scatter", "_broadcast_oop", "_reduce_oop")
)
"""Operations that end on some ranks before others enter them."""
_WORLD = "default_pg"
"""What PyTorch calls the group of all ranks."""


@dataclass(frozen=True)
class Group:
    """A process group as its members recorded it."""

    name: str
    description: str
    members: tuple[int, ...]  # Those that entered it, if the dumps do not name them
    is_known: bool  # Whether the dumps name the members
    entered: dict[int, dict[int, list[Entry]]] = field(repr=False)  # By rank and number
    posted: dict[int, list[Entry]] = field(repr=False)  # Sends and receives, by rank

    def __str__(self) -> str:
        own = f"group {self.name}"
        if self.description and self.description not in ("undefined", self.name):
            own += f" ({self.description})"
        return f"{own} of ranks {ranks_in_words(self.members)}" if self.is_known else own

    @cached_property
    def has_states(self) -> bool:
        """Whether its backend writes what ended."""
        every = (one for seqs in self.entered.values() for many in seqs.values() for one in many)
        return any(one.completed_ns or one.state in ("started", "completed") for one in every)

    def last(self, rank: int) -> int:
        """The last number that a rank entered, 0 for none."""
        return max(self.entered.get(rank, {0: ()}), default=0)

    def is_done(self, rank: int, seq: int) -> bool:
        """Whether a rank left a collective: as recorded, or as it entered a later one after it."""
        entries = self.entered.get(rank, {}).get(seq)
        if not entries:
            return False
        if self.has_states:
            return all(one.completed_ns or one.state == "completed" for one in entries)
        return self.last(rank) > seq and all(one.is_retired for one in entries)


@dataclass(frozen=True)
class Hang:
    """A collective that its group did not enter together, or did not end.

    `kind` is ``missing``, ``too late``, ``other operation``, ``other size``, ``other dtype``,
    ``not completed``, ``no counterpart`` (of a send or receive), or ``no dump``.
    """

    group: Group
    kind: str
    seq: int
    operation: str
    ranks: tuple[int, ...]  # That never or late entered it, or another one, or left no dump
    entered: tuple[int, ...]  # Members that entered it as most did
    given: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # What each rank entered
    since_ns: int = 0  # When the first member entered it, since 1970
    # How long until the dumps were written, or the last member came; -1 if nothing tells
    waited_ns: int = -1
    is_open: bool = False  # It may be in flight: the wait is short, or of unknown length
    causes: tuple[int, ...] = ()  # Of `ranks`, those that wait elsewhere: the reason is there
    stuck: Mapping[int, Entry] = field(default_factory=dict, repr=False)


def ranks_in_words(ranks: Iterable[int]) -> str:
    """Ranks in a line, runs of three or more as ranges."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs
    )


def groups_of(dumps: Sequence[Dump]) -> list[Group]:
    """The groups of a job, those with most members first."""
    found: dict[tuple[str, tuple[int, ...]], Group] = {}
    for dump in dumps:
        for entry in dump.entries:
            name, ranks = entry.group, dump.members.get(entry.group, ()) if entry.group else ()
            if (group := found.get((name, ranks))) is None:
                group = Group(name, entry.description, ranks, bool(ranks), {}, {})
                found[name, ranks] = group
            entered = group.entered.setdefault(dump.rank, {})
            if entry.peers is None:
                entered.setdefault(entry.seq, []).append(entry)
            else:
                group.posted.setdefault(dump.rank, []).append(entry)
    groups = _with_members([*found.values()], dumps)
    return sorted(groups, key=lambda group: (-len(group.members), group.name))


def _with_members(groups: Sequence[Group], dumps: Sequence[Dump]) -> list[Group]:
    """Groups with the members that a backend does not name, where they follow.

    gloo keeps one size: that of the last group that the rank is in.
    """
    size = {dump.rank: len(dump.members.get("", ())) for dump in dumps}
    of_size: dict[int, set[int]] = defaultdict(set)
    for rank, own in size.items():
        of_size[own].add(rank)
    world = tuple(range(max([*size.values(), *(rank + 1 for rank in size)], default=0)))
    newest = {rank: -1 for group in groups for rank in group.entered}
    for group in groups:
        newest |= {rank: max(newest[rank], _number(group)) for rank in group.entered}
    found = []
    for group in groups:
        members, is_known = group.members, group.is_known
        if not is_known:
            own_sizes = {size[rank] for rank in group.entered if newest[rank] == _number(group)}
            members = tuple(sorted({*group.entered}.union(*(of_size[own] for own in own_sizes))))
            is_known = own_sizes == {len(members)}
            if group.description == _WORLD:
                members, is_known = world, True
            elif not is_known:
                members = tuple(sorted(group.entered))
        found.append(replace(group, members=members, is_known=is_known))
    return found


def _number(group: Group) -> int:
    """The number that names a group, in the order in which groups were made."""
    return int(group.name) if group.name.isdecimal() else -1


def hangs_of(dumps: Sequence[Dump], groups: Sequence[Group]) -> list[Hang]:
    """Where groups differ, what explains the others first."""
    by_rank = {dump.rank: dump for dump in dumps}
    found = [hang for group in groups for hang in _of_group(group, by_rank)]
    waits = {rank for hang in found for rank in hang.stuck if not hang.is_open}
    last = {
        dump.rank: max(dump.entries, key=lambda one: one.created_ns)
        for dump in dumps
        if dump.entries
    }
    waits |= {rank for hang in found if hang.kind == "no dump" for rank in _last_there(hang, last)}
    found = [
        replace(one, causes=tuple(sorted(waits.intersection(one.ranks))))
        if one.kind == "missing"
        else one
        for one in found
    ]
    return sorted(
        found,
        key=lambda one: (
            one.is_open,
            set(one.ranks) <= set(one.causes),
            one.kind == "no dump",
            bool(one.causes),
            one.since_ns,
        ),
    )


def _last_there(hang: Hang, last: Mapping[int, Entry]) -> list[int]:
    """Ranks that may wait for one without a dump: it is the last that they entered anywhere."""
    group, seq = hang.group, hang.seq
    return [
        rank
        for rank in hang.entered
        if not group.is_done(rank, seq) and last[rank] in group.entered[rank][seq]
    ]


def _of_group(group: Group, dumps: Mapping[int, Dump]) -> list[Hang]:
    """The first difference of a group, and its members without a dump."""
    present = [rank for rank in group.members if rank in dumps]
    found = [*_mismatch(group, present), *_unanswered(group, dumps)]
    if not any(one.kind.startswith("other") for one in found):
        found += (
            _missing(group, present, dumps)
            or _too_late(group, present)
            or _unfinished(group, present, dumps)
        )
    absent = tuple(rank for rank in group.members if rank not in dumps)
    if absent and present:
        last = max(map(group.last, present))
        at = tuple(rank for rank in present if group.last(rank) == last)
        if last:
            entry = group.entered[at[0]][last][-1]
            found.append(Hang(group, "no dump", last, entry.operation, absent, at))
    return found


def _signature(entries: Sequence[Entry]) -> tuple[str, int, str]:
    """What a rank entered: the operation, elements and types."""
    sizes = [one.n_elements for one in entries]
    return (
        " + ".join(one.operation for one in entries),
        -1 if min(sizes) < 0 else sum(sizes),
        ", ".join(dict.fromkeys(one.dtype for one in entries)),
    )


def _mismatch(group: Group, present: Sequence[int]) -> list[Hang]:
    """The first number that members entered as different collectives."""
    for seq in sorted({seq for rank in present for seq in group.entered.get(rank, ())}):
        by_rank = {
            rank: _signature(group.entered[rank][seq])
            for rank in present
            if seq in group.entered.get(rank, ())
        }
        if len(set(by_rank.values())) < 2:
            continue
        kind = next((one for at, one in enumerate(_MISMATCHES) if _differ(by_rank, at)), None)
        if kind is None:
            continue
        counts = Counter(by_rank.values())
        usual, n_usual = counts.most_common(1)[0]
        is_tie = list(counts.values()).count(n_usual) > 1
        entered = tuple(rank for rank, one in by_rank.items() if one == usual)
        others = tuple(rank for rank in by_rank if is_tie or by_rank[rank] != usual)
        given = {
            _entered_in_words(signature, kind): tuple(
                r for r, one in by_rank.items() if one == signature
            )
            for signature in counts
        }
        stuck = {rank: group.entered[rank][seq][-1] for rank in by_rank}
        since_ns = min(entry.created_ns for entry in stuck.values())
        return [Hang(group, kind, seq, usual[0], others, entered, given, since_ns, stuck=stuck)]
    return []


_MISMATCHES = ("other operation", "other size", "other dtype")
"""Kinds of mismatch, in the order of the parts of a signature."""


def _differ(by_rank: Mapping[int, tuple[str, int, str]], at: int) -> bool:
    """Whether a part of signatures differs, and members may not give what they like."""
    parts = {signature[at] for signature in by_rank.values()}
    return len(parts) > 1 and -1 not in parts


def _entered_in_words(signature: tuple[str, int, str], kind: str) -> str:
    operation, size, dtype = signature
    if kind == "other operation":
        return operation
    return f"{size:,} elements" if kind == "other size" else dtype


def _missing(group: Group, present: Sequence[int], dumps: Mapping[int, Dump]) -> list[Hang]:
    """The first number that some members entered, others did not, and no member has left."""
    last = {rank: group.last(rank) for rank in present}
    done = max(
        (
            seq
            for rank in present
            for seq in group.entered.get(rank, ())
            if group.is_done(rank, seq)
            and not any(one.operation in _ONE_SIDED for one in group.entered[rank][seq])
        ),
        default=0,
    )
    seq = max(done, min(last.values(), default=0)) + 1
    entered = tuple(rank for rank in present if seq in group.entered.get(rank, ()))
    lacking = tuple(rank for rank in present if last[rank] < seq)
    if not entered or not lacking:
        return []
    stuck = {rank: group.entered[rank][seq][-1] for rank in entered}
    is_older = any(last[rank] < done for rank in lacking)
    hang = Hang(group, "missing", seq, stuck[entered[0]].operation, lacking, entered, stuck=stuck)
    return [_timed(hang, dumps, is_older=is_older)]


def _too_late(group: Group, present: Sequence[int]) -> list[Hang]:
    """The last number that all entered, if some did when those before had waited out the timeout.

    Clocks of hosts differ: by what ranks usually are apart at the numbers before.
    """
    if len(present) < 2:
        return []
    seqs = sorted(set.intersection(*(set(group.entered.get(rank, ())) for rank in present)))
    if len(seqs) < 2:
        return []
    entries = {rank: group.entered[rank][seqs[-1]][-1] for rank in present}
    operation, limit_ns = entries[present[0]].operation, entries[present[0]].timeout_ns
    entered_ns = np.array(
        [[group.entered[rank][one][-1].created_ns for one in seqs] for rank in present]
    )
    apart_ns = entered_ns - entered_ns[0]
    at_ns = entered_ns[:, -1] - np.median(apart_ns[:, :-1], axis=1).astype(np.int64)
    is_late = at_ns > at_ns.min() + limit_ns
    late, early = (
        tuple(rank for rank, one in zip(present, is_late, strict=True) if one == of)
        for of in (True, False)
    )
    is_ended = any(group.is_done(rank, seqs[-1]) for rank in early)
    if not late or not limit_ns or operation in _ONE_SIDED or is_ended:
        return []
    stuck = {rank: entries[rank] for rank in early}
    since_ns = min(one.created_ns for one in stuck.values())
    about = (group, "too late", seqs[-1], operation, late, early)
    return [Hang(*about, since_ns=since_ns, waited_ns=int(np.ptp(at_ns)), stuck=stuck)]


def _unfinished(group: Group, present: Sequence[int], dumps: Mapping[int, Dump]) -> list[Hang]:
    """The first number that all members entered and some did not leave, by recorded states."""
    if not group.has_states or len(present) < len(group.members):
        return []
    last = min(map(group.last, present))
    for seq in range(max(1, last - _MOST_AHEAD), last + 1):
        entries = {rank: group.entered.get(rank, {}).get(seq) for rank in present}
        late = tuple(rank for rank, one in entries.items() if one and not group.is_done(rank, seq))
        if not late:
            continue
        stuck = {rank: group.entered[rank][seq][-1] for rank in late}
        states = {
            state: tuple(rank for rank, one in entries.items() if one and one[-1].state == state)
            for state in dict.fromkeys(one[-1].state for one in entries.values() if one)
        }
        hang = Hang(
            group, "not completed", seq, stuck[late[0]].operation, late, late, states, stuck=stuck
        )
        return [_timed(hang, dumps, is_older=False)]
    return []


_MOST_AHEAD = 10_000
"""Numbers before the last in which an unfinished one is searched: more than a recorder keeps."""


def _timed(hang: Hang, dumps: Mapping[int, Dump], *, is_older: bool) -> Hang:
    """A hang with how long it had waited, by the times of the files.

    Nothing waits longer than its timeout, so a file that is later by more is a copy. Then a
    collective that ended although a member never entered it has failed; others may be in flight.
    """
    entries = hang.stuck.values()
    since_ns = min(one.created_ns for one in entries)
    limit_ns = max(one.timeout_ns for one in entries)
    long_ns = min(limit_ns or _LONG_NS, _LONG_NS)
    waited_ns = min(dumps[rank].written_ns for rank in hang.stuck) - since_ns
    is_known = 0 <= waited_ns <= 2 * limit_ns + _LONG_NS
    is_failed = hang.kind == "missing" and any(
        one.is_retired and one.operation not in _ONE_SIDED for one in entries
    )
    others_ns = min(dumps[rank].written_ns for rank in hang.ranks if rank in dumps) - since_ns
    is_over = waited_ns >= long_ns and (others_ns >= long_ns or is_failed)
    is_open = is_older or not (is_over if is_known else is_failed)
    waited_ns = waited_ns if is_known else -1
    return replace(hang, since_ns=since_ns, waited_ns=waited_ns, is_open=is_open)


def _unanswered(group: Group, dumps: Mapping[int, Dump]) -> list[Hang]:
    """The first send or receive whose peer never posted the other half; -1 peers match nothing."""
    posted: dict[tuple[int, int, str], list[Entry]] = defaultdict(list)
    for entries in group.posted.values():
        for entry in entries:
            if entry.peers and min(entry.peers) >= 0:
                posted[*entry.peers, entry.operation].append(entry)
    found = []
    for (source, target, operation), mine in posted.items():
        if max(source, target) >= len(group.members):
            continue
        other = "recv" if operation == "send" else "send"
        own, peer = (source, target) if operation == "send" else (target, source)
        ranks = group.members[own], group.members[peer]
        if any(rank not in dumps or not dumps[rank].is_whole for rank in ranks):
            continue
        n_answers = len(posted.get((source, target, other), ()))
        if len(mine) > n_answers:
            entry = mine[n_answers]
            about = (group, "no counterpart", entry.seq, operation, ranks[1:], ranks[:1])
            hang = Hang(*about, stuck={ranks[0]: entry})
            found.append(_timed(hang, dumps, is_older=False))
    return found


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
