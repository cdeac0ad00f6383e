"""Columns of the model's tables: read-only, and empty unless given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["empty", "freeze"]


def empty(dtype: npt.DTypeLike) -> Callable[[], npt.NDArray[Any]]:
    """Default of a field: an array of no rows."""
    return partial(np.empty, 0, dtype=dtype)


def freeze(instance: object) -> None:
    """Make every array of a dataclass read-only."""
    for item in fields(instance):  # type: ignore[arg-type]
        value = getattr(instance, item.name)
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
