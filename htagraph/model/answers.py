"""Schemas of the answers of a trace: that of the question `idle_time` is `IDLE_TIME`, and so on.

The schemas of a job's own questions are in `htagraph.model.job_answers`, by the same rule.
"""

from __future__ import annotations

from htagraph.model.schema import Column, Schema, count, flag, name, nanoseconds, share

__all__ = [
    "ANNOTATION_BREAKDOWN",
    "CHOKE_POINTS",
    "CLASS_OVERLAP",
    "COLLECTIVES",
    "COUNTERS",
    "CUPTI_COUNTERS",
    "CUPTI_RATES",
    "DRAG",
    "EXECUTION_NODES",
    "EXPOSED_COMMUNICATION",
    "GRAPH_NODES",
    "IDLE_CATEGORIES",
    "IDLE_INTERVALS",
    "IDLE_TIME",
    "INFERENCES",
    "KERNEL_BREAKDOWN",
    "KERNEL_DURATIONS",
    "KERNEL_PATTERNS",
    "LAUNCH_STATS",
    "MEMORY_TIMELINE",
    "NEAR_CRITICAL",
    "OPERATOR_BREAKDOWN",
    "OPERATOR_TREE",
    "OPPORTUNITIES",
    "OVERLAP",
    "PROFILER_OVERHEAD",
    "QUALITY",
    "QUEUE_BLOCKED",
    "SAMPLED_COUNTERS",
    "SLACK",
    "STEADY_STATE",
    "STEP_TIMES",
    "TEMPORAL_BREAKDOWN",
    "UTILIZATION",
    "UTILIZATION_LOSSES",
]

_EVENT = Column("int64", "event", "row of the event table")
_DEVICE = Column("int64", "id", "device")
_STREAM = Column("int64", "id", "stream of the device")
_CLASS = Column("category", "KernelClass", "what the work does: compute, communication or memory")
_OP = name("innermost operator or annotation it happened in, or was launched from; empty for none")
_TRACK = Column("object", "id", "thread id of host work, `stream n` of device work")
_SPREAD = {
    "sum_ns": nanoseconds("sum of durations in the window"),
    "mean_ns": Column("float64", "ns", "mean duration"),
    "std_ns": Column("float64", "ns", "sample standard deviation of durations, 0 of one"),
    "min_ns": nanoseconds("shortest"),
    "max_ns": nanoseconds("longest"),
}
_QUANTILES = {
    "p50_ns": nanoseconds("median; like all quantiles the largest duration at or below the rank"),
    "p90_ns": nanoseconds("quantile 0.90"),
    "p99_ns": nanoseconds("quantile 0.99"),
}

TEMPORAL_BREAKDOWN = Schema(
    "TEMPORAL_BREAKDOWN",
    {
        "device": _DEVICE,
        "window_ns": nanoseconds("length of the window; the four parts add up to it"),
        "idle_ns": nanoseconds("nothing runs on the device"),
        "compute_ns": nanoseconds("a compute kernel runs, whatever else does"),
        "communication_ns": nanoseconds(
            "a communication kernel runs and no compute kernel: exposed communication"
        ),
        "memory_ns": nanoseconds("only copies and fills run"),
        "idle_share": share("idle_ns / window_ns"),
        "compute_share": share("compute_ns / window_ns"),
        "communication_share": share("communication_ns / window_ns"),
        "memory_share": share("memory_ns / window_ns"),
    },
)

CLASS_OVERLAP = Schema(
    "CLASS_OVERLAP",
    {
        "device": _DEVICE,
        "classes": name("classes that run at once, joined by ' + '; idle where none does"),
        "dur_ns": nanoseconds("time in which exactly these run; adds up to the window"),
        "share": share("dur_ns / window"),
    },
)

IDLE_TIME = Schema(
    "IDLE_TIME",
    {
        "device": _DEVICE,
        "stream": Column("int64", "id", "stream, -1 for the union of all streams of the device"),
        "cause": Column("category", "IdleCause", "what the device waited for"),
        "op": _OP,
        "name": name("event that the time belongs to, or what the gap is"),
        "frame": name("innermost Python frame, empty where none was recorded"),
        "n_gaps": count("idle intervals that this takes part in"),
        "idle_ns": nanoseconds("idle time of this cause; adds up to the idle time"),
        "idle_share": share("idle_ns / idle time of the device, or stream"),
    },
)

