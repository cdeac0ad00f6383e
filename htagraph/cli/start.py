"""What the command `htagraph` runs: a signal ends it in one line, even while code is loaded."""

from __future__ import annotations

import ctypes
import signal
import sys
from contextlib import suppress

from htagraph.cli.deferred import defer
from htagraph.cli.interrupts import ends_at_once, exit_code, is_interrupted, raises, say

__all__ = ["keeps_memory", "start"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt``."""


def keeps_memory() -> None:
    """Let glibc keep large blocks that are freed: else the system clears each new one again.

    Other C libraries stay as they are.
    """
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_MMAP_THRESHOLD, 1 << 30)
            mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)


def start() -> None:
    """Run the command line; exit code 130 where it is interrupted, 143 where it is told to end."""
    ends_at_once()
    keeps_memory()
    defer("pandas")
    from htagraph.cli.main import main  # noqa: PLC0415  it takes a second, in which one may stop

    try:
        raises()
        main()
    except BaseException:
        if not is_interrupted():
            raise
        say()
        sys.exit(exit_code())
    finally:
        # The answer is there, or what is left only has to be removed.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    start()
