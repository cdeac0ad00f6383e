"""Where the list of trace events ends in JSON text that arrives in pieces.

Brackets count only outside strings. Which ones those are is decided for a whole piece at once:
escapes are blotted out, and a bracket is in a string if the number of quotes before it is odd.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

__all__ = ["ArrayEnd"]

_KEY = re.compile(rb'"traceEvents"\s*:\s*\Z')
_LOOK_BACK = 256
_STEP = np.zeros(256, dtype=np.int8)  # change of depth at each character
_STEP[list(b"[{")], _STEP[list(b"]}")] = 1, -1


class ArrayEnd:
    """A search for the bracket that closes ``traceEvents``, or a bare array of events.

    Attributes
    ----------
    is_empty : bool
        Whether what stands before the bracket needs no comma: nothing, or a comma.

    Examples
    --------
    >>> search = ArrayEnd()
    >>> search.feed(b'{"a": [], "traceEve'), search.feed(b'nts": [{"name": "]"}]}')
    (-1, 20)
    """

    def __init__(self) -> None:
        self.is_empty = True
        self._tail = b""  # the last bytes of the pieces before
        self._in_string = False
        self._is_escaped = False  # the first byte of the next piece is
        self._depth = 0
        self._outside = -1  # depth outside the list of events, once its opening bracket was seen

    def feed(self, piece: bytes) -> int:
        """Position of the closing bracket in the next piece, -1 if it is not there."""
        brackets, steps = self._brackets(piece)
        depth = self._depth + np.cumsum(steps, dtype=np.int64)
        position = self._closing(piece, brackets, steps > 0, depth)
        if len(depth):
            self._depth = int(depth[-1])
        text = self._tail + (piece if position < 0 else piece[:position])
        self.is_empty = text.rstrip()[-1:] in {b"", b"[", b","}
        self._tail = text[-_LOOK_BACK:]
        return position

    def _brackets(self, piece: bytes) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int8]]:
        """Positions of the brackets outside strings, and the change of depth at each."""
        text = b"_" + piece[1:] if self._is_escaped and piece else piece
        text = text.replace(b"\\\\", b"__").replace(
            b'\\"', b"__"
        )  # pairs from the left: what is left escapes
        self._is_escaped = text.endswith(b"\\")
        codes = np.frombuffer(text, dtype=np.uint8)
        quotes = np.flatnonzero(codes == ord('"'))
        brackets = np.flatnonzero(_STEP[codes])
        outside = (np.searchsorted(quotes, brackets) + self._in_string) % 2 == 0
        self._in_string ^= len(quotes) % 2 == 1
        brackets = brackets[outside]
        return brackets, _STEP[codes[brackets]]

    def _closing(
        self,
        piece: bytes,
        brackets: npt.NDArray[np.intp],
        opens: npt.NDArray[np.bool_],
        depth: npt.NDArray[np.int64],
    ) -> int:
        """Find the opening bracket if need be, then the closing one."""
        first = 0
        if self._outside < 0:
            for k in np.flatnonzero(opens & (depth <= 2)).tolist():
                before = self._tail + piece[max(0, brackets[k] - _LOOK_BACK) : brackets[k]]
                is_array = piece[brackets[k]] == ord("[")
                if is_array and (depth[k] == 1 or _KEY.search(before)):
                    self._outside, first = int(depth[k]) - 1, k + 1
                    break
            else:
                return -1
        closing = np.flatnonzero(~opens[first:] & (depth[first:] == self._outside))
        return int(brackets[first + closing[0]]) if len(closing) else -1