IDLE_INTERVALS = Schema(
    "IDLE_INTERVALS",
    {
        "interval": count("number of the idle interval"),
        "device": _DEVICE,
        "stream": Column("int64", "id", "stream, -1 for the union of all streams of the device"),
        "start_ns": nanoseconds("start of this part of the interval"),
        "dur_ns": nanoseconds("length of this part; the parts of an interval tile it"),
        "cause": Column("category", "IdleCause", "what the device waited for"),
        "event": Column("int64", "event", "event that the time belongs to, -1 for none"),
        "op": _OP,
        "name": name("name of the event, or what the gap is"),
        "frame": name("innermost Python frame, empty where none was recorded"),
        "ended_by": Column("int64", "event", "device event that ends the interval, -1 for none"),
    },
)

GRAPH_NODES = Schema(
    "GRAPH_NODES",
    {
        "graph": count("number of the graph, in order of first replays"),
        "node": count("number of the node in its graph, in order of first starts"),
        "name": name("kernel, copy or fill"),
        "device": _DEVICE,
        "stream": _STREAM,
        "n_replays": count("replays of the node that overlap the window"),
        "sum_ns": nanoseconds("sum of its durations, not clipped to the window"),
        "mean_ns": Column("float64", "ns", "mean duration"),
        "median_ns": nanoseconds("median duration"),
        "min_ns": nanoseconds("shortest"),
        "max_ns": nanoseconds("longest"),
        "offset_ns": nanoseconds("median time from the start of the replay to that of the node"),
        "offset_spread_ns": nanoseconds("range of that time"),
        "gap_ns": nanoseconds(
            "median time before it in which no earlier node of its replay ran, on any stream"
        ),
        "found_by": Column(
            "category", "name", "what says which node it is: its id, or its position in its stream"
        ),
    },
)

IDLE_CATEGORIES = Schema(
    "IDLE_CATEGORIES",
    {
        "device": _DEVICE,
        "stream": _STREAM,
        "category": Column("category", "name", "host_wait, kernel_wait or other"),
        "n_gaps": count("gaps between two pieces of work of the stream"),
        "idle_ns": nanoseconds("their length"),
        "idle_share": share("idle_ns / all gaps of the stream"),
    },
)

KERNEL_BREAKDOWN = Schema(
    "KERNEL_BREAKDOWN",
    {
        "group": name("class, name, op, stream or rule"),
        "class": _CLASS,
        "n_kernels": count("pieces of device work that overlap the window"),
        **_SPREAD,
        **_QUANTILES,
        "share": share("sum_ns / sum of all groups"),
    },
)

KERNEL_DURATIONS = Schema(
    "KERNEL_DURATIONS",
    {
        "event": _EVENT,
        "name": name("kernel, copy or fill"),
        "class": _CLASS,
        "op": _OP,
        "annotation": name("innermost annotation around its launch, empty for none"),
        "module": name("innermost module around its launch, if Python frames were recorded"),
        "device": _DEVICE,
        "stream": _STREAM,
        "ts_ns": nanoseconds("start"),
        "dur_ns": nanoseconds("duration, not clipped to the window"),
    },
)

OVERLAP = Schema(
    "OVERLAP",
    {
        "device": _DEVICE,
        "compute_ns": nanoseconds("time in which a compute kernel runs"),
        "communication_ns": nanoseconds("time in which a communication kernel runs"),
        "overlap_ns": nanoseconds("time in which both do"),
        "exposed_ns": nanoseconds("communication_ns - overlap_ns"),
        "overlap_share": share(
            "overlap_ns / communication_ns; NaN where there is no communication"
        ),
    },
)

