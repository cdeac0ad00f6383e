"""Schemas of the answers of a trace: that of the question `idle_time` is `IDLE_TIME`, and so on.

The schemas of a job's own questions are in `htagraph.model.job_answers`, by the same rule.
"""

from __future__ import annotations

from htagraph.model.schema import (
    EVENT,
    STEP,
    TRACK,
    Column,
    count,
    duration,
    identifier,
    label,
    name,
    number,
    schema,
    share,
    text,
)

_DEVICE = identifier("device")
_STREAM = identifier("stream of the device")
_CLASS = label("what the work does: compute, communication or memory", unit="KernelClass")
_OP = name("innermost operator or annotation it happened in, or was launched from; empty for none")
_SPREAD: dict[str, Column | str] = {
    "sum_ns": "total duration in the window",
    "mean_ns": duration("mean duration", dtype="float64"),
    "std_ns": duration("sample standard deviation, 0 for one event", dtype="float64"),
    "min_ns": "shortest duration",
    "max_ns": "longest duration",
}
_QUANTILES = {
    "p50_ns": "median: like all quantiles, the longest duration at or below its rank",
    "p90_ns": "90th percentile",
    "p99_ns": "99th percentile",
}

TEMPORAL_BREAKDOWN = schema(
    "TEMPORAL_BREAKDOWN",
    "device window_ns compute_share communication_share memory_share idle_share",
    device=_DEVICE,
    window_ns="length of the window; the four parts add up to it",
    idle_ns="time without device work",
    compute_ns="time with a compute kernel, whatever else runs",
    communication_ns="exposed communication: a communication kernel runs, no compute kernel",
    memory_ns="time in which only copies and memsets run",
    idle_share="idle_ns / window_ns",
    compute_share="compute_ns / window_ns",
    communication_share="communication_ns / window_ns",
    memory_share="memory_ns / window_ns",
)

CLASS_OVERLAP = schema(
    "CLASS_OVERLAP",
    device=_DEVICE,
    classes=name("classes that run at the same time, joined by ' + ', or idle"),
    dur_ns="time in which exactly these run; adds up to the window",
    share="dur_ns / window",
)

IDLE_TIME = schema(
    "IDLE_TIME",
    "device stream cause idle_share idle_ns n_gaps name op",
    device=_DEVICE,
    stream=identifier("stream, -1 for all streams of the device together"),
    cause=label("what the device waited for", unit="IdleCause"),
    op=_OP,
    name=name("event that the idle time belongs to, or what the gap is"),
    frame=name("innermost Python frame, empty if not recorded"),
    n_gaps="idle intervals with this cause",
    idle_ns="idle time with this cause; adds up to the idle time",
    idle_share="idle_ns / idle time of the device or stream",
)

IDLE_INTERVALS = schema(
    "IDLE_INTERVALS",
    "device stream start_ns dur_ns cause name op",
    interval=identifier("number of the idle interval"),
    device=_DEVICE,
    stream=identifier("stream, -1 for all streams of the device together"),
    start_ns="start of this part of the interval",
    dur_ns="length of this part; the parts of an interval tile it",
    cause=label("what the device waited for", unit="IdleCause"),
    event=identifier("event that the idle time belongs to, -1 for none", unit="event"),
    op=_OP,
    name=name("name of the event, or what the gap is"),
    frame=name("innermost Python frame, empty if not recorded"),
    ended_by=identifier("device event that ends the interval, -1 for none", unit="event"),
)

GRAPH_NODES = schema(
    "GRAPH_NODES",
    "graph node name n_replays median_ns min_ns max_ns offset_ns offset_spread_ns gap_ns stream",
    graph=identifier("number of the graph, by first replay"),
    node=identifier("number of the node in its graph, by first start"),
    name=name("kernel, memcpy or memset"),
    device=_DEVICE,
    stream=_STREAM,
    n_replays="replays of the node that overlap the window",
    sum_ns="total duration, not clipped to the window",
    mean_ns=duration("mean duration", dtype="float64"),
    median_ns="median duration",
    min_ns="shortest duration",
    max_ns="longest duration",
    offset_ns="median time from the start of the replay to the start of the node",
    offset_spread_ns="largest minus smallest offset",
    gap_ns="median time before it without an earlier node of its replay, on any stream",
    found_by=label("how the node was identified: by its id or its position in the stream"),
)

