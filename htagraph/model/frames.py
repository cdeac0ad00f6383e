"""Schemas of the tables of objects: events, edges, steps, segments, differences.

Those of questions are in `htagraph.model.answers` and `htagraph.model.job_answers`.
"""

from __future__ import annotations

from htagraph.model.schema import (
    EVENT,
    TRACK,
    Schema,
    count,
    duration,
    flag,
    identifier,
    instant,
    label,
    name,
    number,
    share,
    text,
)

__all__ = [
    "ATTACHED",
    "ATTRIBUTED_TIME",
    "BREAKDOWN",
    "CAPTURES",
    "CATALOGUE",
    "DIFF",
    "EDGES",
    "EVENTS",
    "FAILURES",
    "JOB_ATTRIBUTED_TIME",
    "JOB_SEGMENTS",
    "PATH_DIFF",
    "RANK_LENGTHS",
    "RANK_SEGMENTS",
    "READINGS",
    "REPAIRS",
    "SEGMENTS",
    "SIZES",
    "SPEED_UPS",
    "STEPS",
    "STEP_DIFF",
    "STEP_SHARES",
]


EVENTS = Schema(
    "EVENTS",
    {
        "event": EVENT,
        "ts_ns": instant("start"),
        "dur_ns": duration("duration"),
        "kind": label("what the event is", unit="EventKind"),
        "name": name("name in the file"),
        "category": name("category in the file"),
        "pid": identifier("process id in the file", dtype="object"),
        "tid": identifier("thread id in the file", dtype="object"),
        "device": identifier("device of device work, -1 elsewhere"),
        "stream": identifier("stream of device work, -1 elsewhere"),
        "correlation": identifier("links an API call and the device work it enqueued, -1 for none"),
        "external_id": identifier("links an operator and what ran in it, -1 for none"),
    },
)

EDGES = Schema(
    "EDGES",
    {
        "edge": identifier("row of the edge table", unit="edge"),
        "kind": label("why the head cannot come before the tail", unit="EdgeKind"),
        "tail_event": EVENT,
        "tail_is_end": flag("the tail is the end of its event, else the start"),
        "head_event": EVENT,
        "head_is_end": flag("the head is the end of its event, else the start"),
        "tail_ns": instant("time of the tail"),
        "dur_ns": duration("time from tail to head"),
        "lag_ns": duration("least time from tail to head"),
        "slack_ns": duration("how much later the edge could arrive before it binds"),
        "is_binding": flag("the head waited for this edge"),
        "rule": label("rule that made the edge"),
    },
)

STEPS = Schema(
    "STEPS",
    {
        "step": identifier("position in time"),
        "name": name("name of the step"),
        "start_ns": instant("start of the host range"),
        "dur_ns": duration("length of the host range"),
        "event": EVENT,
        "found_by": label("what marks the steps: profiler step, serving marker, annotation"),
    },
)

SEGMENTS = Schema(
    "SEGMENTS",
    {
        "start_ns": instant("start; the end of the segment before"),
        "dur_ns": duration("length: lag_ns + residual_ns"),
        "bound": label("what the time went to", unit="Bound"),
        "kind": label("edge that the segment is part of", unit="EdgeKind"),
        "lag_ns": duration("part that nothing else could have shortened"),
        "residual_ns": duration("part beyond the lag"),
        "event": EVENT,
        "name": name("name of the event, or what the gap is"),
        "op": name("innermost operator or annotation it happened in, or was launched from"),
        "track": TRACK,
        "edge": identifier("row of the edge table, -1 for the window's own ends", unit="edge"),
        "rule": label("rule that made the edge"),
        "is_inferred": flag("the rule rests on order and times of events, not on a record"),
    },
    first="start_ns dur_ns bound name track op rule is_inferred",
)

ATTRIBUTED_TIME = Schema(
    "ATTRIBUTED_TIME",
    {
        "cause": label("what the time is attributed to", unit="Cause", dtype="object"),
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
        "event": EVENT,
        "step": name("step in which the time begins, empty outside of steps"),
        "bound": label("what the time went to", unit="Bound"),
        "start_ns": instant("start; the end of the row before"),
        "dur_ns": duration("attributed time; adds up to the window"),
        "segment": identifier("row of the segment that it is part of"),
    },
)

BREAKDOWN = Schema(
    "BREAKDOWN",
    {
        "dur_ns": duration("time of the path in this group"),
        "share": share("share of the window"),
        "n_segments": count("segments of the group"),
    },
)

PATH_DIFF = Schema(
    "PATH_DIFF",
    {
        "before_ns": duration("time of the first path in this group"),
        "after_ns": duration("time of the second path in this group"),
        "delta_ns": duration("difference; all together the difference of the windows"),
        "delta_share": share("difference, as a share of the first window"),
    },
)

STEP_SHARES = Schema(
    "STEP_SHARES",
    {
        "step": name("name of the step, or `(outside steps)`"),
        "dur_ns": duration("time of the path in the step; adds up to the window"),
        "bound": label("largest bound of the step", unit="Bound", dtype="object"),
        "bound_share": share("its share of the step"),
        "next_bound": label("second largest bound, empty for none", unit="Bound", dtype="object"),
        "next_share": share("its share of the step"),
    },
)

