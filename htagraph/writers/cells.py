"""Tables for people: durations with units, shares in percent, short names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isnan
from typing import Any

import numpy.typing as npt
import pandas as pd

from htagraph.model.columns import heading, quantity
from htagraph.model.kinds import bound_in_words, in_words
from htagraph.model.labels import distinct_names, name_label, printable
from htagraph.model.schema import Quantity
from htagraph.model.units import human_duration, human_number

Columns = Mapping[str, "pd.Series | npt.NDArray[Any]"]
"""Columns of a table, where no frame is needed."""

_FORMATS: dict[Quantity, Callable[[Any], str]] = {
    Quantity.INSTANT: lambda value: f"+{human_duration(value)}",
    Quantity.DURATION: human_duration,
    Quantity.SHARE: "{:.1%}".format,
    Quantity.COUNT: lambda value: human_number(value) if value >= 0 else "",
    Quantity.NUMBER: human_number,
    Quantity.IDENTIFIER: lambda value: printable(str(value)) if value != -1 else "",
    Quantity.FLAG: lambda value: "yes" if value else "",
    Quantity.LABEL: lambda value: printable(in_words(value)),
    Quantity.NAME: lambda value: printable(str(value)),
    Quantity.TEXT: lambda value: printable(str(value)),
}


def human_frame(frame: pd.DataFrame, *, width: int = 60) -> pd.DataFrame:
    """Frame of texts under headings; instants count from the first one.

    Parameters
    ----------
    width : int
        Longest name, in characters.

    Examples
    --------
    >>> human_frame(pd.DataFrame({"name": ["aten::mm"], "dur_ns": [1500], "share": [0.25]}))
           name      dur  share
    0  aten::mm  1.50 us  25.0%
    """
    out = pd.DataFrame(index=frame.index)
    for name, texts in human_columns(frame, width=width).items():
        out[name] = texts
    return out.rename(columns=heading)


def human_columns(
    columns: pd.DataFrame | Columns, *, width: int = 60, in_code: bool = False
) -> dict[str, list[str]]:
    """Columns of a frame, or arrays, as texts; see `human_frame`.

    Parameters
    ----------
    in_code : bool, default=False
        For who writes code: labels as they are compared with, not as words.
    """
    kinds = {str(name): quantity(str(name), values) for name, values in columns.items()}
    instants = [columns[name] for name, kind in kinds.items() if kind is Quantity.INSTANT]
    firsts = [times.min() for times in instants if len(times)]
    origin_ns = int(min((one for one in firsts if not _is_unknown(one)), default=0))
    texts = {}
    for name, kind in kinds.items():
        if kind is Quantity.NAME:
            names = full_names(columns[name])
            short = distinct_names(names, width=width)
            texts[name] = [short[one] for one in names]
        elif kind is Quantity.LABEL and in_code:
            texts[name] = [printable(str(value)) for value in columns[name].tolist()]
        else:
            texts[name] = [cell_text(kind, one, origin_ns, name) for one in columns[name].tolist()]
    return texts


def cell_text(kind: Quantity, value: Any, origin_ns: int = 0, name: str = "") -> str:  # noqa: ANN401  of any column
    """A value of a column as people read it; empty for what is not known.

    Examples
    --------
    >>> cell_text(Quantity.SHARE, 0.25), cell_text(Quantity.IDENTIFIER, -1)
    ('25.0%', '')
    """
    if _is_unknown(value):
        return ""
    if kind is Quantity.LABEL and name.endswith("bound"):
        return printable(bound_in_words(value))
    if kind is Quantity.INSTANT:
        value -= origin_ns
    return _FORMATS[kind](value)


def _is_unknown(value: object) -> bool:
    """Whether a value is none, or not known: pandas has a type for that, and is not loaded here."""
    is_nan = isinstance(value, float) and isnan(value)
    return value is None or is_nan or type(value).__name__ == "NAType"


def full_names(column: pd.Series | npt.NDArray[Any]) -> list[str]:
    """Names of a column in full; a pattern is several short ones, one after the other.

    Examples
    --------
    >>> full_names(pd.Series(["aten::mm", ("gemm", "add")]))
    ['aten::mm', 'gemm → add']
    """
    return [
        " → ".join(map(name_label, name))
        if isinstance(name, tuple)
        else ("" if name is None else printable(str(name)))
        for name in column.tolist()
    ]
