"""Defects of Perfetto traces that the reader repairs: a closed list."""

from __future__ import annotations

from htagraph.model.recording import DamageKind
from htagraph.readers import repair_log


class Defect(repair_log.Defect):
    """A way in which a Perfetto trace breaks; like those of Kineto files."""

    TRUNCATED = (
        "truncated",
        "the file ends inside a packet; that one is skipped",
        DamageKind.CUT_FILE,
    )
    DAMAGED = (
        "damaged",
        "bytes are no packet; skipped up to the next packets",
        DamageKind.LOST_EVENTS,
    )
    BAD_PACKET = ("bad packet", "a packet cannot be read; skipped", DamageKind.LOST_EVENTS)
    BAD_PACKED = (
        "bad compressed packets",
        "compressed packets cannot be decompressed; skipped",
        DamageKind.LOST_EVENTS,
    )
    NO_STRING = "unknown interned id", "an interned id is not defined; its text is read as empty"
    NOT_UTF8 = "invalid UTF-8", "bytes are not UTF-8; replaced by U+FFFD"
    LOST = ("lost packets", "the recorder lost packets before this one", DamageKind.DROPPED_EVENTS)
    NO_TIME = ("no timestamp", "an event has no time; skipped", DamageKind.LOST_EVENTS)
    NO_CLOCK = (
        "unknown clock",
        "no clock snapshot converts an event's time; used unchanged",
        DamageKind.LOST_TIMES,
    )
    FAR_TIME = (
        "time out of range",
        "an event is more than 146 years from 1970; skipped",
        DamageKind.LOST_EVENTS,
    )
    END_ONLY = "end without begin", "a slice ends but never began; skipped"
    BEGIN_ONLY = "begin without end", "a slice begins but never ends; it ends with the trace"
    SUPPLEMENT = (
        "supplement does not fit",
        "what htagraph stored with the slices is damaged or of other slices; ignored",
    )
