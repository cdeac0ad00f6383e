"""Tables and the summary as Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import pandas as pd

from htagraph.model.kinds import in_words
from htagraph.model.units import human_count, human_duration, human_number
from htagraph.reports.device_use import losses_in_words, lost_slots, use_in_words
from htagraph.reports.headings import NONE_IS_NEGATIVE, TIMES, heading, holds_names, is_share
from htagraph.writers.labels import distinct_names, name_label, printable

if TYPE_CHECKING:  # the answer to one question needs no summary
    from htagraph.reports.job_summary import JobSummary
    from htagraph.reports.summary import Summary

__all__ = [
    "Columns",
    "escaped",
    "full_names",
    "human_columns",
    "human_frame",
    "job_tables",
    "markdown_job_summary",
    "markdown_summary",
    "markdown_table",
]

Columns = Mapping[str, "pd.Series | npt.NDArray[Any]"]
"""Columns of a table, where no frame is needed."""

_TOP = 10
_MAX_STEPS = 20
_MAX_ROWS = 64
_LATE = [
    "rank",
    "n_last",
    "caused_wait_ns",
    "longest_wait_ns",
    "own_wait_ns",
    "cause_bound",
    "cause_op",
]
_USED = ["rank", "device", "gpu_utilization", "sm_share", "warp_share", "sm_occupancy"]
_DEVICE = ["rank", "device", "idle_share", "compute_share", "communication_share", "memory_share"]
_ESCAPED = re.compile(r"([\\`*\[\]<>|~$&!]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
"""Characters that Markdown, or HTML in it, would read; ``_`` within a word is only a character."""


def human_frame(frame: pd.DataFrame, *, width: int = 60) -> pd.DataFrame:
    """Frame of texts for people: durations with units, shares in percent, short names.

    Parameters
    ----------
    frame : DataFrame
        Columns that end in ``_ns`` are durations, except ``start_ns``, ``end_ns`` and ``ts_ns``,
        which count from the first time in the frame.
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


def human_columns(columns: pd.DataFrame | Columns, *, width: int = 60) -> dict[str, list[str]]:
    """Columns of a frame, or arrays, as texts for people; see `human_frame`."""
    times = [values.min() for name, values in columns.items() if name in TIMES and len(values)]
    origin_ns = int(min(times, default=0))
    return {
        str(name): _texts(str(name), values, origin_ns, width) for name, values in columns.items()
    }


def _texts(
    name: str, column: pd.Series | npt.NDArray[Any], origin_ns: int, width: int
) -> list[str]:
    """Cells of a column as texts."""
    if holds_names(name, column):
        names = full_names(column)
        short = distinct_names(names, width=width)
        return [short[one] for one in names]
    is_label = str(column.dtype) == "category" or name.endswith("bound")
    text = in_words if is_label else partial(_text, name, origin_ns)
    return [text(value) for value in column.tolist()]


def _text(name: str, origin_ns: int, value: Any) -> str:  # noqa: ANN401  whatever a cell holds
    """A time, a share, a flag, a number or a sentence as text."""
    if name in TIMES:
        return f"+{human_duration(value - origin_ns)}"
    if name.endswith("_ns"):
        return "" if _is_none(value) else human_duration(value)
    if is_share(name):
        return "" if _is_none(value) else f"{value:.{2 if name == 'chance' else 1}%}"
    return "" if name in NONE_IS_NEGATIVE and value == -1 else _plain(value)


def _is_none(value: object) -> bool:
    """Whether there is no number."""
    return value is None or (isinstance(value, float) and isnan(value))


def _plain(value: object) -> str:
    """Flag, number, label or sentence as text."""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, float):
        return "" if isnan(value) else human_number(value)
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def full_names(column: pd.Series | npt.NDArray[Any]) -> list[str]:
    """Names of a column in full; a pattern is several short ones, one after the other.

    Examples
    --------
    >>> full_names(pd.Series(["aten::mm", ("gemm", "add")]))
    ['aten::mm', 'gemm → add']
    """
    return [
        " → ".join(map(name_label, name)) if isinstance(name, tuple) else printable(str(name))
        for name in column.tolist()
    ]


def markdown_table(frame: pd.DataFrame) -> str:
    r"""Frame as a Markdown table; cells are taken as texts.

    Examples
    --------
    >>> print(markdown_table(pd.DataFrame({"name": ["a|b"], "dur": ["2 us"]})))
    | name | dur |
    | --- | --- |
    | a\|b | 2 us |
    """
    rows = [
        list(frame.columns),
        ["---"] * len(frame.columns),
        *frame.astype(str).to_numpy().tolist(),
    ]
    cells = [[escaped(str(cell)) for cell in row] for row in (rows[0], *rows[2:])]
    cells.insert(1, rows[1])
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def escaped(text: str) -> str:
    r"""Text that a Markdown reader shows as it is, on one line.

    Examples
    --------
    >>> print(escaped("aten::add_ <b> __init__"))
    aten::add\_ \<b\> \_\_init\_\_
    """
    return _ESCAPED.sub(r"\\\1", printable(" ".join(text.split("\n"))))


