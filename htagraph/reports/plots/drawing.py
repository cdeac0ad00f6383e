"""A figure as plain data, which plotly's script draws on a page without its Python package.

It has fewer marks than there is data: joined ones keep their total time and extremes. Colors are
for light and dark paper, axes have units, and texts are free of markup.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from html import escape
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, ParamSpec, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.codes import largest
from htagraph.arrays.intervals import sum_by_code
from htagraph.errors import QueryError
from htagraph.model.arrays import F64, I64
from htagraph.model.colors import COLORS, IDLE, INFERRED, SERIES, Color
from htagraph.model.kinds import Bound
from htagraph.model.labels import name_label
from htagraph.model.schema import Schema
from htagraph.model.window import Window

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


BOUND_COLORS = {bound.label: color for bound, color in COLORS.items()}
"""Color of each bound."""

CLASS_COLORS = {name: BOUND_COLORS[name] for name in ("compute", "communication", "memory")}
"""Color of each class of device work, that of its bound."""

CAUSE_COLORS = {
    **{bound: color for bound, color in BOUND_COLORS.items() if bound not in CLASS_COLORS},
    "other_work": BOUND_COLORS["compute"],
    "event_wait": COLORS[Bound.SYNC]._replace(hatch="|"),
    "window_edge": IDLE,
}
"""Color of each cause of idle time: that of the bound which the same time has on a path. A stream's
wait for an event has its own hatch: a host's wait has the color, too.
"""

_STYLES = {
    "dash": ("solid", "dash", "dot", "dashdot"),
    "symbol": ("circle", "square", "diamond", "cross"),
}

_MARGIN = {"l": 10, "r": 16, "t": 60, "b": 44}
_ROW_PX, _FRAME_PX, _EMPTY_PX = 34, 120, 120
"""Height of a row of bars, of title and axis, and of a figure without data."""
_BAR = 0.86
"""Height of a bar in a row of 1, which leaves a gap between rows."""
LEGIBLE_PX = 9
"""Size below which a text is left out, as bars that are too narrow for it make it smaller."""
_MAX_STEP_LINES = 40
"""Steps from which lines between them would hide what is drawn: chosen."""
_LEGEND_PX, _LEGEND_LINE_PX = 720, 22
"""Width of a legend in a notebook of usual width, and the height of another line of it."""
_MARK_PX, _CHARACTER_PX = 40, 6.1
"""Width of a name in a legend: of its mark, and of each character. As plotly draws them."""

_SMALL = 0.01
"""Share that would read 0% when rounded down."""
_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))


class TimeUnit(NamedTuple):
    """The unit of an axis of time."""

    size_ns: int
    name: str

    @classmethod
    def fitting(cls, longest_ns: float) -> TimeUnit:
        """Unit in which the longest time has a few digits."""
        for size, name in _UNITS:
            if longest_ns >= 2 * size:
                return cls(size, name)
        return cls(1, "ns")

    def of(self, times_ns: npt.ArrayLike) -> F64:
        """Times in this unit."""
        return np.asarray(times_ns, dtype=np.float64) / self.size_ns


def of_frame(schema: Schema, *more: str) -> Callable[[Callable[_P, Drawing]], Callable[_P, Figure]]:
    """Draw in plotly; report a wrong frame: another question's answer, or columns are missing.

    `more`: columns besides those of the schema: ``rank`` in an answer of a job.
    """
    answer = schema.name.lower().removeprefix("matched_") + (" of a job" if more else "")

    def wrong(given: object) -> str:
        if not isinstance(given, pd.DataFrame):
            return f"a {type(given).__name__}"
        missing = [name for name in (*schema.columns, *more) if name not in given.columns]
        return f"a frame without {missing[0]!r}" if missing else ""

    return _door(wrong, f"give the answer to {answer}.", schema)


def of_path(*kinds: str) -> Callable[[Callable[_P, Drawing]], Callable[_P, Figure]]:
    """Draw in plotly; report an object that is not a path of one of these classes."""

    def wrong(given: object) -> str:
        return "" if type(given).__name__ in kinds else f"a {type(given).__name__}"

    return _door(wrong, f"give the {' or '.join(kinds)} itself.")


def _door(
    wrong: Callable[[object], str], hint: str, schema: Schema | None = None
) -> Callable[[Callable[_P, Drawing]], Callable[_P, Figure]]:
    """Make a drawing a figure of plotly; a failure reports what is wrong with its first argument.

    People call the function with this door; `drawing` reaches the one on data behind it.
    """

    def door(draw: Callable[_P, Drawing]) -> Callable[_P, Figure]:
        @wraps(draw)
        def drawn(*args: _P.args, **options: _P.kwargs) -> Figure:
            try:
                made = draw(*args, **options)
            except (AttributeError, KeyError, TypeError) as exc:
                first = next(iter(signature(draw).parameters))
                said = wrong(args[0] if args else options.get(first))
                if not said:
                    raise
                name = draw.__name__
                raise QueryError(f"plots.{name} cannot draw {said}.", hint=hint) from exc
            return made.in_plotly()

        drawn.schema = schema  # type: ignore[attr-defined]
        return drawn

    return door


def percent(share: float) -> str:
    """Share in words; a small share is never zero."""
    return "&lt;1%" if 0 < share < _SMALL else f"{share:.0%}"


def label(name: object, *, width: int = 44) -> str:
    """Short name of the trace, escaped because plotly reads texts as markup."""
    return escape(name_label(str(name), width=width))


def color_of(colors: dict[str, Color], name: str) -> Color:
    """Color of a label; neutral if the label is unknown."""
    return colors.get(name, IDLE)


def series_style(place: int, by: Literal["dash", "symbol"] = "dash") -> dict[str, Any]:
    """Color and dash of the line, or symbol of the dots, of one of several ranks or streams."""
    styles = _STYLES[by]
    return {
        "color": SERIES[place % len(SERIES)],
        by: styles[place // len(SERIES) % len(styles)],
    }


def translucent(color: str, opacity: float) -> str:
    """A color of bands and areas."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity})"


