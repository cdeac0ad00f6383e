"""Ctrl-C: whatever runs ends, in one line, with exit code 130, and leaves no half file.

An interrupt is an exception, so that what is being written is removed on the way out. It may get
lost where machine code calls back into Python, or wait where that does not return for long: a
thread that hears of the signal itself then ends the process.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import active_children
from types import FrameType
from typing import NoReturn

__all__ = [
    "INTERRUPTED",
    "ends_at_once",
    "expected",
    "is_interrupted",
    "leave",
    "raises",
    "say",
]

INTERRUPTED = 130
"""Exit code, as shells expect it."""

_PATIENCE_S = 2.0
"""Time that an interrupt has to end the process as an exception."""

_CLEANING_S = 1.0
"""Time for the removal of temporary files where it did not."""

_SAID = b"interrupted.\n"
_CLEARED = b"\r\x1b[2K\x1b[?25h"
"""Clears the line of a terminal, and shows the cursor that a progress line has hidden."""

_seen, _said = threading.Event(), threading.Lock()


def is_interrupted() -> bool:
    """Whether Ctrl-C was pressed."""
    return _seen.is_set()


def say() -> None:
    """Say in one line that the command was interrupted; once."""
    if _said.acquire(blocking=False):
        with suppress(OSError):
            os.write(2, (_CLEARED if os.isatty(2) else b"") + _SAID)


def leave() -> NoReturn:
    """End the process, whatever its main thread does; temporary files go."""
    say()
    for process in active_children():
        with suppress(OSError, ValueError):
            process.kill()
    last = threading.Timer(_CLEANING_S, os._exit, (INTERRUPTED,))
    last.daemon = True
    last.start()
    with suppress(Exception):
        atexit._run_exitfuncs()  # noqa: SLF001  nothing else runs them without the main thread
    os._exit(INTERRUPTED)


def ends_at_once() -> None:
    """End the process on Ctrl-C: extension modules would make an ImportError of theirs of it."""
    signal.signal(signal.SIGINT, _end)


def _end(_signal: int, _frame: FrameType | None) -> None:
    """Say so and end."""
    say()
    os._exit(INTERRUPTED)


def raises() -> None:
    """Raise `KeyboardInterrupt` on Ctrl-C, and see to it that the process ends."""
    heard, told = socket.socketpair()
    told.setblocking(False)
    threading.Thread(target=_watch, args=(heard, told), daemon=True).start()
    signal.signal(signal.SIGINT, _interrupt)
    signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)


def _watch(heard: socket.socket, _told: socket.socket) -> None:
    """Wait for the number of the signal, which comes even while machine code runs."""
    while heard.recv(1) != bytes([signal.SIGINT]):
        pass
    time.sleep(_PATIENCE_S)
    leave()


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """Interrupt the main thread, once; what else fails on the way out is of no interest."""
    if not _seen.is_set():
        _seen.set()
        sys.excepthook = lambda *_: say()
        sys.unraisablehook = lambda _: None
        threading.excepthook = lambda _: None
        raise KeyboardInterrupt


@contextmanager
def expected() -> Iterator[None]:
    """Take Ctrl-C in the block as the usual end of it."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    told = signal.set_wakeup_fd(-1)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.set_wakeup_fd(told)