EXPOSED_COMMUNICATION = Schema(
    "EXPOSED_COMMUNICATION",
    {
        "event": _EVENT,
        "name": name("communication kernel"),
        "op": _OP,
        "device": _DEVICE,
        "stream": _STREAM,
        "start_ns": nanoseconds("start in the window"),
        "dur_ns": nanoseconds("time in the window"),
        "exposed_ns": nanoseconds("time in which no compute kernel ran on the device"),
        "why": Column(
            "category",
            "name",
            "why the next compute kernel did not run meanwhile; none where nothing is exposed",
        ),
        "next_event": Column("int64", "event", "that compute kernel, -1 for none"),
        "next_name": name("name of that kernel"),
    },
)

LAUNCH_STATS = Schema(
    "LAUNCH_STATS",
    {
        "event": _EVENT,
        "correlation": Column("int64", "id", "links the call and its device work"),
        "call": name("API call"),
        "op": _OP,
        "name": name("first device work it enqueued"),
        "device": _DEVICE,
        "stream": _STREAM,
        "ts_ns": nanoseconds("start of the call"),
        "op_delay_ns": nanoseconds("start of that operator to the start of the call, 0 for none"),
        "launch_ns": nanoseconds("duration of the call"),
        "kernel_ns": nanoseconds("sum of durations of what it enqueued"),
        "launch_delay_ns": nanoseconds("end of the call to the first start, 0 if that came before"),
        "queued_ns": nanoseconds("part of the delay in which earlier work of the stream still ran"),
        "n_kernels": count("pieces of device work enqueued: more than 1 for a graph"),
        "is_short_kernel": flag("the work takes less time than its launch, which is no outlier"),
        "is_launch_outlier": flag("launch_ns above the cutoff"),
        "is_delay_outlier": flag("launch_delay_ns above the cutoff"),
    },
)

COUNTERS = Schema(
    "COUNTERS",
    {
        "ts_ns": nanoseconds("when the value changes"),
        "dur_ns": nanoseconds("until the next change, or the end of the window"),
        "device": _DEVICE,
        "stream": Column("int64", "id", "stream, -1 for a counter of the whole device"),
        "name": name("what is counted"),
        "value": Column(
            "float64", "count or GB/s", "launches outstanding, or 1e9 bytes per second"
        ),
    },
)

QUEUE_BLOCKED = Schema(
    "QUEUE_BLOCKED",
    {
        "device": _DEVICE,
        "stream": _STREAM,
        "full_ns": nanoseconds("time in which at least as many launches were outstanding"),
        "full_share": share("full_ns / window"),
        "n_blocked": count("launch calls that returned only when work started and made room"),
        "blocked_ns": nanoseconds("host time in those calls"),
    },
)

KERNEL_PATTERNS = Schema(
    "KERNEL_PATTERNS",
    {
        "pattern": name("tuple of kernel names, in order of time"),
        "op": name("operator that launched them; empty along a stream"),
        "length": count("kernels of the pattern"),
        "n_occurrences": count("how often, without overlap"),
        "device_ns": nanoseconds("sum of durations of the kernels"),
        "host_ns": nanoseconds("sum of durations of the operator calls, 0 along a stream"),
        "gap_ns": nanoseconds(
            "idle time of the stream between the kernels, which one fused kernel would not have"
        ),
        "share": share("device_ns / all device time of the window"),
        "event": Column("int64", "event", "first kernel of the first occurrence"),
    },
)

ANNOTATION_BREAKDOWN = Schema(
    "ANNOTATION_BREAKDOWN",
    {
        "name": name("annotation"),
        "n_ranges": count("ranges that overlap the window"),
        **_SPREAD,
        "n_kernels": count("device work launched in them"),
        "device_ns": nanoseconds("device time launched in them; nested annotations each have it"),
        "self_device_ns": nanoseconds(
            "device time of which this is the innermost annotation; adds up"
        ),
        "device_share": share("device_ns / all device time of the window"),
    },
)

OPERATOR_BREAKDOWN = Schema(
    "OPERATOR_BREAKDOWN",
    {
        "name": name("operator, API call, annotation or module"),
        "kind": Column("category", "EventKind", "what it is"),
        "n_calls": count("calls that overlap the window"),
        "host_ns": nanoseconds("time in the calls, in the window; a recursive call counts once"),
        "self_ns": nanoseconds(
            "time in the calls and in nothing they call; adds up to the time in host events"
        ),
        "n_kernels": count("device work launched in them"),
        "device_ns": nanoseconds("device time launched in them"),
        "self_device_ns": nanoseconds(
            "device time of which this is the innermost operator or annotation, or, where there is "
            "none, the launch call"
        ),
    },
)

