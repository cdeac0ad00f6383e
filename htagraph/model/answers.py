"""Schemas of the answers of a trace: that of the question `idle_time` is `IDLE_TIME`, and so on.

The schemas of a job's own questions are in `htagraph.model.job_answers`, by the same rule.
"""

from __future__ import annotations

from dataclasses import replace

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
    "ANNOTATION_BREAKDOWN",
    "CHOKE_POINTS",
    "CLASS_OVERLAP",
    "COLLECTIVES",
    "COUNTERS",
    "CUPTI_COUNTERS",
    "CUPTI_RATES",
    "DEVICE_ANNOTATION_BREAKDOWN",
    "DRAG",
    "EXECUTION_NODES",
    "EXPOSED_COMMUNICATION",
    "GRAPH_NODES",
    "IDLE_CATEGORIES",
    "IDLE_INTERVALS",
    "IDLE_TIME",
    "INFERENCES",
    "KERNEL_ANNOTATIONS",
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

_DEVICE = identifier("device")
_STREAM = identifier("stream of the device")
_CLASS = label("what the work does: compute, communication or memory", unit="KernelClass")
_OP = name("innermost operator or annotation it happened in, or was launched from; empty for none")
_SPREAD = {
    "sum_ns": duration("sum of durations in the window"),
    "mean_ns": duration("mean duration", dtype="float64"),
    "std_ns": duration("sample standard deviation of durations, 0 of one", dtype="float64"),
    "min_ns": duration("shortest"),
    "max_ns": duration("longest"),
}
_QUANTILES = {
    "p50_ns": duration("median; like all quantiles the largest duration at or below the rank"),
    "p90_ns": duration("quantile 0.90"),
    "p99_ns": duration("quantile 0.99"),
}

TEMPORAL_BREAKDOWN = Schema(
    "TEMPORAL_BREAKDOWN",
    {
        "device": _DEVICE,
        "window_ns": duration("length of the window; the four parts add up to it"),
        "idle_ns": duration("nothing runs on the device"),
        "compute_ns": duration("a compute kernel runs, whatever else does"),
        "communication_ns": duration(
            "a communication kernel runs and no compute kernel: exposed communication"
        ),
        "memory_ns": duration("only copies and fills run"),
        "idle_share": share("idle_ns / window_ns"),
        "compute_share": share("compute_ns / window_ns"),
        "communication_share": share("communication_ns / window_ns"),
        "memory_share": share("memory_ns / window_ns"),
    },
    first="device window_ns compute_share communication_share memory_share idle_share",
)

CLASS_OVERLAP = Schema(
    "CLASS_OVERLAP",
    {
        "device": _DEVICE,
        "classes": name("classes that run at once, joined by ' + '; idle where none does"),
        "dur_ns": duration("time in which exactly these run; adds up to the window"),
        "share": share("dur_ns / window"),
    },
)

IDLE_TIME = Schema(
    "IDLE_TIME",
    {
        "device": _DEVICE,
        "stream": identifier("stream, -1 for the union of all streams of the device"),
        "cause": label("what the device waited for", unit="IdleCause"),
        "op": _OP,
        "name": name("event that the time belongs to, or what the gap is"),
        "frame": name("innermost Python frame, empty where none was recorded"),
        "n_gaps": count("idle intervals that this takes part in"),
        "idle_ns": duration("idle time of this cause; adds up to the idle time"),
        "idle_share": share("idle_ns / idle time of the device, or stream"),
    },
    first="device stream cause idle_share idle_ns n_gaps name op",
)

IDLE_INTERVALS = Schema(
    "IDLE_INTERVALS",
    {
        "interval": identifier("number of the idle interval"),
        "device": _DEVICE,
        "stream": identifier("stream, -1 for the union of all streams of the device"),
        "start_ns": instant("start of this part of the interval"),
        "dur_ns": duration("length of this part; the parts of an interval tile it"),
        "cause": label("what the device waited for", unit="IdleCause"),
        "event": identifier("event that the time belongs to, -1 for none", unit="event"),
        "op": _OP,
        "name": name("name of the event, or what the gap is"),
        "frame": name("innermost Python frame, empty where none was recorded"),
        "ended_by": identifier("device event that ends the interval, -1 for none", unit="event"),
    },
    first="device stream start_ns dur_ns cause name op",
)

