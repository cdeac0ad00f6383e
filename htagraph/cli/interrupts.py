"""Ctrl-C and SIGTERM: the command ends in one line, with no traceback and no half-written file."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

_MESSAGES = {signal.SIGINT: b"interrupted.\n", signal.SIGTERM: b"terminated.\n"}

_PATIENCE_S = 2.0
"""Chosen: how long threads, and code that swallows the exception, may delay the end."""

_CLEARED = b"\r\x1b[2K\x1b[?25h"
"""Clears the progress line of a terminal, and shows the cursor again."""

_heard: list[int] = []
_said = threading.Lock()


def is_interrupted() -> bool:
    """Whether a signal arrived."""
    return bool(_heard)


def exit_code() -> int:
    """Print once that the command was interrupted; return 130 or 143, as shells expect."""
    if _said.acquire(blocking=False):
        with suppress(OSError):
            text = _MESSAGES[signal.Signals(_heard[0])]
            os.write(2, (_CLEARED if os.isatty(2) else b"") + text)
    return 128 + _heard[0]


def end_at_once() -> None:
    """Let a signal end the process: an exception would become an ImportError while code loads."""
    for number in _MESSAGES:
        signal.signal(number, _leave)


def raise_interrupt() -> None:
    """Let a signal raise `KeyboardInterrupt`, so that files and workers are cleaned up."""
    for number in _MESSAGES:
        signal.signal(number, _interrupt)


def _leave(number: int, _frame: FrameType | None = None) -> NoReturn:
    """Print the message, stop workers and end the process."""
    _heard.append(number)
    leave(exit_code())


def leave(code: int) -> NoReturn:
    """Stop workers and end the process, without waiting for threads."""
    started = sys.modules.get("multiprocessing.process")  # not loaded: there are none
    for process in started.active_children() if started else ():
        with suppress(OSError, ValueError):
            process.kill()
    with suppress(Exception):
        atexit._run_exitfuncs()  # noqa: SLF001  removes temporary files; os._exit would not
    os._exit(code)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    """Interrupt the main thread once; errors of other threads no longer matter."""
    _heard.append(number)
    if len(_heard) == 1:
        sys.unraisablehook = lambda _: None
        threading.excepthook = lambda _: None
        # ctypes callbacks drop the exception, and thread pools finish their queue first.
        last = threading.Timer(_PATIENCE_S, lambda: _heard and _leave(number))
        last.daemon = True
        with suppress(RuntimeError):  # a limit on threads
            last.start()
        raise KeyboardInterrupt


@contextmanager
def expected() -> Iterator[None]:
    """Block that a signal ends as usual: a server that runs until Ctrl-C."""
    with suppress(KeyboardInterrupt):
        yield
    _heard.clear()