OPERATOR_TREE = Schema(
    "OPERATOR_TREE",
    {
        "node": count("number of the row; parents come before children"),
        "parent": count("row of the caller, -1 for the outermost"),
        "depth": count("callers above"),
        "name": name("operator, API call or annotation"),
        "n_calls": count("calls with this chain of callers"),
        "host_ns": nanoseconds("time in the calls, in the window"),
        "self_ns": nanoseconds("time in nothing they call; adds up to the time of the roots"),
        "n_kernels": count("device work launched in them"),
        "device_ns": nanoseconds("device time launched in them"),
    },
)

EXECUTION_NODES = Schema(
    "EXECUTION_NODES",
    {
        "event": _EVENT,
        "name": name("operator or annotation"),
        "node": Column("int64", "id", "id of its node in the execution trace"),
        "record_function": Column(
            "int64", "id", "id of the call that both files have; -1 where the trace has none"
        ),
        "n_inputs": count("tensors that it took; those of a list count each"),
        "n_outputs": count("tensors that it gave"),
        "op_schema": Column("object", "text", "its signature; empty for none"),
        "input_shapes": Column("object", "JSON", "shape of each input"),
        "input_types": Column("object", "JSON", "type of each input"),
        "output_shapes": Column("object", "JSON", "shape of each output"),
        "output_types": Column("object", "JSON", "type of each output"),
    },
)

MEMORY_TIMELINE = Schema(
    "MEMORY_TIMELINE",
    {
        "event": _EVENT,
        "ts_ns": nanoseconds("when memory was taken or given back"),
        "device_type": Column(
            "int64", "id", "PyTorch's number of the kind of device: 0 CPU, 1 CUDA; -1 unknown"
        ),
        "device": _DEVICE,
        "bytes": Column("int64", "byte", "taken (> 0) or given back (< 0)"),
        "allocated": Column("int64", "byte", "allocated after it, -1 where not recorded"),
        "reserved": Column(
            "int64", "byte", "reserved by the allocator after it, -1 where not recorded"
        ),
        "op": _OP,
    },
)

STEP_TIMES = Schema(
    "STEP_TIMES",
    {
        "step": count("position in time"),
        "name": name("name of the step"),
        "start_ns": nanoseconds("start of the host range"),
        "dur_ns": nanoseconds("length of the host range"),
        "device": Column("int64", "id", "device, -1 where the trace has none"),
        "n_launches": count("device work launched in the step"),
        "launched_ns": nanoseconds("its device time, whenever it ran"),
        "idle_ns": nanoseconds("nothing ran on the device while the step lasted"),
        "compute_ns": nanoseconds("a compute kernel ran"),
        "communication_ns": nanoseconds("exposed communication"),
        "memory_ns": nanoseconds("only copies and fills ran"),
    },
)

STEADY_STATE = Schema(
    "STEADY_STATE",
    {
        "step": count("position in time"),
        "name": name("name of the step"),
        "start_ns": nanoseconds("start of the host range"),
        "dur_ns": nanoseconds("length of the host range"),
        "period_ns": nanoseconds("from its start to that of the next step; of the last, dur_ns"),
        "delta_ns": nanoseconds(
            "how much longer than the representative step, else than the median one of those that "
            "do the same work; of the last, with the usual time between two steps"
        ),
        "n_events": count(
            "events on the thread of the steps and work launched, from its start to that of the "
            "next; without polls"
        ),
        "n_different": count("events more or fewer than in a typical step, name by name"),
        "device_ns": nanoseconds("device time of the work launched, whenever it ran"),
        "is_steady": flag("one of at least three that do the same work and take about as long"),
        "is_representative": flag("the steady step of median length"),
        "reason": Column("object", "text", "why it is not steady; empty if it is"),
    },
)

