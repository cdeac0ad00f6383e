"""Schemas of the tables of objects: events, edges, steps, segments, differences.

Those of questions are in `htagraph.model.answers` and `htagraph.model.job_answers`.
"""

from __future__ import annotations

from htagraph.model.schema import Column, Schema, count, flag, name, nanoseconds, share

__all__ = [
    "ATTACHED",
    "ATTRIBUTED_TIME",
    "BREAKDOWN",
    "CAPTURES",
    "DIFF",
    "EDGES",
    "EVENTS",
    "FAILURES",
    "JOB_ATTRIBUTED_TIME",
    "JOB_SEGMENTS",
    "PATH_DIFF",
    "RANK_LENGTHS",
    "RANK_SEGMENTS",
    "REPAIRS",
    "SEGMENTS",
    "SIZES",
    "STEPS",
    "STEP_DIFF",
]

_EVENT = Column("int64", "event", "row of the event table")
_TRACK = Column("object", "id", "thread id of host work, `stream n` of device work")

EVENTS = Schema(
    "EVENTS",
    {
        "event": _EVENT,
        "ts_ns": nanoseconds("start"),
        "dur_ns": nanoseconds("duration"),
        "kind": Column("category", "EventKind", "what the event is"),
        "name": name("name in the file"),
        "category": name("category in the file"),
        "pid": Column("object", "id", "process id in the file"),
        "tid": Column("object", "id", "thread id in the file"),
        "device": Column("int64", "id", "device of device work, -1 elsewhere"),
        "stream": Column("int64", "id", "stream of device work, -1 elsewhere"),
        "correlation": Column(
            "int64", "id", "links an API call and the device work it enqueued, -1 for none"
        ),
        "external_id": Column("int64", "id", "links an operator and what ran in it, -1 for none"),
    },
)

EDGES = Schema(
    "EDGES",
    {
        "edge": Column("int64", "edge", "row of the edge table"),
        "kind": Column("category", "EdgeKind", "why the head cannot come before the tail"),
        "tail_event": _EVENT,
        "tail_is_end": flag("the tail is the end of its event, else the start"),
        "head_event": _EVENT,
        "head_is_end": flag("the head is the end of its event, else the start"),
        "tail_ns": nanoseconds("time of the tail"),
        "dur_ns": nanoseconds("time from tail to head"),
        "lag_ns": nanoseconds("least time from tail to head"),
        "slack_ns": nanoseconds("how much later the edge could arrive before it binds"),
        "is_binding": flag("the head waited for this edge"),
        "rule": Column("category", "name", "rule that made the edge"),
    },
)

STEPS = Schema(
    "STEPS",
    {
        "step": count("position in time"),
        "name": name("name of the step"),
        "start_ns": nanoseconds("start of the host range"),
        "dur_ns": nanoseconds("length of the host range"),
        "event": _EVENT,
        "found_by": Column(
            "category", "name", "what marks the steps: profiler step, serving marker, annotation"
        ),
    },
)

SEGMENTS = Schema(
    "SEGMENTS",
    {
        "start_ns": nanoseconds("start; the end of the segment before"),
        "dur_ns": nanoseconds("length: lag_ns + residual_ns"),
        "bound": Column("category", "Bound", "what the time went to"),
        "kind": Column("category", "EdgeKind", "edge that the segment is part of"),
        "lag_ns": nanoseconds("part that nothing else could have shortened"),
        "residual_ns": nanoseconds("part beyond the lag"),
        "event": _EVENT,
        "name": name("name of the event, or what the gap is"),
        "op": name("innermost operator or annotation it happened in, or was launched from"),
        "track": _TRACK,
        "edge": Column("int64", "edge", "row of the edge table, -1 for the window's own ends"),
        "rule": Column("category", "name", "rule that made the edge"),
        "is_inferred": flag("the rule rests on order and times of events, not on a record"),
    },
)

ATTRIBUTED_TIME = Schema(
    "ATTRIBUTED_TIME",
    {
        "cause": Column("object", "Cause", "what the time is attributed to"),
        "name": name("what ran; for a wait, the call that waited"),
        "op": name("innermost operator or annotation of that"),
        "frame": name(
            "line or frame of the Python code that ran, of user code where there is some; empty "
            "where an operator ran, and where none was recorded"
        ),
        "place": name(
            "between which operators code ran that none covers; before which work a device was "
            "full; empty elsewhere"
        ),
        "event": _EVENT,
        "step": name("step in which the time begins, empty outside of steps"),
        "bound": Column("category", "Bound", "what the time went to"),
        "start_ns": nanoseconds("start; the end of the row before"),
        "dur_ns": nanoseconds("attributed time; adds up to the window"),
        "segment": count("row of the segment that it is part of"),
    },
)

BREAKDOWN = Schema(
    "BREAKDOWN",
    {
        "dur_ns": nanoseconds("time of the path in this group"),
        "share": share("share of the window"),
        "n_segments": count("segments of the group"),
    },
)

