"""Device work of a program: kernels, copies, collectives, and graphs of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from htagraph.model.kinds import EventKind

_KINDS = {"Memcpy": EventKind.MEMCPY, "Memset": EventKind.MEMSET}
"""Kinds of device work by how its name begins; all else is kernels."""


@dataclass(frozen=True)
class Work:
    """Work on a stream: a kernel, copy or fill."""

    name: str
    dur_ns: int
    n_bytes: int = 0
    n_blocks: int = 0
    n_threads: int = 0

    @property
    def kind(self) -> EventKind:
        """Kind of the device event."""
        return _KINDS.get(self.name[:6], EventKind.KERNEL)


@dataclass(frozen=True)
class Group:
    """Ranks that communicate: a process group."""

    name: str = "0"
    ranks: tuple[int, ...] = (0,)
    description: str = "default_pg"


@dataclass(frozen=True)
class Collective:
    """A communication kernel, which ends `dur_ns` after those it waits for have started."""

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
class GraphNode:
    """A piece of work in a graph."""

    work: Work | Collective
    stream: int = 7
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Graph:
    """Work that is launched as a whole, again and again (a CUDA graph)."""

    nodes: tuple[GraphNode, ...]
    id: int = 1
    records_nodes: bool = True
