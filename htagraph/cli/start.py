"""What the command `htagraph` runs: a signal ends it in one line, even while code is loaded."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from importlib import import_module
from types import ModuleType

from htagraph import __version__
from htagraph.arrays.memory import keeps_memory
from htagraph.cli.interrupts import (
    end_at_once,
    exit_code,
    is_interrupted,
    leave,
    raise_interrupt,
)
from htagraph.errors import shortage

_LEAST_MEMORY = 256 << 20
"""Bytes of addresses below which numpy does not load. Measured; `test_shortages` has less."""

_LOADING = threading.RLock()


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
    """Load a module when first used: pandas is a quarter of the time of `htagraph path`, unused."""
    sys.modules.setdefault(module, _Deferred(module))


def _hide_shortage(failed: threading.ExceptHookArgs) -> None:
    """Print why a thread ended, unless something ran out: who waits for it reports that."""
    if shortage(failed.exc_value) is None:
        threading.__excepthook__(failed)


def _check_memory() -> None:
    """Raise if no code can be loaded: libraries that get no memory end the process."""
    with suppress(ImportError):  # Windows
        import resource  # noqa: PLC0415

        if 0 <= resource.getrlimit(resource.RLIMIT_AS)[0] < _LEAST_MEMORY:
            raise MemoryError


def start() -> None:
    """Run the command line; exit code 130 after Ctrl-C, 143 after SIGTERM."""
    if sys.argv[1:] == ["--version"]:  # asked by scripts: without what reads the other options
        sys.stdout.write(f"htagraph {__version__}\n")
        return
    end_at_once()
    keeps_memory()
    defer("pandas")
    threading.excepthook = _hide_shortage
    # OpenBLAS reserves memory for a thread on each core, and ends the process if it gets none.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # If the command ends early, a process of multiprocessing cleans up, and would say so.
    others = os.environ.get("PYTHONWARNINGS", "")
    os.environ["PYTHONWARNINGS"] = f"{others},ignore:resource_tracker:UserWarning".lstrip(",")
    try:
        _check_memory()
        from htagraph.cli.main import main  # noqa: PLC0415  a second, in which Ctrl-C must work

        raise_interrupt()
        main()
    except BaseException as error:
        if is_interrupted():
            sys.exit(exit_code())
        if (short := shortage(error)) is None:
            raise
        if not isinstance(error, SystemExit):  # what prints it nicely may not load either
            os.write(2, f"error: {short}\n".encode())
        leave(1)  # threads may wait for what could not be started
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # only cleaning up is left


if __name__ == "__main__":
    start()
