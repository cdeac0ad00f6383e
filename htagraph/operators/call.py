"""A call of an operator as recorded: its tensors with shape, type and strides, and its values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import prod
from typing import Any, NamedTuple

_TYPES = {
    "bool": ("bool", 1),
    "unsigned char": ("uint8", 1),
    "signed char": ("int8", 1),
    "short int": ("int16", 2),
    "short": ("int16", 2),
    "int": ("int32", 4),
    "long int": ("int64", 8),
    "long": ("int64", 8),
    "long long": ("int64", 8),
    "c10::Float8_e4m3fn": ("fp8", 1),
    "c10::Float8_e5m2": ("fp8", 1),
    "c10::Float8_e4m3fnuz": ("fp8", 1),
    "c10::Float8_e5m2fnuz": ("fp8", 1),
    "c10::Float8_e8m0fnu": ("fp8", 1),
    "c10::Half": ("fp16", 2),
    "c10::BFloat16": ("bf16", 2),
    "float": ("fp32", 4),
    "c10::Float": ("fp32", 4),
    "double": ("fp64", 8),
    "c10::complex<float>": ("complex64", 8),
    "c10::complex<double>": ("complex128", 16),
}
"""Element types as PyTorch's profiler writes them: short name and bytes."""

_SCALAR_TYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "fp16", 6: "fp32", 7: "fp64",
    11: "bool", 15: "bf16", 23: "fp8", 24: "fp8",
}  # fmt: skip
"""`torch.dtype` by the number that Concrete Inputs have: c10/core/ScalarType.h."""

_BYTES = dict(_TYPES.values())
_ORDER = tuple(dict.fromkeys(name for name, _ in _TYPES.values()))
_KIND = {"bool": 0, "uint8": 1, "int8": 1, "int16": 1, "int32": 1, "int64": 1}
"""Categories of type promotion: bool, integers, and 2 for all others."""

UNKNOWN_TYPE = ""
"""The type of tensors in a list: the profiler does not record it."""

_LIST_BYTES = (1, 8)
"""Bytes of an element whose type is unknown: fp8 to fp64."""


class Tensor(NamedTuple):
    """A tensor argument."""

    dims: tuple[int, ...]
    dtype: str  # Short name of the element type (``bf16``); empty if unknown
    strides: tuple[int, ...] | None = None  # In elements; None if not recorded

    @property
    def n(self) -> int:
        """Number of elements."""
        return prod(self.dims)

    @property
    def n_distinct(self) -> int:
        """Number of distinct elements: those of a stride of 0 are one."""
        if self.strides is None or len(self.strides) != len(self.dims) or not self.n:
            return self.n
        extent = 1 + sum(
            (dim - 1) * stride for dim, stride in zip(self.dims, self.strides, strict=True)
        )
        return min(self.n, extent) if min(self.strides, default=0) >= 0 else self.n

    @property
    def n_bytes(self) -> tuple[int, int]:
        """Least and most bytes of its distinct elements; they differ if the type is unknown."""
        low, high = bytes_of(self.dtype)
        return self.n_distinct * low, self.n_distinct * high


def bytes_of(dtype: str) -> tuple[int, int]:
    """Least and most bytes of an element."""
    return (_BYTES[dtype], _BYTES[dtype]) if dtype in _BYTES else _LIST_BYTES


