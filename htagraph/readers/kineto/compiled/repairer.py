"""The repairer: copies one broken JSON value and makes it valid on the way. Compiled.

The scanner only reads valid JSON; what it rejects comes here. The hard part is a text with
unescaped quotes: a quote ends its text only if what follows it fits, as in this event::

    "name": "{"device": "cpu"}(12): run", "pid": 1
             ^ ^      ^  ^   ^         ^
             | |      |  |   |         followed by `, "pid":`, an event key: the end
             | |      |  |   followed by `}`, but then not by `,`, `]`, `}`: part of the text
             | |      |  followed by a letter: part of the text
             | |      followed by `:`, which never follows a value: part of the text
             followed by a letter: part of the text
"""

from __future__ import annotations

from htagraph.readers.defects import Defect
from htagraph.readers.kineto.compiled.keys import find_key
from htagraph.readers.kineto.compiled.lexer import MAX_DEPTH, escape_end, skip_space, utf8_end
from htagraph.readers.kineto.compiled.machine import called, entry
from htagraph.readers.kineto.compiled.repaired_output import (
    CUT,
    NO_ROOM,
    REPAIRED,
    TORN,
    Bench,
    copy_text,
    put,
    repair_word,
)

_MAX_KEY = 256
"""Bytes of the longest key (chosen)."""


@called
def _known_key(bench: Bench, i: int, any_key: bool) -> int:
    """The position after the colon if a plausible key starts at a quote, else -1."""
    buf, a = bench.buf, i + 1
    b = a
    while buf[b] != 34 and buf[b] >= 32 and b - a < _MAX_KEY:
        b += 1
    if buf[b] != 34 or b == a:
        return -1
    colon = skip_space(buf, b + 1)
    if buf[colon] != 58:
        return -1
    if any_key or find_key(bench.keys, buf, a, b, 0) >= 0:
        return colon + 1
    is_other = (b - a == 1 and buf[a] == 115) or (
        b - a == 2 and buf[a] == 98 and buf[a + 1] == 112
    )  # s, bp
    return colon + 1 if is_other else -1


@called
def _begins_event(bench: Bench, i: int) -> bool:
    """Whether an event begins at a ``{`` inside another, which was then torn off."""
    buf = bench.buf
    quote = skip_space(buf, i + 1)
    value = _known_key(bench, quote, False) if buf[quote] == 34 else -1
    if value < 0:
        return False
    if buf[quote + 1] == 112 and buf[quote + 2] == 104:  # "ph" with a text begins nothing else
        return buf[skip_space(buf, value)] == 34
    k = i - 1
    while k > 0 and (buf[k] == 32 or buf[k] == 10 or buf[k] == 13 or buf[k] == 9 or buf[k] == 44):
        k -= 1
    return k < i - 1 and buf[k] == 125


@called
def _ends_text(bench: Bench, quote: int, depth: int, is_key: bool) -> bool:
    """Whether a quote is the end of its text."""
    buf = bench.buf
    in_object = depth == 0 or bench.stack[depth - 1] == 123
    i = skip_space(buf, quote + 1)
    c = buf[i]
    if i >= bench.end:
        return True
    if is_key:
        return c == 58
    if c == 44:
        i = skip_space(buf, i + 1)
        c = buf[i]
        if i >= bench.end or c == 125 or c == 93:
            return True
        if in_object:
            return c == 34 and _known_key(bench, i, depth > 1 or not bench.is_event) >= 0
        return (
            c == 34
            or c == 123
            or c == 91
            or c == 45
            or 48 <= c <= 57
            or c == 116
            or c == 102
            or c == 110
        )
    if c == (125 if in_object else 93):
        i = skip_space(buf, i + 1)
        c = buf[i]
        return i >= bench.end or c == 44 or c == 125 or c == 93
    return False


@called
def _text_end(bench: Bench, i: int, depth: int, is_key: bool) -> tuple[int, int]:
    """The position of the quote that ends a text, and the defects up to there.

    -1: no such quote in these bytes; -2: another event begins first.
    """
    buf, start, defects = bench.buf, i, 0
    while i < bench.end:
        c = buf[i]
        if c == 34:
            if _ends_text(bench, i, depth, is_key):
                return i, defects
            defects |= 1 << Defect.RAW_QUOTE.value
        elif c == 92:
            after = escape_end(buf, i)
            if after < 0:
                defects |= 1 << Defect.BAD_ESCAPE.value
            else:
                i = after - 1
        elif c >= 128:
            after = utf8_end(buf, i)
            if after < 0:
                defects |= 1 << Defect.INVALID_UTF8.value
            else:
                i = after - 1
        elif c < 32:
            defects |= 1 << Defect.CONTROL_BYTE.value
        elif c == 123 and _begins_event(bench, i):
            return -2, defects
        i += 1
        if is_key and i - start > _MAX_KEY:
            return -2, defects
    return -1, defects