IDLE_CATEGORIES = schema(
    "IDLE_CATEGORIES",
    "device stream category idle_share idle_ns n_gaps mean_ns max_ns p50_ns",
    device=_DEVICE,
    stream=_STREAM,
    category=label("host_wait, kernel_wait or other"),
    n_gaps="gaps between work on the stream",
    idle_ns="their total length",
    idle_share="idle_ns / all gaps of the stream",
    **{key: meaning for key, meaning in _SPREAD.items() if key != "sum_ns"},
    **_QUANTILES,
)

KERNEL_BREAKDOWN = schema(
    "KERNEL_BREAKDOWN",
    "group share sum_ns n_kernels mean_ns max_ns p50_ns",
    group=name("class, name, op … as asked for; empty for none"),
    **{"class": _CLASS},
    n_kernels="kernels, memcpys and memsets that overlap the window",
    **_SPREAD,
    **_QUANTILES,
    share="sum_ns / sum of all groups",
)

KERNEL_DURATIONS = schema(
    "KERNEL_DURATIONS",
    "name dur_ns ts_ns device stream class op",
    event=EVENT,
    name=name("kernel, memcpy or memset"),
    **{"class": _CLASS},
    op=_OP,
    annotation=name("innermost annotation around its launch, empty for none"),
    module=name("innermost module around its launch, if Python frames were recorded"),
    device=_DEVICE,
    stream=_STREAM,
    ts_ns="start",
    dur_ns="duration, not clipped to the window",
)

OVERLAP = schema(
    "OVERLAP",
    device=_DEVICE,
    compute_ns="time with a compute kernel",
    communication_ns="time with a communication kernel",
    overlap_ns="time with both",
    exposed_ns="communication_ns - overlap_ns",
    overlap_share="overlap_ns / communication_ns; NaN without communication",
)

EXPOSED_COMMUNICATION = schema(
    "EXPOSED_COMMUNICATION",
    "name exposed_ns dur_ns start_ns stream why next_name op",
    event=EVENT,
    name=name("communication kernel"),
    op=_OP,
    device=_DEVICE,
    stream=_STREAM,
    start_ns="start in the window",
    dur_ns="time in the window",
    exposed_ns="time without a compute kernel on the device",
    why=label("what kept the next compute kernel waiting; none if nothing is exposed"),
    next_event=identifier("next compute kernel, -1 for none", unit="event"),
    next_name=name("its name"),
)

LAUNCH_STATS = schema(
    "LAUNCH_STATS",
    "name launch_ns launch_delay_ns queued_ns kernel_ns ts_ns stream op call",
    event=EVENT,
    correlation=identifier("links the call to its device work"),
    call=name("API call"),
    op=_OP,
    name=name("first device work that it enqueued"),
    device=_DEVICE,
    stream=_STREAM,
    ts_ns="start of the call",
    op_delay_ns="start of the operator to the start of the call, 0 for none",
    launch_ns="duration of the call",
    kernel_ns="total duration of the work that it enqueued",
    launch_delay_ns="end of the call to the start of its work, 0 if that starts earlier",
    queued_ns="part of the delay in which earlier work of the stream ran",
    n_kernels="kernels, memcpys and memsets enqueued: more than 1 for a CUDA graph",
    is_short_kernel="the work is shorter than its launch, which is no outlier",
    is_launch_outlier="launch_ns is above the cutoff",
    is_delay_outlier="launch_delay_ns is above the cutoff",
)

COUNTERS = schema(
    "COUNTERS",
    "ts_ns dur_ns device stream name value",
    {"track": "device stream name value min p50 p90 max n_levels"},
    ts_ns="when the value changes",
    dur_ns="time until the next change or the end of the window",
    device=_DEVICE,
    stream=identifier("stream, -1 for a counter of the whole device"),
    name=name("what is counted"),
    value=number("count or GB/s", "launches outstanding, or 1e9 bytes per second"),
    n_levels="levels, one after the other; 1 for a row of each",
    min=number("as value", "lowest value"),
    p50=number("as value", "the value is at most this for half of the time"),
    p90=number("as value", "the value is at most this for 90% of the time"),
    max=number("as value", "highest value"),
)