def broadcast(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """The shape of the result of an elementwise operator."""
    rank = max((len(one.dims) for one in tensors), default=0)
    padded = [(1,) * (rank - len(one.dims)) + one.dims for one in tensors]
    return tuple(0 if 0 in column else max(column) for column in zip(*padded, strict=True))


def result_type(tensors: Sequence[Tensor]) -> str:
    """The type of the result of an arithmetic operator, by PyTorch's type promotion.

    A tensor without dimensions counts only if its category is higher.
    """
    best, best_kind = UNKNOWN_TYPE, -1
    for group in ([t for t in tensors if t.dims], [t for t in tensors if not t.dims]):
        kinds = [_KIND.get(one.dtype, 2) for one in group]
        if group and max(kinds) > best_kind:
            best_kind = max(kinds)
            of_kind = {
                one.dtype for one, kind in zip(group, kinds, strict=True) if kind == best_kind
            }
            both_halves = {"bf16", "fp16"} <= of_kind
            best = "fp32" if both_halves else max(of_kind, key=_place)
    return best


def _place(dtype: str) -> int:
    return _ORDER.index(dtype) if dtype in _ORDER else -1


class Lengths(NamedTuple):
    """Sums over the sequences of a step of a serving engine."""

    # queries, keys: new tokens, and tokens to attend to
    queries: int
    keys: int
    # squares, products: of the new tokens of each sequence, and of its new tokens and its tokens to
    # attend to
    squares: int
    products: int

    @property
    def scores(self) -> int:
        """Scores of a head if each query sees all keys up to its own."""
        return self.products - (self.squares - self.queries) // 2


@dataclass(frozen=True)
class Call:
    """A call of an operator: its arguments, by position."""

    name: str  # Of the operator: ``aten::mm``
    # dims, types, strides, values: what the profiler recorded as ``Input Dims``, ``Input type``,
    # ``Input Strides`` and ``Concrete Inputs``; the last two may be empty
    dims: Sequence[Any]
    types: Sequence[Any]
    strides: Sequence[Any] = ()
    values: Sequence[Any] = ()
    # Of the sequences of the step of a serving engine, if its range has them
    lengths: Lengths | None = None

    @property
    def label(self) -> str:
        """Its operator, and the shapes and types of its tensors."""
        return self._labelled(f"{one.dtype}{list(one.dims)}" for one in self.tensors)

    @property
    def untyped_label(self) -> str:
        """The same without types: runs in two precisions have it in common."""
        return self._labelled(str(list(one.dims)) for one in self.tensors)

    def _labelled(self, tensors: Iterable[str]) -> str:
        listed = (f"[{len(one)} tensors]" for one in self.lists)
        counted = ((shape, len(list(several))) for shape, several in groupby(tensors))
        shapes = (f"{n}x {shape}" if n > 1 else shape for shape, n in counted)
        return " ".join([self.name, *listed, *shapes])

    @cached_property
    def arguments(self) -> tuple[Tensor | tuple[Tensor, ...] | None, ...]:
        """The tensor of each argument, a tuple for a list of tensors, None for anything else."""
        return tuple(map(self._argument, range(len(self.types))))

    def _argument(self, at: int) -> Tensor | tuple[Tensor, ...] | None:
        kind = self.types[at]
        dims = self.dims[at] if at < len(self.dims) else None
        strides = self.strides[at] if at < len(self.strides) else None
        if not isinstance(dims, list):
            return None
        if kind in _TYPES:
            return _tensor(dims, _TYPES[kind][0], strides)
        if kind == "TensorList" and all(isinstance(one, list) for one in dims):
            listed = strides if isinstance(strides, list) and len(strides) == len(dims) else ()
            several = [
                _tensor(one, UNKNOWN_TYPE, listed[k] if listed else None)
                for k, one in enumerate(dims)
            ]
            return tuple(one for one in several if one is not None)
        return None

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """Its tensors that are not in lists, in order."""
        return tuple(one for one in self.arguments if isinstance(one, Tensor))

    @cached_property
    def lists(self) -> tuple[tuple[Tensor, ...], ...]:
        """Its lists of tensors, in order."""
        return tuple(
            one for one in self.arguments if isinstance(one, tuple) and not isinstance(one, Tensor)
        )

    def tensor(self, at: int) -> Tensor | None:
        """The tensor at a position; None if there is none."""
        found = self.arguments[at] if at < len(self.arguments) else None
        return found if isinstance(found, Tensor) else None

    def value(self, at: int) -> str:
        """The text of a value; empty if it was not recorded."""
        return str(self.values[at]) if at < len(self.values) else ""

    def flag(self, at: int) -> bool | None:
        """A recorded truth value; None if it was not recorded."""
        return {"True": True, "1": True, "False": False, "0": False}.get(self.value(at))

    def integers(self, at: int) -> list[int] | None:
        """Recorded integers, one or a list of them; None if they were not recorded."""
        text = self.value(at).strip("[]")
        try:
            return [int(one) for one in text.split(",") if one.strip()] if self.value(at) else None
        except ValueError:
            return None

    def flags(self, at: int) -> list[bool] | None:
        """A recorded list of truth values; None if it was not recorded."""
        text = self.value(at)
        return [one.strip() == "True" for one in text.strip("[]").split(",")] if text else None

    def dtype(self, at: int) -> str:
        """A recorded ``torch.dtype`` by its short name; empty for none."""
        found = self.integers(at)
        return _SCALAR_TYPES.get(found[0], "") if found else ""


def _tensor(dims: Sequence[Any], dtype: str, strides: object) -> Tensor | None:
    """A tensor; None if its shape is no list of sizes."""
    if not all(isinstance(one, int) and one >= 0 for one in dims):
        return None
    known = isinstance(strides, list) and all(isinstance(one, int) for one in strides)
    return Tensor(tuple(dims), dtype, tuple(strides) if known else None)  # type: ignore[arg-type]