def track_labels(frame: pd.DataFrame) -> list[str]:
    """Label of each row: its rank, device and stream, if it has them."""
    parts = [name for name in ("rank", "device", "stream") if name in frame.columns]
    rows = zip(*(frame[name].tolist() for name in parts), strict=True)
    return [
        ", ".join(f"{name} {value}" for name, value in zip(parts, row, strict=True) if value >= 0)
        for row in rows
    ]


def hatched(color: Color, is_inferred: Sequence[bool] = ()) -> dict[str, Any]:
    """Marker of bars: the color with its hatch; bars that are inferred have their own."""
    marker: dict[str, Any] = {"color": color.fill}
    shape: str | list[str] = color.hatch
    if any(is_inferred):
        shape = [INFERRED if one else color.hatch for one in is_inferred]
    if shape:
        # Overlaid, the lines leave the bar its color.
        lines = {"fillmode": "overlay", "fgcolor": color.lines, "fgopacity": 1}
        marker["pattern"] = {"shape": shape, "size": 10, "solidity": 0.14, **lines}
    return marker


def bars(
    name: str, rows: npt.ArrayLike, x: npt.ArrayLike, color: Color, hover: Sequence[str]
) -> dict[str, Any]:
    """Horizontal bars of one name and color; hovering shows the name and a text."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": x,
        "y": rows,
        "marker": hatched(color),
        "customdata": hover,
        "hovertemplate": f"{name}: %{{customdata}}<extra></extra>",
    }


def block_bars(
    blocks: Blocks,
    at: I64,
    about: tuple[int, str, int, TimeUnit],
    color: Color,
    hover: Sequence[str],
) -> dict[str, Any]:
    """Some blocks as bars of a row; a joined one is as high as its share.

    `about`: row, what the time is spent on, time that is 0, and unit of the axis.
    """
    row, name, origin, unit = about
    height = _BAR * blocks.dur_ns[at] / np.maximum(blocks.span_ns[at], 1)
    return bars(name, np.full(len(at), row), unit.of(blocks.span_ns[at]), color, hover) | {
        "base": unit.of(blocks.start_ns[at] - origin),
        "width": height,
        # Bars share a base line; the axis of rows runs downward.
        "offset": _BAR / 2 - height,
        "hovertemplate": f"<b>{name}</b> %{{customdata}}<br>at %{{base:.4~f}} {unit.name}"
        "<extra></extra>",
        "marker": hatched(color) | {"line": {"width": 0}},
    }


def stepped(
    name: str, x: F64, y: npt.ArrayLike, style: dict[str, Any], value: str, *, width: float = 1.5
) -> dict[str, Any]:
    """A level that changes in steps, of a color and a dash; `value` is its text on hovering."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "line": {"shape": "hv", "width": width, **style},
        "hovertemplate": f"{name}: {value}<extra></extra>",
    }


