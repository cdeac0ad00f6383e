"""The scanner: goes over the bytes of the event list once and fills columns. Compiled.

An event is read into a scratch `Event` (`_read_event`), then entered into the columns of a `Batch`
(`_enter`). The scanner is strict: invalid JSON stops it at the start of its event, and `repairer`
takes over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.readers.defects import Defect
from htagraph.readers.kineto.compiled.event_values import Event, integer_text, read_value, time_at
from htagraph.readers.kineto.compiled.interning import Interned, intern
from htagraph.readers.kineto.compiled.keys import Keys, find_key
from htagraph.readers.kineto.compiled.lexer import (
    PADDING,
    TOO_DEEP,
    skip_space,
    skip_value,
    string_end,
)
from htagraph.readers.kineto.compiled.machine import called, entry, inlined
from htagraph.readers.kineto.event_fields import COLUMNS, Field, Read

U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

BETWEEN, CLOSED, OPEN, FULL, BAD, DEEP = range(6)
"""Reasons to stop: the end of the bytes between two events; the ``]``; an event cut off by the end;
lack of room; an event that is not valid JSON; one that is nested too deep.
"""

KEEP, LEAVE_ALL, LEAVE_FLOWS = range(3)
"""What to do with a category: read all events; none; all but flow points."""

ABSENT = -(1 << 63)
"""Value of a dense column if the event has none."""

TEXT_IDS = 1 << 62
"""Ids from here on are symbols of texts that are not integers."""

_UNREAD, _WHOLE, _HALF, _FLOW, _META, _ASYNC = range(6)
"""How an event is entered, by its phase."""

MAX_DURATION_NS = 7 * 86_400 * 1_000_000_000
"""Longest event, 7 days (chosen); the duration of a longer one counts as unknown."""

_SYMBOLS_PER_EVENT = 16
"""Most texts of an event that are interned, and floats left to Python."""

_LISTS_PER_EVENT = sum(column.read == Read.LIST for column in COLUMNS)

_ASYNC_ID = next(code for code, column in enumerate(COLUMNS) if column.name == "async_id")


class Rules(NamedTuple):
    """The events to skip."""

    dropped: U8  #: by code of a known category: `KEEP`, `LEAVE_ALL` or `LEAVE_FLOWS`
    others: int  #: the same for any other category
    start_ns: int  #: events that do not touch ``[start_ns, end_ns)`` are skipped
    end_ns: int
    shapes: U8  #: by the byte of the phase: how such an event is entered
    notes_all: bool  #: whether to note the place of all events, not only of metadata events


class Batch(NamedTuple):
    """The events read since the batch was last emptied; columns are the first axis."""

    rows: I64  #: by position in `parts.ROW_FIELDS`
    flows: I64  #: ts, id, lane, phase, category
    metas: I64  #: start and end of the bytes of metadata events, or of all
    reals: I64  #: column, position, start and end of the bytes of floats for Python to read
    sparse_row: I32  #: by column of `fields.COLUMNS`
    sparse_value: I64
    sparse_n: I64  #: number of values by column
    n: I64  #: number of rows, flows, metas, reals, events outside the window
    repairs: I64  #: count and first offset by `Defect`
    skipped: I64  #: number of events skipped, by code of their category
    phases: I64  #: number of events of unknown phases, by the byte of the phase
    n_bytes: I64  #: bytes of all timed events, skipped or not, as `skipped`


class Tables(NamedTuple):
    """All that the scanner reads and writes besides the bytes."""

    keys: Keys
    event: Event
    symbols: Interned
    lanes: Interned  #: of pairs of symbols, 32 bits each
    lists: Interned  #: as written
    rules: Rules
    batch: Batch


@inlined
def _mark(batch: Batch, defect: int, offset: int) -> None:
    batch.repairs[defect, 0] += 1
    batch.repairs[defect, 1] = min(batch.repairs[defect, 1], offset)


@inlined
def _has(event: Event, field: int) -> bool:
    """Whether the event has a field."""
    return bool(event.has[field] == event.serial[0])


@called
def _holds_args(buf: U8, i: int, event: Event) -> bool:
    """Whether ``args`` is an object; a second one replaces the first."""
    if _has(event, Field.ARGS.value):
        for field in range(Field.ARGS.value, len(event.has)):
            event.has[field] = 0
    event.has[Field.ARGS.value] = event.serial[0]
    return bool(buf[i] == 123)


@inlined
def _read_event(buf: U8, i: int, keys: Keys, event: Event) -> int:
    """Read the event that starts here into the scratch event; return the position after it."""
    event.serial[0] += 1
    event.serial[1] = 0
    event.serial[2] = 0
    level = 0
    i = skip_space(buf, i + 1)
    if buf[i] == 125:
        return i + 1
    while True:
        if buf[i] != 34:
            return -i - 1
        a = i + 1
        b = string_end(buf, a)
        if b < 0:
            return b
        i = skip_space(buf, b + 1)
        if buf[i] != 58:
            return -i - 1
        i = skip_space(buf, i + 1)
        key = find_key(keys, buf, a, b, level)
        if key < 0:
            i = skip_value(buf, i, event.stack)
        elif keys.read[key] != Read.ARGS.value:
            i = read_value(buf, i, event, keys.field[key], keys.read[key])
        elif _holds_args(buf, i, event):
            i = skip_space(buf, i + 1)
            if buf[i] != 125:
                level = 1
                continue
            i += 1
        else:
            i = skip_value(buf, i, event.stack)
        if i < 0:
            return i
        i = skip_space(buf, i)
        if buf[i] == 125 and level == 1:
            level = 0
            i = skip_space(buf, i + 1)
        if buf[i] == 44:
            i = skip_space(buf, i + 1)
        elif buf[i] == 125 and level == 0:
            return i + 1
        else:
            return -i - 1


@inlined
def _code(buf: U8, event: Event, field: int, symbols: Interned) -> int:
    """The symbol of a text field; 0, the empty text, if absent."""
    if not _has(event, field):
        return 0
    return intern(symbols, buf, event.start[field], event.end[field])


@inlined
def _dense(event: Event, field: int) -> int:
    """An integer field, `ABSENT` if there is none."""
    return event.value[field] if _has(event, field) else ABSENT


@called
def _times(buf: U8, event: Event) -> bool:
    """Read times too large for microseconds as nanoseconds; return whether there is a start."""
    if event.serial[2] & (1 << Defect.NANOSECONDS.value):
        for field in (Field.TS.value, Field.DUR.value):
            if _has(event, field):
                _, value, fits = time_at(buf, event.start[field], 0)
                event.value[field] = value if fits else -1
                if not fits and field == Field.TS.value:
                    return False
    return _has(event, Field.TS.value)


@inlined
def _duration(event: Event, batch: Batch, phase: int, offset: int) -> int:
    """The duration of an event, 0 if it has none that is plausible."""
    if phase != ord("X"):
        return 0
    if not _has(event, Field.DUR.value):
        _mark(batch, Defect.NO_DURATION.value, offset)
        return 0
    if not 0 <= event.value[Field.DUR.value] <= MAX_DURATION_NS:
        _mark(batch, Defect.IMPOSSIBLE_DURATION.value, offset)
        return 0
    return event.value[Field.DUR.value]


@called
def _enter_sparse(buf: U8, tables: Tables, row: int) -> None:
    keys, event, symbols, batch = tables.keys, tables.event, tables.symbols, tables.batch
    for k in range(event.serial[1]):
        field = event.sparse[k]
        if not _has(event, field):
            continue
        column = field - Field.FIRST_SPARSE.value
        n = batch.sparse_n[column]
        batch.sparse_row[column, n] = row
        read = keys.read_of_field[field]
        if read == Read.TEXT.value or read == Read.LIST.value:
            table = symbols if read == Read.TEXT.value else tables.lists
            batch.sparse_value[column, n] = intern(table, buf, event.start[field], event.end[field])
        else:
            batch.sparse_value[column, n] = event.value[field]
            if read == Read.REAL.value and event.end[field] > 0:
                real = batch.n[3]
                batch.reals[0, real], batch.reals[1, real] = column, n
                batch.reals[2, real], batch.reals[3, real] = event.start[field], event.end[field]
                batch.n[3] = real + 1
        batch.sparse_n[column] = n + 1


@inlined
def _id(buf: U8, tables: Tables) -> int:
    """The id of an event: an integer, else the symbol of its text, from `TEXT_IDS` on."""
    event = tables.event
    number, good = 0, False
    if _has(event, Field.ID.value):
        number, good = integer_text(buf, event.start[Field.ID.value], event.end[Field.ID.value])
    return number if good else TEXT_IDS + _code(buf, event, Field.ID.value, tables.symbols)


@called
def _enter_flow(buf: U8, tables: Tables, phase: int, category: int, lane: int) -> None:
    """Enter a flow point; a finish that binds to the next slice becomes ``F``."""
    event, batch = tables.event, tables.batch
    n = batch.n[1]
    binds_inside = _has(event, Field.BIND.value) and buf[event.start[Field.BIND.value]] == ord("e")
    if phase == ord("f") and not binds_inside:
        phase = ord("F")
    batch.flows[0, n] = event.value[Field.TS.value]
    batch.flows[1, n] = _id(buf, tables)
    batch.flows[2, n], batch.flows[3, n], batch.flows[4, n] = lane, phase, category
    batch.n[1] = n + 1


@inlined
def _enter_row(
    buf: U8, tables: Tables, start: int, dur: int, phase: int, category: int, lane: int
) -> int:
    """Enter an event that takes a row; return the row."""
    event, rows = tables.event, tables.batch.rows
    row = tables.batch.n[0]
    rows[0, row], rows[1, row], rows[2, row] = start, dur, phase
    rows[3, row] = _code(buf, event, Field.NAME.value, tables.symbols)
    rows[4, row], rows[5, row] = category, lane
    for k in range(4):  # device, stream, correlation, external id
        rows[6 + k, row] = _dense(event, Field.DEVICE.value + k)
    _enter_sparse(buf, tables, row)
    tables.batch.n[0] = row + 1
    return row


@inlined
def _enter_timed(
    buf: U8, tables: Tables, offset: int, n_bytes: int, phase: int, shape: int
) -> None:
    """Enter an event that has a time, or count why not."""
    event, batch, rules = tables.event, tables.batch, tables.rules
    category = _code(buf, event, Field.CATEGORY.value, tables.symbols)
    batch.n_bytes[category] += n_bytes
    rule = rules.dropped[category] if category < len(rules.dropped) else rules.others
    is_half = shape in (_HALF, _ASYNC)
    if (rule == LEAVE_ALL and not is_half) or (rule == LEAVE_FLOWS and shape == _FLOW):
        batch.skipped[category] += 1
        return
    if not _times(buf, event):
        batch.n_bytes[category] -= n_bytes
        _mark(batch, Defect.NO_TIMESTAMP.value, offset)
        return
    for defect in (
        Defect.NANOSECONDS.value,
        Defect.NUMBER_AS_TEXT.value,
        Defect.NUMBER_TOO_LARGE.value,
    ):
        if event.serial[2] & (1 << defect):
            _mark(batch, defect, offset)
    start = event.value[Field.TS.value]
    dur = _duration(event, batch, phase, offset)
    if not is_half and not (
        start < rules.end_ns and (start + dur > rules.start_ns or start == rules.start_ns)
    ):
        batch.n[4] += 1
        return
    if not _has(event, Field.PID.value) and not _has(event, Field.TID.value):
        _mark(batch, Defect.NO_PLACE.value, offset)
    pid = _code(buf, event, Field.PID.value, tables.symbols)
    tid = _code(buf, event, Field.TID.value, tables.symbols)
    event.word[0] = (pid << 32) | tid
    lane = intern(tables.lanes, event.word_bytes, 0, 8)
    if shape == _FLOW:
        _enter_flow(buf, tables, phase, category, lane)
    else:
        row = _enter_row(buf, tables, start, dur, phase, category, lane)
        batch.rows[10, row], batch.rows[11, row] = offset, n_bytes
        if shape == _ASYNC:
            n = batch.sparse_n[_ASYNC_ID]
            batch.sparse_row[_ASYNC_ID, n] = row
            batch.sparse_value[_ASYNC_ID, n] = _id(buf, tables)
            batch.sparse_n[_ASYNC_ID] = n + 1


@inlined
def _enter(buf: U8, i: int, end: int, origin: int, tables: Tables) -> None:
    """Enter the event ``buf[i:end]`` into the columns, or count why not."""
    event, batch = tables.event, tables.batch
    if not _has(event, Field.PHASE.value):
        if buf[skip_space(buf, i + 1)] == 125:  # {}: XProf's files end in one, after a comma
            return
        _mark(batch, Defect.NO_PHASE.value, origin + i)
        return
    phase = np.int64(buf[event.start[Field.PHASE.value]])
    shape = tables.rules.shapes[phase]
    if shape == _META or tables.rules.notes_all:
        n = batch.n[2]
        batch.metas[0, n], batch.metas[1, n] = i, end
        batch.n[2] = n + 1
    if shape == _UNREAD:
        batch.phases[phase] += 1
    elif shape != _META:
        _enter_timed(buf, tables, origin + i, end - i, phase, shape)


@inlined
def _has_room(tables: Tables, n_bytes: int) -> bool:
    """Whether an event of `n_bytes` fits in all tables."""
    batch, symbols, lanes, lists = tables.batch, tables.symbols, tables.lanes, tables.lists
    n, n_lists = symbols.n[0], lists.n[0]
    return bool(
        max(batch.n[0], batch.n[1], batch.n[2]) < batch.rows.shape[1]
        and batch.n[3] + _SYMBOLS_PER_EVENT < batch.reals.shape[1]
        and n + _SYMBOLS_PER_EVENT < min(len(symbols.hashes), len(batch.skipped))
        and symbols.starts[n] + n_bytes < len(symbols.arena) - PADDING
        and lanes.n[0] + 1 < len(lanes.hashes)
        and n_lists + _LISTS_PER_EVENT < len(lists.hashes)
        and lists.starts[n_lists] + n_bytes < len(lists.arena) - PADDING
    )


@entry
def scan(
    buf: U8, i: int, end: int, origin: int, tables: Tables, after_event: bool
) -> tuple[int, int]:
    """Read events from a position on; return the position where it stopped, and why.

    `buf`: bytes of the event list, `lexer.PADDING` zero bytes after them. `i`, `end`: where to
    start, between two events, and where the bytes end. `after_event`: whether a comma must precede
    the next event.
    """
    commas = 0 if after_event else -1  # since the last event; -1 where none is expected
    while True:
        i = skip_space(buf, i)
        c = buf[i]
        if c == 123:
            after = _read_event(buf, i, tables.keys, tables.event)
            if after < 0:
                if after == TOO_DEEP:
                    return i, DEEP
                return i, OPEN if -after - 1 >= end else BAD
            if not _has_room(tables, after - i):
                return i, FULL
            if commas == 0:
                _mark(tables.batch, Defect.COMMA.value, origin + i)
            _enter(buf, i, after, origin, tables)
            i, commas = after, 0
        elif c == 44:
            if commas != 0:
                _mark(tables.batch, Defect.COMMA.value, origin + i)
            commas = 1
            i += 1
        elif i >= end:
            return end, BETWEEN
        elif c == 93:
            if commas == 1:
                _mark(tables.batch, Defect.COMMA.value, origin + i)
            return i + 1, CLOSED
        else:
            return i, BAD


def new_rules(n_known: int, *, notes_all: bool = False) -> Rules:
    """Rules that skip nothing, with room for some known categories."""
    shapes = np.full(256, _UNREAD, dtype=np.uint8)
    for phases, shape in (
        (b"XiIC", _WHOLE),
        (b"BE", _HALF),
        (b"stf", _FLOW),
        (b"M", _META),
        (b"bneSTpF", _ASYNC),
    ):
        shapes[list(phases)] = shape
    return Rules(np.zeros(n_known, dtype=np.uint8), KEEP, -(1 << 62), 1 << 62, shapes, notes_all)