DIFF = Schema(
    "DIFF",
    {
        "name": name("operator, API call, annotation or kernel"),
        "change": label("added, removed, grown, shrunk (by time) or equal"),
        "n_before": count("how often before"),
        "n_after": count("how often after"),
        "n_delta": number("count", "n_after - n_before", dtype="int64"),
        "before_ns": duration("time before"),
        "after_ns": duration("time after"),
        "delta_ns": duration("after_ns - before_ns"),
    },
)

STEP_DIFF = Schema(
    "STEP_DIFF",
    {
        "bound": label("bound of the group, empty where groups are of no path", dtype="object"),
        "name": name("group: bound, operator, kernel, or what a device did"),
        "change": label("added, removed, slower, faster, noise (within it) or unknown"),
        "calls_before": number("count", "events per step before"),
        "calls_after": number("count", "events per step after"),
        "before_ns": duration("mean time per step before"),
        "after_ns": duration("mean time per step after"),
        "delta_ns": duration("after_ns - before_ns; of a path, they add up to that of steps"),
        "noise_ns": duration(
            "how large a difference is without any change, at most", dtype="float64"
        ),
    },
)

READINGS = Schema(
    "READINGS",
    {
        "reading": text("one way to fill in what the trace leaves open"),
        "saves_ns": duration("predicted saving under it"),
        "after_ns": duration("predicted length of the window"),
        "saves_share": share("saves_ns / window", heading="share"),
    },
)

SPEED_UPS = Schema(
    "SPEED_UPS",
    {
        "target": name("kernel, operator or call"),
        "less_share": share("part of its time that it no longer takes; 0.5 is twice as fast"),
        "saves_ns": duration("expected saving"),
        "low_ns": duration(
            "lower end of the saving, for what the trace leaves open", heading="at least"
        ),
        "high_ns": duration("upper end of the saving", heading="at most"),
        "saves_share": share("saves_ns / window", heading="share"),
        "low_share": share("low_ns / window"),
        "high_share": share("high_ns / window"),
    },
)

CATALOGUE = Schema(
    "CATALOGUE",
    {
        "name": name("name of the question"),
        "options": text("its options with their defaults"),
        "meaning": text("what it answers"),
    },
)

REPAIRS = Schema(
    "REPAIRS",
    {
        "kind": label("what was wrong", dtype="object"),
        "n": count("how often"),
        "first_offset": count(
            "where first, in the decompressed file; -1 where that has no meaning", unit="byte"
        ),
        "detail": text("what was done about it"),
    },
)

ATTACHED = Schema(
    "ATTACHED",
    {
        "instrument": name("what wrote the file"),
        "path": name("the file"),
        "n": count("what it holds: operators, kernels, samples"),
        "n_matched": count("of these, what was found in the trace"),
        "detail": text("how they were matched, and how certain that is"),
    },
)

SIZES = Schema(
    "SIZES",
    {
        "category": name("category in the file"),
        "n_loaded": count("events that were loaded"),
        "n_skipped": count("events that were not"),
        "n_bytes": count(
            "what they take in the file, decompressed; -1 where not known", unit="byte"
        ),
        "share": share("n_bytes / those of all categories; of events where bytes are not known"),
        "kind": label(
            "what its events are; empty where none was loaded", unit="EventKind", dtype="object"
        ),
    },
)

RANK_LENGTHS = Schema(
    "RANK_LENGTHS",
    {
        "rank": identifier("whose window", unit="rank"),
        "before_ns": duration("length of its window as it was"),
        "dur_ns": duration("length under the changes"),
    },
)

RANK_SEGMENTS = Schema(
    "RANK_SEGMENTS",
    {
        "rank": identifier("whose part of the path it is", unit="rank"),
        "start_ns": instant("start, in common time"),
        "dur_ns": duration("length"),
        "collective": identifier("collective whose transfer it is, -1 for the rank's own path"),
    },
)

JOB_SEGMENTS = Schema(
    "JOB_SEGMENTS",
    {"rank": identifier("where the segment is; times are common", unit="rank"), **SEGMENTS.columns},
)

JOB_ATTRIBUTED_TIME = Schema(
    "JOB_ATTRIBUTED_TIME",
    {
        "rank": identifier("rank whose time it is; times are common", unit="rank"),
        **ATTRIBUTED_TIME.columns,
    },
)

FAILURES = Schema(
    "FAILURES",
    {
        "path": name("file that could not be used"),
        "error": text("why"),
    },
)

CAPTURES = Schema(
    "CAPTURES",
    {
        "capture": identifier("number of the capture, in order of time; 0 for a file of none"),
        "rank": identifier("rank that the file says, -1 where it says none", unit="rank"),
        "world_size": count("ranks of the job, 0 where the file does not say"),
        "steps": name("numbers of the steps; `3 …` where only the start of a file was read"),
        "start_ns": instant("start since the epoch, 0 where not known"),
        "dur_ns": duration("length, 0 where not known"),
        "n_bytes": count("size of the file"),
        "host": name("host, empty where not recorded"),
        "pid": identifier("process, -1 where not recorded"),
        "is_complete": flag("all ranks of the job are in the capture"),
        "path": name("the file"),
        "note": text("what a file is that is no trace; what is in doubt"),
    },
)