CHOKE_POINTS = Schema(
    "CHOKE_POINTS",
    {
        "event": _EVENT,
        "name": name("event that every chain passes; `(window start)` before the first"),
        "kind": Column("category", "EventKind", "its kind"),
        "op": _OP,
        "side": Column("category", "name", "whether chains pass its start or its end"),
        "ts_ns": nanoseconds("when"),
        "dur_ns": nanoseconds("time of the stretch, which adds up to the window"),
        "is_serial": flag("one thing at a time; else several chains run side by side"),
        "n_points": count("choke points in it, each at an instant of its own: 1 if not serial"),
        "until": name("what ends the stretch, and so begins the next"),
        "bound": Column("category", "Bound", "bound of most of the critical path in it"),
        "bound_share": share("its share of the stretch"),
    },
)

COLLECTIVES = Schema(
    "COLLECTIVES",
    {
        "collective": count("position on this rank, in the order of launches"),
        "event": _EVENT,
        "operation": name("all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send …"),
        "group": name("communicator: ranks or name of the process group, empty where not recorded"),
        "n_elements": count("elements sent, -1 where not recorded"),
        "dtype": name("element type, empty where not recorded"),
        "seq": count("sequence number of the communicator, -1 where not recorded"),
        "peer": Column(
            "int64",
            "rank",
            "other side of a send or receive, root of a broadcast or reduce; -1 where not recorded",
        ),
        "start_ns": nanoseconds("start of the kernel, on the rank's clock"),
        "end_ns": nanoseconds("end of the kernel, on the rank's clock"),
        "is_rendezvous": flag("nobody ends before everybody has started"),
        "found_by": Column("category", "name", "what says which operation it is"),
        "arrival": count(
            "collective whose start is the rank's arrival: this one, or the half of it that sends; "
            "-1 where it is unclear which half this one is"
        ),
        "after": count("collective whose end the start of this one goes back to, -1 for none"),
    },
)

QUALITY = Schema(
    "QUALITY",
    {
        "check": name("what was checked"),
        "n_good": count("how many pass"),
        "n_all": count("of how many"),
        "share": share("n_good / n_all, 1 where there is nothing to check"),
        "verdict": Column("category", "name", "good, weak or missing"),
        "consequence": Column(
            "object",
            "text",
            "which answers are weaker, and what to do about it; of a good check, what was taken",
        ),
    },
)

INFERENCES = Schema(
    "INFERENCES",
    {
        "rule": Column("category", "name", "rule that made the edges"),
        "kind": Column("category", "EdgeKind", "kind of edge that it makes"),
        "source": name("of a pair, the place that was waited for; else empty"),
        "target": name("of a pair, the place that waited; else empty"),
        "n_edges": count("edges of the rule that overlap the window; 0 of a pair"),
        "path_ns": nanoseconds("time of the window's critical path on these edges; 0 of a pair"),
        "path_share": share("path_ns / window; NaN of a pair"),
        "n_pairs": count("pairs of places that were learnt; 0 where each event is judged alone"),
        "n_matched": count("how often the target waited and the source ended as the rule wants it"),
        "n_all": count("how often the target waited; as n_matched, in the whole trace"),
        "distance_ns": nanoseconds("of a pair, median time from the source's end; else 0"),
        "spread_ns": nanoseconds("of a pair, range of that time where it matched; else 0"),
        "chance": share(
            "largest share of random instants that match a pair as well; NaN without pairs"
        ),
    },
)

PROFILER_OVERHEAD = Schema(
    "PROFILER_OVERHEAD",
    {
        "name": name("overhead, as the profiler calls it"),
        "source": Column(
            "category", "name", "whose work it is: that of the driver is there without a profiler"
        ),
        "n_events": count("how many overlap the window"),
        "n_placed": count("of these, those whose thread is known; the path has time of no others"),
        "sum_ns": nanoseconds("sum of their durations in the window"),
        "path_ns": nanoseconds("time of the critical path in which they were innermost; adds up"),
        "path_share": share("path_ns / window"),
        "inside": name("operator or call with most of that time; empty where there is none"),
    },
)