QUEUE_BLOCKED = schema(
    "QUEUE_BLOCKED",
    device=_DEVICE,
    stream=_STREAM,
    full_ns="time with at least that many launches outstanding",
    full_share="full_ns / window",
    n_blocked=count(
        "launch calls that waited until work started and made room", heading="blocked calls"
    ),
    blocked_ns="host time in those calls",
)

KERNEL_PATTERNS = schema(
    "KERNEL_PATTERNS",
    "pattern share device_ns gap_ns n_occurrences length host_ns op",
    {"occurrence": "ts_ns dur_ns pattern device_ns gap_ns host_ns op"},
    pattern=name("tuple of kernel names, in order of time"),
    op=name("operator that launched them; empty for patterns of a stream"),
    length=count("kernels in the pattern"),
    n_occurrences="occurrences, without overlap",
    device_ns="total duration of the kernels",
    host_ns="total duration of the operator calls, 0 for patterns of a stream",
    gap_ns="idle time of the stream between the kernels, which fusing them would save",
    share="device_ns / all device time of the window",
    event=identifier("first kernel of the first occurrence", unit="event"),
    ts_ns="start of that kernel",
    dur_ns="from the start of the first kernel to the end of the last, of all occurrences",
)

ANNOTATION_BREAKDOWN = schema(
    "ANNOTATION_BREAKDOWN",
    "name n_ranges sum_ns n_kernels device_ns self_device_ns device_share",
    name=name("annotation"),
    n_ranges="ranges that overlap the window",
    **_SPREAD,
    n_kernels="kernels, memcpys and memsets launched in them",
    device_ns="device time launched in them; counts for every enclosing annotation",
    self_device_ns="device time with this as the innermost annotation; adds up",
    device_share="device_ns / all device time of the window",
)

OPERATOR_BREAKDOWN = schema(
    "OPERATOR_BREAKDOWN",
    "name n_calls self_ns host_ns self_device_ns device_ns n_kernels kind",
    name=name("operator, API call, annotation or module; else the group, empty for none"),
    kind=label("kind of event", unit="EventKind"),
    n_calls="calls that overlap the window",
    host_ns="time in the calls, in the window; recursion counts once",
    self_ns="the same without nested events; adds up to the time in host events",
    n_kernels="kernels, memcpys and memsets launched in them",
    device_ns="device time launched in them",
    self_device_ns="device time with this innermost operator, annotation or launch call",
)

OPERATOR_TREE = schema(
    "OPERATOR_TREE",
    "name depth n_calls host_ns self_ns device_ns n_kernels node parent",
    node=identifier("number of the row; parents precede children"),
    parent=identifier("row of the caller, -1 for none"),
    depth=count("number of callers above"),
    name=name("operator, API call or annotation"),
    n_calls="calls with this chain of callers",
    host_ns="time in the calls, in the window",
    self_ns="the same without nested calls; adds up to the time of the roots",
    n_kernels="kernels, memcpys and memsets launched in them",
    device_ns="device time launched in them",
)

EXECUTION_NODES = schema(
    "EXECUTION_NODES",
    "name node n_inputs n_outputs input_shapes output_shapes",
    event=EVENT,
    name=name("operator or annotation"),
    node=identifier("id in the execution trace"),
    record_function=identifier("id of the call in both files; -1 if the trace has none"),
    n_inputs="input tensors, each tensor of a list counted",
    n_outputs="output tensors",
    op_schema=name("signature of the operator; empty for none"),
    input_shapes=name("shape of each input", unit="JSON"),
    input_types=name("type of each input", unit="JSON"),
    output_shapes=name("shape of each output", unit="JSON"),
    output_types=name("type of each output", unit="JSON"),
)

MEMORY_TIMELINE = schema(
    "MEMORY_TIMELINE",
    "ts_ns device bytes allocated reserved op",
    event=EVENT,
    ts_ns="when memory was allocated or freed",
    device_type=identifier("PyTorch's device type: 0 CPU, 1 CUDA; -1 unknown"),
    device=_DEVICE,
    bytes=number("byte", "allocated (> 0) or freed (< 0)", dtype="int64"),
    allocated=count("allocated afterwards, -1 if not recorded", unit="byte"),
    reserved=count("reserved by the allocator afterwards, -1 if not recorded", unit="byte"),
    op=_OP,
)

