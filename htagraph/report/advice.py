"""What findings are called and what may help: the words of a report, one home for each."""

from __future__ import annotations

from htagraph.model.kinds import Bound, Cause

__all__ = [
    "COMPARE",
    "HOST_ONLY",
    "LATE_BY",
    "NOTHING_MATCHED",
    "RANKING",
    "TITLES",
    "TITLE_HOST_ONLY",
    "TO_TRY",
    "UNREAD",
    "UNRECORDED",
]

TITLES = {
    Cause.COMPUTE: "GPU computation",
    Cause.COMMUNICATION: "Communication that nothing hides",
    Cause.LATE_RANK: "The others wait for rank {rank}, which is late",
    Cause.COPIES: "Copies and fills on the device",
    Cause.BLOCKING_COPY: "Copies that block the host",
    Cause.HOST_WAIT: "Host waits for the device, and what they delay",
    Cause.FULL_QUEUE: "A full launch queue, and what it delays",
    Cause.DATA_LOADING: "Data loading",
    Cause.ALLOCATION: "Device memory allocation",
    Cause.FIRST_USE: "First use: contexts, modules, libraries",
    Cause.HOST: "The host sets the pace",
    Cause.DEVICE_GAPS: "Gaps between queued device work",
    Cause.LAUNCHED_BEFORE_CAPTURE: "Work from before the capture",
}
TO_TRY = {
    Cause.COMPUTE: "the device is busy, as it should be: shorten its kernels (lower precision, fused or compiled operators, "
    "better shapes), largest first.",
    Cause.COMMUNICATION: "start it earlier or hide it behind computation (bucket size, prefetch, separate stream); a wait for "
    "a late rank looks the same on one rank, so compare the ranks.",
    Cause.COPIES: "copy from pinned memory with non_blocking=True on a stream of its own, while the device computes.",
    Cause.BLOCKING_COPY: "pin the host memory and copy with non_blocking=True; keep .item(), .cpu() and .tolist() out of the step.",
    Cause.HOST_WAIT: "remove the synchronization from the step (.item(), .cpu(), torch.cuda.synchronize(), shapes that "
    "depend on data), or do it once every n steps.",
    Cause.FULL_QUEUE: "the host runs so far ahead that launches block: let it do its other work (data, logging) before it "
    "launches, use fewer and larger kernels, or CUDA graphs.",
    Cause.DATA_LOADING: "more DataLoader workers, persistent_workers=True, a larger prefetch_factor, cheaper decoding.",
    Cause.ALLOCATION: "allocate before the loop and keep what is allocated: check for cache flushes (empty_cache) and "
    "fragmentation (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True).",
    Cause.FIRST_USE: "this happens once: let the profiler skip the first steps (schedule(wait=3, warmup=2, active=2, repeat=1)).",
    Cause.HOST: "fewer, larger operators: torch.compile, CUDA graphs, fused optimizers, larger batches; less Python between them.",
    Cause.DEVICE_GAPS: "many short kernels: fuse them or replay them as a CUDA graph.",
    Cause.LAUNCHED_BEFORE_CAPTURE: "begin the capture at the start of a step, after torch.cuda.synchronize().",
}
UNRECORDED = "find out which code this is (with_stack=True, or name its parts with torch.profiler.record_function); then "
UNREAD = "see which code this is: read the Python stacks of the trace, too (htagraph report --stacks); then "
TITLE_HOST_ONLY = "The host"
HOST_ONLY = "the trace has no device work; profile with ProfilerActivity.CUDA to see what the host keeps waiting."

LATE_BY = {
    Bound.PYTHON_GAP.label: "compare it with what the other ranks' Python does there.",
    Bound.DATA_LOADING.label: "look at this rank's data: shards, storage, DataLoader workers.",
    Bound.HOST.label: "compare this operator with the other ranks': placement of processes on cores, a slow node, more work.",
    Bound.COMPUTE.label: "compare this kernel with the other ranks': more work on this rank, or a slower device (clocks, heat).",
    Bound.COMMUNICATION.label: "look at the group it waits in first: the cause may lie on a rank that is not recorded.",
    Bound.SYNC.label: "see what this rank waits for on its own device.",
    Bound.UNEXPLAINED.label: "what it does there is not recorded: the quality checks of this rank say how to record it.",
}
"""What to try where a rank is late, by what most of its lateness goes to."""
NOTHING_MATCHED = (
    "no collectives were matched between ranks whose clocks agree, so nothing says how they waited "
    "for each other; report on each rank by itself, or capture the same steps of one run on all "
    "ranks, with NCCL metadata."
)
COMPARE = "compare what this rank does there with the other ranks."
RANKING = (
    "Ranked by what there is to win, which ends where the work of other resources takes over; computation counts half, as "
    "kernels get shorter but do not go away."
)