PATH_DIFF = Schema(
    "PATH_DIFF",
    {
        "before_ns": nanoseconds("time of the first path in this group"),
        "after_ns": nanoseconds("time of the second path in this group"),
        "delta_ns": nanoseconds("difference; all together the difference of the windows"),
        "delta_share": share("difference, as a share of the first window"),
    },
)

DIFF = Schema(
    "DIFF",
    {
        "name": name("operator, API call, annotation or kernel"),
        "change": Column("category", "name", "added, removed, grown, shrunk (by time) or equal"),
        "n_before": count("how often before"),
        "n_after": count("how often after"),
        "n_delta": count("n_after - n_before"),
        "before_ns": nanoseconds("time before"),
        "after_ns": nanoseconds("time after"),
        "delta_ns": nanoseconds("after_ns - before_ns"),
    },
)

STEP_DIFF = Schema(
    "STEP_DIFF",
    {
        "bound": name("bound of the group, empty where groups are of no path"),
        "name": name("group: bound, operator, kernel, or what a device did"),
        "change": Column(
            "category", "name", "added, removed, slower, faster, noise (within it) or unknown"
        ),
        "calls_before": Column("float64", "count", "events per step before"),
        "calls_after": Column("float64", "count", "events per step after"),
        "before_ns": nanoseconds("mean time per step before"),
        "after_ns": nanoseconds("mean time per step after"),
        "delta_ns": nanoseconds("after_ns - before_ns; of a path, they add up to that of steps"),
        "noise_ns": Column(
            "float64", "ns or inf", "how large a difference is without any change, at most"
        ),
    },
)

REPAIRS = Schema(
    "REPAIRS",
    {
        "kind": name("what was wrong"),
        "n": count("how often"),
        "first_offset": Column(
            "int64", "byte", "where first, in the decompressed file; -1 where that has no meaning"
        ),
        "detail": Column("object", "text", "what was done about it"),
    },
)

ATTACHED = Schema(
    "ATTACHED",
    {
        "instrument": name("what wrote the file"),
        "path": name("the file"),
        "n": count("what it holds: operators, kernels, samples"),
        "n_matched": count("of these, what was found in the trace"),
        "detail": Column("object", "text", "how they were matched, and how certain that is"),
    },
)

SIZES = Schema(
    "SIZES",
    {
        "category": name("category in the file"),
        "n_loaded": count("events that were loaded"),
        "n_skipped": count("events that were not"),
        "n_bytes": Column(
            "int64", "byte", "what they take in the file, decompressed; -1 where not known"
        ),
        "share": share("n_bytes / those of all categories; of events where bytes are not known"),
        "kind": Column("object", "EventKind", "what its events are; empty where none was loaded"),
    },
)

RANK_LENGTHS = Schema(
    "RANK_LENGTHS",
    {
        "rank": Column("int64", "rank", "whose window"),
        "before_ns": nanoseconds("length of its window as it was"),
        "dur_ns": nanoseconds("length under the changes"),
    },
)

RANK_SEGMENTS = Schema(
    "RANK_SEGMENTS",
    {
        "rank": Column("int64", "rank", "whose part of the path it is"),
        "start_ns": nanoseconds("start, in common time"),
        "dur_ns": nanoseconds("length"),
        "collective": count("collective whose transfer it is, -1 for the rank's own path"),
    },
)

JOB_SEGMENTS = Schema(
    "JOB_SEGMENTS",
    {"rank": Column("int64", "rank", "where the segment is; times are common"), **SEGMENTS.columns},
)

JOB_ATTRIBUTED_TIME = Schema(
    "JOB_ATTRIBUTED_TIME",
    {
        "rank": Column("int64", "rank", "rank whose time it is; times are common"),
        **ATTRIBUTED_TIME.columns,
    },
)

FAILURES = Schema(
    "FAILURES",
    {
        "path": Column("object", "text", "file that could not be used"),
        "error": Column("object", "text", "why"),
    },
)

CAPTURES = Schema(
    "CAPTURES",
    {
        "capture": count("number of the capture, in order of time; 0 for a file of none"),
        "rank": Column("int64", "rank", "rank that the file says, -1 where it says none"),
        "world_size": count("ranks of the job, 0 where the file does not say"),
        "steps": name("numbers of the steps; `3 …` where only the start of a file was read"),
        "start_ns": nanoseconds("start since the epoch, 0 where not known"),
        "dur_ns": nanoseconds("length, 0 where not known"),
        "n_bytes": count("size of the file"),
        "host": name("host, empty where not recorded"),
        "pid": Column("int64", "id", "process, -1 where not recorded"),
        "is_complete": flag("all ranks of the job are in the capture"),
        "path": Column("object", "text", "the file"),
        "note": Column("object", "text", "what a file is that is no trace; what is in doubt"),
    },
)
