"""The schema of the answer to every question: column, dtype, unit, meaning (see `htagraph.model.frames`)."""

from __future__ import annotations

from htagraph.model.frames import Column, Schema

__all__ = [
    "ANNOTATION_BREAKDOWN",
    "CLASS_OVERLAP",
    "COUNTERS",
    "CUPTI_COUNTERS",
    "CUPTI_RATES",
    "DIFF",
    "EXPOSED_COMMUNICATION",
    "IDLE_CATEGORIES",
    "IDLE_INTERVALS",
    "IDLE_TIME",
    "KERNEL_ANNOTATIONS",
    "KERNEL_BREAKDOWN",
    "KERNEL_DURATIONS",
    "KERNEL_PATTERNS",
    "LAUNCH_STATS",
    "MEMORY_TIMELINE",
    "OPERATOR_BREAKDOWN",
    "OPERATOR_TREE",
    "OVERLAP",
    "QUEUE_BLOCKED",
    "STEP_TIMES",
    "TEMPORAL_BREAKDOWN",
]

_EVENT = Column("int64", "event", "row of the event table")


def _ns(meaning: str) -> Column:
    return Column("int64", "ns", meaning)


def _count(meaning: str) -> Column:
    return Column("int64", "count", meaning)


def _share(meaning: str) -> Column:
    return Column("float64", "share", meaning)


def _text(meaning: str) -> Column:
    return Column("object", "name", meaning)


def _flag(meaning: str) -> Column:
    return Column("bool", "flag", meaning)


_DEVICE = Column("int64", "id", "device")
_STREAM = Column("int64", "id", "stream of the device")
_CLASS = Column("category", "KernelClass", "what the work does: compute, communication or memory")
_OP = _text("innermost operator or annotation it happened in, or was launched from; empty for none")
_SPREAD = {
    "sum_ns": _ns("sum of durations in the window"),
    "mean_ns": Column("float64", "ns", "mean duration"),
    "std_ns": Column("float64", "ns", "sample standard deviation of durations, 0 of one"),
    "min_ns": _ns("shortest"),
    "max_ns": _ns("longest"),
}
_QUANTILES = {
    "p50_ns": _ns("median; like all quantiles the largest duration at or below the rank"),
    "p90_ns": _ns("quantile 0.90"),
    "p99_ns": _ns("quantile 0.99"),
}

TEMPORAL_BREAKDOWN = Schema(
    "TEMPORAL_BREAKDOWN",
    {
        "device": _DEVICE,
        "window_ns": _ns("length of the window; the four parts add up to it"),
        "idle_ns": _ns("nothing runs on the device"),
        "compute_ns": _ns("a compute kernel runs, whatever else does"),
        "communication_ns": _ns(
            "a communication kernel runs and no compute kernel: exposed communication"
        ),
        "memory_ns": _ns("only copies and fills run"),
        "idle_share": _share("idle_ns / window_ns"),
        "compute_share": _share("compute_ns / window_ns"),
        "communication_share": _share("communication_ns / window_ns"),
        "memory_share": _share("memory_ns / window_ns"),
    },
)

CLASS_OVERLAP = Schema(
    "CLASS_OVERLAP",
    {
        "device": _DEVICE,
        "classes": _text("classes that run at once, joined by ' + '; idle where none does"),
        "dur_ns": _ns("time in which exactly these run; adds up to the window"),
        "share": _share("dur_ns / window"),
    },
)

OVERLAP = Schema(
    "OVERLAP",
    {
        "device": _DEVICE,
        "compute_ns": _ns("time in which a compute kernel runs"),
        "communication_ns": _ns("time in which a communication kernel runs"),
        "overlap_ns": _ns("time in which both do"),
        "exposed_ns": _ns("communication_ns - overlap_ns"),
        "overlap_share": _share(
            "overlap_ns / communication_ns; NaN where there is no communication"
        ),
    },
)

EXPOSED_COMMUNICATION = Schema(
    "EXPOSED_COMMUNICATION",
    {
        "event": _EVENT,
        "name": _text("communication kernel"),
        "op": _OP,
        "device": _DEVICE,
        "stream": _STREAM,
        "start_ns": _ns("start in the window"),
        "dur_ns": _ns("time in the window"),
        "exposed_ns": _ns("time in which no compute kernel ran on the device"),
        "why": Column(
            "category",
            "name",
            "why the next compute kernel did not run meanwhile; none where nothing is exposed",
        ),
        "next_event": Column("int64", "event", "that compute kernel, -1 for none"),
        "next_name": _text("name of that kernel"),
    },
)

