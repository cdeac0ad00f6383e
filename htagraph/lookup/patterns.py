"""What patterns are made of: conditions on an event, and the hops between events."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from htagraph.errors import QueryError, one_of
from htagraph.lookup.selecting import KIND_GROUPS, kind_mask, name_mask, named_under, where_rows
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind, EventKind
from htagraph.model.symbols import Names, SymbolTable
from htagraph.model.units import TIME_UNITS

CHILD = "CHILD"
"""The hop from a host event to what it directly encloses, or to what it launched itself."""
ANY = "any"
"""The kind of a pattern that stands for all kinds."""
PATTERN_KINDS = (*EventKind.labels(), *KIND_GROUPS, ANY)
HOP_KINDS = (*(label.upper() for label in EdgeKind.labels()), CHILD)
MOST_REPEATED = 64
"""Edges that one hop may follow; a typing error would run for hours. A limit of time."""

SIGNS: Mapping[str, Callable[[npt.NDArray[np.integer], int], Bools]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
NUMBERS: Mapping[str, Callable[[Dag], npt.NDArray[np.integer]]] = {
    "dur_ns": lambda dag: dag.events.dur_ns,
    "ts_ns": lambda dag: dag.events.ts_ns,
    "stream": lambda dag: dag.events.stream,
    "device": lambda dag: dag.events.device,
    "correlation": lambda dag: dag.events.correlation,
    "external_id": lambda dag: dag.events.external_id,
    "event": lambda dag: np.arange(len(dag.events)),
}
"""Columns that are compared with numbers."""
TEXTS: Mapping[str, Callable[[Dag, Names], Bools]] = {
    "category": lambda dag, name: dag.events.symbols.named(name)[dag.events.category],
    "tid": lambda dag, name: _of_lanes(dag, dag.events.lanes.tid, name),
    "pid": lambda dag, name: _of_lanes(dag, dag.events.lanes.pid, name),
}
"""Columns whose texts match a name."""


def _of_lanes(dag: Dag, ids: tuple[int | str, ...], name: Names) -> Bools:
    """Whether the thread or process of each event has a name, as the file writes it."""
    return SymbolTable([str(one) for one in ids]).named(name)[dag.events.lane]


@dataclass(frozen=True)
class Condition:
    """A column of events compared with one of some values."""

    column: str  # One of `NUMBERS` or `TEXTS`
    sign: str  # One of `SIGNS`; of texts, and of several values, only ``=`` and ``!=``
    values: tuple[int | str | re.Pattern[str], ...]

    def mask(self, dag: Dag) -> Bools:
        """Whether it holds for each event."""
        if self.column in TEXTS:
            return TEXTS[self.column](dag, self.values) ^ (self.sign == "!=")  # type: ignore[arg-type]
        found = [SIGNS[self.sign](NUMBERS[self.column](dag), one) for one in self.values]  # type: ignore[arg-type]
        holds: Bools = (np.logical_and if self.sign == "!=" else np.logical_or).reduce(found)
        return holds

    def __str__(self) -> str:
        """The condition as a pattern has it."""
        in_ns = self.column.endswith("_ns")
        return f"{self.column.removesuffix('_ns')}{self.sign}" + "|".join(
            (_time(one) if in_ns else str(one)) if isinstance(one, int) else written(one)
            for one in self.values
        )


def _time(dur_ns: int) -> str:
    """A time in the largest unit in which it is whole."""
    unit = next(unit for unit in reversed(TIME_UNITS) if dur_ns % TIME_UNITS[unit] == 0)
    return f"{dur_ns // TIME_UNITS[unit]}{unit}"


_PLAIN = re.compile(r"[\w.:#*?]+", re.ASCII)
"""Names that need no quotes."""


def written(name: Names) -> str:
    r"""A name as a pattern has it."""
    if isinstance(name, tuple):
        return "|".join(map(written, name))
    if isinstance(name, re.Pattern):
        return "/" + re.sub(r"\\.|/", lambda m: m[0].replace("/", r"\/"), name.pattern) + "/"
    if _PLAIN.fullmatch(name) and name.lower() not in PATTERN_KINDS:
        return name
    escaped = name.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'


@dataclass(frozen=True)
class Pattern:
    """Conditions on an event of a chain, as for `TraceGraph.select`.

    `where` is an expression in the words of Python, `conditions` are those of a pattern in text.
    """

    kind: str = ANY
    name: Names | None = None
    where: str | None = None
    under: Names | None = None
    on_path: bool | None = None
    conditions: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        """Check the kinds."""
        for kind in self.kinds:
            if kind not in PATTERN_KINDS:
                raise QueryError(
                    f"there is no event kind {kind!r}.", hint=one_of(kind, PATTERN_KINDS)
                )

    @property
    def kinds(self) -> list[str]:
        """The kinds, any of which an event may have."""
        return self.kind.lower().split("|")

    def mask(self, dag: Dag, rows: I64, path: Callable[[], I64]) -> Bools:
        """Whether each event matches and is in `rows`; `path` has the events of the path."""
        mask = np.zeros(len(dag.events), dtype=bool)
        mask[rows] = True
        if ANY not in self.kinds:
            mask &= kind_mask(dag, self.kinds)
        if self.name is not None:
            mask &= name_mask(dag, self.name)
        for condition in self.conditions:
            mask &= condition.mask(dag)
        if self.under is not None:
            mask &= named_under(dag, self.under)
        if self.on_path is not None:
            mask &= np.isin(np.arange(len(mask)), path()) == self.on_path
        if self.where is not None:
            kept = where_rows(dag, np.flatnonzero(mask), self.where)
            mask[:] = False
            mask[kept] = True
        return mask

    def __str__(self) -> str:
        """The pattern in text."""
        flags = {True: ["on_path"], False: ["!on_path"], None: []}[self.on_path]
        under = [] if self.under is None else [f"under={written(self.under)}"]
        where = [] if self.where is None else [self.where]
        listed = ", ".join([*map(str, self.conditions), *under, *flags, *where])
        named = "" if self.name is None else f" {written(self.name)}"
        return f"{self.kind}{named}{f' [{listed}]' * bool(listed)}"


@dataclass(frozen=True)
class Hop:
    """Edges of some kinds, or ``CHILD``, followed at least and at most so many times."""

    kind: str = ""  # Kinds with ``|`` between them; empty for edges of any kind
    at_least: int = 1
    at_most: int = 1
    backward: bool = False  # From head to tail

    def __post_init__(self) -> None:
        """Check the kinds and the range."""
        for kind in self.kinds:
            if kind not in HOP_KINDS:
                raise QueryError(f"{kind!r} is no EdgeKind.", hint=one_of(kind, HOP_KINDS))
        if not 0 <= self.at_least <= self.at_most <= MOST_REPEATED:
            raise QueryError(
                f"a hop cannot follow {self.at_least} to {self.at_most} edges.",
                hint=f"0 <= at_least <= at_most <= {MOST_REPEATED}.",
            )

    @property
    def kinds(self) -> list[str]:
        """The kinds; all kinds of edges if none is given."""
        return self.kind.upper().split("|") if self.kind else [*HOP_KINDS[:-1]]

    def __str__(self) -> str:
        """The arrow in text."""
        times = f"{{{self.at_least},{self.at_most}}}" * ((self.at_least, self.at_most) != (1, 1))
        return f"<{self.kind}{times}-" if self.backward else f"-{self.kind}{times}>"
