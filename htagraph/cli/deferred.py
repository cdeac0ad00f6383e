"""Libraries that are loaded when something of them is first asked for."""

from __future__ import annotations

import sys
from importlib import import_module
from threading import RLock
from types import ModuleType

__all__ = ["defer"]

_LOADING = RLock()


class _Deferred(ModuleType):
    """What `import` finds in place of a library that nobody has needed yet.

    `importlib.util.LazyLoader` does not serve: in Python 3.11, any `import` of it loads it.
    """

    def __getattr__(self, name: str) -> object:
        """Something of the library, which is there from now on."""
        with _LOADING:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
            library = import_module(self.__name__)
            vars(self).update(vars(library))
        return getattr(library, name)


def defer(library: str) -> None:
    """Let a library be loaded when something of it is first asked for.

    For a process of our own: a quarter of the time of `htagraph path` would be for pandas, of which
    it needs nothing.
    """
    sys.modules.setdefault(library, _Deferred(library))
