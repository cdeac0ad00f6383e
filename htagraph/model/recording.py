"""Recording: what a reader of any format returns, what a graph keeps of it, and its damage."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy.typing as npt

from htagraph.model.arrays import brief
from htagraph.model.events import EventTable

MAX_RANKS = 1 << 20
"""More than any job has; files that say so are wrong."""

STACKS = "python_function"
"""Category of Python frames; readers skip them unless asked, and count them under this name."""

SAMPLED = "python_sample"
"""Category of Python frames that readers make of sampled stacks, which are few: always read."""

OUTSIDE = "outside the window"
"""What readers count events under that a requested window leaves out."""


class ArgsReader(Protocol):
    """Reader of single events: goes back to the file for what the event table does not hold."""

    def decode(self, events: npt.ArrayLike) -> list[dict[str, Any]]:
        """The ``args`` of events; an empty dict for none."""

    def raw(self, events: npt.ArrayLike) -> Sequence[bytes]:
        """Events as they are in the file."""


@dataclass(frozen=True)
class Repair:
    """One kind of repair that a file needed."""

    kind: str  # The defect: ``raw quote``, ``truncated`` …
    n: int  # How often
    first_offset: int  # In byte. First position in the decompressed text; -1 if not applicable.
    detail: str  # How it was repaired
    damage: str = ""  # The `DamageKind` of what was lost; empty if the repair is harmless

    def __str__(self) -> str:
        """The repair as one line of a report."""
        where = f", first at byte {self.first_offset:,}" if self.first_offset >= 0 else ""
        return f"{self.kind}: {self.n:,} x{where} ({self.detail})"


@dataclass(frozen=True)
class Origin:
    """The file behind events, kept to write the original again and to read args."""

    source: Path | bytes = field(repr=False)  # The file, or its content
    base_time_ns: int = 0  # Time 0 of the file; already added in the event table
    # Reads events again; None for a saved graph
    args: ArgsReader | None = field(default=None, repr=False, compare=False)
    # Everything in the file but events
    metadata: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def path(self) -> Path | None:
        """The file; None for content in memory."""
        return None if isinstance(self.source, bytes) else self.source


@dataclass(frozen=True)
class Attachment:
    """A file of another instrument that was added to a recording."""

    # ``execution trace``, ``graph capture``, ``Nsight Compute``, ``nvidia-smi``, ``dcgm``
    instrument: str
    path: Path
    # n, n_matched: operators, kernels or samples in it, and how many of these were found in the
    # recording
    n: int
    n_matched: int
    detail: str = ""  # How they were matched, what was left, and how reliable that is; one line


@brief
@dataclass(frozen=True)
class Recording:
    """One rank as a profiler recorded it: what a reader of any format returns."""

    events: EventTable  # Rows in file order
    rank: int = 0
    # Where the rank was found: ``distributedInfo``, ``file name``, ``default`` (0) or ``given``
    rank_source: str = "given"
    world_size: int | None = None  # Ranks of the job, below `MAX_RANKS`; None if not recorded
    repairs: tuple[Repair, ...] = ()  # One for each kind
    # Events that were not loaded, by category or reason
    skipped: Mapping[str, int] = field(default_factory=dict)
    # None for events that come from no file
    origin: Origin | None = field(default=None, compare=False)
    attached: tuple[Attachment, ...] = ()  # Files of other instruments whose content is in `events`
    # Decompressed size of the events of each category, loaded or not; empty if not known
    n_bytes: Mapping[str, int] = field(default_factory=dict, compare=False)


class Reader(Protocol):
    """Reader of one format: a file in, a recording out."""

    def __call__(
        self,
        source: str | Path | bytes,
        *,
        stacks: bool,
        categories: Collection[str] | None,
        window: tuple[int, int] | None,
    ) -> Recording:
        """The recording in a file, or in its content; see `htagraph.load`."""


class DamageKind(StrEnum):
    """What is damaged, the worst first: sentences are printed in this order."""

    FAILED_FILE = "failed file"
    CUT_FILE = "cut file"
    CUT_RANK = "cut rank"
    LOST_WORK = "lost device work"
    LOST_LAUNCHES = "lost launches"
    LOST_NODES = "lost graph nodes"
    APART = "rank apart"
    DROPPED_EVENTS = "dropped events"
    LOST_EVENTS = "lost events"
    LOST_TIMES = "lost times"
    OTHER_STEPS = "other steps"
    MISSING_RANKS = "missing ranks"
    UNMATCHED = "unmatched"


ACCEPTED = frozenset({DamageKind.MISSING_RANKS, DamageKind.UNMATCHED})
"""What a capture may lack by choice, or because nothing records it: a check accepts it."""

HOLES = (DamageKind.LOST_WORK, DamageKind.LOST_LAUNCHES, DamageKind.LOST_NODES)
"""What leaves a hole: no path through it is to be trusted."""


class Damage(NamedTuple):
    """One way in which a recording is damaged."""

    kind: DamageKind  # What is damaged
    # n, n_all: how much of it is damaged: files, events, ranks or collectives, as `said` names them
    n: int
    n_all: int
    # start_ns, end_ns: where, on the clock of the rank; the whole trace if that is unknown
    start_ns: int
    end_ns: int
    # What is damaged and what that does to the answer: one sentence, which begins with a small
    # letter and ends with a full stop
    said: str

    @property
    def is_accepted(self) -> bool:
        """Whether a check accepts it."""
        return self.kind in ACCEPTED

    def overlaps(self, start_ns: int, end_ns: int) -> bool:
        """Whether it reaches into a window."""
        return self.start_ns <= end_ns and self.end_ns >= start_ns


def damage_in_words(found: Iterable[Damage]) -> tuple[str, ...]:
    """The sentences of damage, the worst kind first."""
    ordered = sorted(found, key=lambda one: [*DamageKind].index(one.kind))
    return tuple(dict.fromkeys(one.said[:1].upper() + one.said[1:] for one in ordered))
