"""A figure as plain data: what plotly's script draws on a page, without its Python package."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, cast

import msgspec
import numpy as np
import pandas as pd

from htagraph.errors import QueryError

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
        """The same as a figure of plotly.

        Raises
        ------
        QueryError
            If plotly is not installed.
        """
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
    """JSON of anything that a drawing holds; numbers that are none are null.

    Examples
    --------
    >>> as_json({"x": np.array([0.5, np.nan]), "y": pd.Series(["a"])})
    '{"x":{"dtype":"f8","bdata":"AAAAAAAA4D8AAAAAAAD4fw=="},"y":["a"]}'
    """
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
