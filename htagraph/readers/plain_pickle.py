"""Plain data of a pickle, read without running what a pickle can name.

A pickle is a program for a small machine. This machine knows the instructions that make dicts,
lists, tuples, text and numbers, and no others: it cannot import, call or build anything, and its
memo is a dict, so that a large index takes no memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from htagraph.errors import TraceFormatError

_MARK = object()
_MADE: dict[int, Callable[[], object]] = {
    ord("}"): dict,
    ord("]"): list,
    ord(")"): tuple,
    ord("N"): lambda: None,
    0x88: lambda: True,
    0x89: lambda: False,
}
_NUMBERS = {ord("J"): "<i", ord("K"): "<B", ord("M"): "<H", ord("G"): ">d"}
_TEXTS = {0x8C: "<B", ord("X"): "<I", 0x8D: "<Q"}
_INTEGERS = {0x8A: "<B", 0x8B: "<i"}
_GETS = {ord("h"): "<B", ord("j"): "<I"}
_PUTS = {ord("q"): "<B", ord("r"): "<I"}
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}
_HEADS = {0x80: 1, 0x95: 8}
"""Instructions by what they do: those of protocols 2 to 5 that plain data takes."""
_STOP = ord(".")
_MEMOIZE = 0x94
_WIDTHS = {"<B": 1, "<H": 2, "<I": 4, "<i": 4, "<Q": 8, ">d": 8}


def plain_data(content: bytes) -> object:
    r"""The data of a pickle."""
    try:
        return _limited(_Machine(content).run(), most=_EXPANDED * len(content))
    except TraceFormatError:
        raise
    except (
        IndexError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        StopIteration,  # a mark that is not there
        struct.error,
    ) as exc:
        raise TraceFormatError(
            "the pickle is damaged.", hint="it may have been cut off: copy the file again."
        ) from exc


_EXPANDED = 16
"""Values that a reader may meet per byte, if it follows each reference: chosen. One takes two
bytes, and real dumps refer to frames, of seven values. Lists of lists by reference are more than
time allows: pinned by `test_lists_shared_many_times_are_refused`."""


def _limited(data: object, *, most: int) -> object:
    """Data with no more values than that, each counted as often as it is referred to."""
    todo: list[Any] = [[data]]
    n = 0
    while todo:
        one = todo.pop()
        n += len(one)
        if n > most:
            raise TraceFormatError(
                "the pickle refers to its own lists too often.",
                hint="a dump of the Flight Recorder does not; it is damaged, or made to take time.",
            )
        values = one.values() if isinstance(one, dict) else one
        todo += (each for each in values if isinstance(each, dict | list | tuple))
    return data


class _Machine:
    """The state of a pickle that is being read."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0
        self._stack: list[Any] = []
        self._memo: dict[int, object] = {}

    def run(self) -> object:
        """What is on the stack at the end."""
        stack, memo = self._stack, self._memo
        while (code := self._content[self._at]) != _STOP:
            self._at += 1
            if code in _TEXTS:
                stack.append(str(self._bytes(self._number(_TEXTS[code])), "utf-8", "replace"))
            elif code in _PUTS:
                memo[self._number(_PUTS[code])] = stack[-1]
            elif code in _GETS:
                stack.append(memo[self._number(_GETS[code])])
            elif code in _NUMBERS:
                stack.append(self._number(_NUMBERS[code]))
            elif code in _MADE:
                stack.append(_MADE[code]())
            elif code in _INTEGERS:
                digits = self._bytes(self._number(_INTEGERS[code]))
                stack.append(int.from_bytes(digits, "little", signed=True))
            elif code in _TUPLES:
                n = _TUPLES[code]
                stack[-n:] = [tuple(stack[-n:])]
            elif code in _HEADS:
                self._bytes(_HEADS[code])
            else:
                self._collect(code)
        return stack[-1]

    def _collect(self, code: int) -> None:
        """Run an instruction on several values."""
        stack = self._stack
        match code:
            case 0x28:  # (
                stack.append(_MARK)
            case 0x65:  # e
                values = self._since_mark()
                stack[-1].extend(values)
            case 0x61:  # a
                value = stack.pop()
                stack[-1].append(value)
            case 0x75:  # u
                values = self._since_mark()
                stack[-1].update(_pairs(values))
            case 0x73:  # s
                values = [stack.pop(), stack.pop()]
                stack[-1].update(_pairs(values[::-1]))
            case 0x74:  # t
                stack.append(tuple(self._since_mark()))
            case _ if code == _MEMOIZE:
                self._memo[len(self._memo)] = stack[-1]
            case _:
                raise TraceFormatError(
                    f"the pickle holds more than plain data: its instruction {chr(code)!r} could "
                    "run code. Nothing was run.",
                    offset=self._at - 1,
                    hint="a dump of the Flight Recorder has none; do not unpickle this file.",
                )

    def _bytes(self, n: int) -> bytes:
        """The next bytes."""
        found = self._content[self._at : self._at + n]
        if n < 0 or len(found) < n:
            raise IndexError
        self._at += n
        return found

    def _number(self, form: str) -> Any:  # noqa: ANN401  int or float
        """The next number."""
        return struct.unpack(form, self._bytes(_WIDTHS[form]))[0]

    def _since_mark(self) -> list[Any]:
        """The values since the last mark, taken off the stack."""
        stack = self._stack
        at = len(stack) - 1 - next(i for i, one in enumerate(reversed(stack)) if one is _MARK)
        values = stack[at + 1 :]
        del stack[at:]
        return values


def _pairs(values: list[Any]) -> dict[str | int, object]:
    """Keys and values in turn; a key is text or a number, whose hash takes no recursion."""
    keys = values[::2]
    if not all(isinstance(key, str | int) for key in keys):
        raise TypeError
    return dict(zip(keys, values[1::2], strict=True))
