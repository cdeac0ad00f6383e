"""The words of a report: titles of findings, what to try, why there is no verdict."""

from __future__ import annotations

from htagraph.model.kinds import Bound, Cause

__all__ = [
    "BINDS",
    "COMPARE",
    "HOST_ONLY",
    "LATE_BY",
    "NOTHING_MATCHED",
    "OTHER_RANKS",
    "RANKING",
    "REPAIRED",
    "TITLES",
    "TITLE_HOST_ONLY",
    "TO_TRY",
    "TO_TRY_COMPILED",
    "TO_TRY_REPLAYED",
    "UNREAD",
    "UNRECORDED",
    "WITHIN_DEVICE",
]

TITLES = {
    Cause.COMPUTE: "GPU computation",
    Cause.COMMUNICATION: "Exposed communication",
    Cause.LATE_RANK: "The others wait for rank {rank}, which is late",
    Cause.COPIES: "Device copies and fills",
    Cause.BLOCKING_COPY: "Copies that block the host",
    Cause.HOST_WAIT: "Host waits for the device, and the delays they cause",
    Cause.UNRECORDED_WAIT: "Host wait, what it waited for is not recorded",
    Cause.FULL_QUEUE: "Full launch queue, and the delays it causes",
    Cause.DATA_LOADING: "Data loading",
    Cause.ALLOCATION: "Device memory allocation",
    Cause.FIRST_USE: "First use of contexts, modules and libraries",
    Cause.HOST: "The host sets the pace",
    Cause.DEVICE_GAPS: "Gaps between queued device work",
    Cause.DEVICE_FULL: "Ready work waits until the device has room",
    Cause.WAITING_FOR_WORK: "Threads wait for work that nothing recorded sends",
    Cause.LAUNCHED_BEFORE_CAPTURE: "Work launched before the capture",
    Cause.OPTIMIZER: "The optimizer",
    Cause.COMPILATION: "Compilation",
    Cause.CHECKPOINTING: "Checkpointing",
    Cause.GARBAGE_COLLECTION: "Garbage collection",
    Cause.CPU_OPERATORS: "Operators on the CPU",
    Cause.SHORT_OPERATORS: "Many short operators, and the code that calls them",
    Cause.HOST_CODE: "Python and other host code",
}
TO_TRY = {
    Cause.COMPUTE: "the device is busy, as it should be: speed up its kernels, largest first "
    "(lower precision, fused or compiled operators, better shapes).",
    Cause.COMMUNICATION: "start it earlier, or overlap it with computation (bucket size, prefetch, "
    "a separate stream). On a single rank, waiting for a late rank looks the same: compare ranks.",
    Cause.COPIES: "copy from pinned memory with non_blocking=True, on a separate stream, while the "
    "device computes.",
    Cause.BLOCKING_COPY: "pin the host memory and copy with non_blocking=True; keep .item(), "
    ".cpu() and .tolist() out of the step.",
    Cause.HOST_WAIT: "remove the synchronization from the step (.item(), .cpu(), "
    "torch.cuda.synchronize(), data-dependent shapes), or synchronize only every n steps.",
    Cause.UNRECORDED_WAIT: "record what it waits for: ProfilerActivity.CUDA, "
    "enable_cuda_sync_events=True, and a capture that begins before the work is launched; then "
    "remove the synchronization, or what it waits for.",
    Cause.FULL_QUEUE: "the host runs so far ahead that launches block: do its other work (data, "
    "logging) before the launches, use fewer and larger kernels, or CUDA graphs.",
    Cause.DATA_LOADING: "more DataLoader workers, persistent_workers=True, a larger "
    "prefetch_factor, cheaper decoding.",
    Cause.ALLOCATION: "allocate before the loop and reuse the memory; check for cache flushes "
    "(empty_cache) and fragmentation (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True).",
    Cause.FIRST_USE: "this happens once: skip the first steps when profiling "
    "(schedule(wait=3, warmup=2, active=2, repeat=1)).",
    Cause.HOST: "fewer, larger operators (torch.compile, CUDA graphs, fused optimizers, larger "
    "batches), and less Python between them.",
    Cause.DEVICE_GAPS: "fuse short kernels, or replay them as a CUDA graph.",
    Cause.DEVICE_FULL: "a kernel of another stream fills the device: give the waiting work a "
    "stream of higher priority (torch.cuda.Stream(priority=-1)), launch it earlier, or make the "
    "kernel that fills the device shorter.",
    Cause.WAITING_FOR_WORK: "on a server this is the time between requests: raise the load, or "
    "report on the time from one request to its answer (-w START:END).",
    Cause.LAUNCHED_BEFORE_CAPTURE: "start the capture at the beginning of a step, after "
    "torch.cuda.synchronize().",
    Cause.OPTIMIZER: "one call for all parameters (foreach=True, fused=True), fewer and larger "
    "parameters, or a compiled step.",
    Cause.COMPILATION: "compile before the recorded steps; where it comes back, "
    "TORCH_LOGS=recompiles says why: shapes that change (dynamic=True, padding), Python values "
    "that change.",
    Cause.CHECKPOINTING: "save less often, smaller, or beside the steps "
    "(torch.distributed.checkpoint.async_save).",
    Cause.GARBAGE_COLLECTION: "gc.freeze() after set-up, gc.disable() and a collection every n "
    "steps, fewer objects that refer to each other.",
    Cause.CPU_OPERATORS: "less work in the largest first (shapes, lower precision, "
    "torch.compile), more threads (torch.set_num_threads), or run it on a device.",
    Cause.SHORT_OPERATORS: "fewer, larger operators (torch.compile, larger batches, whole tensors "
    "in place of loops), and less Python between them.",
    Cause.HOST_CODE: "make it cheaper, do it less often, or beside the steps (another thread or "
    "process).",
}
WITHIN_DEVICE = (
    "these copies and fills stay on the device: make fewer (torch.cat, .contiguous(), .clone(), "
    "changes of type or layout, zeros that are overwritten), or let torch.compile fuse them."
)
"""What to try instead where most copies do not cross to the host."""
TO_TRY_COMPILED = {
    Cause.COMPUTE: "the device is busy, as it should be, and most of it is compiled: speed up its "
    'kernels, largest first (lower precision, better shapes, mode="max-autotune").',
    Cause.HOST: "most of the work is compiled: look for graph breaks and recompilations "
    '(TORCH_LOGS="graph_breaks,recompiles"), replay it as a CUDA graph (mode="reduce-overhead"), '
    "larger batches, and less Python between the compiled parts.",
}
"""What to try instead where most device time already comes from compiled code."""
TO_TRY_REPLAYED = {
    Cause.HOST: "most of the work is replayed as a graph: what is left is between the graphs. "
    "Larger or fewer graphs, larger batches, and less Python between them.",
    Cause.FULL_QUEUE: "the host runs so far ahead that launches block: do its other work (data, "
    "logging) before the launches, and use fewer and larger kernels.",
    Cause.DEVICE_GAPS: "fuse short kernels.",
}
"""What to try instead where most device time already comes from a graph that is replayed."""
UNRECORDED = (
    "find out which code this is (with_stack=True, or torch.profiler.record_function around its "
    "parts); then "
)
UNREAD = (
    "find out which code this is: read the Python stacks in the trace (htagraph report --stacks); "
    "then "
)
TITLE_HOST_ONLY = "The host"
HOST_ONLY = (
    "the trace has no device work, though the run used a device: profile with "
    "ProfilerActivity.CUDA to see what the host delays."
)