SAMPLED_COUNTERS = Schema(
    "SAMPLED_COUNTERS",
    {
        "device": Column("int64", "id", "device, -1 for the host"),
        "instrument": name("what took the samples"),
        "name": name("counter, as the instrument calls it"),
        "unit": name("its unit; empty for none"),
        "step": Column("int64", "id", "step, -1 for another stretch of time"),
        "start_ns": nanoseconds("start of the stretch"),
        "dur_ns": nanoseconds("its length"),
        "n_samples": count("samples taken in it; 0 where only those around it tell"),
        "mean": Column("float64", "unit", "mean over time; each moment is like its nearest sample"),
        "min": Column("float64", "unit", "least value"),
        "max": Column("float64", "unit", "greatest value"),
        "uncertainty_ns": nanoseconds("so far may times of samples be off, to either side"),
    },
)

CUPTI_COUNTERS = Schema(
    "CUPTI_COUNTERS",
    {
        "event": _EVENT,
        "name": name("kernel that was counted"),
        "ts_ns": nanoseconds(
            "start of the kernel, or of the range that CUPTI counted in its place"
        ),
        "dur_ns": nanoseconds("its length in the trace; a range takes longer than its kernel"),
        "launch": Column("int64", "event", "call that launched it, -1 where that is not known"),
        "op": name("innermost operator of the launch"),
        "top_op": name("outermost operator of the launch"),
        "counter": name("name of the hardware counter"),
        "value": Column(
            "float64", "count", "its value: bytes, ns or per second where it has a unit"
        ),
        "instrument": name("what counted: CUPTI, or Nsight Compute in a run of its own"),
    },
)

CUPTI_RATES = Schema(
    "CUPTI_RATES",
    {
        "name": name("kernel or operator"),
        "n_ranges": count("counted kernels"),
        "dur_ns": nanoseconds("sum of their lengths in the trace"),
        "flop": Column("float64", "FLOP", "floating-point operations, NaN where not counted"),
        "bytes": Column("float64", "byte", "device memory traffic, NaN where not counted"),
        "flop_per_s": Column("float64", "FLOP/s", "achieved rate over dur_ns"),
        "bytes_per_s": Column("float64", "byte/s", "achieved rate over dur_ns"),
        "flop_per_byte": Column(
            "float64", "FLOP/byte", "arithmetic intensity: the x of a roofline"
        ),
    },
)

OPPORTUNITIES = Schema(
    "OPPORTUNITIES",
    {
        "kind": name("sort of change: the repair of a cause, a kernel, an operator, a wait …"),
        "target": name("what is changed"),
        "change": name("the change, as `what_if` takes it"),
        "left_share": share("part of its time that the target is left with"),
        "cause": name("cause of a finding that is repaired; empty where it is another change"),
        "late_rank": Column("int64", "rank", "rank whose lateness is repaired, else -1"),
        "saves_ns": nanoseconds("how much shorter the window is expected to be"),
        "low_ns": nanoseconds("what is saved at least, by what the trace leaves open"),
        "high_ns": nanoseconds("what is saved at most"),
        "saves_share": share("saves_ns / the window"),
        "alone_ns": nanoseconds(
            "what is saved if the other ranks do not change; saves_ns where there are none"
        ),
        "then_bound": name("what bounds the run afterwards, most of it; empty below the first ten"),
        "together_ns": nanoseconds(
            "what is saved together with all rows above that are not the same target"
        ),
        "shares_with": Column(
            "int64", "row", "first row above with which it is not additive, -1 for none"
        ),
    },
)

SLACK = Schema(
    "SLACK",
    {
        "event": _EVENT,
        "name": name("host event, kernel, copy or fill"),
        "op": _OP,
        "kind": Column("category", "EventKind", "what the event is"),
        "track": _TRACK,
        "ts_ns": nanoseconds("start of the event"),
        "dur_ns": nanoseconds("length of the event, not clipped to the window"),
        "total_float_ns": nanoseconds("how much later it may end without the window ending later"),
        "free_float_ns": nanoseconds("how much later it may end without delaying anything else"),
        "is_critical": flag("the window ends later if it does: its total float is 0"),
    },
)

