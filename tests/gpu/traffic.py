"""The bytes that operators move, counted from the tensors that they get and return."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class _Traffic(TorchDispatchMode):
    """Adds up inputs and outputs of each operator that PyTorch dispatches."""

    def __init__(self) -> None:
        super().__init__()
        self.n_bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if not getattr(func, "is_view", False):
            for name, value in _named(func, args, kwargs):
                written = name.alias_info is not None and name.alias_info.is_write
                self.n_bytes += (1 + written) * sum(map(_bytes, _tensors(value)))
            if not any(one.alias_info is not None for one in func._schema.arguments):
                self.n_bytes += sum(map(_bytes, _tensors(out)))
        return out


def traffic(work: Callable[[], object]) -> int:
    """Bytes of all operators of some work: each reads its inputs, and writes its outputs."""
    with _Traffic() as counted:
        work()
    return counted.n_bytes


def _named(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    for place, name in enumerate(func._schema.arguments):
        if place < len(args):
            yield name, args[place]
        elif name.name in kwargs:
            yield name, kwargs[name.name]


def _tensors(value: object) -> list[torch.Tensor]:
    listed = value if isinstance(value, list | tuple) else [value]
    return [one for one in listed if isinstance(one, torch.Tensor) and one.dim()]


def _bytes(one: torch.Tensor) -> int:
    return one.numel() * one.element_size()
