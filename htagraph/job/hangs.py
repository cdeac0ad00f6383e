"""Where a job hangs: the first collective of a group that its members did not enter together.

Collectives of a group are numbered on every rank, so the same number is the same collective. What a
rank entered is a fact. Whether it ended is one only where the backend writes states (NCCL); gloo
writes none, and counts a collective that timed out as ended.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from htagraph.readers.flight_recorder.reader import Dump, Entry

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
    """A process group as its members recorded it.

    Parameters
    ----------
    members : tuple of int
        Ranks; those that entered it, if the dumps do not name them.
    is_known : bool
        Whether the dumps name the members.
    entered : mapping of int to mapping of int to list of Entry
        By rank and number.
    """

    name: str
    description: str
    members: tuple[int, ...]
    is_known: bool
    entered: Mapping[int, Mapping[int, Sequence[Entry]]] = field(repr=False)

    def __str__(self) -> str:
        """The group in words."""
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

    Parameters
    ----------
    kind : str
        ``missing``, ``other operation``, ``other size``, ``other dtype``, ``not completed``,
        ``no counterpart`` (of a send or receive), or ``no dump``.
    ranks : tuple of int
        Those it is about: that never entered, entered another one, or left no dump.
    entered : tuple of int
        Members that entered it as most did.
    given : mapping of str to tuple of int
        Of a mismatch, what each rank entered.
    since_ns : int
        When the first member entered it, since 1970.
    waited_ns : int
        How long it had waited when the dumps were written; -1 if nothing tells.
    is_open : bool
        Whether it may be in flight: a wait that is short, or of unknown length.
    causes : tuple of int
        Ranks it is about that wait elsewhere meanwhile, so that the reason is there.
    """

    group: Group
    kind: str
    seq: int
    operation: str
    ranks: tuple[int, ...]
    entered: tuple[int, ...]
    given: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    since_ns: int = 0
    waited_ns: int = -1
    is_open: bool = False
    causes: tuple[int, ...] = ()
    stuck: Mapping[int, Entry] = field(default_factory=dict, repr=False)


def ranks_in_words(ranks: Iterable[int]) -> str:
    """Ranks in a line, runs of three or more as ranges.

    Examples
    --------
    >>> ranks_in_words([0, 1, 2, 3, 7, 9])
    '0-3, 7, 9'
    """
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
    seen: dict[tuple[str, tuple[int, ...]], dict[int, dict[int, list[Entry]]]] = {}
    named: dict[tuple[str, tuple[int, ...]], str] = {}
    for dump in dumps:
        for entry in dump.entries:
            key = (entry.group, dump.members.get(entry.group, ()) if entry.group else ())
            if entry.peers is None:
                seqs = seen.setdefault(key, {}).setdefault(dump.rank, defaultdict(list))
                seqs[entry.seq].append(entry)
            else:
                seen.setdefault(key, {}).setdefault(dump.rank, defaultdict(list))
            named[key] = entry.description
    groups = [
        Group(name, named[name, ranks], ranks or tuple(sorted(by_rank)), bool(ranks), by_rank)
        for (name, ranks), by_rank in seen.items()
    ]
    groups = [_with_members(group, groups, dumps) for group in groups]
    return sorted(groups, key=lambda group: (-len(group.members), group.name))


def _with_members(group: Group, groups: Sequence[Group], dumps: Sequence[Dump]) -> Group:
    """A group with the members that a backend does not name, where they follow.

    gloo keeps one size: that of the last group that the rank is in.
    """
    if group.is_known:
        return group
    sizes = {dump.rank: len(dump.members.get("", ())) for dump in dumps}
    world = max([*sizes.values(), *(dump.rank + 1 for dump in dumps)])
    if group.description == _WORLD:
        return replace(group, members=tuple(range(world)), is_known=True)
    numbers = {rank: [_number(one) for one in groups if rank in one.entered] for rank in sizes}
    of_group = {sizes[rank] for rank in group.entered if max(numbers[rank]) == _number(group)}
    alike = {rank for rank, size in sizes.items() if {size} == of_group} | set(group.entered)
    if len(of_group) == 1 and of_group == {len(alike)}:
        return replace(group, members=tuple(sorted(alike)), is_known=True)
    return group


def _number(group: Group) -> int:
    """The number that names a group, in the order in which groups were made."""
    return int(group.name) if group.name.isdecimal() else -1


def hangs_of(dumps: Sequence[Dump], groups: Sequence[Group]) -> list[Hang]:
    """Where groups differ, what explains the others first."""
    by_rank = {dump.rank: dump for dump in dumps}
    found = [hang for group in groups for hang in _of_group(group, by_rank)]
    waits = {rank for hang in found for rank in hang.stuck if not hang.is_open}
    waits |= {
        rank for hang in found if hang.kind == "no dump" for rank in _last_there(hang, by_rank)
    }
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


def _last_there(hang: Hang, dumps: Mapping[int, Dump]) -> list[int]:
    """Ranks that may wait for one without a dump: it is the last that they entered anywhere."""
    group, seq = hang.group, hang.seq
    return [
        rank
        for rank in hang.entered
        if not group.is_done(rank, seq)
        and max(dumps[rank].entries, key=lambda one: one.created_ns) in group.entered[rank][seq]
    ]


def _of_group(group: Group, dumps: Mapping[int, Dump]) -> list[Hang]:
    """The first difference of a group, and its members without a dump."""
    present = [rank for rank in group.members if rank in dumps]
    found = [*_mismatch(group, present), *_unanswered(group, dumps)]
    if not any(one.kind.startswith("other") for one in found):
        found += _missing(group, present, dumps) or _unfinished(group, present, dumps)
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
            _in_words(signature, kind): tuple(r for r, one in by_rank.items() if one == signature)
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


def _in_words(signature: tuple[str, int, str], kind: str) -> str:
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
    posted: dict[tuple[int, int, str], list[tuple[int, Entry]]] = defaultdict(list)
    for rank in group.members:
        if (dump := dumps.get(rank)) is None:
            continue
        for entry in dump.entries:
            if entry.group == group.name and entry.peers and min(entry.peers) >= 0:
                posted[*entry.peers, entry.operation].append((rank, entry))
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
            _, entry = mine[n_answers]
            about = (group, "no counterpart", entry.seq, operation, ranks[1:], ranks[:1])
            hang = Hang(*about, stuck={ranks[0]: entry})
            found.append(_timed(hang, dumps, is_older=False))
    return found
