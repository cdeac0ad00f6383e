"""Schemas of the tables of objects: events, edges, steps, segments, differences.

Those of questions are in `htagraph.model.answers` and `htagraph.model.job_answers`.
"""

from __future__ import annotations

from htagraph.model.schema import (
    EVENT,
    STEP,
    TRACK,
    count,
    duration,
    flag,
    identifier,
    instant,
    label,
    name,
    number,
    schema,
    share,
    text,
)

EVENTS = schema(
    "EVENTS",
    event=EVENT,
    ts_ns="start",
    dur_ns="duration",
    kind=label("kind of event", unit="EventKind"),
    name=name("name in the file"),
    category=name("category in the file"),
    pid=identifier("process id in the file", dtype="object"),
    tid=identifier("thread id in the file", dtype="object"),
    device=identifier("device of device work, else -1"),
    stream=identifier("stream of device work, else -1"),
    correlation=identifier("links an API call to the device work it enqueued, -1 for none"),
    external_id=identifier("links an operator to the work in it, -1 for none"),
)

EDGES = schema(
    "EDGES",
    edge=identifier("row of the edge table", unit="edge"),
    kind=label("why the head waits for the tail", unit="EdgeKind"),
    tail_event=EVENT,
    tail_is_end=flag("the tail is the end of its event, not the start"),
    head_event=EVENT,
    head_is_end=flag("the head is the end of its event, not the start"),
    tail_ns=instant("time of the tail"),
    dur_ns="time from tail to head",
    lag_ns="shortest possible time from tail to head",
    slack_ns="the edge may arrive this much later before it binds",
    is_binding="the head waited for this edge",
    rule=label("rule that made the edge"),
)

STEPS = schema(
    "STEPS",
    **STEP,
    event=EVENT,
    found_by=label("how steps are marked: step number, profiler step or serving marker"),
)

PIPELINE_ACTIONS = schema(
    "PIPELINE_ACTIONS",
    rank=identifier("rank", unit="rank"),
    replica=identifier("number of the copy of the pipeline"),
    stage=identifier("stage, counted over all ranks"),
    phase=label("F forward, B backward, or I and W: gradients of the input, of weights"),
    micro_batch=identifier("number within the step"),
    step=identifier("number of the step"),
    begin_ns=instant("begin of the work, in common time"),
    end_ns=instant("end of the work, in common time"),
    waited_ns=duration("blocked right before it, since the rank's previous action"),
    python_ns=duration("of the work, when no operator ran", heading="in Python"),
)

SEGMENTS = schema(
    "SEGMENTS",
    "start_ns dur_ns bound name track op rule is_inferred",
    start_ns="start, which is the end of the segment before",
    dur_ns="length: lag_ns + residual_ns",
    bound=label("what the time was spent on", unit="Bound"),
    kind=label("edge that the segment is part of", unit="EdgeKind"),
    lag_ns="shortest possible time",
    residual_ns="time beyond the lag",
    event=EVENT,
    name=name("event, or what the gap is"),
    op=name("innermost operator or annotation around it or its launch"),
    track=TRACK,
    edge=identifier("row of the edge table, -1 at the ends of the window", unit="edge"),
    rule=label("rule that made the edge"),
    is_inferred="the rule infers the edge from order and times, not from a record",
)

WHY = schema(
    "WHY",
    "start_ns dur_ns bound name track kind rule next_name next_kind next_slack_ns",
    **SEGMENTS.columns,
    next_name=name("what it had to wait for, too: the next latest; empty for nothing else"),
    next_kind=label("edge from there", unit="EdgeKind", dtype="object"),
    next_slack_ns=duration("how much earlier that arrived", dtype="float64"),
)

ATTRIBUTED_TIME = schema(
    "ATTRIBUTED_TIME",
    cause=label("what the time is attributed to", unit="Cause", dtype="object"),
    name=name("what ran; for a wait, the call that waited"),
    op=name("innermost operator or annotation"),
    ranges=name("ranges of the program around it (``epoch > validation``), empty for none"),
    frame=name("frame of the Python code that ran, of user code if possible; else empty"),
    place=name("operators around Python code, or the work before which a device was full"),
    meanwhile=name("what another thread ran during most of the untraced code, empty for none"),
    event=EVENT,
    step=name("step in which the time begins, empty outside steps"),
    bound=label("what the time was spent on", unit="Bound"),
    start_ns="start, which is the end of the row before",
    dur_ns="attributed time; adds up to the window",
    segment=identifier("row of its segment"),
)