LATE_BY = {
    Bound.PYTHON_GAP.label: "compare its Python code there with that of the other ranks.",
    Bound.DATA_LOADING.label: "check this rank's data: shards, storage, DataLoader workers.",
    Bound.HOST.label: "compare this operator across ranks: process placement on cores, a slow "
    "node, more work.",
    Bound.COMPUTE.label: "compare this kernel across ranks: more work on this rank, or a slower "
    "device (clocks, heat).",
    Bound.COMMUNICATION.label: "look first at the group it waits in: the cause may be on a rank "
    "without a trace.",
    Bound.DEVICE_FULL.label: "find out which kernels fill this rank's device, and how long they "
    "take on the other ranks.",
    Bound.SYNC.label: "find out what this rank waits for on its own device.",
    Bound.UNEXPLAINED.label: "what it does there is not recorded: this rank's quality checks say "
    "how to record it.",
}
"""What to try where a rank is late, by the bound that most of its lateness is charged to."""
NOTHING_MATCHED = (
    "no collectives were matched between ranks whose clocks agree, so nothing says how long they "
    "waited for each other; report on each rank by itself, or capture the same steps of one run "
    "on all ranks, with NCCL metadata."
)
COMPARE = "compare what this rank does there with the other ranks."
RANKING = (
    "Ranked by what a repair is predicted to save: the run is replayed without the cause, or with "
    "computation twice as fast, and ends where something else bounds it."
)
OTHER_RANKS = (
    "The low end of a saving is what this rank gains alone: if the other ranks do not change, "
    "collectives end when they did, however early they begin."
)
BINDS = {
    Bound.COMPUTE.label: "computation",
    Bound.COMMUNICATION.label: "communication",
    Bound.MEMORY.label: "copying",
    Bound.LAUNCH.label: "launching",
    Bound.KERNEL_GAP.label: "the gap between kernels",
    Bound.HOST.label: "the host",
    Bound.DATA_LOADING.label: "data loading",
    Bound.PYTHON_GAP.label: "unrecorded host code",
    Bound.SYNC.label: "waiting",
    Bound.LAUNCHED_BEFORE_CAPTURE.label: "what was launched before the capture",
    Bound.UNEXPLAINED.label: "an unexplained wait",
    Bound.DEVICE_FULL.label: "a full device",
    Bound.WAITING_FOR_WORK.label: "waiting for work",
}
"""What bounds a run, as the subject of a sentence."""
REPAIRED = {
    "scale(computation": "twice as fast",
    "graphed(": "replayed as a graph",
    "overlap(": "beside other work",
    "bandwidth(": "at twice the bandwidth",
    "scale(": "taking no time",
    "without ": "taking no time",
    "equalise(": "as early as the others",
}
"""What was done about a cause, by how the change begins that was replayed; else, repaired."""
