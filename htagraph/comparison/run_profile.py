"""RunProfile: all that a later comparison needs of a run, small enough to keep as a baseline."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Self

import msgspec
import pandas as pd

from htagraph.errors import GraphError, TraceFormatError
from htagraph.model.units import human_count, human_duration
from htagraph.readers.byte_stream import GZIP_MAGIC, GZIP_WINDOW, first_bytes
from htagraph.writers.output_file import write_text

OTHER = "(other)"
"""Group of all that is too short for a row of its own."""

PATH_PARTS = ("bound", "op", "name")
"""Breakdowns of the critical path: each adds up to the steps."""

KERNEL_PARTS = {
    "name": "kernel",
    "shape": "kernel_shape",
    "module": "kernel_module",
    "annotation": "kernel_annotation",
    "phase": "kernel_phase",
}
"""Breakdowns of device work: each adds up to the same time."""

_HEAD = 4_096
"""Bytes in which a stored report names its schema, which is its first key: a block of a file."""

_FAR = 1 << 63
"""Integers of 64 bits are smaller."""

_MOST_BYTES = 1 << 26
"""Largest baseline that is read. A limit of memory, chosen. Documented in `docs/limits.md`;
`tests/hostile/test_damage.py` compares."""

_VERSION = 1
"""Of a stored profile; changes whenever a number changes its meaning."""

_SCHEMA = b'"schema": "htagraph.'

_UNREADABLE = (OSError, ValueError, TypeError, KeyError, RecursionError, GraphError, zlib.error)
"""Errors of reading what may be anything."""


@dataclass(frozen=True)
class Kind:
    """Compared steps that do the same work."""

    n_steps: int  # Steps of the window that do it, of any length: their weight
    n_compared: int  # Those that are typical, and compared; 1 for a window
    # has_first, has_last: they include the first or the last step of the trace
    has_first: bool = False
    has_last: bool = False
    # Why they are outliers, if they are: of the only step of a kind, what is unusual about it
    said: str = ""
    # They do not do the same: no two steps of the run do the same work, and all are compared
    varies: bool = False


@dataclass(frozen=True)
class Part:
    """Time of a group in the compared steps of a kind; for a job the mean of ranks, or its path."""

    # ``step``, the whole; ``bound``, ``op`` and ``name``, of the critical path; ``kernel``,
    # ``operator``; ``device``: ``idle``, ``compute``, and exposed ``communication`` and ``memory``
    part: str
    bound: str  # Bound of the path, empty elsewhere
    name: str
    kind: int  # Row of the kind of steps
    calls: float  # Events per step; on a path, segments
    total_ns: int  # Of all steps together
    std_ns: float  # Standard deviation from step to step; 0 for one step
    # first_ns, last_ns, least_ns, most_ns: in the first and the last step, and in the steps with
    # the least and the most
    first_ns: int
    last_ns: int
    least_ns: int
    most_ns: int
    varies: bool = field(default=False, kw_only=True)  # Some steps call it more often than others
    # In each step, of names on the path of steps that vary
    steps_ns: tuple[int, ...] = field(default=(), kw_only=True)
    # Of device work by shape, the least time that the device needs; 0 if unknown
    roof_ns: int = field(default=0, kw_only=True)


@dataclass(frozen=True, repr=False)
class RunProfile:
    """All that a later comparison needs of a run: its steps, and what they took on average.

    `htagraph report --json` stores it; `diff` accepts it for the run.

    Parameters
    ----------
    name : str
    unit : str
        ``step`` or ``window``, whichever is compared.
    devices : str
        Names of the devices, empty where not recorded.
    world_size : int
        Ranks of the job, 0 where not recorded.
    n_ranks : int
        Ranks that were profiled.
    n_steps : int
        Steps in the window, typical or not.
    kinds : tuple of Kind
        Typical steps, by what they do.
    steps_ns : tuple of int, unit=ns
        Lengths of the first 200 of them.
    n_odd : int
        Steps that are left out, as they are unlike the others.
    left_out : tuple of str
        Steps that are left out, and why.
    parts : tuple of Part
    damage : tuple of str, default=()
        What the recording lacks or has wrong, in sentences; without what a check accepts.

    Raises
    ------
    GraphError
        If a breakdown of the path does not add up to the steps.
    """

    name: str
    unit: str
    devices: str
    world_size: int
    n_ranks: int
    n_steps: int
    kinds: tuple[Kind, ...]
    steps_ns: tuple[int, ...]
    n_odd: int
    left_out: tuple[str, ...]
    parts: tuple[Part, ...]
    damage: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that numbers fit 64 bits, and that parts of the path add up."""
        rows: list[RunProfile | Kind | Part] = [self, *self.kinds, *self.parts]
        numbers = [getattr(row, one.name) for row in rows for one in fields(row)]
        inside = (time_ns for part in self.parts for time_ns in part.steps_ns)
        numbers = [
            *self.steps_ns,
            *inside,
            *(one for one in numbers if isinstance(one, int | float)),
        ]
        if not all(-_FAR < number < _FAR for number in numbers):
            raise GraphError("a number in the profile is not finite, or beyond 64 bits.")
        if not all(0 < one.n_compared <= one.n_steps for one in self.kinds):
            raise GraphError("a kind of steps needs at least one.")
        if all(one.said for one in self.kinds):
            raise GraphError("a profile needs at least one kind of steps.")
        if not all(0 <= part.kind < len(self.kinds) for part in self.parts):
            raise GraphError("a part is of no kind of steps.")
        wholes = [part.kind for part in self.parts if part.part == "step"]
        if sorted(wholes) != list(range(len(self.kinds))):
            raise GraphError("a profile needs exactly one whole of each kind of steps.")
        sums: Counter[tuple[str, int]] = Counter()
        for row in self.parts:
            sums[row.part, row.kind] += row.total_ns
        if any(len(row.steps_ns) not in (0, self.kinds[row.kind].n_compared) for row in self.parts):
            raise GraphError("a part does not have a time for each step.")
        for part, kind in product(PATH_PARTS, wholes):
            if sums[part, kind] != sums["step", kind]:
                raise GraphError(f"the path by {part} does not add up to the steps.")

    @cached_property
    def frame(self) -> pd.DataFrame:
        """All parts, one row each."""
        columns = [column.name for column in fields(Part)]
        rows = [tuple(getattr(part, column) for column in columns) for part in self.parts]
        texts = dict.fromkeys(("part", "bound", "name"), object)
        return pd.DataFrame(rows, columns=columns).astype(texts)

    def rows(self, part: str, kind: int = 0) -> pd.DataFrame:
        """Groups of one part of the steps of a kind."""
        return self.frame[(self.frame["part"] == part) & (self.frame["kind"] == kind)]

    def only(self, kinds: Sequence[int]) -> Self:
        """The profile of the steps of some kinds, in this order; all others are left out."""
        others = [one for row, one in enumerate(self.kinds) if row not in kinds]
        said = [
            one.said or f"{human_count(one.n_compared, 'step')} of other work" for one in others
        ]
        return replace(
            self,
            kinds=tuple(replace(self.kinds[kind], said="") for kind in kinds),
            parts=tuple(
                replace(part, kind=kinds.index(part.kind))
                for part in self.parts
                if part.kind in kinds
            ),
            n_odd=self.n_odd + sum(one.n_compared for one in others),
            left_out=(*self.left_out, *said),
        )

    @cached_property
    def usual(self) -> Self:
        """The profile without outliers."""
        kinds = [row for row, one in enumerate(self.kinds) if not one.said]
        return self if len(kinds) == len(self.kinds) else self.only(kinds)

    @property
    def n_compared(self) -> int:
        """Steps that are compared."""
        return sum(one.n_compared for one in self.usual.kinds)

    @property
    def typical_step_ns(self) -> float:
        """Typical step time: the mean of the compared steps, of each kind as often as it occurs.

        The step time of the window has all of its steps, and is the same if all are compared.
        """
        return self.usual.mean_ns("step")

    def mean_ns(self, part: str, name: str | None = None) -> float:
        """Mean time per step in a part, or in a group of it, of all kinds."""
        total_ns = sum(
            row.total_ns * self.kinds[row.kind].n_steps / self.kinds[row.kind].n_compared
            for row in self.parts
            if row.part == part and name in (None, row.name)
        )
        return total_ns / sum(one.n_steps for one in self.kinds)

    @property
    def most_are_odd(self) -> str:
        """A clause if most steps are unlike the others: the compared ones are not typical then."""
        if 2 * self.usual.n_odd <= self.n_steps:
            return ""
        return f"{self.usual.n_odd} of {self.n_steps} steps are not like the others"

    def share(self, part: str, name: str) -> float | None:
        """Share of a group in all groups of its part; None if nothing of it was recorded."""
        whole_ns = self.usual.mean_ns(part)
        return self.usual.mean_ns(part, name) / whole_ns if whole_ns else None

    def roof_shares(self, part: str) -> dict[str, float]:
        """Share of the roof that groups of a part reach, by name; without those of unknown roof."""
        totals = self.frame[self.frame["part"] == part].groupby("name")[["roof_ns", "total_ns"]]
        known = totals.sum()[totals.min()["roof_ns"] > 0]
        shares = (known["roof_ns"] / known["total_ns"]).tolist()
        return dict(zip(known.index.tolist(), shares, strict=True))

    @property
    def facts(self) -> str:
        """The name of the run, and its compared steps, in one line."""
        return self.described(self.typical_step_ns)

    def described(self, step_ns: float) -> str:
        """The same with a length of steps as a comparison weighs their kinds."""
        said = [self.name]
        if self.n_ranks > 1:
            said.append(human_count(self.n_ranks, "rank"))
        if self.unit == "step":
            steps = human_count(self.n_steps, "step")
            n_kinds = len(self.usual.kinds)
            of_kinds = f" of {n_kinds} kinds" if n_kinds > 1 else ""
            of_kinds = " that vary" if self.kinds[0].varies else of_kinds
            said.append(f"{self.n_compared:,} compared of {steps}{of_kinds}")
        each = " each" if self.n_compared > 1 else ""
        return ", ".join([*said, f"{human_duration(step_ns)}{each}"])

    def document(self) -> dict[str, Any]:
        """The profile as plain values, for JSON."""
        plain: dict[str, Any] = {"version": _VERSION, **msgspec.to_builtins(self)}
        plain |= {
            name: list(plain[name]) for name in ("kinds", "parts", "steps_ns", "left_out", "damage")
        }
        for part in plain["parts"]:
            part["steps_ns"] = list(part["steps_ns"])
        return plain

    def save(self, out: str | Path) -> Path:
        """Write the profile as JSON, for `RunProfile.read`.

        Parameters
        ----------
        out : str or Path

        Returns
        -------
        Path
            The file.

        Raises
        ------
        OutputError
            If the file cannot be written.
        """
        document = {"schema": "htagraph.profile", "profile": self.document()}
        write_text(out, json.dumps(document, indent=1) + "\n")
        return Path(out)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read the profile from a file of `htagraph report --json` or `save`.

        Parameters
        ----------
        path : str or Path

        Returns
        -------
        RunProfile

        Raises
        ------
        TraceFormatError
            If it has none, or one of another version.
        """
        hint = "htagraph report writes one: give it --json FILE."
        try:
            document = json.loads(_content(Path(path)), parse_int=_integer)
            json.dumps(document, ensure_ascii=False).encode()  # raises on half a surrogate pair
            return msgspec.convert(_of_this_version(document["profile"]), cls)
        except _UNREADABLE as exc:
            said = "it has no profile" if isinstance(exc, KeyError) else str(exc)
            raise TraceFormatError(f"not a baseline: {said}.", path=path, hint=hint) from exc

    def __repr__(self) -> str:
        """Say what is compared."""
        return f"RunProfile({self.facts})"


def _of_this_version(stored: object) -> dict[str, Any]:
    """A stored profile whose numbers mean what they do here."""
    profile = msgspec.convert(stored, dict[str, Any])
    if (version := profile.get("version")) != _VERSION:
        raise ValueError(f"it is of version {version}, and this htagraph reads {_VERSION}")
    return profile


def _integer(digits: str) -> int:
    """An integer of 64 bits: msgspec 0.18 turns longer ones into arbitrary floats."""
    number = int(digits)
    if not -_FAR < number < _FAR:
        raise ValueError("a number is beyond 64 bits")
    return number


def _content(path: Path) -> bytes:
    """The bytes of a file, unpacked, up to the limit."""
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if content.startswith(GZIP_MAGIC):
        content = zlib.decompressobj(GZIP_WINDOW).decompress(content, _MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
    return content


def is_baseline(path: Path) -> bool:
    """Whether a file is a stored report or profile, by its first bytes."""
    return _SCHEMA in first_bytes(path, _HEAD)