IDLE_TIME = Schema(
    "IDLE_TIME",
    {
        "device": _DEVICE,
        "stream": Column("int64", "id", "stream, -1 for the union of all streams of the device"),
        "cause": Column("category", "IdleCause", "what the device waited for"),
        "op": _OP,
        "name": _text("event that the time belongs to, or what the gap is"),
        "frame": _text("innermost Python frame, empty where none was recorded"),
        "n_gaps": _count("idle intervals that this takes part in"),
        "idle_ns": _ns("idle time of this cause; adds up to the idle time"),
        "idle_share": _share("idle_ns / idle time of the device, or stream"),
    },
)

IDLE_INTERVALS = Schema(
    "IDLE_INTERVALS",
    {
        "interval": _count("number of the idle interval"),
        "device": _DEVICE,
        "stream": Column("int64", "id", "stream, -1 for the union of all streams of the device"),
        "start_ns": _ns("start of this part of the interval"),
        "dur_ns": _ns("length of this part; the parts of an interval tile it"),
        "cause": Column("category", "IdleCause", "what the device waited for"),
        "event": Column("int64", "event", "event that the time belongs to, -1 for none"),
        "op": _OP,
        "name": _text("name of the event, or what the gap is"),
        "frame": _text("innermost Python frame, empty where none was recorded"),
        "ended_by": Column("int64", "event", "device event that ends the interval, -1 for none"),
    },
)

IDLE_CATEGORIES = Schema(
    "IDLE_CATEGORIES",
    {
        "device": _DEVICE,
        "stream": _STREAM,
        "category": Column("category", "name", "host_wait, kernel_wait or other"),
        "n_gaps": _count("gaps between two pieces of work of the stream"),
        "idle_ns": _ns("their length"),
        "idle_share": _share("idle_ns / all gaps of the stream"),
    },
)

KERNEL_BREAKDOWN = Schema(
    "KERNEL_BREAKDOWN",
    {
        "group": _text("class, name, op, stream or rule"),
        "class": _CLASS,
        "n_kernels": _count("pieces of device work that overlap the window"),
        **_SPREAD,
        **_QUANTILES,
        "share": _share("sum_ns / sum of all groups"),
    },
)

KERNEL_DURATIONS = Schema(
    "KERNEL_DURATIONS",
    {
        "event": _EVENT,
        "name": _text("kernel, copy or fill"),
        "class": _CLASS,
        "op": _OP,
        "device": _DEVICE,
        "stream": _STREAM,
        "ts_ns": _ns("start"),
        "dur_ns": _ns("duration, not clipped to the window"),
    },
)

LAUNCH_STATS = Schema(
    "LAUNCH_STATS",
    {
        "event": _EVENT,
        "correlation": Column("int64", "id", "links the call and its device work"),
        "call": _text("API call"),
        "op": _OP,
        "name": _text("first device work it enqueued"),
        "device": _DEVICE,
        "stream": _STREAM,
        "ts_ns": _ns("start of the call"),
        "op_delay_ns": _ns("start of that operator to the start of the call, 0 for none"),
        "launch_ns": _ns("duration of the call"),
        "kernel_ns": _ns("sum of durations of what it enqueued"),
        "launch_delay_ns": _ns("end of the call to the first start, 0 if that came before"),
        "queued_ns": _ns("part of the delay in which earlier work of the stream still ran"),
        "n_kernels": _count("pieces of device work enqueued: more than 1 for a graph"),
        "is_short_kernel": _flag("the work takes less time than its launch, which is no outlier"),
        "is_launch_outlier": _flag("launch_ns above the cutoff"),
        "is_delay_outlier": _flag("launch_delay_ns above the cutoff"),
    },
)

COUNTERS = Schema(
    "COUNTERS",
    {
        "ts_ns": _ns("when the value changes"),
        "dur_ns": _ns("until the next change, or the end of the window"),
        "device": _DEVICE,
        "stream": Column("int64", "id", "stream, -1 for a counter of the whole device"),
        "name": _text("what is counted"),
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
        "full_ns": _ns("time in which at least as many launches were outstanding"),
        "full_share": _share("full_ns / window"),
        "n_blocked": _count("launch calls that returned only when work started and made room"),
        "blocked_ns": _ns("host time in those calls"),
    },
)

KERNEL_PATTERNS = Schema(
    "KERNEL_PATTERNS",
    {
        "pattern": Column("object", "name", "tuple of kernel names, in order of time"),
        "op": _text("operator that launched them; empty along a stream"),
        "length": _count("kernels of the pattern"),
        "n_occurrences": _count("how often, without overlap"),
        "device_ns": _ns("sum of durations of the kernels"),
        "host_ns": _ns("sum of durations of the operator calls, 0 along a stream"),
        "gap_ns": _ns(
            "idle time of the stream between the kernels, which one fused kernel would not have"
        ),
        "share": _share("device_ns / all device time of the window"),
        "event": Column("int64", "event", "first kernel of the first occurrence"),
    },
)