STEP_TIMES = schema(
    "STEP_TIMES",
    "name dur_ns device compute_ns communication_ns memory_ns idle_ns n_launches launched_ns",
    **STEP,
    device=identifier("device, -1 without device work"),
    n_launches="kernels, memcpys and memsets launched in the step",
    launched_ns="their device time, whenever they ran",
    idle_ns="time of the step without device work",
    compute_ns="time of the step with a compute kernel",
    communication_ns="exposed communication",
    memory_ns="time of the step with only copies and memsets",
)

STEADY_STATE = schema(
    "STEADY_STATE",
    "name period_ns delta_ns is_steady is_representative reason",
    **STEP,
    period_ns="from its start to the start of the next step; dur_ns for the last",
    delta_ns="longer than the representative, else the median similar step, by this much",
    n_events="events on the step thread and launched work in the period, without polls",
    n_different="events more or fewer than in a typical step, counted by name",
    device_ns="device time launched in the step, whenever it ran",
    is_steady="one of at least three steps with the same work and about the same length",
    is_representative="the steady step of median length",
    reason=text("why the step is not steady; empty if it is"),
)

COLLECTIVES = schema(
    "COLLECTIVES",
    "collective operation start_ns end_ns n_bytes least_busbw_gb_per_s n_elements dtype group "
    "peer seq",
    collective=identifier("position on this rank, by launch"),
    event=EVENT,
    operation=name("all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send …"),
    group=name("communicator: ranks or name of the process group, empty if not recorded"),
    n_elements="elements sent, -1 if not recorded",
    dtype=name("element type, empty if not recorded"),
    n_bytes=count("size: what it gathers, else what it sends; -1 unknown", unit="bytes"),
    n_ranks="ranks that take part, -1 if not recorded",
    least_algbw_gb_per_s=number(
        "GB/s", "n_bytes by duration: a lower bound, as one rank cannot tell waiting from transfer"
    ),
    least_busbw_gb_per_s=number(
        "GB/s", "the same of what each link carries, by NCCL's tests; NaN if unknown"
    ),
    seq=identifier("sequence number in the communicator, -1 if not recorded"),
    peer=identifier(
        "peer of a send or receive, root of a broadcast or reduce; -1 if not recorded", unit="rank"
    ),
    start_ns="start of the kernel, on the rank's clock",
    end_ns="end of the kernel, on the rank's clock",
    is_rendezvous="no rank can end before all have started",
    found_by=label("how the operation was identified"),
    arrival=identifier(
        "collective at whose start the rank arrives: this, or its sending half; -1 unclear"
    ),
    after=identifier("collective whose end the start of this one depends on, -1 for none"),
)

DAMAGE = schema(
    "DAMAGE",
    "kind n n_all consequence",
    kind=label("what is damaged", unit="DamageKind"),
    n=count("damaged files, events, ranks or collectives"),
    n_all="of so many",
    start_ns="where it starts; the start of the trace if unknown",
    end_ns="where it ends; the end of the trace if unknown",
    consequence=text("what is damaged, and what that does to the answers"),
)

QUALITY = schema(
    "QUALITY",
    "check share verdict n_good n_all consequence",
    check=text("what is checked"),
    n_good="how many pass",
    n_all="out of how many",
    share="n_good / n_all, 1 if there is nothing to check",
    verdict=label("good, weak or missing"),
    consequence=text("if not good: which answers suffer and what to do; else what was used"),
)

KINDS = schema(
    "KINDS",
    kind=label("kind of the edges, or of the events", unit="EdgeKind", dtype="object"),
    rule=label("rule that made the edges; empty for events", dtype="object"),
    evidence=label(
        "recorded, by definition or inferred; empty for events", unit="Evidence", dtype="object"
    ),
    n=count("how many of them overlap the window"),
    path_ns="time of the critical path on these edges, or in these events",
    path_share="path_ns / window; all rows add up to 1",
)

