"""Which Python code waits, for what, and for which code of other threads.

Frames of C code say what a call does, and so does the function of the standard library that the
user called: a future's ``result`` acquires a lock. Samples know the CPU clock of their thread, so
what computes does not count. A call that is not known may wait for a CPU, which tells nothing.
"""

from __future__ import annotations

import numpy as np

from htagraph.arrays.ancestors import highest, nearest
from htagraph.arrays.codes import gather, ranges
from htagraph.arrays.nesting import nest
from htagraph.model.arrays import F64, I64, Bools, Rows, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.names import function_and_place

FIRST_WAIT = 64
"""Topics of code from here on are waits: their place in `WAITS` is the rest."""

WAITS = {
    "waits for a pool": (
        "concurrent/futures/_base.py:(result|exception|wait|as_completed)$"
        "|multiprocessing/pool.py:(get|wait|next|map|starmap|apply)$"
    ),
    "waits for a queue": (
        "(^|/)queue.py:(get|put|join)$|multiprocessing/queues.py:(get|put)$"
        r"|^<built-in method get of _queue\."
    ),
    "waits for another thread": "(^|/)threading.py:(wait|wait_for|join)$",
    "waits for a lock": (
        r"^<built-in method acquire of _thread|^<([\w.]+\.)?acquire>$|^<with [\w.]*(?i:lock|cond)"
    ),
    "waits for another process": (
        r"(^|/)subprocess.py:|multiprocessing/(process|popen_\w+|connection).py:"
        r"|^<(built-in function |os\.|_)(fork|fork_exec|waitpid|wait4|posix_spawn)>$"
    ),
    "waits for a server": "(^|/)(http/client|smtplib|ftplib|urllib/request|xmlrpc/client).py:",
    "waits for the event loop": r"(^|/)asyncio/\w+.py:",
    "sleeps": r"^<(built-in function |time\.)?sleep>$",
    "waits for a socket or pipe": (
        "(^|/)(socket|ssl|selectors).py:"
        r"|^<built-in (function select>|method (poll of select\.|\w+ of \S*[sS]ocket ))"
        r"|^<[\w.]+\.(e?poll|select|recv\w*|_?accept|connect|sendall)>$"
    ),
    "waits for a file": (
        r"^<built-in function f(data)?sync>$|^<([\w.]+\.)?(read\w*|write\w*|flush|f(data)?sync)>$"
    ),
}
"""What code does, by the names of frames of Kineto and of samples: functions of the standard
library that it called (``.py:`` stands for line and class), and calls of C code, which begin with
``<``. The outermost function counts before the call."""
_FOR_THREADS = 4
"""So many of these wait for other threads, which are idle themselves while they do."""

_LEAST_NS = 100_000
"""Shorter calls did not wait: a thread takes about as long to wake up. Chosen. Pinned, as the rest,
by tests/lookup/test_waiting_code.py."""
_WAITS, _MAY_WAIT = 0.1, 0.3
"""Largest shares of CPU time of a library that waits, and of a call that is known to. Measured:
pools, queues 0%, polls 2%, HTTP 4%, files 20%; code 45% and more on a machine with too many
processes."""
_FEWEST = 10
"""Samples from which on their CPU time counts: fewer may have been without a CPU. Chosen."""
_MOST = 0.5
"""Least share of a wait in which another thread runs what is waited for. Measured: 92% and more."""