DRAG = Schema(
    "DRAG",
    {
        "group": name("name, operator, module, stream, bound or rule"),
        "n_events": count("its events in the window; by bound or rule, its edges that take time"),
        "time_ns": nanoseconds("their own time in the window, added up"),
        "path_ns": nanoseconds("their time on the critical path"),
        "drag_ns": nanoseconds("so much shorter would the window be without; negative: longer"),
        "drag_share": share("drag_ns / window; shares do not add up"),
    },
)

NEAR_CRITICAL = Schema(
    "NEAR_CRITICAL",
    {
        "said": name("the row in one sentence"),
        "float_ns": nanoseconds("how much longer the chain may take before the window ends later"),
        "dur_ns": nanoseconds("length of the chain in the window"),
        "start_ns": nanoseconds("when it leaves what is more critical"),
        "end_ns": nanoseconds("when it could join it again"),
        "track": Column("object", "id", "thread or stream with most of its time"),
        "n_tracks": count("threads and streams that it runs on"),
        "bound": Column("category", "Bound", "what most of its time goes to"),
        "bound_share": share("that time / dur_ns"),
        "bounds": name("all bounds with their shares, from five percent on"),
        "name": name("event, or kind of gap, with most of its time"),
        "op": name("innermost operator or annotation with most of its time; empty for none"),
        "n_events": count("events that its time belongs to"),
        "leaves": name("event that it comes from, which is critical or nearer to it"),
        "joins": name("event that it leads to, which is critical or nearer to it"),
    },
)

UTILIZATION = Schema(
    "UTILIZATION",
    {
        "device": _DEVICE,
        "name": name("the step; empty for the window and its parts"),
        "start_ns": nanoseconds("start of the range that the row is of"),
        "dur_ns": nanoseconds("its length"),
        "gpu_utilization": share("of its time, in which any kernel runs: as of nvidia-smi"),
        "sm_share": share(
            "of the multiprocessors, that have a block while a kernel runs; estimate, NaN where "
            "too few grids are known"
        ),
        "sm_activity": share(
            "gpu_utilization * sm_share: multiprocessors with a block, on average"
        ),
        "warp_share": share(
            "of the warp slots of these, that hold a warp; estimate, NaN where too few are known"
        ),
        "measured_warp_share": share(
            "the same as Nsight Compute measured it, of the kernels that it did; NaN of none"
        ),
        "sm_occupancy": share("sm_activity * warp_share: filled warp slots, on average"),
        "communication_share": share("of its time, in which only communication kernels run"),
        "small_grid_share": share(
            "of multiprocessors and time, without a block as kernels have fewer blocks; estimate"
        ),
        "tail_share": share(
            "of multiprocessors and time, without a block in the last waves of kernels; estimate"
        ),
        "copy_share": share("of its time, in which a copy from or to host or peer runs"),
        "tensor_share": share(
            "of the time of compute kernels, in those whose names say that they use tensor cores: "
            "at least; NaN where none runs"
        ),
        "grid_coverage": share("of the time in which kernels run, for which all grids are known"),
        "warp_coverage": share("the same for their warps, weighted by multiprocessors"),
        "sampled_gpu_utilization": share("mean of samples of the same, NaN without any"),
        "sampled_sm_activity": share("mean of samples of SM activity, NaN without any"),
        "sampled_sm_occupancy": share("mean of samples of filled warp slots, NaN without any"),
        "sampled_tensor_activity": share(
            "mean of samples of cycles in which tensor cores work, NaN without any"
        ),
    },
)

UTILIZATION_LOSSES = Schema(
    "UTILIZATION_LOSSES",
    {
        "device": _DEVICE,
        "use": Column("category", "SlotUse", "what becomes of the warp slots: used, or why empty"),
        "name": name("kernel; empty for idle"),
        "share": share("of the warp slots and the window; those of a device add up to 1"),
        "n_kernels": count("times that it ran in the window"),
        "kernel_ns": nanoseconds("sum of its durations in the window"),
        "n_blocks": count("blocks of its grid, the median; 0 for unknown"),
        "n_waves": count("waves in which they run, the median; 0 for unknown"),
        "n_fit": count("blocks that fit on a multiprocessor at once, the median; 0 for unknown"),
    },
)
