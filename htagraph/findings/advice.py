"""The words of a report: titles of findings, how to read them, why there is no verdict."""

from __future__ import annotations

from htagraph.model.kinds import Bound, Cause

__all__ = [
    "BINDS",
    "NOTHING_MATCHED",
    "OTHER_RANKS",
    "RANKING",
    "REPAIRED",
    "TITLES",
    "TITLE_HOST_ONLY",
    "TITLE_PLAIN",
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
    Cause.RECOMPILATION: "Recompilation",
    Cause.AUTOTUNING: "Autotuning of kernels",
    Cause.CHECKPOINTING: "Checkpointing",
    Cause.GARBAGE_COLLECTION: "Garbage collection",
    Cause.CPU_OPERATORS: "Operators on the CPU",
    Cause.SHORT_OPERATORS: "Many short operators, and the code that calls them",
    Cause.HOST_CODE: "Python and other host code",
}
TITLE_HOST_ONLY = "The host"
TITLE_PLAIN = "The program's own functions"
NOTHING_MATCHED = (
    "no collectives were matched between ranks whose clocks agree, so nothing says how long they "
    "waited for each other; report on each rank by itself, or capture the same steps of one run "
    "on all ranks, with NCCL metadata."
)
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
    "remove(compilation": "compiled before",
    "remove(recompilation": "compiled once",
    "remove(autotuning": "tuned before",
    "scale(": "taking no time",
    "without ": "taking no time",
    "equalise(": "as early as the others",
}
"""What was done about a cause, by how the change begins that was replayed; else, repaired."""
