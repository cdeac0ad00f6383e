"""Patterns of events: conditions and hops, and how people write them.

``op aten::linear -LAUNCH> kernel -STREAM> nccl* [dur>1ms]``: `docs/patterns.md` has the grammar. It
is read by hand, one character after the other, so that every error can say what it expected, and
where.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from htagraph.errors import QueryError, did_you_mean, one_of
from htagraph.lookup.selecting import KIND_GROUPS, kind_mask, name_mask, named_under, where_rows
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind, EventKind
from htagraph.model.labels import printable
from htagraph.model.symbols import Names, SymbolTable, checked_regex, compile_pattern
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
        times = f"{{{self.at_least},{self.at_most}}}" * ((self.at_least, self.at_most) != (1, 1))
        return f"<{self.kind}{times}-" if self.backward else f"-{self.kind}{times}>"


_LONGEST, _MOST_HOPS = 4_000, 32
"""Characters and arrows of a pattern: chosen, far beyond what is written by hand."""
_SHOWN = 60
"""Characters of a long pattern that an error shows on each side: chosen, two fit a line."""
_MOST_NUMBER = 2**63 - 1
_ONE_KIND = f"(?:{'|'.join(HOP_KINDS)})"
_KINDS = rf"(?:{_ONE_KIND}(?:\|{_ONE_KIND})*)?(?:\{{\d+(?:,\d+)?\}})?"
_ARROW = re.compile(rf"-{_KINDS}>|<{_KINDS}-", re.IGNORECASE)
_WORDS = re.compile(r"[A-Za-z_]+(?:\|[A-Za-z_]+)*(?=[\s\[]|$)")
_WORD = re.compile(r"\w*")
_BARE = re.compile(r'[^\s|"\[]+')
_BARE_VALUE = re.compile(r'[^\s|"\[\],]+')
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_REGEX = re.compile(r"/((?:[^/\\]|\\.)*)/", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_TIMES = re.compile(r"(\d{1,4})(?:,(\d{1,4}))?")
_SIGN = re.compile(r"==|!=|<=|>=|[<>=]")
_EQUALITY = ("=", "!=")
_NUMBER = re.compile(r"(-?\d{1,19}(?:\.\d{1,9})?)(?:\s*([^\W\d_]+))?")
_COLUMNS = {name.removesuffix("_ns"): name for name in (*NUMBERS, *TEXTS)}
_FLAG, _UNDER = "on_path", "under"
_AFTER_EVENT = ("", "[", "-", "<")
"""What is behind an event: nothing, conditions or an arrow. Names that begin so are in quotes."""


def parse_pattern(text: str) -> tuple[Pattern | Hop, ...]:
    """Patterns and hops of a text, in turn."""
    return _Reader(text).chain()


class _Reader:
    """A text, and how far it was read."""

    def __init__(self, text: str) -> None:
        if len(text) > _LONGEST:
            raise QueryError(f"a pattern of {len(text):,} characters; {_LONGEST:,} are the most.")
        self.text, self.at = text, 0

    def fail(
        self, expected: str, *, at: int | None = None, length: int = 1, hint: str = ""
    ) -> NoReturn:
        """Say what was expected instead of some characters."""
        at = self.at if at is None else at
        word = self.text[at : at + min(length, _SHOWN)]
        found = f"not {word!r}" if word else "but it ends"
        before, after = self.text[max(at - _SHOWN, 0) : at], self.text[at : at + _SHOWN]
        raise QueryError(
            f"character {at + 1} of the pattern: expected {expected}, {found}.",
            hint=hint or None,
            excerpt=f"{printable(before + after)}\n{' ' * len(before)}^",
        )

    def skip(self) -> None:
        """Skip white space."""
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def take(self, regex: re.Pattern[str]) -> re.Match[str] | None:
        """What matches here, and continue behind it."""
        if found := regex.match(self.text, self.at):
            self.at = found.end()
        return found

    def next(self) -> str:
        """The next character, empty at the end."""
        return self.text[self.at : self.at + 1]

    def takes(self, sign: str) -> bool:
        """Whether a character is next, and continue behind it."""
        is_next = self.text.startswith(sign, self.at)
        self.at += is_next
        return is_next

    def word(self) -> str:
        """The letters that are next, perhaps none."""
        found = self.take(_WORD)
        return found[0] if found else ""

    def chain(self) -> tuple[Pattern | Hop, ...]:
        """Patterns and hops, up to the end."""
        items: list[Pattern | Hop] = [self.event()]
        while self.at < len(self.text):
            if len(items) > 2 * _MOST_HOPS:
                self.fail(f"the end after {_MOST_HOPS} arrows")
            items += [self.arrow(), self.event()]
        return tuple(items)

    def event(self) -> Pattern:
        """The conditions on an event."""
        self.skip()
        start = self.at
        if self.next() in ("", "-", "<"):
            self.fail("an event: its kind (op, kernel, any …), its name, or both")
        words = _WORDS.match(self.text, start)
        kind = words[0].lower() if words else ""
        if is_kind := bool(kind) and all(one in PATTERN_KINDS for one in kind.split("|")):
            self.at += len(kind)
            self.skip()
        name = None if self.next() in _AFTER_EVENT else self.names(_BARE)
        self.skip()
        if name is not None and self.next() not in _AFTER_EVENT:
            if is_kind:
                self.fail("an arrow, '[' or the end", hint="names with spaces are in quotes.")
            meant = did_you_mean(kind, PATTERN_KINDS)
            hint = f"{meant}kinds are {', '.join(PATTERN_KINDS)}; names with spaces are in quotes."
            length = len(self.text[start:].split(maxsplit=1)[0])
            self.fail("a kind of event", at=start, length=length, hint=hint)
        held = self.conditions()
        return Pattern(kind if is_kind else ANY, name, None, *held)

    def names(self, bare: re.Pattern[str]) -> Names:
        """A name, or several with | between them."""
        found = [self.name(bare)]
        while self.takes("|"):
            found.append(self.name(bare))
        return found[0] if len(found) == 1 else tuple(found)

    def name(self, bare: re.Pattern[str]) -> str | re.Pattern[str]:
        """A name: bare, in quotes, or a regular expression between slashes."""
        start, text = self.at, ""
        found = self.take(_REGEX) or self.take(_QUOTED) or self.take(bare)
        if found and found.re is _QUOTED:
            text = _ESCAPED.sub(lambda one: one[1] if one[1] in '\\"' else one[0], found[1])
        elif found and found.re is _REGEX:
            text = _ESCAPED.sub(lambda one: one[0].replace(r"\/", "/"), found[1])
        elif found:
            text = found[0]
            if arrow := _ARROW.search(text):
                hint = "spaces are around an arrow; a name with an arrow in it is in quotes."
                self.fail("a space", at=start + arrow.start(), length=len(arrow[0]), hint=hint)
        try:
            if found and found.re is _REGEX:
                return checked_regex(text)
            compile_pattern(text)
        except QueryError as error:
            said = " ".join(filter(None, (error.message, error.hint))).replace(repr(text), "it")
            self.fail("a name", at=start, length=self.at - start, hint=said)
        if not text:
            is_open = self.text.startswith('"', start)
            hint = 'for example aten::mm, nccl*, "a b", /^nccl/.'
            self.fail("a closing quote" if is_open else "a name", at=start, hint=hint)
        return text

    def arrow(self) -> Hop:
        """An arrow."""
        backward = self.takes("<")
        if not backward and not self.takes("-"):
            self.fail("an arrow (-STREAM>, <LAUNCH-, ->), '[' or the end")
        kinds = [] if self.next() in ("{", "-", ">") else [self.edge_kind()]
        while kinds and self.takes("|"):
            kinds.append(self.edge_kind())
        times = (1, 1)
        if self.takes("{"):
            start = self.at
            found = self.take(_TIMES)
            if not found:
                self.fail("how often: {2} or {1,3}")
            times = int(found[1]), int(found[2] or found[1])
            if not times[0] <= times[1] <= MOST_REPEATED:
                most = f"0 to {MOST_REPEATED} edges, the smaller number first"
                self.fail(most, at=start, length=len(found[0]))
            if not self.takes("}"):
                self.fail("'}'")
        if not self.takes(end := "-" if backward else ">"):
            self.fail(f"{end!r}, which ends the arrow")
        return Hop("|".join(kinds), *times, backward)

    def edge_kind(self) -> str:
        """A kind of edge."""
        start = self.at
        word = self.word()
        if word.upper() not in HOP_KINDS:
            hint = one_of(word, HOP_KINDS)
            self.fail("a kind of edge", at=start, length=max(len(word), 1), hint=hint)
        return word.upper()

    def conditions(self) -> tuple[Names | None, bool | None, tuple[Condition, ...]]:
        """Names above the event, whether it is on the path, and other conditions."""
        under: Names | None = None
        on_path: bool | None = None
        held: list[Condition] = []
        more = self.takes("[")
        while more:
            self.skip()
            start = self.at
            is_not = self.takes("!")
            word = self.word()
            if word == _FLAG and on_path is None:
                on_path = not is_not
            elif word == _UNDER and under is None and not is_not:
                self.skip()
                if not self.takes("="):
                    self.fail("'='")
                self.skip()
                under = self.names(_BARE_VALUE)
            elif word.removesuffix("_ns") in _COLUMNS and not is_not:
                held.append(self.condition(word.removesuffix("_ns")))
            else:
                listed = one_of(word, (*_COLUMNS, _UNDER, _FLAG, f"!{_FLAG}"))
                self.fail("a condition", at=start, length=max(self.at - start, 1), hint=listed)
            self.skip()
            more = self.takes(",")
            if not more and not self.takes("]"):
                self.fail("',' or ']'")
        self.skip()
        return under, on_path, tuple(held)

    def condition(self, word: str) -> Condition:
        """What a column is compared with."""
        column = _COLUMNS[word]
        self.skip()
        start = self.at
        found = self.take(_SIGN)
        sign = (found[0] if found else "").replace("==", "=")
        is_text = column in TEXTS
        if not found or (is_text and sign not in _EQUALITY):
            signs = _EQUALITY if is_text else SIGNS
            self.fail(f"one of {' '.join(signs)}", at=start, length=max(self.at - start, 1))
        values: list[int | str | re.Pattern[str]] = []
        while not values or (sign in _EQUALITY and self.takes("|")):
            self.skip()
            values.append(self.name(_BARE_VALUE) if is_text else self.number(column))
            self.skip()
        return Condition(column, sign, tuple(values))

    def number(self, column: str) -> int:
        """A whole number; of a time, with a unit or in nanoseconds."""
        start = self.at
        found = self.take(_NUMBER)
        if not found:
            self.fail("a time (1.5ms)" if column.endswith("_ns") else "a whole number")
        value = Fraction(found[1])
        if found[2] is not None:
            unit = found[2].replace("µ", "u")
            is_time = column.endswith("_ns")
            if unit not in TIME_UNITS or not is_time:
                expected = f"a unit ({', '.join(TIME_UNITS)})" if is_time else "no unit"
                self.fail(expected, at=found.start(2), length=len(found[2]))
            value *= TIME_UNITS[unit]
        if value.denominator > 1 or abs(value) > _MOST_NUMBER:
            expected = f"whole nanoseconds up to {_MOST_NUMBER:,}"
            self.fail(expected, at=start, length=len(found[0]))
        return int(value)