INFERENCES = schema(
    "INFERENCES",
    "rule n_edges path_share path_ns n_pairs n_matched n_all chance",
    {"pair": "rule source target n_matched n_all chance distance_ns spread_ns"},
    rule=label("rule that made the edges"),
    kind=label("kind of the edges", unit="EdgeKind"),
    source=name("of a pair, the place that is waited for; else empty"),
    target=name("of a pair, the place that waits; else empty"),
    n_edges="edges of the rule that overlap the window; 0 for a pair",
    path_ns="time of the critical path on these edges; 0 for a pair",
    path_share="path_ns / window; NaN for a pair",
    n_pairs="pairs of places learnt; 0 if the rule judges single events",
    n_matched="waits of the target for which the source ends as the rule expects",
    n_all="waits of the target, in the whole trace",
    distance_ns="of a pair, median time from the source's end; else 0",
    spread_ns="of a pair, range of that time; else 0",
    chance=number("share", "largest share of random times that also match; NaN without pairs"),
)

PROFILER_OVERHEAD = schema(
    "PROFILER_OVERHEAD",
    "name source n_events sum_ns path_ns path_share inside",
    name=name("overhead, as the profiler names it"),
    source=label("the profiler, or the driver, whose overhead is there without profiling"),
    n_events="events that overlap the window",
    n_placed="those with a known thread; only they can be on the path",
    sum_ns="total duration in the window",
    path_ns="time of the critical path with this innermost; adds up",
    path_share="path_ns / window",
    inside=name("operator or call with most of that time, empty for none"),
)

SAMPLED_COUNTERS = schema(
    "SAMPLED_COUNTERS",
    "device name unit mean min max n_samples uncertainty_ns",
    {
        "step": "device name unit step mean min max",
        "time": "device name unit start_ns mean min max",
    },
    device=identifier("device, -1 for the host"),
    instrument=name("what took the samples"),
    name=name("counter, as the instrument names it"),
    unit=name("unit, empty for none"),
    step=identifier("step, -1 for another interval"),
    start_ns="start of the interval",
    dur_ns="length of the interval",
    n_samples="samples in the interval; 0 if only neighboring samples tell",
    mean=number("unit", "mean over time; each moment counts as its nearest sample"),
    min=number("unit", "smallest value"),
    max=number("unit", "largest value"),
    uncertainty_ns="sample times may be off by this much, either way",
)

CUPTI_COUNTERS = schema(
    "CUPTI_COUNTERS",
    "name counter value dur_ns op instrument",
    event=EVENT,
    name=name("kernel that was counted"),
    ts_ns="start of the kernel, or of the CUPTI range around it",
    dur_ns="length of the kernel, or of the longer range",
    launch=identifier("call that launched it, -1 if not known", unit="event"),
    op=name("innermost operator of the launch"),
    top_op=name("outermost operator of the launch"),
    counter=name("hardware counter"),
    value=number("count", "value, in the counter's unit"),
    instrument=name("CUPTI, or Nsight Compute in a run of its own"),
)

CUPTI_RATES = schema(
    "CUPTI_RATES",
    name=name("kernel or operator"),
    n_ranges="measured kernels",
    dur_ns="their total length in the trace",
    flop=number("FLOP", "floating-point operations, NaN if not measured"),
    bytes=number("byte", "device memory traffic, NaN if not measured"),
    flop_per_s=number("FLOP/s", "achieved FLOP/s"),
    bytes_per_s=number("byte/s", "achieved bandwidth"),
    flop_per_byte=number("FLOP/byte", "arithmetic intensity: the x axis of a roofline"),
)

OPPORTUNITIES = schema(
    "OPPORTUNITIES",
    "kind target left_share saves_ns low_ns high_ns saves_share change cause",
    kind=label("kind of change: without a cause, repair, kernel, operator, wait …", dtype="object"),
    target=name("what is changed"),
    change=text("the change, as `what_if` accepts it; without a cause: its time is zero"),
    left_share="part of its time that the target keeps",
    cause=label("cause that is gone or repaired; empty for other changes", dtype="object"),
    late_rank=identifier("rank whose lateness is repaired, -1 for other changes", unit="rank"),
    saves_ns="expected saving",
    low_ns=duration("lower end of the saving, for what the trace leaves open", heading="at least"),
    high_ns=duration("upper end of the saving", heading="at most"),
    saves_share=share("saves_ns / window", heading="share"),
    alone_ns=duration("saving if no other rank changes; saves_ns in a trace", heading="alone"),
)