def _head(summary: Summary | JobSummary) -> list[str]:
    """First paragraphs of a report: facts, caveats and the verdict."""
    verdict = summary.verdict
    head = [
        f"# {escaped(summary.name)}",
        escaped(summary.facts),
        *map(escaped, summary.caveats),
        f"## What bounds {escaped(summary.window_name)}",
    ]
    more = [verdict.replays] if verdict.replays else []
    if verdict.withheld:
        return [*head, f"No verdict: {escaped(verdict.withheld)}", *map(escaped, more)]
    findings = (
        f"{number}. **{escaped(finding.sentence)}.** Largest: "
        f"{escaped(finding.evidence_sentence)}."
        + (f" *Predicted:* {escaped(finding.prediction)}." if finding.prediction else "")
        + (f" *To try:* {escaped(finding.to_try)}" if finding.to_try else "")
        for number, finding in enumerate(verdict.findings, start=1)
    )
    return [*head, *findings, *map(escaped, more), *filter(None, [verdict.notes])]


def _help(summary: Summary | JobSummary) -> list[str]:
    """Paragraphs on what would help; none where nothing does, or nothing is known of it."""
    helpful = summary.what_helps
    if helpful.empty:
        return []
    table = markdown_table(human_frame(helpful.head(_TOP)))
    return ["## What would help", escaped(summary.help_notes), table]


def _groups(frame: pd.DataFrame, name: str) -> str:
    """First groups of a breakdown as a table."""
    return markdown_table(human_frame(frame.head(_TOP).rename_axis(name).reset_index()))


def _utilization(summary: Summary) -> list[str]:
    """Paragraphs on how full devices are; none without device work."""
    if summary.used.empty:
        return []
    said = f"{use_in_words(summary.used)} {losses_in_words(summary.losses)}".strip()
    lost = lost_slots(summary.losses).head(_TOP)
    table = [markdown_table(human_frame(lost))] if len(lost) else []
    return ["## Utilization", escaped(said), *table]


def markdown_summary(summary: Summary) -> str:
    """Summary as a Markdown page."""
    parts = [*_head(summary), *_help(summary)]
    if len(summary.by_step):
        parts += ["## By step", markdown_table(human_frame(summary.by_step.head(_MAX_STEPS)))]
        if len(summary.by_step) > _MAX_STEPS:
            parts.append(f"The first {_MAX_STEPS} of {len(summary.by_step):,}.")
    segments = human_count(summary.path.n_segments, "segment")
    parts += [
        "## Critical path",
        f"{human_duration(summary.path.dur_ns)} in {segments} that tile the window. "
        f"{escaped(summary.inferred)}".strip(),
        _groups(summary.by_bound, "bound"),
        "## Operators on the path",
        _groups(summary.by_op, "op"),
        "## What ran on the path",
        _groups(summary.by_name, "name"),
    ]
    parts += _utilization(summary)
    weak = summary.weak_checks
    parts += [
        "## Quality",
        markdown_table(human_frame(weak)) if len(weak) else "All checks are good.",
    ]
    if len(summary.trace.repairs):
        parts += ["## Repairs of the file", markdown_table(human_frame(summary.trace.repairs))]
    return "\n\n".join(parts) + "\n"


def job_tables(summary: JobSummary) -> list[tuple[str, pd.DataFrame]]:
    """Tables of a job's report with their titles; empty ones are left out."""
    tables = [
        ("Critical path by rank", summary.by_rank.reset_index(names="rank")),
        ("Critical path by bound", summary.by_bound.reset_index(names="bound")),
        ("Late ranks", summary.stragglers[_LATE]),
        ("Devices", summary.devices[_DEVICE]),
        ("Utilization", summary.used[_USED]),
        ("What the traces do not show", summary.weak_by_check),
        ("Left out", summary.failures),
    ]
    return [(title, frame) for title, frame in tables if len(frame)]


def markdown_job_summary(summary: JobSummary) -> str:
    """Summary of a job as a Markdown page."""
    parts = _head(summary)
    if summary.inferred:
        parts.append(escaped(summary.inferred))
    parts += _help(summary)
    for title, frame in job_tables(summary):
        parts += [f"## {title}", markdown_table(human_frame(frame.head(_MAX_ROWS)))]
        if len(frame) > _MAX_ROWS:
            parts.append(f"The first {_MAX_ROWS} of {len(frame):,}.")
    return "\n\n".join(parts) + "\n"
