"""Which line of Python code a host thread runs, if stacks were recorded, and what it waits for.

Frames nest like operators. Users can change their own code, so the line is the call under way in
the innermost frame of user code. Newer profilers record the line of each call (``CallFrom``); else
the frame itself is named, by the line where its function begins::

    train.py(9): <module>     [                                   ]
    train.py(4): hook            [              ]                     CallFrom torch/…/graph.py:7
    <built-in function sleep>       [        ]                        CallFrom train.py:5
                              m  h  5        h'         m'            train.py:5 in hook

Frames of C code say what a call does, and so does the function of the standard library that the
user called: a future's ``result`` acquires a lock. Samples know the CPU clock of their thread, so
what computes does not count. A call that is not known may wait for a CPU, which tells nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from htagraph.arrays.ancestors import highest, nearest
from htagraph.arrays.codes import gather, ranges
from htagraph.arrays.intervals import check_tiling
from htagraph.arrays.matching import cut_at
from htagraph.arrays.nesting import nest
from htagraph.model.arrays import F64, I8, I64, Bools, Rows, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.names import FRAME, function_and_place
from htagraph.model.recording import SAMPLED

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


_NOT_CODE = re.compile(r"^<|^nn\.Module: ")
"""Builtin functions and modules have no file."""

_LIBRARY = re.compile(
    r"(^|[/\\])(site-packages|dist-packages|lib[/\\]python\d[\d.]*)[/\\]|^<"
    r"|^(torch\w*|functorch|triton|numpy|pandas|PIL|scipy)[/\\]"
)
_PART = re.compile(r"(?:: |\.)<(lambda|listcomp|dictcomp|setcomp|genexpr)>$")
"""Frames within a function, by their names from Python 3.11 on or before."""
_STANDARD = re.compile(
    rf"^({'|'.join(sorted(map(re.escape, sys.stdlib_module_names)))})([/\\]|\.py\()"
)
"""Files of the standard library: the profiler strips the folder of ``sys.path``."""

_NONE, FRAME_ITSELF, _CALL, _AFTER_CALL = range(4)


class CodePieces(NamedTuple):
    """Parts of stretches of host time in which one line runs; they tile the stretches."""

    stretch: I64  # Row of the stretch of each piece
    start_ns: I64
    end_ns: I64
    line: Texts  # ``train.py:5 in hook``; empty if unknown
    topic: I8  # Topic of the innermost frame that has one, -1 for none


def _up(parent: I64, stop: Bools) -> tuple[I64, I64]:
    """First of each frame and its ancestors where `stop` holds, -1 for none; the one below it."""
    at, below = np.arange(len(parent)), np.full(len(parent), -1, dtype=np.int64)
    going = np.flatnonzero(~stop)
    while len(going):
        below[going] = at[going]
        at[going] = parent[at[going]]
        going = going[at[going] >= 0]
        going = going[~stop[at[going]]]
    return at, below


def user_code(dag: Dag) -> tuple[Bools, Bools]:
    """By symbol: whether it is a frame of user code, and whether it is a part of a function.

    User code is of a file, and not of a library. Comprehensions and lambdas are parts of the
    function around them.
    """
    searched = dag.events.symbols.searched
    is_user = searched(FRAME) & ~(searched(_LIBRARY) | searched(_STANDARD))
    return is_user, is_user & searched(_PART)


def functions_of(dag: Dag, event: I64, parent: I64) -> I64:
    """Symbol of the innermost function of user code that is or encloses each event, -1 for none.

    `parent`: position of what encloses each of the events, -1 for none.
    """
    (is_user, is_part), every = user_code(dag), np.arange(len(event))
    name = np.where(dag.events.kind[event] == EventKind.PYTHON, dag.events.name[event], -1)
    whole, any_part = (
        nearest(parent, every, gather(mask, name, default=False))
        for mask in (is_user & ~is_part, is_user)
    )
    return gather(name.astype(np.int64), np.where(whole >= 0, whole, any_part))


def _frames(
    dag: Dag, event: I64, parent: I64, topics: Mapping[int, re.Pattern[str]]
) -> tuple[I64, I64, Bools, I64]:
    """Of each frame: what names its code, the call under way, whether it is the user's; topics.

    The innermost function of user code names all that it calls.
    """
    name, searched = dag.events.name[event], dag.events.symbols.searched
    is_user, is_part = (mask[name] for mask in user_code(dag))
    is_whole = is_user & ~is_part
    is_user = is_whole | (is_part & (_up(parent, is_whole)[0] < 0))
    user, call = _up(parent, is_user)
    known, _ = _up(parent, ~searched(_NOT_CODE)[name])
    named = np.where(user >= 0, user, np.where(known >= 0, known, np.arange(len(event))))
    topic = np.full(len(event), -1, dtype=np.int64)
    for number, pattern in topics.items():
        topic[searched(pattern)[name]] = number
    about, _ = _up(parent, topic >= 0)
    topic = gather(topic, about)
    if topics:
        waits = wait_kinds(dag, event, parent, is_user)
        topic = np.where((topic < 0) & (waits >= 0), FIRST_WAIT + waits, topic)
    return named, np.where(user >= 0, call, -1), is_user, topic


def _text(frame: str, call_from: str, how: int) -> str:
    """The line as text: ``train.py:5 in hook``."""
    parts = FRAME.match(frame)
    file, _, line = call_from.rpartition(":")
    if parts is None or how == FRAME_ITSELF or not file or file != parts["file"]:
        return frame
    within = "" if parts["function"] == "<module>" else f" in {parts['function']}"
    return f"{file}{within}, after line {line}" if how == _AFTER_CALL else f"{call_from}{within}"


def _lines(dag: Dag, named: I64, call: I64, how: I64) -> Texts:
    """Text of each combination of a frame, the call under way, and how they combine."""
    events = dag.events
    called = events.column("call_from")
    name = gather(events.name, named).astype(np.int64)
    line = np.where(call >= 0, called[call], -1).astype(np.int64)
    n, texts = len(events.symbols) + 1, events.symbols.texts
    key = ((name + 1) * n + line + 1) * (_AFTER_CALL + 1) + how  # sorts faster than rows do
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    out = [
        "" if way == _NONE else _text(texts[frame], texts[at] if at >= 0 else "", way)
        for frame, at, way in np.stack([name, line, how])[:, first].T.tolist()
    ]
    return np.array([*out, ""], dtype=object)[which]


def code_pieces(
    dag: Dag, stretches: tuple[I64, I64, I64, I64], topics: Mapping[int, re.Pattern[str]]
) -> CodePieces:
    """Stretches of host time, cut where another line of Python code begins to run.

    `stretches`: lane, start, end, and the operator or call around each, -1 for none; none begins or
    ends within. A frame around it called it: the time is the operator's, not the frame's. `topics`:
    names of frames that tell what all code below them does, by number.
    """
    events, (lane, start_ns, end_ns, op) = dag.events, stretches
    event = np.flatnonzero(events.kind == EventKind.PYTHON)
    found = nest(events.lane[event], events.ts_ns[event], events.end_ns[event])
    parent = found.parent.astype(np.int64)
    named, under_way, is_user, topics_of = _frames(dag, event, parent, topics)
    owner = event[found.boundary >> 1]
    time = events.node_ts_ns[2 * owner + (found.boundary & 1)]
    bounds = events.lane[owner].astype(np.int64), time
    stretch, row, start, end = cut_at(bounds, lane, start_ns, end_ns)
    innermost = gather(found.innermost, row)
    frame, caller = gather(event, innermost), op[stretch]
    encloses = (caller >= 0) & (
        (events.ts_ns[frame] < events.ts_ns[caller])
        | (events.end_ns[frame] > events.end_ns[caller])
        | (events.dur_ns[frame] == events.dur_ns[caller])
    )
    # A frame of user code that calls nothing right now is after the call that it made last.
    before = gather(found.boundary, row)
    returned = (before >= 0) & ((before & 1) == 1)
    returned &= gather(found.parent, before >> 1, -2) == innermost
    # Samples miss short calls, so the last one that they saw need not be the last one.
    sampled = events.category[event] == events.symbols.code(SAMPLED)
    returned &= ~gather(sampled, innermost, False)
    own = gather(is_user, innermost, False)
    call = np.where(own, np.where(returned, before >> 1, -1), gather(under_way, innermost))
    how = np.where(own, np.where(returned, _AFTER_CALL, FRAME_ITSELF), _CALL)
    how = np.where((innermost < 0) | encloses, _NONE, how)
    line = _lines(dag, gather(event, gather(named, innermost)), gather(event, call), how)
    topic = gather(topics_of, innermost).astype(np.int8)
    topic[encloses & (topic >= FIRST_WAIT)] = -1
    same = (line[1:] == line[:-1]) & (topic[1:] == topic[:-1]) & (stretch[1:] == stretch[:-1])
    kept = np.flatnonzero(np.append(True, ~same)[: len(stretch)])
    until = end[np.append(kept[1:], len(stretch))[: len(kept)] - 1]
    check_tiling("Python code", start[kept], until, (start_ns, end_ns), stretch[kept])
    return CodePieces(stretch[kept], start[kept], until, line[kept], topic[kept])