BREAKDOWN = schema(
    "BREAKDOWN",
    dur_ns="time of the path in this group",
    share="share of the window",
    n_segments="segments in the group",
)

FLAME = schema(
    "FLAME",
    "dur_ns stack bound",
    stack=text("Python frames, ranges, operators and device work, with ``;`` between them"),
    bound=label("what the time was spent on", unit="Bound"),
    dur_ns="time of the path; adds up to the window",
)

PATH_DIFF = schema(
    "PATH_DIFF",
    before_ns="time of the first path in the group",
    after_ns="time of the second path in the group",
    delta_ns="after_ns - before_ns; adds up to the difference of the windows",
    delta_share="delta_ns / first window",
)

STEP_SHARES = schema(
    "STEP_SHARES",
    step=name("name of the step, or `(outside steps)`"),
    dur_ns="time of the path in the step; adds up to the window",
    bound=label("largest bound of the step", unit="Bound", dtype="object"),
    bound_share="its share of the step",
    next_bound=label("second largest bound, empty for none", unit="Bound", dtype="object"),
    next_share="its share of the step",
)

DIFF = schema(
    "DIFF",
    name=name("operator, API call, annotation or kernel"),
    change=label("added, removed, grown, shrunk (by time) or equal"),
    n_before="count before",
    n_after="count after",
    n_delta=number("count", "n_after - n_before", dtype="int64"),
    before_ns="time before",
    after_ns="time after",
    delta_ns="after_ns - before_ns",
)

STEP_DIFF = schema(
    "STEP_DIFF",
    bound=label("bound of the group, empty if groups are not of a path", dtype="object"),
    name=name("bound, operator, kernel or device activity"),
    change=label("added, removed, slower, faster, noise (within it) or unknown"),
    calls_before=number("count", "events per step before"),
    calls_after=number("count", "events per step after"),
    before_ns="mean time per step before",
    after_ns="mean time per step after",
    delta_ns="after_ns - before_ns; adds up for a path",
    noise_ns=duration(
        "largest difference expected without any change; infinite if unknown", dtype="float64"
    ),
)

KEPT_RUNS = schema(
    "KEPT_RUNS",
    "time name commit step_ns first moved",
    time=text("when it was recorded, in UTC"),
    start_ns="the same, since 1970",
    name=name("trace, or folder of a job"),
    key=identifier("by the content of its files", dtype="object"),
    series=name("key of the first of the runs that are comparable in turn"),
    commit=text("checked out when it was recorded; empty for unknown"),
    step_ns="step time",
    typical_step_ns="mean of typical steps",
    first=text("first cause, with its cost"),
    moved=text("change against the run before it", heading="change"),
)

RUN_CHANGES = schema(
    "RUN_CHANGES",
    "time name before_ns after_ns change_share cause cause_ns by n_commits commits",
    time=text("when the first run of the new level was recorded, in UTC"),
    start_ns="the same, since 1970",
    name=name("first run of the new level"),
    key=identifier("its key", dtype="object"),
    series=name("key of the first run of its series"),
    before_ns="median of the typical step times of the level before",
    after_ns="median of those of the new level",
    change_share=share("how much longer steps are", heading="change"),
    cause=label("cause whose cost changed most, by its median", dtype="object"),
    cause_ns="how much more it costs, per step",
    by=label("code, machine (all parts by the same factor), or unclear", dtype="object"),
    said=text("a run of the new level against one of the level before"),
    n_commits=count("commits between the runs that are clearly of one level"),
    commits=text("the first of them, with their subjects"),
)

SHAPE_DIFF = schema(
    "SHAPE_DIFF",
    name=name("operator with the shapes of its inputs"),
    before_ns="mean device time per step before",
    after_ns="mean device time per step after",
    delta_ns="after_ns - before_ns",
    before_roof=share("roof of its device by before_ns; NaN if unknown", heading="before, of roof"),
    after_roof=share("roof of its device by after_ns; NaN if unknown", heading="after, of roof"),
)

READINGS = schema(
    "READINGS",
    reading=text("one way to fill in what the trace leaves open"),
    saves_ns="predicted saving under it",
    after_ns="predicted length of the window",
    saves_share=share("saves_ns / window", heading="share"),
)

FIRST_CHANGES = schema(
    "FIRST_CHANGES",
    change=text("what one would do"),
    saves_ns="what the run is shorter by with this change alone, replayed",
    saves_share=share("saves_ns / window", heading="share"),
)

