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
    """The machine: latencies and limits of hardware and runtime."""

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
    """The program of one rank."""

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
    """A rank's clock: ``local = true + offset + drift * (true - start)``."""

    offset_ns: int = 0
    drift_ppb: int = 0

    def local_ns(self, true_ns: int, start_ns: int) -> int:
        """The time that the clock shows."""
        return true_ns + self.offset_ns + (true_ns - start_ns) * self.drift_ppb // 1_000_000_000


@dataclass(frozen=True)
class JobProgram:
    """The programs of the ranks of a job, and its planted straggler."""

    ranks: tuple[Program, ...]
    clocks: tuple[Clock, ...] = field(default=())
    culprit: int = -1
