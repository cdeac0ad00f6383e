"""Which line of Python code a host thread runs, if stacks were recorded.

Frames nest like operators. Users can change their own code, so the line is the call under way in
the innermost frame of user code. Newer profilers record the line of each call (``CallFrom``); else
the frame itself is named, by the line where its function begins::

    train.py(9): <module>     [                                   ]
    train.py(4): hook            [              ]                     CallFrom torch/…/graph.py:7
    <built-in function sleep>       [        ]                        CallFrom train.py:5
                              m  h  5        h'         m'            train.py:5 in hook
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from htagraph.arrays.ancestors import nearest
from htagraph.arrays.codes import gather
from htagraph.arrays.intervals import check_tiling
from htagraph.arrays.matching import cut_at
from htagraph.arrays.nesting import nest
from htagraph.lookup.waiting_code import FIRST_WAIT, wait_kinds
from htagraph.model.arrays import I8, I64, Bools, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.names import FRAME
from htagraph.model.recording import SAMPLED

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
