"""CSV of Nsight Compute: a launch per row (``--page raw``), or a metric (``--page details``)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.errors import TraceLimitError
from htagraph.model.arrays import F64

_LAUNCH = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context",
    "Stream", "Block Size", "Grid Size", "Device", "CC",
)  # fmt: skip
"""Columns that identify the launch."""

_MOST_VALUES = 1 << 27
"""Most values of all metrics of all launches, a gigabyte (chosen): a small file may claim more."""

_POWER = {"": 0, "n": -9, "u": -6, "m": -3, "K": 3, "M": 6, "G": 9, "T": 12}
_SECOND = re.compile(r"^(?P<prefix>[num]?)(second|s|sec)$")
_SCALED = re.compile(r"^(?P<prefix>[KMGT])(?:i?bytes?|B|hz|Hz|cycles?|insts?|sectors?|requests?)?$")
_NS = 9


@dataclass(frozen=True)
class Launches:
    """Measured launches, in order."""

    # Columns ``Process ID``, ``Kernel Name``, ``Block Size``, ``Grid Size``: text, maybe empty
    about: pd.DataFrame
    metrics: Mapping[str, F64]  # Values in bytes, nanoseconds or per second; NaN if absent
    n_lines: int  # Lines below headers
    n_unread: int  # Those of them that cannot be parsed

    def __len__(self) -> int:
        """Number of launches."""
        return len(self.about)


@dataclass
class _Part:
    """Lines below one header."""

    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    units: list[str] = field(default_factory=list)

    @property
    def is_long(self) -> bool:
        """Whether each row is one metric."""
        return "Metric Name" in self.columns and "Metric Value" in self.columns


def _fields(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def is_header(line: str) -> bool:
    """Whether a line is the header of such a table."""
    return "Kernel Name" in line and {"ID", "Kernel Name"} <= set(_fields(line))


def read_launches(lines: Iterable[str]) -> Launches:
    """Launches and their metrics; output of the program before the table is ignored."""
    parts: list[_Part] = []
    n_lines = n_unread = 0
    for line in lines:
        if is_header(line):
            parts.append(_Part(_fields(line)))
        elif parts and line.strip() and not line.startswith("=="):
            n_lines += 1
            part, row = parts[-1], _fields(line)
            # Rules that follow a metric may be absent.
            n_needed = part.columns.index("Metric Value") + 1 if part.is_long else len(part.columns)
            if len(row) < n_needed:
                n_unread += 1
            elif row[part.columns.index("ID")].strip().isdecimal():
                part.rows.append(row[: len(part.columns)])
            elif not any(row[: part.columns.index("Kernel Name") + 1]) and not part.units:
                part.units = row
            else:
                n_unread += 1
    _check_size(parts)
    tables = [_launches(part) for part in parts if part.rows]
    about = [about for about, _ in tables] or [_about(pd.DataFrame())]
    offset = np.cumsum([0, *(len(one) for one in about)])
    metrics: dict[str, F64] = {}
    for (_, found), first in zip(tables, offset, strict=False):
        for name, value in found.items():
            whole = metrics.setdefault(name, np.full(int(offset[-1]), np.nan))
            whole[first : first + len(value)] = value
    return Launches(pd.concat(about, ignore_index=True), metrics, n_lines, n_unread)


def _check_size(parts: Iterable[_Part]) -> None:
    """Raise if metrics times launches are too many values, most of them absent."""
    metrics: set[str] = set()
    n_launches = 0
    for part in parts:
        of_launch = [
            part.columns.index(name) for name in ("ID", "Process ID") if name in part.columns
        ]
        if part.is_long:
            at = part.columns.index("Metric Name")
            metrics |= {row[at] for row in part.rows}
            n_launches += len({tuple(row[one] for one in of_launch) for row in part.rows})
        else:
            metrics |= set(part.columns)
            n_launches += len(part.rows)
    if len(metrics) * n_launches > _MOST_VALUES:
        raise TraceLimitError(
            f"{len(metrics):,} metrics of {n_launches:,} launches are more than "
            f"{_MOST_VALUES:,} values.",
            hint="give fewer kernels or metrics at once (ncu --launch-count, --metrics).",
        )


def _about(frame: pd.DataFrame) -> pd.DataFrame:
    wanted = ("ID", "Process ID", "Kernel Name", "Block Size", "Grid Size")
    return pd.DataFrame(
        {name: frame[name] if name in frame else pd.Series("", frame.index) for name in wanted},
        dtype=object,
    )


def _launches(part: _Part) -> tuple[pd.DataFrame, dict[str, F64]]:
    """Launches of one table, and their metrics."""
    rows = [row + [""] * (len(part.columns) - len(row)) for row in part.rows]
    columns = _unique(part.columns)
    frame = pd.DataFrame(rows, columns=columns, dtype=object)
    about = _about(frame)
    order = about.groupby(["Process ID", "ID"], sort=False).ngroup().to_numpy()
    if part.is_long:
        first = np.flatnonzero(~about.duplicated(["Process ID", "ID"]).to_numpy())
        return about.iloc[first], _from_long(frame, order, len(first))
    units = part.units or [""] * len(columns)
    texts = {
        name: (frame[name], unit)
        for name, unit in zip(columns, units, strict=False)
        if name not in _LAUNCH
    }
    with_comma = _decimal_comma(text for text, _ in texts.values())
    found = {
        name: _numbers(text, decimal_comma=with_comma) * _scale(unit)
        for name, (text, unit) in texts.items()
    }
    return about, {name: value for name, value in found.items() if np.isfinite(value).any()}


def _decimal_comma(texts: Iterable[pd.Series[str]]) -> bool:
    """Whether numbers are written as 1.234,5: more texts are only valid so than otherwise."""
    whole = pd.concat([*texts, pd.Series(dtype=object)], ignore_index=True)
    so = whole.str.fullmatch(r"-?\d{1,3}(\.\d{3})*,\d+") & ~whole.str.fullmatch(
        r"-?\d{1,3}(,\d{3})+"
    )
    not_so = whole.str.fullmatch(r"-?\d{1,3}(,\d{3})*\.\d+") & ~whole.str.fullmatch(
        r"-?\d{1,3}(\.\d{3})+"
    )
    return int(so.sum()) > int(not_so.sum())


def _unique(names: Sequence[str]) -> list[str]:
    """Distinct names: repeated ones are numbered."""
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out


def _from_long(frame: pd.DataFrame, launch: npt.NDArray[np.integer[Any]], n: int) -> dict[str, F64]:
    """Metrics of a table with a metric per row; labels are prefixed by their section."""
    name, section = frame["Metric Name"], frame.get("Section Name", pd.Series("", frame.index))
    is_label = ~name.str.contains("__", regex=False) & (section != "")
    full = name.where(~is_label, section + ": " + name)
    value = _numbers(frame["Metric Value"], decimal_comma=_decimal_comma([frame["Metric Value"]]))
    unit = frame["Metric Unit"] if "Metric Unit" in frame else pd.Series("", frame.index)
    value = value * unit.map({one: _scale(one) for one in unit.unique()}).to_numpy(np.float64)
    out: dict[str, F64] = {}
    known = np.isfinite(value) & (name != "").to_numpy()
    for metric, rows in pd.Series(np.arange(len(frame)))[known].groupby(full[known].to_numpy()):
        column = np.full(n, np.nan)
        column[launch[rows]] = value[rows]
        out[str(metric)] = column
    return out


def _scale(unit: str) -> float:
    """Factor from a unit to bytes, nanoseconds or "per second"."""
    above, _, below = unit.strip().partition("/")
    time = _SECOND.match(above)
    many = _SCALED.match(above)
    power = _POWER[time["prefix"]] + _NS if time else _POWER[many["prefix"]] if many else 0
    per = _SECOND.match(below)
    return 10.0 ** (power - _POWER[per["prefix"]] if per else power)


def _numbers(texts: pd.Series[str], *, decimal_comma: bool = False) -> F64:
    """Numbers from their texts; NaN for anything else."""
    thousands, point = (".", ",") if decimal_comma else (",", ".")
    plain = texts.str.replace(thousands, "", regex=False).str.replace(point, ".", regex=False)
    value = pd.to_numeric(plain, errors="coerce").to_numpy(np.float64)
    return np.where(np.isfinite(value), value, np.nan)
