"""Patterns as people write them: ``op aten::linear -LAUNCH> kernel -STREAM> nccl* [dur>1ms]``.

`docs/patterns.md` has the grammar. It is read by hand, one character after the other, so that every
error can say what it expected, and where.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NoReturn

from htagraph.errors import QueryError, did_you_mean, one_of
from htagraph.lookup.patterns import (
    ANY,
    HOP_KINDS,
    MOST_REPEATED,
    NUMBERS,
    PATTERN_KINDS,
    SIGNS,
    TEXTS,
    Condition,
    Hop,
    Pattern,
)
from htagraph.model.labels import printable
from htagraph.model.symbols import Names, checked_regex, compile_pattern
from htagraph.model.units import TIME_UNITS

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
