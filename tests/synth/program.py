"""Programs of simulated ranks: what their threads do, on which machine, and what is recorded.

A program says what happens and how long each piece takes by itself; when it happens is for the
simulator to find. Times are integer nanoseconds throughout.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from htagraph.model.devices import DeviceProperties
from tests.synth.actions import (
    Action,
    Annotation,
    Call,
    Delegate,
    Free,
    HandOver,
    Launch,
    Op,
    Poll,
    Receive,
    Reclaim,
    Record,
    Replay,
    Spend,
    StreamWait,
    Synchronize,
)
from tests.synth.work import Collective, Graph, GraphNode, Group, Work

__all__ = [
    "Action",
    "Annotation",
    "Call",
    "Clock",
    "Collective",
    "Delegate",
    "Free",
    "Graph",
    "GraphNode",
    "Group",
    "HandOver",
    "JobProgram",
    "Launch",
    "Machine",
    "Op",
    "Poll",
    "Program",
    "Receive",
    "Reclaim",
    "Record",
    "Replay",
    "Spend",
    "StreamWait",
    "Synchronize",
    "Work",
]

_USUAL_SMS = 132
_WARP = 32
_REGISTERS_PER_SM = 65_536
_SHARED_MEMORY_PER_SM = 233_472
_MEMORY_BYTES = 84_942_979_072
_EPOCH_NS = 1_767_225_600_000_000_000
"""2026-01-01, the base time that a profiler writes in the first quarter of 2026."""


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
    late_end_ns : int, unit=ns
        Up to this much, at random, recorded ends of device work lie after the true ones. What
        waited for the work may then start before its recorded end.
    late_across_streams : bool
        Recorded ends are no later than the next start on their own stream.
    n_sms : int
        Multiprocessors of the device; 0 for a device that is never full.
    threads_per_sm, blocks_per_sm : int
        That run at once on a multiprocessor. A kernel of more blocks than fit runs in waves, and no
        kernel of another stream starts before its last wave begins to drain.
    drain_spread : float
        The last wave drains for its whole length, less up to this share of it at random.
    """

    launch_latency_ns: int = 4_713
    stream_gap_ns: int = 811
    stream_wait_ns: int = 1_291
    sync_return_ns: int = 2_137
    queue_limit: int = 1_022
    jitter_ns: int = 0
    late_end_ns: int = 0
    late_across_streams: bool = False
    n_sms: int = 0
    threads_per_sm: int = 2_048
    blocks_per_sm: int = 32
    drain_spread: float = 0.0

    def n_waves(self, work: Work | Collective) -> int:
        """How many waves a kernel runs in; 1 if all its blocks fit at once."""
        if not self.n_sms or isinstance(work, Collective) or not work.n_blocks:
            return 1
        return -(-work.n_blocks // (self.n_sms * self.resident_blocks(work)))

    def resident_blocks(self, work: Work) -> int:
        """How many blocks of a kernel run at once on a multiprocessor."""
        return max(min(self.blocks_per_sm, self.threads_per_sm // max(work.n_threads, 1)), 1)


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
        Of all that is random.
    before : tuple of Action
        What the main thread does before the capture begins. It is not recorded, nor is the device
        work that it launches, however long that runs.
    sync_calls : bool
        Whether ``cudaEventRecord`` and ``cudaStreamWaitEvent`` are recorded.
    geometry : bool
        Whether grids and blocks are recorded and, of a device with known multiprocessors, how it is
        occupied.
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
    before: tuple[Action, ...] = ()
    sync_calls: bool = True
    geometry: bool = True

    @property
    def properties(self) -> DeviceProperties:
        """The device as a file describes it: an H100 in what the machine leaves open."""
        return DeviceProperties(
            self.device,
            "Simulated GPU",
            self.machine.n_sms or _USUAL_SMS,
            _WARP,
            self.machine.threads_per_sm,
            registers_per_sm=_REGISTERS_PER_SM,
            shared_memory_per_sm=_SHARED_MEMORY_PER_SM,
            memory_bytes=_MEMORY_BYTES,
            compute_major=9,
            compute_minor=0,
        )


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
