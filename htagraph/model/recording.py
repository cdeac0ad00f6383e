"""Recording: what a reader of any format returns, and what a graph keeps of it.

Damage: what a recording lacks or has wrong, and what that does to the answers.
"""

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
    """One kind of repair that a file needed.

    Parameters
    ----------
    kind : str
        The defect: ``raw quote``, ``truncated`` …
    n : int
        How often.
    first_offset : int, unit=byte
        First position in the decompressed text; -1 if not applicable.
    detail : str
        How it was repaired.
    damage : str, default=""
        The `DamageKind` of what was lost; empty if the repair is harmless.
    """

    kind: str
    n: int
    first_offset: int
    detail: str
    damage: str = ""

    def __str__(self) -> str:
        """The repair as one line of a report."""
        where = f", first at byte {self.first_offset:,}" if self.first_offset >= 0 else ""
        return f"{self.kind}: {self.n:,} x{where} ({self.detail})"


@dataclass(frozen=True)
class Origin:
    """The file behind events, kept to write the original again and to read args.

    Parameters
    ----------
    source : Path or bytes
        The file, or its content.
    base_time_ns : int, unit=ns
        Time 0 of the file; already added in the event table.
    args : ArgsReader, optional
        Reads events again; None for a saved graph.
    metadata : mapping of str to object
        Everything in the file but events.
    """

    source: Path | bytes = field(repr=False)
    base_time_ns: int = 0
    args: ArgsReader | None = field(default=None, repr=False, compare=False)
    metadata: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def path(self) -> Path | None:
        """The file; None for content in memory."""
        return None if isinstance(self.source, bytes) else self.source


@dataclass(frozen=True)
class Attachment:
    """A file of another instrument that was added to a recording.

    Parameters
    ----------
    instrument : str
        ``execution trace``, ``graph capture``, ``Nsight Compute``, ``nvidia-smi``, ``dcgm``.
    n, n_matched : int
        Operators, kernels or samples in it, and how many of these were found in the recording.
    detail : str
        How they were matched, what was left, and how reliable that is; one line.
    """

    instrument: str
    path: Path
    n: int
    n_matched: int
    detail: str = ""


@brief
@dataclass(frozen=True)
class Recording:
    """One rank as a profiler recorded it: what a reader of any format returns.

    Parameters
    ----------
    events : EventTable
        Rows in file order.
    rank_source : str
        Where the rank was found: ``distributedInfo``, ``file name``, ``default`` (0) or ``given``.
    world_size : int or None
        Ranks of the job, below `MAX_RANKS`; None if not recorded.
    repairs : tuple of Repair
        One for each kind.
    skipped : mapping of str to int
        Events that were not loaded, by category or reason.
    origin : Origin or None
        None for events that come from no file.
    attached : tuple of Attachment
        Files of other instruments whose content is in `events`.
    n_bytes : mapping of str to int, unit=byte
        Decompressed size of the events of each category, loaded or not; empty if not known.
    """

    events: EventTable
    rank: int = 0
    rank_source: str = "given"
    world_size: int | None = None
    repairs: tuple[Repair, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)
    origin: Origin | None = field(default=None, compare=False)
    attached: tuple[Attachment, ...] = ()
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


class Companion(Protocol):
    """Reader of a file next to a trace: it adds what another instrument recorded of the run."""

    def __call__(self, recording: Recording, path: Path) -> Recording:
        """The recording with the content of the file, and with one more `Attachment`."""


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
    """One way in which a recording is damaged.

    Parameters
    ----------
    kind : DamageKind
        What is damaged.
    n, n_all : int
        How much of it is damaged: files, events, ranks or collectives, as `said` names them.
    start_ns, end_ns : int, unit=ns
        Where, on the clock of the rank; the whole trace if that is unknown.
    said : str
        What is damaged and what that does to the answer: one sentence, which begins with a small
        letter and ends with a full stop.
    """

    kind: DamageKind
    n: int
    n_all: int
    start_ns: int
    end_ns: int
    said: str

    @property
    def is_accepted(self) -> bool:
        """Whether a check accepts it."""
        return self.kind in ACCEPTED

    def overlaps(self, start_ns: int, end_ns: int) -> bool:
        """Whether it reaches into a window."""
        return self.start_ns <= end_ns and self.end_ns >= start_ns


def damage_in_words(found: Iterable[Damage]) -> tuple[str, ...]:
    """The sentences of damage, the worst kind first.

    Examples
    --------
    >>> damage_in_words([Damage(DamageKind.LOST_EVENTS, 2, 9, 0, 5, "2 of 9 events are lost.")])
    ('2 of 9 events are lost.',)
    """
    ordered = sorted(found, key=lambda one: [*DamageKind].index(one.kind))
    return tuple(dict.fromkeys(one.said[:1].upper() + one.said[1:] for one in ordered))