SLACK = schema(
    "SLACK",
    "name dur_ns total_float_ns free_float_ns track ts_ns kind op",
    event=EVENT,
    name=name("host event, kernel, memcpy or memset"),
    op=_OP,
    kind=label("kind of event", unit="EventKind"),
    track=TRACK,
    ts_ns="start of the event",
    dur_ns="length of the event, not clipped to the window",
    total_float_ns="it may end this much later without delaying the end of the window",
    free_float_ns="it may end this much later without delaying any other event",
    is_critical="any delay makes the window longer: its total float is 0",
)

COST = schema(
    "COST",
    group=name("name, operator, module, stream, bound or rule"),
    n_events="events in the window; by bound or rule, edges that take time",
    time_ns="their total time in the window",
    path_ns="their time on the critical path",
    cost_ns="saving if they took no time; negative: the window gets longer",
    cost_share="cost_ns / window; shares do not add up",
)

FUNCTIONS = schema(
    "FUNCTIONS",
    "function place own_ns own_share inclusive_ns backward_ns mostly",
    function=name("function of user code; ``(no function)`` for the rest of the path"),
    place=name("file and line where it begins"),
    own_ns="path time in it and in libraries and operators that it calls; adds up to the window",
    own_share="own_ns / window",
    inclusive_ns="the same with functions of user code that it calls",
    backward_ns="path time of the gradients of operators in it, beyond inclusive_ns",
    mostly=name("operator with most of its own time, empty if most is in none"),
    frame=name("name of its frames, for `remove` and `scale`"),
)

NEAR_CRITICAL = schema(
    "NEAR_CRITICAL",
    "said start_ns bounds joins",
    said=text("the row in one sentence"),
    float_ns="the chain may take this much longer before the window does",
    dur_ns="length of the chain in the window",
    start_ns="when it leaves a more critical chain",
    end_ns="when it could join it again",
    track=name("thread or stream with most of its time", unit="id"),
    n_tracks="threads and streams in the chain",
    bound=label("largest bound", unit="Bound"),
    bound_share="its share of dur_ns",
    bounds=text("all bounds of at least 5%, with their shares"),
    name=name("event or kind of gap with most of its time"),
    op=name("innermost operator or annotation with most of its time, empty for none"),
    n_events="events in the chain",
    leaves=name("more critical event that it comes from"),
    joins=name("more critical event that it leads to"),
)

UTILIZATION = schema(
    "UTILIZATION",
    "device gpu_utilization sm_share warp_share sm_occupancy communication_share "
    "small_grid_share tail_share tensor_share grid_coverage",
    {
        "step": "name dur_ns device gpu_utilization sm_share warp_share sm_occupancy grid_coverage",
        "time": "start_ns device gpu_utilization sm_share warp_share sm_occupancy grid_coverage",
    },
    device=_DEVICE,
    name=name("step; empty for the window and its parts"),
    start_ns="start of the range",
    dur_ns="length of the range",
    gpu_utilization=share("share of time with a kernel, as in nvidia-smi"),
    sm_share="share of SMs with a block while a kernel runs; estimate, NaN if unknown",
    sm_activity=share("gpu_utilization * sm_share: average share of SMs with a block"),
    warp_share="share of warp slots of these SMs in use; estimate, NaN if unknown",
    measured_warp_share="the same, measured by Nsight Compute; NaN if not measured",
    sm_occupancy=share("sm_activity * warp_share: average share of warp slots in use"),
    communication_share="share of time with only communication kernels",
    small_grid_share="SM time without a block because grids are small; estimate",
    tail_share="SM time without a block in the last waves of kernels; estimate",
    copy_share="share of time with a copy from or to the host or a peer",
    tensor_share="least share of compute time on tensor cores, by kernel names; NaN without",
    grid_coverage=share("share of kernel time with known grids"),
    warp_coverage=share("the same with known warps, weighted by SMs"),
    sampled_gpu_utilization=share("mean of GPU utilization samples, NaN without any"),
    sampled_sm_activity=share("mean of SM activity samples, NaN without any"),
    sampled_sm_occupancy=share("mean of SM occupancy samples, NaN without any"),
    sampled_tensor_activity=share("mean of tensor core activity samples, NaN without any"),
)