GRAPH_NODES = Schema(
    "GRAPH_NODES",
    {
        "graph": identifier("number of the graph, in order of first replays"),
        "node": identifier("number of the node in its graph, in order of first starts"),
        "name": name("kernel, copy or fill"),
        "device": _DEVICE,
        "stream": _STREAM,
        "n_replays": count("replays of the node that overlap the window"),
        "sum_ns": duration("sum of its durations, not clipped to the window"),
        "mean_ns": duration("mean duration", dtype="float64"),
        "median_ns": duration("median duration"),
        "min_ns": duration("shortest"),
        "max_ns": duration("longest"),
        "offset_ns": duration("median time from the start of the replay to that of the node"),
        "offset_spread_ns": duration("range of that time"),
        "gap_ns": duration(
            "median time before it in which no earlier node of its replay ran, on any stream"
        ),
        "found_by": label("what says which node it is: its id, or its position in its stream"),
    },
    first=(
        "graph node name n_replays median_ns min_ns max_ns offset_ns offset_spread_ns gap_ns stream"
    ),
)

IDLE_CATEGORIES = Schema(
    "IDLE_CATEGORIES",
    {
        "device": _DEVICE,
        "stream": _STREAM,
        "category": label("host_wait, kernel_wait or other"),
        "n_gaps": count("gaps between two pieces of work of the stream"),
        "idle_ns": duration("their length"),
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
    first="group share sum_ns n_kernels mean_ns max_ns p50_ns",
)

KERNEL_DURATIONS = Schema(
    "KERNEL_DURATIONS",
    {
        "event": EVENT,
        "name": name("kernel, copy or fill"),
        "class": _CLASS,
        "op": _OP,
        "device": _DEVICE,
        "stream": _STREAM,
        "ts_ns": instant("start"),
        "dur_ns": duration("duration, not clipped to the window"),
    },
    first="name dur_ns ts_ns device stream class op",
)

OVERLAP = Schema(
    "OVERLAP",
    {
        "device": _DEVICE,
        "compute_ns": duration("time in which a compute kernel runs"),
        "communication_ns": duration("time in which a communication kernel runs"),
        "overlap_ns": duration("time in which both do"),
        "exposed_ns": duration("communication_ns - overlap_ns"),
        "overlap_share": share(
            "overlap_ns / communication_ns; NaN where there is no communication"
        ),
    },
)

EXPOSED_COMMUNICATION = Schema(
    "EXPOSED_COMMUNICATION",
    {
        "event": EVENT,
        "name": name("communication kernel"),
        "op": _OP,
        "device": _DEVICE,
        "stream": _STREAM,
        "start_ns": instant("start in the window"),
        "dur_ns": duration("time in the window"),
        "exposed_ns": duration("time in which no compute kernel ran on the device"),
        "why": label(
            "why the next compute kernel did not run meanwhile; none where nothing is exposed"
        ),
        "next_event": identifier("that compute kernel, -1 for none", unit="event"),
        "next_name": name("name of that kernel"),
    },
    first="name exposed_ns dur_ns start_ns stream why next_name op",
)

LAUNCH_STATS = Schema(
    "LAUNCH_STATS",
    {
        "event": EVENT,
        "correlation": identifier("links the call and its device work"),
        "call": name("API call"),
        "op": _OP,
        "name": name("first device work it enqueued"),
        "device": _DEVICE,
        "stream": _STREAM,
        "ts_ns": instant("start of the call"),
        "op_delay_ns": duration("start of that operator to the start of the call, 0 for none"),
        "launch_ns": duration("duration of the call"),
        "kernel_ns": duration("sum of durations of what it enqueued"),
        "launch_delay_ns": duration("end of the call to the first start, 0 if that came before"),
        "queued_ns": duration("part of the delay in which earlier work of the stream still ran"),
        "n_kernels": count("pieces of device work enqueued: more than 1 for a graph"),
        "is_short_kernel": flag("the work takes less time than its launch, which is no outlier"),
        "is_launch_outlier": flag("launch_ns above the cutoff"),
        "is_delay_outlier": flag("launch_delay_ns above the cutoff"),
    },
    first="name launch_ns launch_delay_ns queued_ns kernel_ns ts_ns stream op call",
)

COUNTERS = Schema(
    "COUNTERS",
    {
        "ts_ns": instant("when the value changes"),
        "dur_ns": duration("until the next change, or the end of the window"),
        "device": _DEVICE,
        "stream": identifier("stream, -1 for a counter of the whole device"),
        "name": name("what is counted"),
        "value": number("count or GB/s", "launches outstanding, or 1e9 bytes per second"),
    },
)

QUEUE_BLOCKED = Schema(
    "QUEUE_BLOCKED",
    {
        "device": _DEVICE,
        "stream": _STREAM,
        "full_ns": duration("time in which at least as many launches were outstanding"),
        "full_share": share("full_ns / window"),
        "n_blocked": count(
            "launch calls that returned only when work started and made room",
            heading="blocked calls",
        ),
        "blocked_ns": duration("host time in those calls"),
    },
)

KERNEL_PATTERNS = Schema(
    "KERNEL_PATTERNS",
    {
        "pattern": name("tuple of kernel names, in order of time"),
        "op": name("operator that launched them; empty along a stream"),
        "length": count("kernels of the pattern"),
        "n_occurrences": count("how often, without overlap"),
        "device_ns": duration("sum of durations of the kernels"),
        "host_ns": duration("sum of durations of the operator calls, 0 along a stream"),
        "gap_ns": duration(
            "idle time of the stream between the kernels, which one fused kernel would not have"
        ),
        "share": share("device_ns / all device time of the window"),
        "event": identifier("first kernel of the first occurrence", unit="event"),
    },
    first="pattern share device_ns gap_ns n_occurrences length host_ns op",
)

ANNOTATION_BREAKDOWN = Schema(
    "ANNOTATION_BREAKDOWN",
    {
        "name": name("annotation"),
        "n_ranges": count("ranges that overlap the window"),
        **_SPREAD,
        "n_kernels": count("device work launched in them"),
        "device_ns": duration("device time launched in them; nested annotations each have it"),
        "self_device_ns": duration(
            "device time of which this is the innermost annotation; adds up"
        ),
        "device_share": share("device_ns / all device time of the window"),
    },
    first="name n_ranges sum_ns n_kernels device_ns self_device_ns device_share",
)

KERNEL_ANNOTATIONS = Schema(
    "KERNEL_ANNOTATIONS",
    {
        "event": EVENT,
        "name": name("kernel, copy or fill"),
        "dur_ns": duration("time in the window"),
        "annotation": name("innermost annotation of its launch, empty for none"),
        "op": name("innermost operator of its launch, empty for none"),
        "module": name(
            "innermost module of its launch, where Python frames were recorded; else empty"
        ),
    },
    first="name dur_ns annotation op module",
)

DEVICE_ANNOTATION_BREAKDOWN = replace(ANNOTATION_BREAKDOWN, name="DEVICE_ANNOTATION_BREAKDOWN")

OPERATOR_BREAKDOWN = Schema(
    "OPERATOR_BREAKDOWN",
    {
        "name": name("operator, API call, annotation or module"),
        "kind": label("what it is", unit="EventKind"),
        "n_calls": count("calls that overlap the window"),
        "host_ns": duration("time in the calls, in the window; a recursive call counts once"),
        "self_ns": duration(
            "time in the calls and in nothing they call; adds up to the time in host events"
        ),
        "n_kernels": count("device work launched in them"),
        "device_ns": duration("device time launched in them"),
        "self_device_ns": duration(
            "device time of which this is the innermost operator or annotation, or, where there is "
            "none, the launch call"
        ),
    },
    first="name n_calls self_ns host_ns self_device_ns device_ns n_kernels kind",
)

OPERATOR_TREE = Schema(
    "OPERATOR_TREE",
    {
        "node": identifier("number of the row; parents come before children"),
        "parent": identifier("row of the caller, -1 for the outermost"),
        "depth": count("callers above"),
        "name": name("operator, API call or annotation"),
        "n_calls": count("calls with this chain of callers"),
        "host_ns": duration("time in the calls, in the window"),
        "self_ns": duration("time in nothing they call; adds up to the time of the roots"),
        "n_kernels": count("device work launched in them"),
        "device_ns": duration("device time launched in them"),
    },
    first="name depth n_calls host_ns self_ns device_ns n_kernels node parent",
)

EXECUTION_NODES = Schema(
    "EXECUTION_NODES",
    {
        "event": EVENT,
        "name": name("operator or annotation"),
        "node": identifier("id of its node in the execution trace"),
        "record_function": identifier(
            "id of the call that both files have; -1 where the trace has none"
        ),
        "n_inputs": count("tensors that it took; those of a list count each"),
        "n_outputs": count("tensors that it gave"),
        "op_schema": name("its signature; empty for none"),
        "input_shapes": name("shape of each input", unit="JSON"),
        "input_types": name("type of each input", unit="JSON"),
        "output_shapes": name("shape of each output", unit="JSON"),
        "output_types": name("type of each output", unit="JSON"),
    },
    first="name node n_inputs n_outputs input_shapes output_shapes",
)

MEMORY_TIMELINE = Schema(
    "MEMORY_TIMELINE",
    {
        "event": EVENT,
        "ts_ns": instant("when memory was taken or given back"),
        "device_type": identifier(
            "PyTorch's number of the kind of device: 0 CPU, 1 CUDA; -1 unknown"
        ),
        "device": _DEVICE,
        "bytes": number("byte", "taken (> 0) or given back (< 0)", dtype="int64"),
        "allocated": count("allocated after it, -1 where not recorded", unit="byte"),
        "reserved": count("reserved by the allocator after it, -1 where not recorded", unit="byte"),
        "op": _OP,
    },
    first="ts_ns device bytes allocated reserved op",
)

STEP_TIMES = Schema(
    "STEP_TIMES",
    {
        "step": identifier("position in time"),
        "name": name("name of the step"),
        "start_ns": instant("start of the host range"),
        "dur_ns": duration("length of the host range"),
        "device": identifier("device, -1 where the trace has none"),
        "n_launches": count("device work launched in the step"),
        "launched_ns": duration("its device time, whenever it ran"),
        "idle_ns": duration("nothing ran on the device while the step lasted"),
        "compute_ns": duration("a compute kernel ran"),
        "communication_ns": duration("exposed communication"),
        "memory_ns": duration("only copies and fills ran"),
    },
    first=(
        "name dur_ns device compute_ns communication_ns memory_ns idle_ns n_launches launched_ns"
    ),
)

STEADY_STATE = Schema(
    "STEADY_STATE",
    {
        "step": identifier("position in time"),
        "name": name("name of the step"),
        "start_ns": instant("start of the host range"),
        "dur_ns": duration("length of the host range"),
        "period_ns": duration("from its start to that of the next step; of the last, dur_ns"),
        "delta_ns": duration(
            "how much longer than the representative step, else than the median one of those that "
            "do the same work; of the last, with the usual time between two steps"
        ),
        "n_events": count(
            "events on the thread of the steps and work launched, from its start to that of the "
            "next; without polls"
        ),
        "n_different": count("events more or fewer than in a typical step, name by name"),
        "device_ns": duration("device time of the work launched, whenever it ran"),
        "is_steady": flag("one of at least three that do the same work and take about as long"),
        "is_representative": flag("the steady step of median length"),
        "reason": text("why it is not steady; empty if it is"),
    },
    first="name period_ns delta_ns is_steady is_representative reason",
)

CHOKE_POINTS = Schema(
    "CHOKE_POINTS",
    {
        "event": EVENT,
        "name": name("event that every chain passes; `(window start)` before the first"),
        "kind": label("its kind", unit="EventKind"),
        "op": _OP,
        "side": label("whether chains pass its start or its end"),
        "ts_ns": instant("when"),
        "dur_ns": duration("time of the stretch, which adds up to the window"),
        "is_serial": flag("one thing at a time; else several chains run side by side"),
        "n_points": count("choke points in it, each at an instant of its own: 1 if not serial"),
        "until": name("what ends the stretch, and so begins the next"),
        "bound": label("bound of most of the critical path in it", unit="Bound"),
        "bound_share": share("its share of the stretch"),
    },
    first="name side dur_ns is_serial bound bound_share until op",
)

COLLECTIVES = Schema(
    "COLLECTIVES",
    {
        "collective": identifier("position on this rank, in the order of launches"),
        "event": EVENT,
        "operation": name("all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send …"),
        "group": name("communicator: ranks or name of the process group, empty where not recorded"),
        "n_elements": count("elements sent, -1 where not recorded"),
        "dtype": name("element type, empty where not recorded"),
        "seq": identifier("sequence number of the communicator, -1 where not recorded"),
        "peer": identifier(
            "other side of a send or receive, root of a broadcast or reduce; -1 where not recorded",
            unit="rank",
        ),
        "start_ns": instant("start of the kernel, on the rank's clock"),
        "end_ns": instant("end of the kernel, on the rank's clock"),
        "is_rendezvous": flag("nobody ends before everybody has started"),
        "found_by": label("what says which operation it is"),
        "arrival": identifier(
            "collective whose start is the rank's arrival: this one, or the half of it that sends; "
            "-1 where it is unclear which half this one is"
        ),
        "after": identifier("collective whose end the start of this one goes back to, -1 for none"),
    },
    first="collective operation start_ns end_ns n_elements dtype group peer seq",
)

QUALITY = Schema(
    "QUALITY",
    {
        "check": text("what was checked"),
        "n_good": count("how many pass"),
        "n_all": count("of how many"),
        "share": share("n_good / n_all, 1 where there is nothing to check"),
        "verdict": label("good, weak or missing"),
        "consequence": text(
            "which answers are weaker, and what to do about it; of a good check, what was taken"
        ),
    },
    first="check share verdict n_good n_all consequence",
)

INFERENCES = Schema(
    "INFERENCES",
    {
        "rule": label("rule that made the edges"),
        "kind": label("kind of edge that it makes", unit="EdgeKind"),
        "source": name("of a pair, the place that was waited for; else empty"),
        "target": name("of a pair, the place that waited; else empty"),
        "n_edges": count("edges of the rule that overlap the window; 0 of a pair"),
        "path_ns": duration("time of the window's critical path on these edges; 0 of a pair"),
        "path_share": share("path_ns / window; NaN of a pair"),
        "n_pairs": count("pairs of places that were learnt; 0 where each event is judged alone"),
        "n_matched": count("how often the target waited and the source ended as the rule wants it"),
        "n_all": count("how often the target waited; as n_matched, in the whole trace"),
        "distance_ns": duration("of a pair, median time from the source's end; else 0"),
        "spread_ns": duration("of a pair, range of that time where it matched; else 0"),
        "chance": number(
            "share", "largest share of random instants that also match; NaN without pairs"
        ),
    },
    first="rule n_edges path_share path_ns n_pairs n_matched n_all chance",
    first_by={
        "pair": "rule source target n_matched n_all chance distance_ns spread_ns",
    },
)

PROFILER_OVERHEAD = Schema(
    "PROFILER_OVERHEAD",
    {
        "name": name("overhead, as the profiler calls it"),
        "source": label("whose work it is: that of the driver is there without a profiler"),
        "n_events": count("how many overlap the window"),
        "n_placed": count("of these, those whose thread is known; the path has time of no others"),
        "sum_ns": duration("sum of their durations in the window"),
        "path_ns": duration("time of the critical path in which they were innermost; adds up"),
        "path_share": share("path_ns / window"),
        "inside": name("operator or call with most of that time; empty where there is none"),
    },
    first="name source n_events sum_ns path_ns path_share inside",
)

SAMPLED_COUNTERS = Schema(
    "SAMPLED_COUNTERS",
    {
        "device": identifier("device, -1 for the host"),
        "instrument": name("what took the samples"),
        "name": name("counter, as the instrument calls it"),
        "unit": name("its unit; empty for none"),
        "step": identifier("step, -1 for another stretch of time"),
        "start_ns": instant("start of the stretch"),
        "dur_ns": duration("its length"),
        "n_samples": count("samples taken in it; 0 where only those around it tell"),
        "mean": number("unit", "mean over time; each moment is like its nearest sample"),
        "min": number("unit", "least value"),
        "max": number("unit", "greatest value"),
        "uncertainty_ns": duration("so far may times of samples be off, to either side"),
    },
    first="device name unit mean min max n_samples uncertainty_ns",
    first_by={
        "step": "device name unit step mean min max",
        "time": "device name unit start_ns mean min max",
    },
)

CUPTI_COUNTERS = Schema(
    "CUPTI_COUNTERS",
    {
        "event": EVENT,
        "name": name("kernel that was counted"),
        "ts_ns": instant("start of the kernel, or of the range that CUPTI counted in its place"),
        "dur_ns": duration("its length in the trace; a range takes longer than its kernel"),
        "launch": identifier("call that launched it, -1 where that is not known", unit="event"),
        "op": name("innermost operator of the launch"),
        "top_op": name("outermost operator of the launch"),
        "counter": name("name of the hardware counter"),
        "value": number("count", "its value: bytes, ns or per second where it has a unit"),
        "instrument": name("what counted: CUPTI, or Nsight Compute in a run of its own"),
    },
    first="name counter value dur_ns op instrument",
)

CUPTI_RATES = Schema(
    "CUPTI_RATES",
    {
        "name": name("kernel or operator"),
        "n_ranges": count("counted kernels"),
        "dur_ns": duration("sum of their lengths in the trace"),
        "flop": number("FLOP", "floating-point operations, NaN where not counted"),
        "bytes": number("byte", "device memory traffic, NaN where not counted"),
        "flop_per_s": number("FLOP/s", "achieved rate over dur_ns"),
        "bytes_per_s": number("byte/s", "achieved rate over dur_ns"),
        "flop_per_byte": number("FLOP/byte", "arithmetic intensity: the x of a roofline"),
    },
)

OPPORTUNITIES = Schema(
    "OPPORTUNITIES",
    {
        "kind": label(
            "sort of change: the repair of a cause, a kernel, an operator, a wait …", dtype="object"
        ),
        "target": name("what is changed"),
        "change": text("the change, as `what_if` takes it"),
        "left_share": share("part of its time that the target is left with"),
        "cause": label(
            "cause of a finding that is repaired; empty where it is another change", dtype="object"
        ),
        "late_rank": identifier("rank whose lateness is repaired, else -1", unit="rank"),
        "saves_ns": duration("how much shorter the window is expected to be"),
        "low_ns": duration(
            "what is saved at least, by what the trace leaves open", heading="at least"
        ),
        "high_ns": duration("what is saved at most", heading="at most"),
        "saves_share": share("saves_ns / the window", heading="share"),
        "alone_ns": duration(
            "what is saved if the other ranks do not change; saves_ns where there are none",
            heading="alone",
        ),
        "then_bound": label(
            "what bounds the run afterwards, most of it; empty below the first ten", dtype="object"
        ),
        "together_ns": duration(
            "what is saved together with all rows above that are not the same target"
        ),
        "shares_with": identifier(
            "first row above with which it is not additive, -1 for none", unit="row"
        ),
    },
    first="kind target left_share saves_ns low_ns high_ns saves_share then_bound change cause",
)

SLACK = Schema(
    "SLACK",
    {
        "event": EVENT,
        "name": name("host event, kernel, copy or fill"),
        "op": _OP,
        "kind": label("what the event is", unit="EventKind"),
        "track": TRACK,
        "ts_ns": instant("start of the event"),
        "dur_ns": duration("length of the event, not clipped to the window"),
        "total_float_ns": duration("how much later it may end without the window ending later"),
        "free_float_ns": duration("how much later it may end without delaying anything else"),
        "is_critical": flag("the window ends later if it does: its total float is 0"),
    },
    first="name dur_ns total_float_ns free_float_ns track ts_ns kind op",
)

DRAG = Schema(
    "DRAG",
    {
        "group": name("name, operator, module, stream, bound or rule"),
        "n_events": count("its events in the window; by bound or rule, its edges that take time"),
        "time_ns": duration("their own time in the window, added up"),
        "path_ns": duration("their time on the critical path"),
        "drag_ns": duration("so much shorter would the window be without; negative: longer"),
        "drag_share": share("drag_ns / window; shares do not add up"),
    },
)

NEAR_CRITICAL = Schema(
    "NEAR_CRITICAL",
    {
        "said": text("the row in one sentence"),
        "float_ns": duration("how much longer the chain may take before the window ends later"),
        "dur_ns": duration("length of the chain in the window"),
        "start_ns": instant("when it leaves what is more critical"),
        "end_ns": instant("when it could join it again"),
        "track": name("thread or stream with most of its time", unit="id"),
        "n_tracks": count("threads and streams that it runs on"),
        "bound": label("what most of its time goes to", unit="Bound"),
        "bound_share": share("that time / dur_ns"),
        "bounds": text("all bounds with their shares, from five percent on"),
        "name": name("event, or kind of gap, with most of its time"),
        "op": name("innermost operator or annotation with most of its time; empty for none"),
        "n_events": count("events that its time belongs to"),
        "leaves": name("event that it comes from, which is critical or nearer to it"),
        "joins": name("event that it leads to, which is critical or nearer to it"),
    },
    first="said start_ns bounds joins",
)

UTILIZATION = Schema(
    "UTILIZATION",
    {
        "device": _DEVICE,
        "name": name("the step; empty for the window and its parts"),
        "start_ns": instant("start of the range that the row is of"),
        "dur_ns": duration("its length"),
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
    first=(
        "device gpu_utilization sm_share warp_share sm_occupancy communication_share "
        "small_grid_share tail_share tensor_share grid_coverage"
    ),
    first_by={
        "step": "name dur_ns device gpu_utilization sm_share warp_share sm_occupancy grid_coverage",
        "time": "start_ns device gpu_utilization sm_share warp_share sm_occupancy grid_coverage",
    },
)

UTILIZATION_LOSSES = Schema(
    "UTILIZATION_LOSSES",
    {
        "device": _DEVICE,
        "use": label("what becomes of the warp slots: used, or why empty", unit="SlotUse"),
        "name": name("kernel; empty for idle"),
        "share": share("of the warp slots and the window; those of a device add up to 1"),
        "n_kernels": count("times that it ran in the window"),
        "kernel_ns": duration("sum of its durations in the window"),
        "n_blocks": count("blocks of its grid, the median; 0 for unknown"),
        "n_waves": count("waves in which they run, the median; 0 for unknown"),
        "n_fit": count(
            "blocks that fit on a multiprocessor at once, the median; 0 for unknown",
            heading="fit on an SM",
        ),
    },
    first="device use share name n_kernels kernel_ns n_blocks n_fit n_waves",
)