ANNOTATION_BREAKDOWN = Schema(
    "ANNOTATION_BREAKDOWN",
    {
        "name": _text("annotation"),
        "n_ranges": _count("ranges that overlap the window"),
        **_SPREAD,
        "n_kernels": _count("device work launched in them"),
        "device_ns": _ns("device time launched in them; nested annotations each have it"),
        "self_device_ns": _ns("device time of which this is the innermost annotation; adds up"),
        "device_share": _share("device_ns / all device time of the window"),
    },
)

KERNEL_ANNOTATIONS = Schema(
    "KERNEL_ANNOTATIONS",
    {
        "event": _EVENT,
        "name": _text("kernel, copy or fill"),
        "dur_ns": _ns("time in the window"),
        "annotation": _text("innermost annotation of its launch, empty for none"),
        "op": _text("innermost operator of its launch, empty for none"),
        "module": _text(
            "innermost module of its launch, where Python frames were recorded; else empty"
        ),
    },
)

OPERATOR_BREAKDOWN = Schema(
    "OPERATOR_BREAKDOWN",
    {
        "name": _text("operator, API call, annotation or module"),
        "kind": Column("category", "EventKind", "what it is"),
        "n_calls": _count("calls that overlap the window"),
        "host_ns": _ns("time in the calls, in the window; a recursive call counts once"),
        "self_ns": _ns(
            "time in the calls and in nothing they call; adds up to the time in host events"
        ),
        "n_kernels": _count("device work launched in them"),
        "device_ns": _ns("device time launched in them"),
        "self_device_ns": _ns(
            "device time of which this is the innermost operator or annotation, or the launch call where there is none"
        ),
    },
)

OPERATOR_TREE = Schema(
    "OPERATOR_TREE",
    {
        "node": _count("number of the row; parents come before children"),
        "parent": Column("int64", "count", "row of the caller, -1 for the outermost"),
        "depth": _count("callers above"),
        "name": _text("operator, API call or annotation"),
        "n_calls": _count("calls with this chain of callers"),
        "host_ns": _ns("time in the calls, in the window"),
        "self_ns": _ns("time in nothing they call; adds up to the time of the roots"),
        "n_kernels": _count("device work launched in them"),
        "device_ns": _ns("device time launched in them"),
    },
)

CUPTI_COUNTERS = Schema(
    "CUPTI_COUNTERS",
    {
        "event": _EVENT,
        "name": _text("kernel that was counted"),
        "ts_ns": _ns("start of the range"),
        "dur_ns": _ns("length of the range, which is longer than the kernel's own time"),
        "launch": Column("int64", "event", "call that launched it, -1 where that is not known"),
        "op": _text("innermost operator of the launch"),
        "top_op": _text("outermost operator of the launch"),
        "counter": _text("name of the hardware counter"),
        "value": Column("float64", "count", "its value"),
    },
)

CUPTI_RATES = Schema(
    "CUPTI_RATES",
    {
        "name": _text("kernel or operator"),
        "n_ranges": _count("counted kernels"),
        "dur_ns": _ns("sum of the ranges"),
        "flop": Column("float64", "FLOP", "floating-point operations, NaN where not counted"),
        "bytes": Column("float64", "byte", "device memory traffic, NaN where not counted"),
        "flop_per_s": Column("float64", "FLOP/s", "achieved rate over the ranges"),
        "bytes_per_s": Column("float64", "byte/s", "achieved rate over the ranges"),
        "flop_per_byte": Column(
            "float64", "FLOP/byte", "arithmetic intensity: the x of a roofline"
        ),
    },
)

DIFF = Schema(
    "DIFF",
    {
        "name": _text("operator, API call, annotation or kernel"),
        "change": Column("category", "name", "added, removed, grown, shrunk (by time) or equal"),
        "n_before": _count("how often before"),
        "n_after": _count("how often after"),
        "n_delta": _count("n_after - n_before"),
        "before_ns": _ns("time before"),
        "after_ns": _ns("time after"),
        "delta_ns": _ns("after_ns - before_ns"),
    },
)

MEMORY_TIMELINE = Schema(
    "MEMORY_TIMELINE",
    {
        "event": _EVENT,
        "ts_ns": _ns("when memory was taken or given back"),
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
        "step": _count("position in time"),
        "name": _text("name of the step"),
        "start_ns": _ns("start of the host range"),
        "dur_ns": _ns("length of the host range"),
        "device": Column("int64", "id", "device, -1 where the trace has none"),
        "n_launches": _count("device work launched in the step"),
        "launched_ns": _ns("its device time, whenever it ran"),
        "idle_ns": _ns("nothing ran on the device while the step lasted"),
        "compute_ns": _ns("a compute kernel ran"),
        "communication_ns": _ns("exposed communication"),
        "memory_ns": _ns("only copies and fills ran"),
    },
)
