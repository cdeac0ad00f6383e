"""Actions of a host thread: it spends time, enqueues device work, waits, calls other threads."""

from __future__ import annotations

from dataclasses import dataclass

from htagraph.model.kinds import EventKind
from tests.synth.work import Collective, Graph, Work

__all__ = [
    "Action",
    "Annotation",
    "Call",
    "Delegate",
    "Free",
    "HandOver",
    "Launch",
    "Op",
    "Poll",
    "Receive",
    "Reclaim",
    "Record",
    "Replay",
    "Spend",
    "StreamWait",
    "Synchronize",
]


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
    staged_ns : int, unit=ns
        A call that blocks returns this long before the end: the last part of a copy is staged.
    call : str
        Name of the call; by the kind of work if empty.
    """

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

    Parameters
    ----------
    graph : Graph
    stream : int
        Of the call.
    cost_ns : int, unit=ns
    call : str
    """

    graph: Graph
    stream: int = 7
    cost_ns: int = 9_000
    call: str = "cudaGraphLaunch"


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
class Poll:
    """The host spins, without a recorded call, until work that it launched has come to a point.

    Parameters
    ----------
    stream : int
        The last work enqueued there so far is waited for.
    before_ns : int, unit=ns
        The point lies this long before the end of the work: a kernel writes a flag, and goes on.
    return_ns : int, unit=ns
        From the point to when the host sees it.
    """

    stream: int = 7
    before_ns: int = 0
    return_ns: int = 1_100


@dataclass(frozen=True)
class Free:
    """Memory is given back (``cudaFree``), which waits for all work of the device first.

    Parameters
    ----------
    cost_ns : int, unit=ns
        After that.
    """

    cost_ns: int = 90_000


@dataclass(frozen=True)
class Reclaim:
    """An allocator that is out of memory waits for work without a recorded call, to free after it.

    Parameters
    ----------
    streams : tuple of int
        They used the memory: the last work enqueued on each so far is waited for.
    return_ns : int, unit=ns
        From the end of that work to when the allocator frees.
    """

    streams: tuple[int, ...] = (7,)
    return_ns: int = 40_000


@dataclass(frozen=True)
class Receive:
    """The thread is idle until a request arrives from outside of the program.

    Parameters
    ----------
    after_ns : int, unit=ns
    """

    after_ns: int


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
    thread_name : str
        Of the other thread, as the trace has it: ``pt_autograd_0``.
    """

    body: tuple[Action, ...]
    thread: int = 2
    wake_ns: int = 21_300
    thread_name: str = ""


@dataclass(frozen=True)
class Delegate:
    """The host thread gives another thread something to do, and goes on at once.

    The other thread takes what it is given in order, each when it is done with the one before.

    Parameters
    ----------
    body : tuple of Action
        What the other thread runs.
    thread : int
        Number of the other thread; the main thread is 1. No `HandOver` goes to the same one.
    wake_ns : int, unit=ns
        Until the other thread begins, if it is idle.
    thread_name : str
        Of the other thread, as the trace has it: ``pt_data_pin``.
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