CATALOGUE = schema(
    "CATALOGUE",
    name=name("name of the question"),
    options=text("its options with their defaults"),
    meaning=text("what it answers"),
)

REPAIRS = schema(
    "REPAIRS",
    "kind n first_offset detail",
    kind=label("what was wrong", dtype="object"),
    n=count("how often"),
    first_offset=count(
        "first position in the decompressed file; -1 if not applicable", unit="byte"
    ),
    detail=text("how it was repaired"),
    damage=label("what kind of damage it is; empty if it is harmless", dtype="object"),
)

ATTACHED = schema(
    "ATTACHED",
    instrument=name("what wrote the file"),
    path=name("file"),
    n=count("operators, kernels or samples in it"),
    n_matched="how many of these were found in the trace",
    detail=text("how they were matched, and how reliably"),
)

SIZES = schema(
    "SIZES",
    category=name("category in the file"),
    n_loaded="events loaded",
    n_skipped="events skipped",
    n_bytes=count("size in the decompressed file; -1 if not known", unit="byte"),
    share="share of n_bytes; share of events if bytes are not known",
    kind=label("kind of its events; empty if none was loaded", unit="EventKind", dtype="object"),
)

RANK_LENGTHS = schema(
    "RANK_LENGTHS",
    rank=identifier("rank", unit="rank"),
    before_ns="length of its window",
    dur_ns="length under the changes",
)

RANK_SEGMENTS = schema(
    "RANK_SEGMENTS",
    rank=identifier("rank of this part of the path", unit="rank"),
    start_ns="start, in common time",
    dur_ns="length",
    collective=identifier("collective whose transfer it is, -1 for the rank's own path"),
)

JOB_SEGMENTS = schema(
    "JOB_SEGMENTS",
    rank=identifier("rank of the segment; times are common", unit="rank"),
    **SEGMENTS.columns,
)

JOB_ATTRIBUTED_TIME = schema(
    "JOB_ATTRIBUTED_TIME",
    rank=identifier("rank of the time; times are common", unit="rank"),
    **ATTRIBUTED_TIME.columns,
)

FAILURES = schema(
    "FAILURES",
    path=name("file that could not be used"),
    error=text("why"),
)

CAPTURES = schema(
    "CAPTURES",
    capture=identifier("number of the capture, in order of time; 0 for a file outside any"),
    rank=identifier("rank recorded in the file, -1 if none", unit="rank"),
    world_size=count("ranks of the job, 0 if not recorded"),
    steps=name("step numbers; `3 …` if only the start of the file was read"),
    start_ns="start since the epoch, 0 if not known",
    dur_ns="length, 0 if not known",
    n_bytes="size of the file",
    host=name("host, empty if not recorded"),
    pid=identifier("process, -1 if not recorded"),
    is_complete="the capture has all ranks of the job",
    path=name("file"),
    note=text("why a file is not a trace, or what is uncertain"),
)

HANGS = schema(
    "HANGS",
    "kind operation seq group ranks entered waited_ns is_open",
    kind=label(
        "missing, too late, other operation, other size, other dtype, not completed, "
        "no counterpart, no dump",
        dtype="object",
    ),
    operation=name("all_reduce, barrier, send …"),
    seq=identifier("its number among the collectives of the group, from 1"),
    group=name("process group"),
    description=name("what the program calls the group"),
    ranks=name(
        "ranks that never entered it, did so too late, entered another one, or left no dump"
    ),
    entered=name("ranks that entered it"),
    since_ns=instant("when the first of them entered it, since 1970"),
    waited_ns="how long it had waited when the files were written, or until the last came; "
    "-1 if not known",
    is_open="it may be in flight: a short wait, or one of unknown length",
    is_explained="each of those ranks waits in another row",
    detail=text("the same as a sentence"),
)

LAST_COLLECTIVES = schema(
    "LAST_COLLECTIVES",
    "rank operation seq group is_waiting state code",
    rank=identifier("rank", unit="rank"),
    operation=name("the last collective, send or receive that it entered"),
    seq=identifier("its number in the group"),
    group=name("process group"),
    start_ns="when it entered it, since 1970",
    is_waiting="some member never entered it, entered another one, or did not complete it",
    state=name("as recorded, where the backend writes states; else empty"),
    code=name("the program's line that called it; empty without stacks"),
    stack=text("all frames, innermost first"),
)
