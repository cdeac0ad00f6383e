"""What calls mean, by name: of CUDA, HIP, MTIA and others, and of the operating system.

Whether a call launched work is decided by correlation ids, not here; `KERNEL_LAUNCH` only says
which calls should have.
"""

from __future__ import annotations

import re
from enum import IntEnum, unique

import numpy as np

from htagraph.model.arrays import I8
from htagraph.model.events import EventTable
from htagraph.model.kinds import EventKind

ALLOCATION = re.compile(
    r"^(cuda|hip|cu)_?(Malloc|Free|HostAlloc|HostFree|HostRegister|HostUnregister"
    r"|Mem(Alloc|Free|Create|Map|Unmap))"
)
"""Calls that allocate memory, or give it back."""

ALLOCATOR_WALK_NS = 200_000
"""An allocator that is out of memory walks its blocks within this time: before it frees, between
frees, and before it allocates again. Measured: 15 to 91 us in 11 retries of torchrec on V100.
Pinned by `test_memory_frees.py::test_an_allocator_does_nothing_else_between`."""

KERNEL_LAUNCH = re.compile(
    r"^(cuda|hip|cu)\w*(Launch(Cooperative)?Kernel(?!.*MultiDevice)|GraphLaunch)"
    r"|^(urEnqueueKernelLaunch|zeCommandListAppendLaunch\w*Kernel)"
)
"""Calls that launch a kernel or a graph. Calls that copy or fill are not among them: of no bytes,
they launch nothing."""

GRAPH_LAUNCH = re.compile(r"^(cuda|cu|hip)GraphLaunch")
"""Calls that launch a captured graph."""

CAPTURE_BEGINS = re.compile(r"^(cuda|hip|cu)StreamBeginCapture")
CAPTURE_ENDS = re.compile(r"^(cuda|hip|cu)StreamEndCapture")
"""Calls around launches that are captured as a graph, instead of being run."""


@unique
class CallMeaning(IntEnum):
    """What the caller of an API call waits for, or makes others wait for."""

    NONE = 0
    DEVICE_SYNC = 1  #: everything enqueued on the device
    STREAM_SYNC = 2  #: everything enqueued on one stream
    EVENT_SYNC = 3  #: what was enqueued before an event record
    COPY = 4  #: may wait for its own copy
    EVENT_RECORD = 5
    STREAM_WAIT = 6  #: makes a stream wait for an event
    FREE = 7  #: returns memory, and may have to wait for the device first
    ELAPSED_TIME = 8  #: fails unless two event records have completed; does not wait itself
    THREAD_WAIT = 9  #: what is no device work: another thread, a lock, a file, time


WAITING_CALLS = (
    CallMeaning.DEVICE_SYNC,
    CallMeaning.STREAM_SYNC,
    CallMeaning.EVENT_SYNC,
    CallMeaning.COPY,
)
"""Meanings of calls whose caller waits for device work."""

OS_CALLS = "os_runtime"
"""Category of calls of the operating system's libraries."""

POLLS = re.compile(r"^(cuda|hip|cu)(Event|Stream)Query")
"""Calls that ask whether work is done; how often a host asks depends on its own speed."""

_OS_WAITS = (
    r"^pthread_(cond_(timed|clock)?wait|barrier_wait|(mutex|rwlock|spin)_\w*lock\w*)$"
    r"|^pthread_(timed|try|clock)?join\w*$"
    r"|^(sem_(timed|clock)?wait|futex|p?poll|p?select|epoll_p?wait2?|accept4?)$"
    r"|^(sig(timed)?wait(info)?|wait(pid|id|[34])?|(u|nano|clock_nano)?sleep)$"
)

_MEANINGS = (
    (CallMeaning.STREAM_WAIT, r"^(cuda|hip|cu)StreamWait(Event|Value)"),
    (CallMeaning.EVENT_RECORD, r"^(cuda|hip|cu)EventRecord"),
    (CallMeaning.EVENT_SYNC, r"^(cuda|hip|cu)EventSynchronize"),
    (CallMeaning.STREAM_SYNC, r"^(cuda|hip|cu)StreamSynchronize"),
    (CallMeaning.STREAM_SYNC, r"^(zeCommandQueueSynchronize|urQueueFinish|synchronize(Stream)?$)"),
    (CallMeaning.DEVICE_SYNC, r"^(cudaDevice|cudaThread|hipDevice|cuCtx|hipCtx)Synchronize"),
    (
        CallMeaning.FREE,
        r"^(cuda|hip)(Free|FreeHost|HostFree|HostUnregister)(_v\d+)?$|^cuMemFree(_v\d+)?$",
    ),
    (CallMeaning.COPY, r"^(cuda|hip|cu)Memcpy"),
    (CallMeaning.ELAPSED_TIME, r"^(cuda|hip|cu)EventElapsedTime"),
    (CallMeaning.THREAD_WAIT, _OS_WAITS),
)


def meaning_of_call(name: str) -> CallMeaning:
    """Meaning of a call with this name."""
    found = (meaning for meaning, pattern in _MEANINGS if re.search(pattern, name))
    return next(found, CallMeaning.NONE)


def meanings_by_name(events: EventTable) -> I8:
    """Meaning of a call by its name; shape (n_symbols,)."""
    by_name = np.zeros(len(events.symbols), dtype=np.int8)
    for meaning, pattern in reversed(_MEANINGS):
        by_name[events.symbols.searched(pattern)] = meaning
    return by_name


def call_meanings(events: EventTable) -> I8:
    """Meaning of each event, `CallMeaning.NONE` if it is not a runtime call; dtype int8."""
    by_name = meanings_by_name(events)
    meanings = by_name[events.name] if len(events.symbols) else np.zeros(len(events), dtype=np.int8)
    meanings[events.kind != EventKind.RUNTIME] = CallMeaning.NONE
    return meanings