DEVICE_ACTIVITY = schema(
    "DEVICE_ACTIVITY",
    "device metric unit estimate measured coverage n_samples series estimated_from",
    device=_DEVICE,
    metric=name("GPU utilization, SM active, DRAM active …, from coarse to fine"),
    unit=name("share, GB/s, MHz or W"),
    estimate=number("any", "estimate from the trace, in this unit; NaN if there is none"),
    measured=number("any", "mean of the samples of another tool, in this unit; NaN without any"),
    coverage=share("share of device time that the estimate rests on; NaN without one"),
    n_samples="samples in the window; 0 if the value is of samples before or after it",
    uncertainty_ns="the times of samples may be off by this much",
    series=name("sampled series; empty for none"),
    instrument=name("tool that sampled it"),
    estimated_from=text("what the estimate follows from"),
    also_called=text("the metric as nvidia-smi, dcgmi and the DCGM exporter call it"),
)

UTILIZATION_LOSSES = schema(
    "UTILIZATION_LOSSES",
    "device use share name n_kernels kernel_ns n_blocks n_fit n_waves",
    device=_DEVICE,
    use=label("warp slots in use, or why they are empty", unit="SlotUse"),
    name=name("kernel; empty for idle"),
    share="share of warp slots over the window; adds up to 1 per device",
    n_kernels="times that it ran in the window",
    kernel_ns="total duration in the window",
    n_blocks="median blocks of its grid; 0 unknown",
    n_waves="median waves; 0 unknown",
    n_fit=count("median blocks that fit on an SM at once; 0 unknown", heading="fit on an SM"),
)

ROOFLINE = schema(
    "ROOFLINE",
    "group device_share device_ns n_calls roof_share excess_ns limit tflops_per_s gb_per_s",
    group=name("operator, operator with shapes, kernel, module, step or family"),
    n_calls="operator calls; of work without an operator, its launches",
    n_kernels="kernels, copies and fills",
    device_ns="their time in the window; all rows add up to all device time",
    device_share="device_ns / all device time",
    gflop=number("GFLOP", "operations of matrix units, in 1e9; a multiply-add counts as 2"),
    bytes_low=count("least bytes to be read and written", unit="bytes"),
    bytes_high=count("most of them, where the trace leaves it open", unit="bytes"),
    tflops_per_s=number("TFLOP/s", "gflop by device_ns; NaN without a model"),
    gb_per_s=number("GB/s", "bytes_low by device_ns, GB = 1e9 bytes; NaN without a model"),
    flop_per_byte=number("FLOP/byte", "arithmetic intensity; NaN without a model"),
    roof_ns=duration("least time that the device needs; NaN if unknown", dtype="float64"),
    roof_share="roof_ns / device_ns; NaN if unknown",
    excess_ns="device_ns beyond the roof, 0 if unknown",
    limit=label(
        "what the roof is: compute, FP32 compute, memory, launch, host link, cache or unknown"
    ),
)

MFU = schema(
    "MFU",
    part=name("the window, then its steps"),
    window_ns="length; of a step until its device work is done",
    kernel_ns="device time of what it launched",
    modelled_share="device time of operators with a model / kernel_ns",
    tflop=number("TFLOP", "operations of matrix units, in 1e12"),
    peak_ns=duration("time of these at their dense peak", heading="time at peak", dtype="float64"),
    mfu_share="peak_ns of all but recomputed operations / window_ns",
    hfu_share="peak_ns / window_ns: hardware FLOPs utilization",
)

SPEED_OF_LIGHT = schema(
    "SPEED_OF_LIGHT",
    "group cost_share cost_ns attainable_ns device_ns roof_share limit n_calls",
    group=name("operator with the shapes of its inputs, or all operators"),
    family=label("of the model; none for all operators"),
    n_calls="operator calls with a model",
    device_ns="their time in the window",
    roof_ns=duration("least time that the device needs", dtype="float64"),
    roof_share="roof_ns / device_ns",
    limit=label("what the roof is: compute, FP32 compute, memory, launch, host link or cache"),
    cost_ns="how much shorter the window would be at the roof",
    cost_share="cost_ns / window",
    attainable_ns="the same, at the share of the roof that the best operator of its family reaches",
    tf32_ns="the same, with TF32 for products that run in FP32 as it is not allowed",
)
