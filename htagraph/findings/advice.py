"""The words of a report: titles of findings, how to read them, why a verdict is withheld."""

from __future__ import annotations

from htagraph.model.kinds import Bound, Cause

__all__ = [
    "BINDS",
    "CODE_OR_WAIT",
    "NOTHING_MATCHED",
    "NOT_RANKED",
    "OTHER_RANKS",
    "RANKING",
    "REPAIRED",
    "START_IDLE",
    "TITLES",
    "TITLE_HOST_ONLY",
    "TITLE_PLAIN",
    "UNREAD_CODE",
    "UNTRACED",
    "WITHIN_RANGE",
]

TITLES = {
    Cause.COMPUTE: "GPU compute",
    Cause.COMMUNICATION: "Communication on the critical path",
    Cause.LATE_RANK: "Rank {rank} is late and keeps the others waiting",
    Cause.PIPELINE: "A part of the pipeline is slower than its peers",
    Cause.EXPERT_IMBALANCE: "Ranks work on more tokens than the mean",
    Cause.COPIES: "Device copies and fills",
    Cause.SYNCHRONOUS_COPIES: "Copies that block the host",
    Cause.GPU_SYNCHRONIZATION: "Host-device synchronization, and the delays it causes",
    Cause.UNRECORDED_WAIT: "Host waits for something that was not recorded",
    Cause.FULL_QUEUE: "Full launch queue, and the delays it causes",
    Cause.DATA_LOADING: "Data loading",
    Cause.ALLOCATION: "Device memory allocation",
    Cause.ONE_TIME_SETUP: "Initialization of contexts, modules and libraries",
    Cause.CPU_WORK: "The host sets the pace",
    Cause.GAPS_BETWEEN_KERNELS: "Gaps between queued kernels",
    Cause.WAITING_FOR_SMS: "Ready kernels wait for room on the device",
    Cause.WAITING_FOR_WORK: "Threads wait for work from outside the trace",
    Cause.OPTIMIZER: "The optimizer",
    Cause.COMPILATION: "Compilation",
    Cause.RECOMPILATION: "Recompilation",
    Cause.AUTOTUNING: "Kernel autotuning",
    Cause.CHECKPOINTING: "Checkpointing",
    Cause.GARBAGE_COLLECTION: "Garbage collection",
    Cause.CPU_OPERATORS: "Operators on the CPU",
    Cause.SMALL_OPERATORS: "Many short operators, and the code that calls them",
    Cause.HOST_CODE: "Python and other host code",
}
TITLE_HOST_ONLY = "The host"
TITLE_PLAIN = "The program's own functions"
WITHIN_RANGE = "{title}, most of it in {range}"
UNTRACED = "untraced code"
CODE_OR_WAIT = "code or a wait"
UNREAD_CODE = "Python not read (--stacks)"
NOTHING_MATCHED = (
    "no collectives could be matched between ranks with aligned clocks, so it is unknown how long "
    "they waited for each other; report on each rank separately, or capture the same steps of one "
    "run on all ranks, with NCCL metadata."
)
RANKING = (
    "Ranked by cost: how much shorter the window is when the run is replayed and the cause takes "
    "no time on any thread, stream or rank. Near-ties are ranked by share."
)
START_IDLE = (
    "To leave out work from before the profile, start it at the beginning of a step, after "
    "torch.cuda.synchronize()."
)
NOT_RANKED = (
    "Ranked by share of the path: the run was not replayed, because it is too large or its steps "
    "differ too much."
)
OTHER_RANKS = (
    "A saving is smaller, or none, for this rank alone: if the other ranks do not change, its "
    "collectives end no earlier, however early it arrives."
)
BINDS = {
    Bound.COMPUTE.label: "compute",
    Bound.COMMUNICATION.label: "communication",
    Bound.MEMORY.label: "memory copies",
    Bound.LAUNCH.label: "launch latency",
    Bound.KERNEL_GAP.label: "the gap between kernels",
    Bound.HOST.label: "the host",
    Bound.DATA_LOADING.label: "data loading",
    Bound.UNTRACED_CODE.label: "untraced code",
    Bound.SYNC.label: "synchronization",
    Bound.WORK_FROM_BEFORE_THE_PROFILE.label: "work from before the profile",
    Bound.UNKNOWN_WAITS.label: "an unknown wait",
    Bound.WAITING_FOR_SMS.label: "a full device",
    Bound.WAITING_FOR_WORK.label: "waiting for work",
}
"""Each bound as the subject of a sentence."""
REPAIRED = {
    "scale(computation": "if twice as fast",
    "graphed(": "if captured as a CUDA graph",
    "overlap(": "if overlapped with other work",
    "bandwidth(": "at twice the bandwidth",
    "prefetch(": "if one worker loads one batch ahead",
    "equalise(": "if as early as the others",
    "balance(": "if tokens were balanced",
}
"""The condition of a saving, by how the replayed change begins; PyTorch calls HIP graphs the same.
"""
