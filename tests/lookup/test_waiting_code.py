"""Waits of Python code: for what, and which function of another thread runs meanwhile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import htagraph as hg
from htagraph.model.events import SparseColumn
from htagraph.model.kinds import EventKind
from htagraph.synth import timeline

OPERATORS = "mm"
LEAF = "<built-in method acquire of _thread.lock object at 0x7f>"
RESULT = "concurrent/futures/_base.py(428): result"

WAIT = """
    cpu 1    |[mm    ]                                                  [mm    ]
    cpu 1    |        [user                                            ]
    cpu 1    |         [library                                       ]
    cpu 1    |          [leaf                                        ]
"""
OTHER = """
    cpu 2    |[thread                                                          ]
    cpu 2    |   [started                                          ]
    cpu 2    |    [helper       ]    [helper                      ]
"""
NAMES = {
    "user": "train.py(9): step",
    "library": "contextlib.py(5): inner",
    "leaf": LEAF,
    "thread": "concurrent/futures/thread.py(81): _worker",
    "started": "data.py(3): extract",
    "helper": "data.py(8): decode",
}


def evidence(drawing: str, cpu_share: float | None = None, column_us: int = 1_000, **names: str):
    """Contributors of Python waits, with their ms, and advice; empty if nothing waits.

    All but operators are frames; with a share of CPU time, they were sampled once a column.
    """
    drawn = {box: name for box, name in (NAMES | names).items() if f"[{box}" in drawing}
    events = timeline(drawing, names=drawn, us_per_column=column_us)
    kind = np.where(events.names() == OPERATORS, EventKind.OP, EventKind.PYTHON)
    frames = np.flatnonzero(kind == EventKind.PYTHON)
    columns = dict(events.columns)
    if cpu_share is not None:
        own = events.dur_ns[frames]
        columns["cpu_ns"] = SparseColumn(frames, (own * cpu_share).astype(np.int64))
        columns["n_samples"] = SparseColumn(frames, own // 1_000_000)
    events = replace(events, kind=kind.astype(np.int8), columns=columns)
    found = hg.Trace.from_events(events).compile().window("trace").verdict().findings
    waits = [one for one in found if one.cause == "Python waits"]
    labels = [f"{one.label} {one.dur_ns / 1e6:g} ms" for each in waits for one in each.evidence]
    return labels, "".join(one.fix.do for one in waits)


@pytest.mark.parametrize(
    ("library", "leaf", "does"),
    [
        (RESULT, LEAF, "waits for a pool"),
        ("lib/python3.11/concurrent/futures/_base.py(428): Future.result", "<w.acquire>", "a pool"),
        ("queue.py(154): get", LEAF, "waits for a queue"),
        ("threading.py(611): wait", LEAF, "waits for another thread"),
        ("lib/python3.11/threading.py(1080): Thread.join", "<lock.acquire>", "another thread"),
        ("contextlib.py(5): inner", LEAF, "waits for a lock"),
        ("contextlib.py(5): inner", "<with self._lock>", "waits for a lock"),
        ("contextlib.py(5): inner", "<time.sleep>", "sleeps"),
        ("contextlib.py(5): inner", "<built-in function sleep>", "sleeps"),
        (
            "subprocess.py(506): run",
            "<built-in method poll of select.poll object at 0x7f>",
            "process",
        ),
        ("http/client.py(1342): getresponse", "<self._sock.recv_into>", "waits for a server"),
        ("asyncio/base_events.py(593): run_forever", "<self._selector.poll>", "the event loop"),
        ("selectors.py(402): select", "<built-in function select>", "a socket or pipe"),
        ("contextlib.py(5): inner", "<built-in method recv of socket object at 0x7f>", "a socket"),
        ("contextlib.py(5): inner", "<built-in function fsync>", "waits for a file"),
    ],
)
def test_frames_say_what_user_code_waits_for(library: str, leaf: str, does: str) -> None:
    """The function of the standard library that it called, else what C code does."""
    labels, _ = evidence(WAIT, library=library, leaf=leaf)

    assert len(labels) == 1
    assert labels[0].startswith("train.py(9): step ")
    assert labels[0].endswith(f"{does} 46 ms") or f"{does} or pipe 46 ms" in labels[0]


@pytest.mark.parametrize(
    "leaf",
    [
        "<built-in method select of type object at 0x7f>",
        "<built-in method read of _io.TextIOWrapper object at 0x7f>",
        "<built-in method put of _queue.SimpleQueue object at 0x7f>",
        "<built-in function loads>",
    ],
)
def test_other_calls_are_code(leaf: str) -> None:
    """`torch.select`; a file may be read from memory; nothing ever waits to put."""
    assert evidence(WAIT, leaf=leaf) == ([], "")


@pytest.mark.parametrize(
    ("library", "leaf", "cpu_share", "n_waits"),
    [
        (RESULT, "<waiter.acquire>", 0.0, 1),
        (RESULT, "<waiter.acquire>", 0.31, 0),
        ("contextlib.py(5): inner", "<f.read>", 0.29, 1),
        ("contextlib.py(5): inner", "<f.read>", 0.31, 0),
        ("subprocess.py(2014): Popen._wait", "<f>", 0.09, 1),
        ("subprocess.py(2014): Popen._wait", "<f>", 0.11, 0),
        ("contextlib.py(5): inner", "<torch.mm>", 0.0, 0),
    ],
)
def test_samples_tell_by_the_cpu_clock(
    library: str, leaf: str, cpu_share: float, n_waits: int
) -> None:
    """Known calls may compute a little, libraries hardly; others may be without a CPU."""
    assert len(evidence(WAIT, cpu_share, library=library, leaf=leaf)[0]) == n_waits


def test_a_few_samples_do_not_tell_that_a_library_waits() -> None:
    """Nine of them may all have been without a CPU."""
    drawing = """
        cpu 1    |[mm    ]           [mm    ]
        cpu 1    |        [user     ]
        cpu 1    |         [library]
        cpu 1    |          [leaf ]
    """
    names = {"library": "subprocess.py(2014): Popen._wait", "leaf": "<f>"}

    assert evidence(drawing, 0.0, **names) == ([], "")
    assert len(evidence(drawing, 0.0, 2_000, **names)[0]) == 1


def test_a_call_that_is_short_found_the_lock_free() -> None:
    """It takes 92 us, or 138 us: a thread takes 100 us to wake up."""
    assert evidence(WAIT, column_us=2) == ([], "")
    assert len(evidence(WAIT, column_us=3)[0]) == 1


def test_the_outermost_function_of_a_busy_thread_is_what_is_waited_for() -> None:
    """The pool runs `extract` for 40 of 46 ms; its worker is a library, `decode` what it calls."""
    labels, advice = evidence(WAIT + OTHER, library=RESULT)

    assert labels == ["train.py(9): step waits for a pool, which runs extract (data.py:3) 46 ms"]
    assert advice.startswith("Make extract (data.py:3) cheaper")


def test_a_thread_that_waits_itself_is_not_what_is_waited_for() -> None:
    """It takes work from a queue: the wait is for something else."""
    idle = """
        cpu 2    |[started                                                         ]
        cpu 2    | [queue                                                         ]
        cpu 2    |  [taking                                                      ]
    """
    names = {"queue": "queue.py(154): get", "taking": LEAF}

    assert evidence(WAIT + idle, library=RESULT, **names) == (
        ["train.py(9): step waits for a pool 46 ms"],
        "Start what it waits for earlier, or do other work until it is done.",
    )


def test_a_thread_without_user_code_is_idle() -> None:
    """A worker that waits for work has the standard library on its stack only."""
    assert evidence(WAIT, user="threading.py(982): run", library=RESULT) == ([], "")
