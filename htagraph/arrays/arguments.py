"""Arguments of machine code: arrays, numbers and tuples as one vector of 64-bit words."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

Form = str | tuple[type, tuple["Form", ...]]
"""Type of an argument: ``i8`` a number, ``i8[2]`` an array of two axes, or a tuple of these."""

T = TypeVar("T")

_RESULT_WORDS = 4
"""Words before the arguments, for results: as many as a function may return."""


class _Fixed:
    """An argument with its form and words."""

    def __init__(self, value: object) -> None:
        self.value = value  # keeps its arrays alive
        self.form = form_of(value)
        self.words: list[int] = Words((value,)).content[_RESULT_WORDS:].tolist()


def fixed(value: T) -> T:
    """An argument of many calls, converted once: contiguous arrays, in tuples."""
    return cast("T", _Fixed(value))


def form_of(value: object) -> Form:
    """The form of an argument."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype.str[1:]}[{value.ndim}]"
    if isinstance(value, _Fixed):
        return value.form
    if isinstance(value, tuple):
        return type(value), tuple(form_of(part) for part in value)
    if isinstance(value, bool | np.bool_):
        return "b1"
    if isinstance(value, int | np.integer):
        return "i8"
    assert isinstance(value, float | np.floating), f"machine code takes no {type(value)}"
    return "f8"


def text_of(form: Form) -> str:
    """A form in one word."""
    if isinstance(form, str):
        return form
    kind, parts = form
    return f"{kind.__name__}({','.join(text_of(part) for part in parts)})"


class Words:
    """Arguments as 64-bit words: of an array its address and shape, of a number its bits.

    Machine code takes contiguous arrays. Others are copied, and copied back after the call.
    """

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self._copies: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]] = []
        words = [0] * _RESULT_WORDS
        for value in arguments:
            self._put(words, value)
        self.content = np.array(words, dtype=np.int64)

    def _put(self, words: list[int], value: Any) -> None:
        """Append the words of an argument."""
        if isinstance(value, np.ndarray):
            if not (value.flags.c_contiguous and value.flags.aligned):
                self._copies.append((value, value.copy(order="C")))
                value = self._copies[-1][1]
            words.append(value.__array_interface__["data"][0])
            words.extend(value.shape)
        elif isinstance(value, _Fixed):
            words.extend(value.words)
        elif isinstance(value, tuple):
            for part in value:
                self._put(words, part)
        elif isinstance(value, float | np.floating):
            words.append(int(np.float64(value).view(np.int64)))
        else:
            words.append(int(value))

    def result(self, n_results: int) -> Any:
        """The result of the call: None, a number, or a tuple of numbers."""
        for array, copy in self._copies:
            if array.flags.writeable:
                array[...] = copy
        if n_results == 0:
            return None
        numbers = self.content[:n_results].tolist()
        return numbers[0] if n_results == 1 else tuple(numbers)


def n_results_of(function: Callable[..., Any]) -> int:
    """How many numbers a function returns, by its annotation."""
    returned = function.__annotations__["return"]
    assert returned in {"None", "int", "bool"} or returned.startswith("tuple["), (
        f"{function.__qualname__}: machine code returns numbers, and fills arrays with the rest"
    )
    assert returned.count(",") < _RESULT_WORDS, f"{function.__qualname__} returns too many numbers"
    return 0 if returned == "None" else returned.count(",") + 1


def wrapper_source(
    forms: tuple[Form, ...], n_results: int
) -> tuple[str, dict[str, type], dict[str, tuple[str, int]]]:
    """Python source that reads arguments from words, calls ``function`` and stores its results.

    Also returns the tuple types that it names, and dtype and number of axes of each array maker.
    """
    names: dict[str, type] = {}
    arrays: dict[str, tuple[str, int]] = {}
    positions = count(_RESULT_WORDS)

    def taken(form: Form) -> str:
        if not isinstance(form, str):
            kind, parts = form
            inner = "".join(f"{taken(part)}, " for part in parts)
            if kind is tuple:
                return f"({inner})"
            names[kind.__name__] = kind
            return f"{kind.__name__}({inner})"
        if form.endswith("]"):
            dtype, n_axes = form[:-1].split("[")
            name = f"{dtype}_{n_axes}"
            arrays[name] = dtype, int(n_axes)
            address, *_ = (next(positions) for _ in range(1 + int(n_axes)))
            return f"{name}(words, {address})"
        source = "reals" if form == "f8" else "words"
        return f"{source}[{next(positions)}]" + (" != 0" if form == "b1" else "")

    call = f"function({', '.join(taken(form) for form in forms)})"
    body = [f"result = {call}" if n_results else call]
    if n_results == 1:
        body.append("words[0] = result")
    else:
        body += [f"words[{k}] = result[{k}]" for k in range(n_results)]
    return "def wrapper(words, reals):\n" + "".join(f"    {line}\n" for line in body), names, arrays
