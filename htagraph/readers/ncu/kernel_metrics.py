"""Adds the metrics of Nsight Compute to a trace, as columns of its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from htagraph.errors import TraceFormatError
from htagraph.model.events import EventTable, SparseColumn
from htagraph.model.metrics import NCU
from htagraph.model.recording import Attachment, Recording, Repair
from htagraph.readers.content import first_bytes, text_lines
from htagraph.readers.ncu.csv_table import Launches, is_header, read_launches
from htagraph.readers.ncu.launch_matching import Matched, matched

_HEAD_BYTES = 1 << 20
"""Bytes in which the table must begin (chosen): output of the program precedes it."""


def is_ncu(path: Path) -> bool:
    """Whether a file is a table of ``ncu --csv``, by its header."""
    head = first_bytes(path, _HEAD_BYTES)
    lines = head.decode("utf-8", "replace").splitlines() if b'"Kernel Name"' in head else []
    return any(is_header(line) for line in lines)


def with_ncu(recording: Recording, path: Path) -> Recording:
    """A recording with metrics of its kernels, in columns whose names begin with ``ncu.``.

    Returns
    -------
    Recording
        With a column for each metric; the `Attachment` describes which launches were found.
    """
    launches = read_launches(text_lines(path))
    if not len(launches) or not launches.metrics:
        raise TraceFormatError(
            "this table of Nsight Compute has no launch with a metric "
            f"({launches.n_lines:,} lines).",
            path=path,
            hint="ncu --csv --page raw --import REPORT.ncu-rep > metrics.csv",
        )
    found, whose = _best_process(recording, launches)
    events, n_matched = recording.events, int(np.count_nonzero(found.event >= 0))
    columns = {**events.columns, **_columns(launches, found)}
    left = len(launches) - n_matched
    notes = [found.how, whose, f"{left:,} not found" if left else "", _pace(columns, events)]
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


def _columns(launches: Launches, found: Matched) -> dict[str, SparseColumn]:
    order = np.argsort(found.event, kind="stable")
    order = order[found.event[order] >= 0]
    out = {}
    for metric, value in launches.metrics.items():
        rows = order[np.isfinite(value[order])]
        if len(rows):
            out[f"{NCU}{metric}"] = SparseColumn(found.event[rows], value[rows])
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


def _best_process(recording: Recording, launches: Launches) -> tuple[Matched, str]:
    """Launches of the process that fits best, and which it is if there are several."""
    process = launches.about["Process ID"]
    fits = []
    for one in process.unique():
        rows = np.flatnonzero(process == one)
        about = launches.about.iloc[rows].reset_index(drop=True)
        part = matched(recording.events, replace(launches, about=about))
        event = np.full(len(launches), -1, dtype=np.int64)
        event[rows] = part.event
        fits.append((int(np.count_nonzero(event >= 0)), one, Matched(event, part.how)))
    n, which, best = max(fits, key=lambda fit: fit[0])
    alike = sum(fit[0] == n for fit in fits)
    if len(fits) == 1:
        return best, ""
    tie = f", as {alike - 1} more would" if alike > 1 else ""
    return best, f"of its {len(fits)} processes, {which} fits best{tie}"