@called
def _repair_text(bench: Bench, quote: int, depth: int, is_key: bool) -> tuple[int, int]:
    """Copy the text at a quote; return the position after it, and how it ended."""
    end, defects = _text_end(bench, quote + 1, depth, is_key)
    if end < 0:
        return quote, CUT if end == -1 else TORN
    if bench.n[0] + 6 * (end - quote) + 16 > len(bench.out):
        return quote, NO_ROOM
    bench.n[1] |= defects
    put(bench, 34)
    copy_text(bench, quote + 1, end, defects)
    put(bench, 34)
    return end + 1, REPAIRED


@called
def _skip_commas(bench: Bench, i: int) -> int:
    """The position after white space and surplus commas."""
    i = skip_space(bench.buf, i)
    while bench.buf[i] == 44:
        bench.n[1] |= 1 << Defect.COMMA.value
        i = skip_space(bench.buf, i + 1)
    return i


@called
def _repair_key(bench: Bench, i: int, depth: int) -> tuple[int, int]:
    """Copy a key and its colon; return the position of the value, and how it ended."""
    buf = bench.buf
    if buf[i] != 34:
        return i, CUT if i >= bench.end else TORN
    i, ended = _repair_text(bench, i, depth, True)
    if ended != REPAIRED:
        return i, ended
    i = skip_space(buf, i)
    if buf[i] != 58:
        return i, CUT if i >= bench.end else TORN
    put(bench, 58)
    return skip_space(buf, i + 1), REPAIRED


@called
def _after_value(bench: Bench, i: int, depth: int) -> tuple[int, int, int]:
    """Copy closing brackets and a comma; return the next position, its depth, how it ended."""
    buf = bench.buf
    while depth > 0:
        i = skip_space(buf, i)
        close = bench.stack[depth - 1] + 2
        had_comma = buf[i] == 44
        if had_comma:
            i = _skip_commas(bench, i + 1)
        if buf[i] == close:
            if had_comma:
                bench.n[1] |= 1 << Defect.COMMA.value
            put(bench, close)
            depth -= 1
            i += 1
        elif i >= bench.end:
            return i, depth, CUT
        elif had_comma or buf[i] == 34:
            if not had_comma:
                bench.n[1] |= 1 << Defect.COMMA.value
            put(bench, 44)
            if close == 93:
                return i, depth, REPAIRED
            i, ended = _repair_key(bench, i, depth)
            return i, depth, ended
        else:
            return i, depth, TORN
    return i, depth, REPAIRED


@called
def _repair_scalar(bench: Bench, i: int, depth: int) -> tuple[int, int]:
    """Copy a text, number or literal; write ``null`` for a missing one."""
    c = bench.buf[i]
    if c == 34:
        return _repair_text(bench, i, depth, False)
    if depth > 0 and (c == 44 or c == 125 or c == 93):
        bench.n[1] |= 1 << Defect.BARE_WORD.value
        for byte in b"null":
            put(bench, byte)
        return i, REPAIRED
    return repair_word(bench, i)


@entry
def repair(bench: Bench, i: int) -> tuple[int, int]:
    """Copy a value and make it valid; return the position after it, and how it ended."""
    buf, depth = bench.buf, 0
    bench.n[0], bench.n[1] = 0, 0
    while True:
        if bench.n[0] + 4096 > len(bench.out):
            return i, NO_ROOM
        c = buf[i]
        if i >= bench.end:
            return i, CUT
        if c == 123 or c == 91:
            if depth == MAX_DEPTH or (
                bench.is_event and depth > 0 and c == 123 and _begins_event(bench, i)
            ):
                return i, TORN
            bench.stack[depth] = c
            depth += 1
            put(bench, c)
            i = _skip_commas(bench, i + 1)
            if buf[i] != c + 2:
                ended = REPAIRED
                if c == 123:
                    i, ended = _repair_key(bench, i, depth)
                if ended != REPAIRED:
                    return i, ended
                continue
        else:
            i, ended = _repair_scalar(bench, i, depth)
            if ended != REPAIRED:
                return i, ended
        i, depth, ended = _after_value(bench, i, depth)
        if ended != REPAIRED or depth == 0:
            return i, ended


@entry
def next_event(bench: Bench, i: int, margin: int) -> int:
    """The position of the next ``{`` followed by an event key.

    Else that of a ``{`` within `margin` of the end, whose key may be cut off; else the end.
    """
    while i < bench.end:
        if bench.buf[i] == 123:
            quote = skip_space(bench.buf, i + 1)
            if bench.buf[quote] == 34 and _known_key(bench, quote, False) >= 0:
                return i
            if bench.end - i < margin:
                return i
        i += 1
    return bench.end
