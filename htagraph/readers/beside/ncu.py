"""Adds the metrics of Nsight Compute to a trace, as columns of its kernels.

Launches are matched with kernels by name, grid, block and order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.matching import match_keys
from htagraph.errors import TraceFormatError
from htagraph.model.arrays import I64
from htagraph.model.events import EventTable, SparseColumn
from htagraph.model.kinds import EventKind
from htagraph.model.names import NCU
from htagraph.model.recording import Attachment, Recording, Repair
from htagraph.readers.beside.ncu_tables import Launches, is_header, read_launches
from htagraph.readers.byte_stream import first_bytes, text_lines

Codes = npt.NDArray[np.integer[Any]]

_ARGUMENTS = re.compile(r"<[^<>]*>")
_SIZE = r"^\(?\s*(\d{1,10})\s*,\s*(\d{1,10})\s*,\s*(\d{1,10})\s*\)?$"
_GEOMETRY = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


def base_name(name: str) -> str:
    """The function name of a kernel, without return type, namespaces and arguments."""
    text = name.replace("(anonymous namespace)::", "").replace("->", "")
    while (shorter := _ARGUMENTS.sub("", text)) != text:
        text = shorter
    head = text.partition("(")[0].rstrip(" >")
    return head.rsplit(" ", 1)[-1].rsplit("::", 1)[-1]


def _whole_name(name: str) -> str:
    """The name of a kernel without what tools write differently: spaces and ``void``."""
    return name.replace(" ", "").removeprefix("void")


def _names(
    kernels: pd.Series[str], launches: pd.Series[str]
) -> tuple[pd.Series[str], pd.Series[str]]:
    """Comparable names: whole ones if the launches have those, else base names."""
    known = {_whole_name(one) for one in kernels.unique()}
    bases = {base_name(one) for one in kernels.unique()}
    ran = [one for one in launches.unique() if base_name(one) in bases]
    short = _whole_name if all(_whole_name(one) in known for one in ran) else base_name
    of = {one: short(one) for one in {*kernels.unique(), *launches.unique()}}
    return kernels.map(of), launches.map(of)


def _sizes(about: pd.DataFrame) -> pd.DataFrame:
    """Grid and block of launches, -1 if absent."""
    grid = about["Grid Size"].str.extract(_SIZE)
    block = about["Block Size"].str.extract(_SIZE)
    both = pd.concat([grid, block], axis=1, keys=["grid", "block"])
    both.columns = pd.Index(_GEOMETRY)
    return both.fillna("-1").astype(np.int64)


def _in_order_of_launch(events: EventTable) -> I64:
    kernels = np.flatnonzero(events.kind == EventKind.KERNEL)
    calls = np.flatnonzero((events.kind == EventKind.RUNTIME) & (events.correlation >= 0))
    call = match_keys(events.correlation[kernels], events.correlation[calls])
    launched = events.ts_ns[kernels].copy()
    launched[call >= 0] = events.ts_ns[calls[call[call >= 0]]]
    return kernels[np.lexsort((events.ts_ns[kernels], launched))]


def matched(events: EventTable, launches: Launches) -> tuple[I64, str]:
    """The kernel of each launch, -1 for none; and how it was found, in words.

    The measured launches are a run of those in the trace, or the other way round, if skips, counts
    and filters chose some; else the n-th of a name, grid and block is the n-th. Without sizes on
    both sides, a name must be as frequent on both. `launches`: of one process, in order.
    """
    kernels = _in_order_of_launch(events)
    traced, measured = _names(
        pd.Series(events.names(kernels), dtype=object), launches.about["Kernel Name"]
    )
    sizes = pd.DataFrame({name: events.column(name)[kernels] for name in _GEOMETRY})
    measured_sizes = _sizes(launches.about)
    has_sizes = bool((sizes >= 0).any(axis=None) and (measured_sizes >= 0).any(axis=None))
    both = pd.concat(
        [pd.concat([traced, measured], ignore_index=True).rename("name"),
         pd.concat([sizes, measured_sizes], ignore_index=True)], axis=1,
    )  # fmt: skip
    by = ["name", *_GEOMETRY] if has_sizes else ["name"]
    code = both.groupby(by, sort=False).ngroup().to_numpy(np.int64)
    of_kernel, of_launch = code[: len(kernels)], code[len(kernels) :]
    found = np.full(len(launches), -1, dtype=np.int64)
    a = np.flatnonzero(np.isin(traced, measured.unique()))
    b = np.flatnonzero(np.isin(measured, traced.unique()))
    if not len(a) or not len(b):
        return found, "no kernel of the trace has the name of a measured one"
    is_part = len(b) <= len(a)
    at = _runs(of_kernel[a], of_launch[b]) if is_part else _runs(of_launch[b], of_kernel[a])
    n = min(len(a), len(b))
    if len(at):
        first = int(at[0])
        rows, of = (b, a[first : first + n]) if is_part else (b[first : first + n], a)
        found[rows] = kernels[of]
        again = f"; the first of {len(at)} that match" if len(at) > 1 else ""
        return found, f"as one run of launches{again}"
    nth_launch, nth_kernel = _nth(of_launch), _nth(of_kernel)
    if not has_sizes:
        counts = [np.bincount(one, minlength=int(code.max()) + 1) for one in (of_launch, of_kernel)]
        nth_launch = nth_launch[counts[0][of_launch] == counts[1][of_launch]]
    joined = nth_launch.merge(nth_kernel, on=["code", "nth"], suffixes=("_launch", "_kernel"))
    found[joined["row_launch"]] = kernels[joined["row_kernel"]]
    sizes_too = ", grid and block" if has_sizes else ", where it is as frequent in both"
    return found, f"the n-th of a name{sizes_too} as the n-th, as the orders differ"


def _nth(code: Codes) -> pd.DataFrame:
    """Rows by their code, and their number among those of the same code."""
    rows = pd.DataFrame({"code": code, "row": np.arange(len(code))})
    return rows.assign(nth=rows.groupby("code").cumcount())


def _runs(whole: Codes, part: Codes) -> Codes:
    """Where a part occurs in a whole, consecutively.

    Stretches are numbered by content, each time twice as long: two of the last length, from the
    begin and up to the end, cover the part.
    """
    number, size = np.concatenate([whole, part]), 1
    begin, at = len(whole), np.arange(len(whole) - len(part) + 1)
    while len(at) and 2 * size <= len(part):
        at = at[number[at] == number[begin]]
        pairs = number[:-size] * (int(number.max()) + 1) + number[size:]
        number, size = np.unique(pairs, return_inverse=True)[1], 2 * size
    rest = len(part) - size
    found: Codes = at[(number[at] == number[begin]) & (number[at + rest] == number[begin + rest])]
    return found


_HEAD_BYTES = 1 << 20
"""Bytes in which the table must begin (chosen): output of the program precedes it."""


def is_ncu(path: Path) -> bool:
    """Whether a file is a table of ``ncu --csv``, by its header."""
    head = first_bytes(path, _HEAD_BYTES)
    lines = head.decode("utf-8", "replace").splitlines() if b'"Kernel Name"' in head else []
    return any(is_header(line) for line in lines)


def with_ncu(recording: Recording, path: Path) -> Recording:
    """A recording with metrics of its kernels, in columns whose names begin with ``ncu.``."""
    launches = read_launches(text_lines(path))
    if not len(launches) or not launches.metrics:
        raise TraceFormatError(
            "this table of Nsight Compute has no launch with a metric "
            f"({launches.n_lines:,} lines).",
            path=path,
            hint="ncu --csv --page raw --import REPORT.ncu-rep > metrics.csv",
        )
    event, how, whose = _best_process(recording, launches)
    events, n_matched = recording.events, int(np.count_nonzero(event >= 0))
    columns = {**events.columns, **_columns(launches, event)}
    left = len(launches) - n_matched
    notes = [how, whose, f"{left:,} not found" if left else "", _pace(columns, events)]
    unread = Repair(
        "Nsight Compute line", launches.n_unread, -1, f"cannot be parsed in {path.name}"
    )
    attachment = Attachment(
        "Nsight Compute", path, len(launches), n_matched, "; ".join(filter(None, notes))
    )
    return replace(
        recording,
        events=replace(events, columns=columns),
        repairs=(*recording.repairs, *((unread,) if launches.n_unread else ())),
        attached=(*recording.attached, attachment),
    )


def _columns(launches: Launches, event: I64) -> dict[str, SparseColumn]:
    order = np.argsort(event, kind="stable")
    order = order[event[order] >= 0]
    out = {}
    for metric, value in launches.metrics.items():
        rows = order[np.isfinite(value[order])]
        if len(rows):
            out[f"{NCU}{metric}"] = SparseColumn(event[rows], value[rows])
    return out


def _pace(columns: Mapping[str, SparseColumn], events: EventTable) -> str:
    """How much slower kernels ran while being measured than in the trace."""
    measured = columns.get(f"{NCU}gpu__time_duration.sum")
    if measured is None:
        return ""
    traced = np.maximum(events.dur_ns[measured.event], 1)
    ratio = float(np.median(measured.value / traced))
    return (
        f"kernels took {ratio:.2f} times as long as in the trace while they were measured (median)"
    )


def _best_process(recording: Recording, launches: Launches) -> tuple[I64, str, str]:
    """The kernels of the process that fits best, how, and which it is if there are several."""
    process = launches.about["Process ID"]
    fits = []
    for one in process.unique():
        rows = np.flatnonzero(process == one)
        about = launches.about.iloc[rows].reset_index(drop=True)
        event = np.full(len(launches), -1, dtype=np.int64)
        event[rows], how = matched(recording.events, replace(launches, about=about))
        fits.append((int(np.count_nonzero(event >= 0)), one, event, how))
    n, which, event, how = max(fits, key=lambda fit: fit[0])
    alike = sum(fit[0] == n for fit in fits)
    if len(fits) == 1:
        return event, how, ""
    tie = f", as {alike - 1} more would" if alike > 1 else ""
    return event, how, f"of its {len(fits)} processes, {which} fits best{tie}"
