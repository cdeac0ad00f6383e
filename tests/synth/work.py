"""Device work of a program: kernels, copies, collectives, and graphs of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from htagraph.model.kinds import EventKind

__all__ = ["Collective", "Graph", "GraphNode", "Group", "Work"]

_KINDS = {"Memcpy": EventKind.MEMCPY, "Memset": EventKind.MEMSET}
"""Kinds of device work by how its name begins; all else is kernels."""


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
        return _KINDS.get(self.name[:6], EventKind.KERNEL)


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
class GraphNode:
    """A piece of work in a graph.

    Parameters
    ----------
    work : Work or Collective
    stream : int
        That it runs on in every replay; nodes of one stream run in their order.
    after : tuple of int
        Positions of earlier nodes, of any stream, that must have ended.
    """

    work: Work | Collective
    stream: int = 7
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Graph:
    """Work that is launched as a whole, again and again (a CUDA graph).

    Parameters
    ----------
    nodes : tuple of GraphNode
        Each after those that it waits for.
    id : int
        As in ``graph id``.
    records_nodes : bool
        Whether a trace names graph and node of its work. Many do not.
    """

    nodes: tuple[GraphNode, ...]
    id: int = 1
    records_nodes: bool = True
