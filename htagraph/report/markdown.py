"""Tables and the summary as Markdown."""

from __future__ import annotations

import re

import pandas as pd

from htagraph.model.units import human_duration
from htagraph.report.summary import Summary
from htagraph.writers.labels import name_label

__all__ = ["human_frame", "markdown_summary", "markdown_table"]

_TOP = 10
_MAX_STEPS = 20
_ESCAPED = re.compile(r"([|\\])")


def human_frame(frame: pd.DataFrame, *, width: int = 60) -> pd.DataFrame:
    """Return a frame of texts for people: durations with units, shares in percent, short names.

    Parameters
    ----------
    frame : DataFrame
        Columns that end in ``_ns`` are durations, but for ``start_ns`` and ``ts_ns``, which count from the first row's.
    width : int
        Of names.

    Examples
    --------
    >>> human_frame(pd.DataFrame({"name": ["aten::mm"], "dur_ns": [1500], "share": [0.25]}))
           name      dur  share
    0  aten::mm  1.50 us  25.0%
    """
    out = pd.DataFrame(index=frame.index)
    for name in frame.columns:
        column = frame[name]
        if name in ("start_ns", "ts_ns"):
            origin = column.min() if len(column) else 0
            out[name.removesuffix("_ns")] = [f"+{human_duration(value - origin)}" for value in column]
        elif name.endswith("_ns"):
            out[name.removesuffix("_ns")] = [human_duration(value) for value in column]
        elif name == "share" or name.endswith("_share"):
            out[name] = [f"{value:.1%}" for value in column]
        elif name in ("name", "op"):
            out[name] = [name_label(str(value), width=width) for value in column]
        elif name.endswith("bound"):
            out[name] = [str(value).replace("_", " ") for value in column]
        else:
            out[name] = [f"{value:,}" if isinstance(value, int) else str(value) for value in column.tolist()]
    return out


def markdown_table(frame: pd.DataFrame) -> str:
    r"""Return a frame as a Markdown table; cells are taken as texts.

    Examples
    --------
    >>> print(markdown_table(pd.DataFrame({"name": ["a|b"], "dur": ["2 us"]})))
    | name | dur |
    | --- | --- |
    | a\|b | 2 us |
    """
    rows = [list(frame.columns), ["---"] * len(frame.columns), *frame.astype(str).to_numpy().tolist()]
    cells = [[_ESCAPED.sub(r"\\\1", str(cell)).replace("\n", " ") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _findings(summary: Summary) -> list[str]:
    """Return the verdict as paragraphs."""
    if summary.verdict.withheld:
        return [f"No verdict: {summary.verdict.withheld}"]
    return [
        f"{number}. **{finding.sentence}.** Most in {finding.evidence_sentence}. *To try:* {finding.to_try}"
        for number, finding in enumerate(summary.verdict.findings, start=1)
    ]


def _groups(frame: pd.DataFrame, name: str) -> str:
    """Return the first groups of a breakdown as a table."""
    return markdown_table(human_frame(frame.head(_TOP).rename_axis(name).reset_index()))


def markdown_summary(summary: Summary) -> str:
    """Return the summary as a Markdown page.

    Parameters
    ----------
    summary : Summary

    Returns
    -------
    str
    """
    parts = [f"# {summary.name}", summary.facts, f"## What bounds {summary.window_name}", *_findings(summary)]
    if len(summary.by_step):
        parts += ["## By step", markdown_table(human_frame(summary.by_step.head(_MAX_STEPS)))]
        if len(summary.by_step) > _MAX_STEPS:
            parts.append(f"The first {_MAX_STEPS} of {len(summary.by_step):,}.")
    parts += [
        "## Critical path",
        f"{human_duration(summary.path.dur_ns)} in {len(summary.path.segments):,} segments, which tile the window.",
        _groups(summary.by_bound, "bound"),
        "## Largest operators on the path",
        _groups(summary.by_op, "op"),
        "## Largest names on the path",
        _groups(summary.by_name, "name"),
    ]
    weak = summary.weak_checks
    parts += ["## Quality", markdown_table(human_frame(weak)) if len(weak) else "All checks are good."]
    if len(summary.trace.repairs):
        parts += ["## Repairs of the file", markdown_table(human_frame(summary.trace.repairs))]
    return "\n\n".join(parts) + "\n"