def no_figure(title: str) -> Drawing:
    """A figure that only says why there is nothing to draw."""
    return new_figure([], title, height=_EMPTY_PX)


def time_axis(unit: TimeUnit, dur_ns: float, clock: str = "time") -> dict[str, Any]:
    """Axis of the time since the start of the window."""
    return {"title": {"text": f"{clock}, {unit.name}"}, "range": [0, dur_ns / unit.size_ns]}


def step_lines(starts_ns: npt.ArrayLike, window: Window, unit: TimeUnit) -> list[dict[str, Any]]:
    """Thin lines where steps begin; none where there are too many steps."""
    start = np.asarray(starts_ns, dtype=np.int64)
    start = start[(start > window.start_ns) & (start < window.end_ns)]
    if len(start) > _MAX_STEP_LINES:
        return []
    line = {"color": "rgba(134, 148, 168, 0.8)", "width": 1, "dash": "dot"}
    at = unit.of(start - window.start_ns).tolist()
    return [
        {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": x, "x1": x, "line": line}
        for x in at
    ]


def named_rows(names: Sequence[str]) -> dict[str, Any]:
    """Axis of rows that are numbered from the top and named; two rows may have one name."""
    return {
        "autorange": False,
        "tickvals": list(range(len(names))),
        "ticktext": list(names),
        "range": [len(names) - 0.5, -0.5],
    }


def new_figure(
    traces: Sequence[dict[str, Any]],
    title: str,
    *,
    rows: int = 0,
    height: int = 320,
    note: str | None = None,
    **layout: Any,  # noqa: ANN401
) -> Drawing:
    """Figure in the style of the report; `rows` of horizontal bars, if any, decide the height.

    `note`: what was joined or left out.
    """
    legend = {
        "orientation": "h",
        "y": 1.0,
        "yanchor": "bottom",
        "x": 0,
        "xanchor": "left",
        "traceorder": "normal",
    }
    named = {trace["name"] for trace in traces if "name" in trace and trace.get("showlegend", True)}
    more_px = _LEGEND_LINE_PX * _more_lines(named) if layout.get("showlegend", True) else 0
    own: dict[str, Any] = {
        "title": {
            "text": title,
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yanchor": "top",
            "pad": {"t": 14},
            "font": {"size": 15},
        },
        "height": (_FRAME_PX + _ROW_PX * rows if rows else height) + more_px,
        "margin": _MARGIN | {"t": _MARGIN["t"] + more_px},
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "colorway": list(SERIES),
        "legend": legend,
        "bargap": 0.3,
        "xaxis": {"automargin": True, "zeroline": False, "gridcolor": "rgba(134, 148, 168, 0.25)"},
        "yaxis": {"automargin": True, "zeroline": False, "gridcolor": "rgba(134, 148, 168, 0.25)"},
        "hoverlabel": {"align": "left", "namelength": -1},
    }
    if rows:
        own["yaxis"] |= {"autorange": "reversed", "showgrid": False, "ticklabelstandoff": 6}
    for name, value in layout.items():
        own[name] = (
            own[name] | value
            if isinstance(own.get(name), dict) and isinstance(value, dict)
            else value
        )
    if note is not None:
        own["meta"] = {"note": note}
    return Drawing(list(traces), own)


def _more_lines(names: Iterable[str]) -> int:
    """Lines of a legend after the first; on several, the longest name sets the columns."""
    widths = [_MARK_PX + _CHARACTER_PX * len(name) for name in names]
    if sum(widths) <= _LEGEND_PX:
        return 0
    return (len(widths) - 1) // max(int(_LEGEND_PX // max(widths)), 1)


def durations_axis(title: str) -> dict[str, Any]:
    """Logarithmic axis of durations in nanoseconds, marked with units."""
    decades = np.arange(0, 13)
    marks = [f"{10 ** (int(d) % 3)} {('ns', 'us', 'ms', 's', 'ks')[int(d) // 3]}" for d in decades]
    return {
        "type": "log",
        "title": {"text": title},
        "tickvals": (10.0**decades).tolist(),
        "ticktext": marks,
    }
