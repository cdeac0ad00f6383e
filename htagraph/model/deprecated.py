"""Old names of what has a new one: they work for one release, and say so."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["renamed"]


def renamed(old: str, new: str, value: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    """Make a property of an old name, which warns and gives what the new one gives.

    Parameters
    ----------
    old, new : str
        As a user writes them.
    value : callable
        Gives the value of an object.

    Examples
    --------
    >>> class Path:
    ...     dur_ns = 5
    ...     length = renamed("Path.length", "Path.dur_ns", lambda path: path.dur_ns)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     print(Path().length, caught[0].message)
    5 Path.length is now Path.dur_ns; the old name goes with the next release.
    """

    def get(owner: object) -> object:
        message = f"{old} is now {new}; the old name goes with the next release."
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return value(owner)

    return property(get, doc=f"Old name of `{new}`.")
