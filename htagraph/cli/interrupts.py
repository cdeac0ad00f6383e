"""Ctrl-C and SIGTERM: whatever runs ends, in one line, and leaves no half file.

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
    "ends_at_once",
    "exit_code",
    "expected",
    "is_interrupted",
    "leave",
    "raises",
    "say",
]

_SAID = {signal.SIGINT: b"interrupted.\n", signal.SIGTERM: b"terminated.\n"}
"""What a signal does."""

_PATIENCE_S = 2.0
"""Time that an interrupt has to end the process as an exception."""

_CLEANING_S = 1.0
"""Time for the removal of temporary files where it did not."""

_CLEARED = b"\r\x1b[2K\x1b[?25h"
"""Clears the line of a terminal, and shows the cursor that a progress line has hidden."""

_heard: list[int] = []
"""Signals that came; the first is why the process ends."""

_said = threading.Lock()


def is_interrupted() -> bool:
    """Whether Ctrl-C was pressed, or the process told to end."""
    return bool(_heard)


def exit_code() -> int:
    """Exit code of what was interrupted, as shells expect it."""
    return 128 + _heard[0]


def say() -> None:
    """Say in one line that the command was interrupted; once."""
    if _said.acquire(blocking=False):
        with suppress(OSError):
            os.write(2, (_CLEARED if os.isatty(2) else b"") + _SAID[signal.Signals(_heard[0])])


def leave() -> NoReturn:
    """End the process, whatever its main thread does; temporary files go."""
    say()
    for process in active_children():
        with suppress(OSError, ValueError):
            process.kill()
    last = threading.Timer(_CLEANING_S, os._exit, (exit_code(),))
    last.daemon = True
    last.start()
    with suppress(Exception):
        atexit._run_exitfuncs()  # noqa: SLF001  nothing else runs them without the main thread
    os._exit(exit_code())


def ends_at_once() -> None:
    """End the process on a signal: extension modules would make an ImportError of theirs of it."""
    for number in _SAID:
        signal.signal(number, _end)


def _end(number: int, _frame: FrameType | None) -> None:
    """Say so and end."""
    _heard.append(number)
    say()
    os._exit(exit_code())


def raises() -> None:
    """Raise `KeyboardInterrupt` on a signal, and see to it that the process ends."""
    heard, told = socket.socketpair()
    told.setblocking(False)
    threading.Thread(target=_watch, args=(heard, told), daemon=True).start()
    for number in _SAID:
        signal.signal(number, _interrupt)
    signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)


def _watch(heard: socket.socket, _told: socket.socket) -> None:
    """Wait for the number of the signal, which comes even while machine code runs."""
    while (number := heard.recv(1)[0]) not in _SAID:
        pass
    time.sleep(_PATIENCE_S)
    _heard.append(number)
    leave()


def _interrupt(number: int, _frame: FrameType | None) -> None:
    """Interrupt the main thread, once; what else fails on the way out is of no interest."""
    _heard.append(number)
    if len(_heard) == 1:
        sys.excepthook = lambda *_: say()
        sys.unraisablehook = lambda _: None
        threading.excepthook = lambda _: None
        raise KeyboardInterrupt


@contextmanager
def expected() -> Iterator[None]:
    """Take a signal in the block as the usual end of it."""
    handlers = {number: signal.signal(number, signal.default_int_handler) for number in _SAID}
    told = signal.set_wakeup_fd(-1)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(told)
