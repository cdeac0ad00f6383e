"""Closed vocabularies: kinds of events and edges, classes of device work, bounds, causes.

Members are small integers, so that a column of them takes one byte a row; ``.label`` is what a
person writes and reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, StrEnum, unique

import numpy as np
import numpy.typing as npt

from htagraph.errors import QueryError, one_of
from htagraph.model.arrays import I8, Bools


def in_words(label: object) -> str:
    """A label as text: ``untraced code``."""
    return str(label).replace("_", " ")


class Vocabulary(IntEnum):
    """An enumeration whose members have a lower-case label.

    Codes are dense, as tables of labels are indexed by them; a code given twice would silently make
    its member another name of the first.
    """

    def __init_subclass__(cls, **options: object) -> None:
        """Refuse codes that are not 0, 1, 2 … in order."""
        super().__init_subclass__(**options)
        found = [int(member) for member in cls.__members__.values()]
        if found != list(range(len(found))):
            raise TypeError(f"codes of {cls.__name__} are not 0, 1, 2 … in order: {found}")

    @property
    def label(self) -> str:
        """Name of the member in tables: ``untraced_code``."""
        return self.name.lower()

    @classmethod
    def labels(cls) -> tuple[str, ...]:
        """Labels of all members, in order of their codes."""
        return tuple(member.label for member in cls)

    @classmethod
    def parse(cls, text: str) -> Vocabulary:
        """Member with this label, in any case.

        Raises
        ------
        QueryError
            If there is none; the hint suggests others.

        Examples
        --------
        >>> EdgeKind.parse("launch")
        <EdgeKind.LAUNCH: 2>
        """
        for member in cls:
            if member.label.lower() == text.lower():
                return member
        raise QueryError(f"{text!r} is no {cls.__name__}.", hint=one_of(text, cls.labels()))


def codes(members: Iterable[Vocabulary]) -> I8:
    """Codes of some members."""
    return np.array([int(member) for member in members], dtype=np.int8)


def among(column: npt.NDArray[np.integer], members: Iterable[int]) -> Bools:
    """Whether each code of a column is one of some members."""
    out = np.zeros(len(column), dtype=bool)
    for member in members:
        out |= column == member
    return out


class EventKind(Vocabulary):
    """What an event is."""

    OTHER = 0  #: a category that this package does not know; kept, not in the graph
    OP = 1  #: host operator (``aten::mm``)
    RUNTIME = 2  #: call of the device runtime or driver API (``cudaLaunchKernel``)
    ANNOTATION = 3  #: host range named by the user or the framework (``ProfilerStep#3``)
    KERNEL = 4  #: device kernel
    MEMCPY = 5  #: device copy
    MEMSET = 6  #: device fill
    SYNC = 7  #: record of a wait, made by the profiler (``cuda_sync``); evidence, not in the graph
    PYTHON = 8  #: Python frame (``python_function``); context, not in the graph
    DEVICE_ANNOTATION = (
        9  #: a host range projected onto the device (``gpu_user_annotation``); context
    )
    OVERHEAD = 10  #: the profiler's own work; context
    INSTANT = 11  #: a point in time (``[memory]``); context
    COUNTER = 12  #: sample of a counter; context
    COUNTER_RANGE = 13  #: CUPTI range with hardware counters (``cuda_profiler_range``); context
    SPAN = 14  #: the profiler's own span of the capture; context
    ASYNC = 15  #: a range that belongs to no thread (``ph`` b, e); context


HOST_KINDS = (EventKind.OP, EventKind.RUNTIME, EventKind.ANNOTATION)
"""Kinds that are graph nodes on a host thread."""

DEVICE_KINDS = (EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET)
"""Kinds that are graph nodes on a stream of a device."""

DEVICE_CLOCK_KINDS = (
    *DEVICE_KINDS,
    EventKind.SYNC,
    EventKind.DEVICE_ANNOTATION,
    EventKind.COUNTER_RANGE,
)
"""Kinds whose times were taken by the clock of a device."""


class EdgeKind(Vocabulary):
    """Why one instant cannot come before another."""

    SPAN = 0  #: a device event ends after it has run
    THREAD = 1  #: a host thread does one thing after another
    LAUNCH = 2  #: device work starts after the call that enqueued it
    STREAM = 3  #: work of one stream runs in order
    FLOW = 4  #: one host thread gives work, or a result, to another
    SYNC = 5  #: a host call, or a stream, waits for device work
    QUEUE = 6  #: a launch waits for room in the launch queue
    HIDDEN_SYNC = 7  #: a host gap waits for a kernel without an API call (inferred)
    COLLECTIVE = 8  #: ranks wait for each other
    SOURCE = 9  #: the window's start releases what has no predecessor
    SINK = 10  #: the window ends
    CONTENTION = 11  #: work that is ready waits until the device has room for it (inferred)


class KernelClass(Vocabulary):
    """What a piece of device work does."""

    NONE = 0  #: not device work
    COMPUTE = 1
    COMMUNICATION = 2
    MEMORY = 3  #: copies and fills


class SlotUse(Vocabulary):
    """What becomes of the warp slots of a device: used, or why they are empty."""

    IDLE = 0  #: no kernel runs
    COMMUNICATION = 1  #: communication kernels, which run on few multiprocessors, leave them empty
    SMALL_GRID = 2  #: multiprocessors without a block: the kernel has fewer blocks
    TAIL_WAVE = 3  #: the last wave of a kernel leaves room
    FEW_BLOCKS = 4  #: more blocks of the kernel would fit on multiprocessors that have one
    REGISTERS = 5  #: no more blocks fit, by the registers that they need
    SHARED_MEMORY = 6  #: no more blocks fit, by the shared memory that they need
    BLOCK_SIZE = 7  #: no more whole blocks fit, or no greater number of such small ones
    NOT_RECORDED = 8  #: a kernel runs whose grid or resources are not known
    USED = 9  #: a warp is resident


class Bound(Vocabulary):
    """What a segment of a critical path waits for."""

    COMPUTE = 0  #: a computation kernel runs
    COMMUNICATION = 1  #: a communication kernel runs
    MEMORY = 2  #: a copy or fill runs
    LAUNCH = 3  #: from the launch call to the start of its work on an idle stream
    KERNEL_GAP = 4  #: between two pieces of work of one stream, the second already enqueued
    HOST = 5  #: a host operator or API call runs
    DATA_LOADING = 6  #: a host operator that loads data runs
    UNTRACED_CODE = 7  #: a host thread does what was not recorded (Python, untraced code)
    SYNC = 8  #: the host, or a stream, resumes after what it waited for
    WORK_FROM_BEFORE_THE_PROFILE = (
        9  #: device work whose launch was not recorded: enqueued before the profile began
    )
    UNKNOWN_WAITS = 10  #: no recorded dependency explains the wait
    WAITING_FOR_SMS = (
        11  #: work of another stream fills the device, until it has room for ready work
    )
    WAITING_FOR_WORK = 12  #: a thread of a pool is idle until it is given work


@unique
class Cause(StrEnum):
    """What time of a critical path is charged to: what a person can do something about."""

    COMPUTE = "GPU compute"
    COMMUNICATION = "communication"
    LATE_RANK = "late rank"
    PIPELINE = "pipeline"
    EXPERT_IMBALANCE = "expert imbalance"
    COPIES = "GPU copies"
    SYNCHRONOUS_COPIES = "synchronous copies"
    GPU_SYNCHRONIZATION = "GPU synchronization"
    UNRECORDED_WAIT = "unrecorded waits"
    FULL_QUEUE = "full launch queue"
    DATA_LOADING = "data loading"
    ALLOCATION = "GPU memory allocation"
    ONE_TIME_SETUP = "one-time setup"
    CPU_WORK = "CPU work"
    GAPS_BETWEEN_KERNELS = "gaps between kernels"
    WAITING_FOR_SMS = "kernels waiting for free SMs"
    WAITING_FOR_WORK = "waiting for work"
    WORK_FROM_BEFORE_THE_PROFILE = "work from before the profile"
    UNKNOWN_WAITS = "unknown waits"
    OPTIMIZER = "optimizer"
    COMPILATION = "compilation"
    RECOMPILATION = "recompilation"
    AUTOTUNING = "autotuning"
    CHECKPOINTING = "checkpointing"
    GARBAGE_COLLECTION = "garbage collection"
    RECOMPUTATION = "recomputation"
    ANOMALY_DETECTION = "anomaly detection"
    CPU_OPERATORS = "CPU operators"
    SMALL_OPERATORS = "small operators"
    HOST_CODE = "Python code"
    PYTHON_WAITS = "Python waits"


_BOUNDS = {
    Bound.COMPUTE.label: Cause.COMPUTE,
    Bound.MEMORY.label: Cause.COPIES,
    Bound.LAUNCH.label: "launch latency",
    Bound.KERNEL_GAP.label: Cause.GAPS_BETWEEN_KERNELS,
    Bound.HOST.label: Cause.CPU_OPERATORS,
    Bound.SYNC.label: Cause.GPU_SYNCHRONIZATION,
    Bound.WAITING_FOR_SMS.label: Cause.WAITING_FOR_SMS,
}


def bound_in_words(label: object) -> str:
    """The label of a bound for people, in the words of causes."""
    return str(_BOUNDS.get(str(label), in_words(label)))
