"""Defects of Kineto files that the reader repairs: a closed list."""

from __future__ import annotations

from htagraph.model.recording import DamageKind
from htagraph.readers import repair_log


class Defect(repair_log.Defect):
    """A way in which a Kineto file breaks: label, what the reader does about it, and what is lost.

    What is not lost: texts that are read a little differently, values that no answer needs, and
    events that were open when the capture began or ended.
    """

    RAW_QUOTE = "raw quote", "a text contains an unescaped quote; read as part of the text"
    CONTROL_BYTE = "control byte", "a text contains a raw control byte or newline; kept, escaped"
    INVALID_UTF8 = "invalid UTF-8", "bytes are not UTF-8; replaced by U+FFFD"
    BAD_ESCAPE = "bad escape", "a text contains an invalid escape; its backslashes are kept as text"
    NOT_FINITE = "not a number", "NaN or infinity instead of a number; read as no value"
    HEX_NUMBER = "hexadecimal number", "a bare hexadecimal number; read as an integer"
    BARE_WORD = "bare word", "a word without quotes; read as a text"
    COMMA = "comma", "a comma is missing or extra; ignored"
    TORN = (
        "torn event",
        "bytes between events are no event (interleaved or lost writes); skipped",
        DamageKind.LOST_EVENTS,
    )
    TRUNCATED = (
        "truncated",
        "the file ends inside an event or value; that one is skipped",
        DamageKind.CUT_FILE,
    )
    NO_END = ("no end", "the closing brackets of the file are missing; added", DamageKind.CUT_FILE)
    OPEN_LIST = (
        "open list",
        "the closing bracket of a bare event list is missing, as Chrome's format allows; added",
    )
    BYTE_ORDER_MARK = "byte order mark", "the file starts with a UTF-8 byte order mark; skipped"
    MANY_DOCUMENTS = "several documents", "the file holds several JSON documents; all are read"
    GZIP_NAME = "gzip by another name", "the file is gzip, but not named .gz; decompressed"
    NOT_GZIP = "not gzip", "the file is named .gz, but is plain text; read as text"
    GZIP_TRUNCATED = (
        "gzip truncated",
        "the gzip data ends early; read up to there",
        DamageKind.CUT_FILE,
    )
    GZIP_DAMAGED = (
        "gzip damaged",
        "the gzip data is damaged; read up to there",
        DamageKind.CUT_FILE,
    )
    NUMBER_AS_TEXT = "number as text", "a time is written as text; read as a number"
    NUMBER_TOO_LARGE = "number out of range", "an integer exceeds 64 bits; read as no value"
    NO_PHASE = ("no phase", "an event has no phase (`ph`); skipped", DamageKind.LOST_EVENTS)
    NO_TIMESTAMP = (
        "no timestamp",
        "an event has no readable time (`ts`); skipped",
        DamageKind.LOST_EVENTS,
    )
    NO_DURATION = (
        "no duration",
        "a complete event has no duration (`dur`); set to 0",
        DamageKind.LOST_TIMES,
    )
    IMPOSSIBLE_DURATION = (
        "impossible duration",
        "a duration is negative or over 7 days; set to 0",
        DamageKind.LOST_TIMES,
    )
    ZERO_TIMESTAMP = (
        "zero timestamp",
        "events have time 0 and no duration, though others start later; skipped",
        DamageKind.LOST_EVENTS,
    )
    NANOSECONDS = (
        "time in nanoseconds",
        "a time is too large for microseconds; it and its duration are read as nanoseconds",
    )
    BEGIN_ONLY = (
        "begin without end",
        "an event begins but never ends; it ends with the last event of its thread",
    )
    END_ONLY = "end without begin", "an event ends but never began; skipped"
    BAD_METADATA = "unreadable metadata", "a part of the file outside the events; skipped"
    BAD_SAMPLE = (
        "bad sample",
        "a sampled stack lacks its time, thread or frame, or a frame its name or parent; skipped",
    )
    NO_PLACE = "unnamed thread", "an event has neither pid nor tid; put on a thread named ''"
    FAR_TIME = (
        "time out of range",
        "an event is more than 146 years from 1970, base time included; skipped",
        DamageKind.LOST_EVENTS,
    )
    STRAY_TIME = (
        "stray time",
        "an event is over an hour, and over 100 times the trace's length, from all others; skipped",
        DamageKind.LOST_EVENTS,
    )
    STRAY_DURATION = (
        "stray duration",
        "an event ends as far after all others; its duration is set to 0",
        DamageKind.LOST_TIMES,
    )
    DOUBLE = "double", "an event is in the file twice, with equal times, names and ids; read once"
    DROPPED_RECORDS = (
        "dropped records",
        "the profiler's own warnings say that it dropped records of devices",
        DamageKind.DROPPED_EVENTS,
    )
    FULL_BUFFERS = (
        "full buffers",
        "the profiler's own warnings say that it stopped, as its buffers for devices were full",
        DamageKind.DROPPED_EVENTS,
    )
