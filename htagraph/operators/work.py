"""The work of an operator call, and the registry of models that compute it."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import NamedTuple, TypeVar

from htagraph.operators.call import Call, Tensor, bytes_of

_MOST_FLOPS, _MOST_BYTES = 1 << 62, 1 << 48
"""Operations and bytes of a call that no device can do or hold: its record is damaged. Sums of many
calls fit int64. Chosen. test_peaks.
"""


class Family(IntEnum):
    """A kind of operator that one model describes."""

    GEMM = 0
    ATTENTION = 1
    CONVOLUTION = 2
    NORM = 3
    ELEMENTWISE = 4
    COPY = 5
    REDUCTION = 6
    GATHER = 7
    OPTIMIZER = 8
    FUSED = 9  #: by Inductor, in Triton
    OTHER = 10  #: registered by a user

    @property
    def label(self) -> str:
        """Its name."""
        return self.name.lower()


class Work(NamedTuple):
    """What a call has to do at least."""

    family: Family
    # Floating-point operations of matrix units; a multiply-add counts as 2, 0 for other families
    flops: int
    # bytes_low, bytes_high: compulsory traffic: each distinct element of the inputs read once,
    # outputs written once. They differ where the trace leaves it open.
    bytes_low: int
    bytes_high: int
    dtype: str = ""  # Element type of the multiplied tensors, which decides the peak
    # The most operations, if the trace leaves them open as well: `flops` is then the least, and the
    # roof that of the highest values, so that no saving is overstated
    flops_high: int = 0

    @property
    def roof_flops(self) -> int:
        """Operations that the roof counts."""
        return max(self.flops, self.flops_high)

    @property
    def roof_bytes(self) -> int:
        """Bytes that the roof counts."""
        return self.bytes_high if self.flops_high else self.bytes_low


Model = Callable[[Call], Work | None]
"""The work of a call; None if its record does not determine it."""

_M = TypeVar("_M", bound=Callable[..., Work | None])

FAMILIES = ("products", "attention", "norms", "elementwise")
"""Modules of this room that register models."""

_MODELS: dict[str, Model] = {}
_PATTERNS: list[tuple[re.Pattern[str], Model]] = []


def models(*names: str, tensors: Sequence[int] = ()) -> Callable[[_M], _M]:
    """Register a function as the model of operators, by name or glob.

    It gets the call, and its tensors at some positions; without one of them, nothing is known.
    """

    def register(function: _M) -> _M:
        def model(call: Call) -> Work | None:
            found = [call.tensor(at) for at in tensors]
            return None if None in found else function(call, *found)

        for name in names:
            if "*" in name:
                _PATTERNS.append((re.compile(fnmatch.translate(name)), model))
            else:
                _MODELS[name] = model
        registered.cache_clear()
        return function

    return register


@cache
def registered(name: str) -> Model | None:
    """The model of an operator; None if it has none."""
    for family in FAMILIES:
        import_module(f"htagraph.operators.{family}")
    if name in _MODELS:
        return _MODELS[name]
    return next((model for pattern, model in _PATTERNS if pattern.match(name)), None)


def work_of(call: Call) -> Work | None:
    """The work of a call by its model; None without one, or if its record does not fit.

    Files may be damaged, and operators of one name may have had other arguments.
    """
    model = registered(call.name)
    try:
        found = model(call) if model else None
    except (ArithmeticError, LookupError):
        return None
    if found is None or not 0 <= found.flops < _MOST_FLOPS:
        return None
    return found if 0 <= found.bytes_low <= found.bytes_high < _MOST_BYTES else None


def traffic(
    family: Family,
    reads: Iterable[Tensor],
    writes: Iterable[Tensor],
    *,
    flops: int = 0,
    dtype: str = "",
    again: Iterable[Tensor] = (),
) -> Work:
    """Work that reads distinct elements and writes all; `again` may be read a second time."""
    low = high = 0
    for one in reads:
        least, most = one.n_bytes
        low, high = low + least, high + most
    for one in writes:
        least, most = bytes_of(one.dtype)
        low, high = low + one.n * least, high + one.n * most
    high += sum(one.n_bytes[1] for one in again)
    return Work(family, flops, low, high, dtype)
