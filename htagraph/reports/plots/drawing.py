"""A figure as plain data, which plotly's script draws on a page without its Python package.

It has fewer marks than there is data: joined ones keep their total time and extremes.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.codes import largest
from htagraph.arrays.intervals import sum_by_code
from htagraph.errors import QueryError
from htagraph.model.arrays import F64, I64

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_P = ParamSpec("_P")


@dataclass(frozen=True)
class Drawing:
    """Traces and layout, as the script of plotly reads them."""

    data: list[dict[str, Any]]
    layout: dict[str, Any]

    @property
    def title(self) -> str:
        """The fact that the figure shows."""
        return str(self.layout["title"]["text"])

    @property
    def note(self) -> str:
        """What was joined or left out; empty for nothing."""
        return str(self.layout.get("meta", {}).get("note", ""))

    def in_plotly(self) -> Figure:
        """The same as a figure of plotly."""
        try:
            # Deferred: an optional extra, and slow to import.
            from plotly import graph_objects as go  # noqa: PLC0415
        except ImportError:
            raise QueryError("figures need plotly.", hint="pip install 'htagraph[plot]'") from None
        return go.Figure(data=self.data, layout=self.layout)


def drawing(plot: Callable[_P, Figure], /, *args: _P.args, **options: _P.kwargs) -> Drawing:
    """What a function of `plots` draws, as data."""
    # Its door to plotly wraps the function itself.
    return cast("Drawing", plot.__wrapped__(*args, **options))  # type: ignore[attr-defined]


def as_json(value: object) -> str:
    """JSON of anything that a drawing holds; numbers that are none are null."""
    return msgspec.json.encode(value, enc_hook=_plain).decode()


def _plain(value: object) -> object:
    """Arrays and numbers of numpy and pandas; an array of numbers is packed as plotly reads it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, pd.Series | pd.Index):
        value = value.to_numpy()
    if not isinstance(value, np.ndarray):
        raise TypeError(f"a {type(value).__name__} is nothing that is drawn")
    if value.dtype.kind not in "iuf":
        return value.tolist()
    shape = {"shape": ", ".join(map(str, value.shape))} if value.ndim > 1 else {}
    packed = b64encode(value.astype("<f8").tobytes()).decode()
    return {"dtype": "f8", "bdata": packed, **shape}


Codes = npt.NDArray[np.integer]


class Blocks(NamedTuple):
    """A path as blocks: a segment, or the time of one code in neighboring short segments."""

    # start_ns, span_ns: place of the block; `span_ns` is the length of all that was joined
    start_ns: I64
    span_ns: I64
    dur_ns: I64  # Time of the code in it: adds up to the path
    code: I64
    segment: I64  # Row of the segment, -1 for joined ones
    n_segments: I64


def thin_path(start_ns: I64, dur_ns: I64, code: Codes, *, max_single: int) -> Blocks:
    """A path as blocks: the longest segments stay single, the others are joined between them.

    `start_ns`, `dur_ns`: segments without gaps. `code`: what each is spent on, from 0.
    `max_single`: number of single segments; all stay single if there are at most twice as many.
    """
    n = len(start_ns)
    if n <= 2 * max_single:
        ones = np.ones(n, dtype=np.int64)
        return Blocks(start_ns, dur_ns, dur_ns, code.astype(np.int64), np.arange(n), ones)
    single = np.zeros(n, dtype=bool)
    single[largest(dur_ns, max_single)] = True
    begins = single | np.concatenate([[True], single[:-1]])
    first, n_each = np.flatnonzero(begins), int(code.max()) + 1
    key = (np.cumsum(begins, dtype=np.int32) - 1) * n_each + code
    n_codes = len(first) * n_each
    time, count = sum_by_code(key, dur_ns, n_codes), np.bincount(key, minlength=n_codes)
    drawn = np.flatnonzero(time)
    span = np.add.reduceat(dur_ns, first)
    of_group = drawn // n_each
    segment = np.where(single[first], first, -1)[of_group]
    return Blocks(
        start_ns[first][of_group],
        span[of_group],
        time[drawn],
        drawn % n_each,
        segment,
        count[drawn],
    )


class Line(NamedTuple):
    """A level over time, as the points where it changes."""

    ts_ns: I64
    value: F64
    is_thinned: bool


def thin_line(ts_ns: I64, dur_ns: I64, value: F64, *, max_points: int) -> Line:
    """A level over time with fewer points; the highest of each interval is kept."""
    if not len(ts_ns):
        return Line(ts_ns, value, is_thinned=False)
    end = int(ts_ns[-1] + dur_ns[-1])
    if len(ts_ns) <= max_points:
        return Line(np.append(ts_ns, end), np.append(value, value[-1]), is_thinned=False)
    width = max(-(-(end - int(ts_ns[0])) // max_points), 1)
    bucket = (ts_ns - ts_ns[0]) // width
    first = np.flatnonzero(np.diff(bucket, prepend=-1))
    highest = np.maximum.reduceat(value, first)
    # The level that holds at the start of an interval belongs to it, too.
    before = np.concatenate([[value[0]], value[np.maximum(first[1:] - 1, 0)]])
    starts = ts_ns[0] + bucket[first] * width
    highest = np.where(ts_ns[first] > starts, np.maximum(highest, before), highest)
    return Line(np.append(starts, end), np.append(highest, highest[-1]), is_thinned=True)