def wait_kinds(dag: Dag, event: Rows, parent: I64, is_user: Bools) -> I64:
    """What each Python frame waits for while it is innermost, as position in `WAITS`, else -1.

    `event`: the frames. `parent`, `is_user`: position of the frame around each, and whether it is
    user code. A thread without user code is idle.
    """
    events, every = dag.events, np.arange(len(event))
    name, searched = events.name[event], events.symbols.searched
    kind, is_call = np.full(len(events.symbols), -1), searched("^<")
    for number, names in reversed(list(enumerate(WAITS.values()))):
        pattern = names.replace("/", r"[/\\]").replace(".py:", r"\.py\(\d+\): .*\b")
        kind[searched(pattern)] = number
    called, within = (np.where(one, kind, -1)[name] for one in (is_call, ~is_call))
    user = nearest(parent, every, is_user)
    outermost = highest(np.where(user == parent, -1, parent), every, within >= 0)
    waits = (called >= 0) & (events.dur_ns[event] >= _LEAST_NS)
    if "cpu_ns" in events.columns:
        share, is_known = _cpu_shares(dag, event, parent)
        waits &= (share <= _MAY_WAIT) & (is_known | (called < len(WAITS) - 1))
        waits |= is_known & (share <= _WAITS) & (outermost >= 0)
    found = np.where(outermost >= 0, gather(within, outermost), called)
    return np.where(waits & ~is_user & (user >= 0), found, -1)


def _cpu_shares(dag: Dag, event: Rows, parent: I64) -> tuple[F64, Bools]:
    """Share of CPU time of each frame, with all of its name and caller; whether it is known.

    Frames that were not sampled have no share.
    """
    events = dag.events
    name, cpu_ns = events.name[event].astype(np.int64), events.column("cpu_ns")[event]
    is_known = cpu_ns >= 0
    key = name * len(events.symbols) + gather(name, parent, 0)
    _, group = np.unique(key, return_inverse=True)
    cpu, dur, n = (
        np.bincount(group, np.where(is_known, values, 0))[group]
        for values in (cpu_ns, events.dur_ns[event], events.column("n_samples")[event])
    )
    return cpu / np.maximum(dur, 1), n >= _FEWEST


def awaited(dag: Dag, is_user: Bools, waits: tuple[I64, I64, I64], group: I64) -> Texts:
    """Function that another thread runs for most of the waits of each group, empty if none does.

    `is_user`: whether each symbol is user code. `waits`: lane, start and end, in order; they do not
    overlap. Of a thread, the outermost function of user code counts, as that is what was started;
    not while it waits for another thread itself.
    """
    events, (lane, start_ns, end_ns) = dag.events, waits
    event = np.flatnonzero(events.kind == EventKind.PYTHON)
    parent = nest(events.lane[event], events.ts_ns[event], events.end_ns[event]).parent
    is_frame = is_user[events.name[event]]
    kinds = wait_kinds(dag, event, parent.astype(np.int64), is_frame)
    called = is_frame & ~events.symbols.searched(r": <module>$")[events.name[event]]
    top = highest(parent, np.arange(len(event)), called)
    idle = (top >= 0) & (kinds >= 0) & (kinds < _FOR_THREADS)
    frame = np.concatenate([np.flatnonzero(top == np.arange(len(event))), np.flatnonzero(idle)])
    runs, of = event[frame], events.name[event[top[frame]]]
    first = np.searchsorted(end_ns, events.ts_ns[runs], side="right")
    n = np.maximum(np.searchsorted(start_ns, events.end_ns[runs]) - first, 0)
    at, row = ranges(first, n), np.repeat(np.arange(len(frame)), n)
    both_ns = np.minimum(end_ns[at], events.end_ns[runs[row]])
    both_ns -= np.maximum(start_ns[at], events.ts_ns[runs[row]])
    both_ns *= np.where(idle[frame[row]], -1, 1) * (lane[at] != events.lane[runs[row]])
    key, place = np.unique(group[at] * len(events.symbols) + of[row], return_inverse=True)
    run_ns = np.bincount(place, both_ns, len(key))
    of_group, name = np.divmod(key, len(events.symbols))
    said = np.full(int(group.max(initial=-1)) + 1, "", dtype=object)
    total_ns = np.bincount(group, end_ns - start_ns)
    for one in np.argsort(run_ns, kind="stable").tolist():
        if run_ns[one] >= _MOST * total_ns[of_group[one]]:
            function, where = function_and_place(events.symbols.texts[name[one]])
            said[of_group[one]] = f"{function} ({where})"
    return said
