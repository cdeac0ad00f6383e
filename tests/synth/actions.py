"""Actions of a host thread: it spends time, enqueues device work, waits, calls other threads."""

from __future__ import annotations

from dataclasses import dataclass

from htagraph.model.kinds import EventKind
from tests.synth.work import Collective, Graph, Work


@dataclass(frozen=True)
class Spend:
    """Host time that the profiler does not record by itself."""

    dur_ns: int


@dataclass(frozen=True)
class Op:
    """A host operator, as long as what is in it."""

    name: str
    body: tuple[Action, ...] = ()
    sequence: int = -1
    is_backward: bool = False


@dataclass(frozen=True)
class Annotation:
    """A host range named by the user or the framework, as long as what is in it."""

    name: str
    body: tuple[Action, ...] = ()


@dataclass(frozen=True)
class Call:
    """A call of the device runtime that neither launches nor waits."""

    name: str
    cost_ns: int


@dataclass(frozen=True)
class Launch:
    """A call that enqueues device work."""

    work: Work | Collective | tuple[Work, ...]
    stream: int = 7
    cost_ns: int = 4_500
    is_blocking: bool = False
    staged_ns: int = 0
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
class Replay:
    """A call that enqueues a graph, whose nodes run on several streams.

    The graph runs after all that was enqueued on the stream of the call, and what is enqueued there
    later runs after the graph.
    """

    graph: Graph
    stream: int = 7
    cost_ns: int = 9_000
    call: str = "cudaGraphLaunch"


@dataclass(frozen=True)
class Record:
    """``cudaEventRecord``: it happens when all work of the stream so far has ended."""

    event: str
    stream: int = 7
    cost_ns: int = 900


@dataclass(frozen=True)
class StreamWait:
    """``cudaStreamWaitEvent``: work enqueued on the stream later starts after the event."""

    event: str
    stream: int
    cost_ns: int = 800


@dataclass(frozen=True)
class Synchronize:
    """The host waits for an event, for a stream, or for the device if neither is given."""

    stream: int | None = None
    event: str | None = None


@dataclass(frozen=True)
class Poll:
    """The host spins, without a recorded call, until work that it launched has come to a point."""

    stream: int = 7
    before_ns: int = 0
    return_ns: int = 1_100


@dataclass(frozen=True)
class Free:
    """Memory is given back (``cudaFree``), which waits for all work of the device first."""

    cost_ns: int = 90_000


@dataclass(frozen=True)
class Reclaim:
    """An allocator without memory waits for work without a recorded call, to free it."""

    streams: tuple[int, ...] = (7,)
    return_ns: int = 40_000


@dataclass(frozen=True)
class Receive:
    """The thread is idle until a request arrives from outside of the program."""

    after_ns: int


@dataclass(frozen=True)
class HandOver:
    """The host thread blocks while another thread works for it, as in ``loss.backward()``.

    It does so outside of any operator.
    """

    body: tuple[Action, ...]
    thread: int = 2
    wake_ns: int = 21_300
    thread_name: str = ""


@dataclass(frozen=True)
class Delegate:
    """The host thread gives another thread something to do, and goes on at once.

    The other thread takes what it is given in order, each when it is done with the one before.
    """

    body: tuple[Action, ...]
    thread: int = 3
    wake_ns: int = 12_700
    thread_name: str = ""


Action = (
    Spend
    | Op
    | Annotation
    | Call
    | Launch
    | Replay
    | Record
    | StreamWait
    | Synchronize
    | Poll
    | Free
    | Reclaim
    | Receive
    | HandOver
    | Delegate
)
