"""Types of arrays, and columns of the model's tables: read-only, and never printed."""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import fields
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
I8 = npt.NDArray[np.int8]
U8 = npt.NDArray[np.uint8]
F64 = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]
Rows = npt.NDArray[np.signedinteger]
"""Positions, in whichever width a table has them."""

Made = TypeVar("Made", bound=type)

_WIDTH = 60
"""Characters of a value that is printed in full: chosen, a name or a path."""


def empty(dtype: npt.DTypeLike) -> Callable[[], npt.NDArray[Any]]:
    """Default of a field: an array of no rows."""
    return partial(np.empty, 0, dtype=dtype)


class Frozen:
    """Base of dataclasses whose arrays are read-only."""

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)


def brief(cls: Made) -> Made:
    """Decorate a dataclass or named tuple of large tables: its repr is one line of sizes."""
    names = getattr(cls, "_fields", None) or [one.name for one in fields(cls)]

    def __repr__(self: object) -> str:  # noqa: N807  becomes a method
        parts = (f"{name}={_size(getattr(self, name))}" for name in names)
        return f"{type(self).__name__}({', '.join(parts)})"

    setattr(cls, "__repr__", __repr__)  # noqa: B010  not of this class alone
    return cls


def _size(value: object) -> str:
    """How large a value is; a short one itself."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        of = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
        return f"{of}[{', '.join(map(str, shape))}]"
    if isinstance(value, Sized) and not isinstance(value, str | bytes):
        return f"{type(value).__name__}[{len(value)}]"
    text = repr(value) if type(value).__repr__ is not object.__repr__ else type(value).__name__
    return text if len(text) <= _WIDTH and "\n" not in text else type(value).__name__
