"""The tables of speed: seconds, CPU and memory of each size, and how many times less than HTA's."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable

import pandas as pd

from htagraph.reports.markdown import markdown_table
from tests.benchmarks.rounds import OURS, Run

Measured = dict[str, dict[str, list[Run]]]
"""Runs of each contender, by the size of the trace in MB."""

ANALYSIS = ("load", "compile", "path")
"""What leads from a file to its critical path; HTA's graph is part of its path."""

_COLUMNS = (*ANALYSIS, "to the path", "ten questions", "report", "reopen")


def seconds(run: Run, column: str, what: str = "wall_s") -> float | None:
    """The time of a stage, or of all up to the path; None where it was not measured."""
    names = ANALYSIS if column == "to the path" else (column,)
    found = [run[name][what] for name in names if name in run]
    return sum(found) if found else None


def gigabytes(run: Run, column: str = "path") -> float | None:
    """The peak memory of a process until a stage was done."""
    return run[column]["peak_bytes"] / 1e9 if column in run else None


def spread(values: Iterable[float | None], style: str = ".2f") -> str:
    """The median, with the least and the most where they differ."""
    there = sorted(value for value in values if value is not None)
    if not there:
        return "-"
    least, middle, most = (
        format(value, style) for value in (there[0], statistics.median(there), there[-1])
    )
    return middle if least == most else f"{middle} ({least}-{most})"


def time_table(measured: Measured) -> str:
    """Wall time of each stage and peak memory: median, smallest and largest."""
    return _table(
        measured,
        {column: lambda run, column=column: seconds(run, column) for column in _COLUMNS}
        | {"peak GB": gigabytes, "of the report": lambda run: gigabytes(run, "report")},
    )


def cpu_table(measured: Measured) -> str:
    """Seconds of CPU of each stage."""
    return _table(
        measured,
        {column: lambda run, column=column: seconds(run, column, "cpu_s") for column in _COLUMNS},
    )


def ratio_table(measured: Measured) -> str:
    """How many times less we take than each other contender, of runs that took turns."""
    asked: dict[str, Callable[[Run], float | None]] = {
        "time to the path": lambda run: seconds(run, "to the path"),
        "its CPU": lambda run: seconds(run, "to the path", "cpu_s"),
        "its memory": gigabytes,
        "ten questions": lambda run: seconds(run, "ten questions"),
    }
    rows = [
        {
            "MB": size,
            "beside": name,
            **{
                column: spread(
                    (
                        their / our if (our := take(mine)) and (their := take(run)) else None
                        for mine, run in zip(runs[OURS], others, strict=True)
                    ),
                    ".3g",
                )
                for column, take in asked.items()
            },
        }
        for size, runs in measured.items()
        for name, others in runs.items()
        if name != OURS
    ]
    return markdown_table(pd.DataFrame(rows)) if rows else ""


def _table(measured: Measured, columns: dict[str, Callable[[Run], float | None]]) -> str:
    """One row per size and contender; empty columns are left out."""
    rows = [
        {
            "MB": size,
            "of": name,
            **{column: spread(take(run) for run in own) for column, take in columns.items()},
        }
        for size, runs in measured.items()
        for name, own in runs.items()
    ]
    return markdown_table(pd.DataFrame(rows))
