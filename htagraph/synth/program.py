"""Programs of simulated ranks: host actions, the device work they enqueue, and the machine.

A program says what happens and how long each piece takes by itself; when it happens is for the
simulator to find. Times are integer nanoseconds throughout.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from htagraph.model.kinds import EventKind

__all__ = [
    "Action",
    "Annotation",
    "Call",
    "Clock",
    "Collective",
    "Group",
    "HandOver",
    "JobProgram",
    "Launch",
    "Machine",
    "Op",
    "Program",
    "Record",
    "Spend",
    "StreamWait",
    "Synchronize",
    "Work",
]

_EPOCH_NS = 1_767_225_600_000_000_000
"""2026-01-01, the base time that a profiler writes in the first quarter of 2026."""


@dataclass(frozen=True)
class Work:
    """Work on a stream: a kernel, copy or fill.

    Parameters
    ----------
    name : str
        A copy if it begins with ``Memcpy``, a fill if with ``Memset``, else a kernel.
    dur_ns : int, unit=ns
    n_bytes : int
        That a copy or fill moves; 0 for none.
    n_blocks, n_threads : int
        Launch geometry of a kernel, in one dimension; 0 for none.
    """

    name: str
    dur_ns: int
    n_bytes: int = 0
    n_blocks: int = 0
    n_threads: int = 0

    @property
    def kind(self) -> EventKind:
        """Kind of the device event."""
        return {"Memcpy": EventKind.MEMCPY, "Memset": EventKind.MEMSET}.get(
            self.name[:6], EventKind.KERNEL
        )


@dataclass(frozen=True)
class Group:
    """Ranks that communicate: a process group.

    Parameters
    ----------
    name : str
        As in ``Process Group Name``; names one communicator, whose collectives are counted.
    ranks : tuple of int
    description : str
        As in ``Process Group Description``.
    """

    name: str = "0"
    ranks: tuple[int, ...] = (0,)
    description: str = "default_pg"


@dataclass(frozen=True)
class Collective:
    """A communication kernel, which ends `dur_ns` after those it waits for have started.

    Parameters
    ----------
    name : str
        Of the kernel.
    dur_ns : int, unit=ns
        Transfer time once everybody is there.
    group : Group
    operation : str
        ``allreduce``, ``_allgather_base``, ``_reduce_scatter_base``, ``all_to_all``, ``broadcast``,
        ``reduce``, ``send``, ``recv``; ``notify``, ``dispatch`` and ``combine`` of a library that
        records nothing. All ranks wait for all, but for some: leaves wait for the root of a
        broadcast, the root of a reduce for the leaves, and the receiver for the sender.
    n_elements : int
    dtype : str
    root : int
        Rank of root or sender.
    alone_ns : int, unit=ns
        What the kernel waits for other ranks when it is simulated without them.
    half : {"", "send", "receive"}
        The kernel is the half of a collective that sends, and waits for nobody; or the one that
        receives, which comes later and waits until all others have begun to send.
    """

    name: str
    dur_ns: int
    group: Group = Group()
    operation: str = "allreduce"
    n_elements: int = 1_048_576
    dtype: str = "Float"
    root: int = 0
    alone_ns: int = 0
    half: Literal["", "send", "receive"] = ""

    @property
    def kind(self) -> EventKind:
        """Kind of the device event."""
        return EventKind.KERNEL

    @property
    def is_recorded(self) -> bool:
        """Whether the profiler writes metadata of it."""
        return self.operation not in ("notify", "dispatch", "combine")

    def waits_for(self, rank: int) -> frozenset[int]:
        """The ranks whose kernels must have started before that of `rank` can transfer."""
        others = frozenset(self.group.ranks) - {rank}
        if self.half == "send":
            return frozenset()
        if self.operation in ("broadcast", "send", "recv"):
            return others & {self.root}
        if self.operation == "reduce":
            return others if rank == self.root else frozenset()
        return others


@dataclass(frozen=True)
class Spend:
    """Host time that the profiler does not record by itself.

    Parameters
    ----------
    dur_ns : int, unit=ns
    """

    dur_ns: int


@dataclass(frozen=True)
class Op:
    """A host operator, as long as what is in it.

    Parameters
    ----------
    name : str
    body : tuple of Action
    sequence : int
        Number that a forward operator and its backward operator share, -1 for none; a flow joins
        them.
    is_backward : bool
    """

    name: str
    body: tuple[Action, ...] = ()
    sequence: int = -1
    is_backward: bool = False


@dataclass(frozen=True)
class Annotation:
    """A host range named by the user or the framework, as long as what is in it.

    Parameters
    ----------
    name : str
        ``ProfilerStep#3`` makes a step.
    body : tuple of Action
    """

    name: str
    body: tuple[Action, ...] = ()


@dataclass(frozen=True)
class Call:
    """A call of the device runtime that neither launches nor waits.

    Parameters
    ----------
    name : str
        ``cudaMalloc``, for one.
    cost_ns : int, unit=ns
    """

    name: str
    cost_ns: int


@dataclass(frozen=True)
class Launch:
    """A call that enqueues device work.

    Parameters
    ----------
    work : Work, Collective, or tuple of Work
        A tuple is a graph: one call, several pieces that run in order.
    stream : int
    cost_ns : int, unit=ns
        Duration of the call, unless it blocks.
    is_blocking : bool
        The call returns after the work has ended.
    call : str
        Name of the call; by the kind of work if empty.
    """

    work: Work | Collective | tuple[Work, ...]
    stream: int = 7
    cost_ns: int = 4_500
    is_blocking: bool = False
    call: str = ""

    @property
    def call_name(self) -> str:
        """Name of the API call, by what it launches."""
        if self.call:
            return self.call
        if isinstance(self.work, tuple):
            return "cudaGraphLaunch"
        kinds = {EventKind.MEMCPY: "cudaMemcpyAsync", EventKind.MEMSET: "cudaMemsetAsync"}
        return kinds.get(self.work.kind, "cudaLaunchKernel")


@dataclass(frozen=True)
class Record:
    """``cudaEventRecord``: the event happens when all work enqueued on the stream so far has ended.

    Parameters
    ----------
    event : str
        Recorded again, it stands for the later record.
    stream : int
    cost_ns : int, unit=ns
    """

    event: str
    stream: int = 7
    cost_ns: int = 900


@dataclass(frozen=True)
class StreamWait:
    """``cudaStreamWaitEvent``: work enqueued on the stream later starts after the event.

    Parameters
    ----------
    event : str
        One that was never recorded holds nothing up.
    stream : int
    cost_ns : int, unit=ns
    """

    event: str
    stream: int
    cost_ns: int = 800


@dataclass(frozen=True)
class Synchronize:
    """The host waits for an event, for a stream, or for the device if neither is given.

    Parameters
    ----------
    stream : int, optional
    event : str, optional
        Goes before `stream`.
    """

    stream: int | None = None
    event: str | None = None


@dataclass(frozen=True)
class HandOver:
    """The host thread blocks while another thread works for it, as in ``loss.backward()``.

    It does so outside of any operator.

    Parameters
    ----------
    body : tuple of Action
        What the other thread runs.
    thread : int
        Number of the other thread; the main thread is 1.
    wake_ns : int, unit=ns
        Until the other thread begins.
    """

    body: tuple[Action, ...]
    thread: int = 2
    wake_ns: int = 21_300


Action = Spend | Op | Annotation | Call | Launch | Record | StreamWait | Synchronize | HandOver


@dataclass(frozen=True)
class Machine:
    """The machine: latencies and limits of hardware and runtime.

    Parameters
    ----------
    launch_latency_ns : int, unit=ns
        From the start of a launch call to the start of its work on an idle stream.
    stream_gap_ns : int, unit=ns
        From the end of one piece of work to the start of the next on its stream.
    stream_wait_ns : int, unit=ns
        From the end of what a stream waited for to the start of its next work.
    sync_return_ns : int, unit=ns
        From the end of what a call waited for to its return.
    queue_limit : int
        Launches that may be outstanding on the device; one more blocks.
    jitter_ns : int, unit=ns
        Up to this much is added at random to each launch latency.
    """

    launch_latency_ns: int = 4_713
    stream_gap_ns: int = 811
    stream_wait_ns: int = 1_291
    sync_return_ns: int = 2_137
    queue_limit: int = 1_022
    jitter_ns: int = 0


@dataclass(frozen=True)
class Program:
    """The program of one rank.

    Parameters
    ----------
    body : tuple of Action
        Of the main thread.
    machine : Machine
    rank, world_size, device : int
    groups : tuple of Group
        For the header of the file.
    start_ns : int, unit=ns
        When the main thread starts, absolute.
    base_time_ns : int, unit=ns
        Base time of the file; its timestamps are relative to this.
    sync_records : bool
        Whether the profiler records waits (``cuda_sync``). Without them a reader has to guess what
        was waited for.
    metadata : str
        How much the file says of collectives: ``none``, on the operator (``op``), also on the
        ``kernel``, also their sequence number (``seq``).
    seed : int
        Of the jitter.
    """

    body: tuple[Action, ...]
    machine: Machine = Machine()
    rank: int = 0
    world_size: int = 1
    device: int = 0
    groups: tuple[Group, ...] = ()
    start_ns: int = _EPOCH_NS + 2_419_200_000_000_000
    base_time_ns: int = _EPOCH_NS
    sync_records: bool = True
    metadata: Literal["none", "op", "kernel", "seq"] = "seq"
    seed: int = 0


@dataclass(frozen=True)
class Clock:
    """A rank's clock: ``local = true + offset + drift * (true - start)``.

    Parameters
    ----------
    offset_ns : int, unit=ns
        At the start of the simulation.
    drift_ppb : int, unit=1e-9
        5 ppm are 5,000.
    """

    offset_ns: int = 0
    drift_ppb: int = 0

    def local_ns(self, true_ns: int, start_ns: int) -> int:
        """The time that the clock shows."""
        return true_ns + self.offset_ns + (true_ns - start_ns) * self.drift_ppb // 1_000_000_000


@dataclass(frozen=True)
class JobProgram:
    """The programs of the ranks of a job, and its planted straggler.

    Parameters
    ----------
    ranks : tuple of Program
        By rank.
    clocks : tuple of Clock
        By rank; empty for true clocks.
    culprit : int
        Rank of the planted straggler, -1 for none.
    """

    ranks: tuple[Program, ...]
    clocks: tuple[Clock, ...] = field(default=())
    culprit: int = -1
