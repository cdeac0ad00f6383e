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

_COLUMNS = (*ANALYSIS, "to the path", "ten questions", "reopen")

_COMMANDS = ("inflate", "htagraph path", "verdict", "report")
"""What `tests.benchmarks.stages.commands` measures."""


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
        | {"peak GB": gigabytes},
    )


def cpu_table(measured: Measured) -> str:
    """Seconds of CPU of each stage."""
    return _table(
        measured,
        {column: lambda run, column=column: seconds(run, column, "cpu_s") for column in _COLUMNS},
    )


_STEPS = {
    "path / inflate": ("htagraph path", "inflate"),
    "verdict / path": ("verdict", "htagraph path"),
    "report / verdict": ("report", "verdict"),
}


def _times(run: Run, step: str) -> float | None:
    """How many times the CPU of what it builds on a process takes."""
    took, least = (seconds(run, column, "cpu_s") for column in _STEPS[step])
    return took / least if took and least else None


def history(measured: Measured, version: str, before: str = "") -> str:
    """The ratios of a version as CSV, with those of other versions and of sizes measured before.

    Seconds of two machines say nothing of each other; ratios of runs that took turns do.
    """
    rows = dict(line.rsplit(",", 1) for line in before.splitlines()[1:])
    for size, runs in measured.items():
        ratios = {f"CPU of {step}": [_times(run, step) for run in runs[OURS]] for step in _STEPS}
        for name, others in runs.items():
            if name != OURS:
                ratios |= {
                    f"{what} of {name} / htagraph": _ratios(runs[OURS], others, _COMPARED[column])
                    for what, column in (("CPU", "its CPU"), ("memory", "its memory"))
                }
        for ratio, values in ratios.items():
            if known := [value for value in values if value is not None]:
                rows[f"{version},{size},{ratio}"] = f"{statistics.median(known):.2f}"
    lines = [f"{row},{times}" for row, times in rows.items()]
    return "\n".join(["version,MB,ratio,times", *lines]) + "\n"


def command_table(measured: Measured) -> str:
    """CPU and peak memory of whole processes, and how many times what each builds on."""
    columns: dict[str, Callable[[Run], float | None]] = {
        f"{column}, CPU s": lambda run, column=column: seconds(run, column, "cpu_s")
        for column in _COMMANDS
    }
    columns |= {step: lambda run, step=step: _times(run, step) for step in _STEPS}
    columns |= {
        f"{column}, peak GB": lambda run, column=column: gigabytes(run, column)
        for column in _COMMANDS[1:]
    }
    return _table({size: {OURS: runs[OURS]} for size, runs in measured.items()}, columns)


_COMPARED: dict[str, Callable[[Run], float | None]] = {
    "time to the path": lambda run: seconds(run, "to the path"),
    "its CPU": lambda run: seconds(run, "to the path", "cpu_s"),
    "its memory": gigabytes,
    "ten questions": lambda run: seconds(run, "ten questions"),
}


def _ratios(
    own: list[Run], others: list[Run], take: Callable[[Run], float | None]
) -> list[float | None]:
    """How many times less we take than another contender, in each round."""
    return [
        their / our if (our := take(mine)) and (their := take(run)) else None
        for mine, run in zip(own, others, strict=True)
    ]


def ratio_table(measured: Measured) -> str:
    """How many times less we take than each other contender, of runs that took turns."""
    rows = [
        {
            "MB": size,
            "beside": name,
            **{
                column: spread(_ratios(runs[OURS], others, take), ".3g")
                for column, take in _COMPARED.items()
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
