"""What the command `htagraph` runs: a signal ends it in one line, even while code is loaded."""

from __future__ import annotations

import ctypes
import signal
import sys
from contextlib import suppress
from importlib import import_module
from threading import RLock
from types import ModuleType

from htagraph.cli.interrupts import end_at_once, exit_code, is_interrupted, raise_interrupt

__all__ = ["defer", "keeps_memory", "start"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt``."""

_LOADING = RLock()


class _Deferred(ModuleType):
    """Module that is loaded when an attribute is first read.

    `importlib.util.LazyLoader` does not do it: in Python 3.11, any `import` loads the module.
    """

    def __getattr__(self, name: str) -> object:
        """Load the module and return its attribute."""
        with _LOADING:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
            module = import_module(self.__name__)
            vars(self).update(vars(module))
        return getattr(module, name)


def defer(module: str) -> None:
    """Load a module on first use: pandas is a quarter of the time of `htagraph path`, unused."""
    sys.modules.setdefault(module, _Deferred(module))


def keeps_memory() -> None:
    """Let glibc keep large freed blocks, or the kernel zeroes each new one again."""
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):  # another C library
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_MMAP_THRESHOLD, 1 << 30)
            mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)


def start() -> None:
    """Run the command line; exit code 130 after Ctrl-C, 143 after SIGTERM."""
    end_at_once()
    keeps_memory()
    defer("pandas")
    from htagraph.cli.main import main  # noqa: PLC0415  takes a second, in which Ctrl-C must work

    try:
        raise_interrupt()
        main()
    except BaseException:
        if not is_interrupted():
            raise
        sys.exit(exit_code())
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # only cleaning up is left


if __name__ == "__main__":
    start()
