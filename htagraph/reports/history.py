"""History: the runs that are kept in a folder, and where their step time changed, of which commits.

A series is what was comparable in turn. Its levels are those of `htagraph.arrays.change_points`,
which must differ by 1%, as two runs must. Typical runs of both levels are compared: they tell
whether all parts moved by one factor, which is the machine.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from htagraph.arrays.change_points import change_points
from htagraph.comparison.causes import all_alike, has_same_calls
from htagraph.comparison.run_diff import LEAST_CHANGE, RunDiff
from htagraph.comparison.run_profile import RunProfile
from htagraph.errors import QueryError, TraceFormatError
from htagraph.model.arrays import F64
from htagraph.model.frames import KEPT_RUNS, RUN_CHANGES
from htagraph.model.units import human_count, human_duration, human_percent, human_time
from htagraph.reports.kept_runs import KeptRun, KeptRuns, git
from htagraph.writers.answering import answers

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_N_COMMITS = 3
"""Commits that are named: chosen, for one row of a table. `n_commits` counts all."""

_N_PAIRS = 9
"""Pairs of runs that are compared for a change: chosen, as their mean varies by a third of one."""

_TIMES = ["before_ns", "after_ns", "noise_ns"]

_CLEARLY = 2.0
"""Deviations from the other level from which on a run is clearly not of it: chosen, as 1 of 40 runs
is as far from its own."""

_NORMAL = 1.4826
"""The standard deviation of a normal distribution, by its median absolute deviation."""


@dataclass(frozen=True, repr=False)
class History:
    """Runs that are kept, and where their step time changed; made by `history`.

    Parameters
    ----------
    kept : KeptRuns
    rows : tuple of KeptRun
        Those that could be read, in order of time.
    """

    kept: KeptRuns
    rows: tuple[KeptRun, ...]

    @cached_property
    @answers(KEPT_RUNS)
    def runs(self) -> pd.DataFrame:
        """The runs in order of time, schema `frames.KEPT_RUNS`."""
        given = (
            "start_ns",
            "name",
            "key",
            "series",
            "commit",
            "step_ns",
            "typical_step_ns",
            "first",
        )
        columns = {name: [getattr(row, name) for row in self.rows] for name in (*given, "moved")}
        return KEPT_RUNS.frame({"time": [*map(human_time, columns["start_ns"])], **columns})

    @cached_property
    def costs(self) -> pd.DataFrame:
        """What each cause costs per step: a row for each run, a column for each cause, in ns."""
        costs = [{name: ns or 0 for name, ns in row.cost_ns.items()} for row in self.rows]
        return pd.DataFrame(costs, index=[row.key for row in self.rows]).fillna(0).astype(np.int64)

    @cached_property
    @answers(RUN_CHANGES)
    def changes(self) -> pd.DataFrame:
        """Where the step time changed, in order of time, schema `frames.RUN_CHANGES`."""
        series = dict.fromkeys(row.series for row in self.rows)
        found = [
            change
            for one in series
            for change in self._changes([row for row in self.rows if row.series == one])
        ]
        found.sort(key=lambda change: change["start_ns"])
        return RUN_CHANGES.frame(
            {name: [row[name] for row in found] for name in RUN_CHANGES.columns}
        )

    def _changes(self, rows: list[KeptRun]) -> Iterator[dict[str, Any]]:
        """The changes of a series."""
        step_ns = np.array([row.typical_step_ns for row in rows], dtype=np.float64)
        splits = change_points(step_ns)
        for begin, split, end in zip([0, *splits], splits, [*splits[1:], len(rows)], strict=False):
            before, after = slice(begin, split), slice(split, end)
            before_ns, after_ns = (float(np.median(step_ns[part])) for part in (before, after))
            share = after_ns / before_ns - 1
            if abs(share) < LEAST_CHANGE:
                continue
            last, first = _clearly(step_ns, before, after)
            cause, cause_ns = self._cause(rows[before], rows[after])
            by, said = self._compared(rows[before], rows[after])
            commits = self._commits(rows[last].commit, rows[first].commit)
            more = [f"{len(commits) - _N_COMMITS:,} more"] if len(commits) > _N_COMMITS else []
            yield {
                "time": human_time(rows[split].start_ns),
                "start_ns": rows[split].start_ns,
                "name": rows[split].name,
                "key": rows[split].key,
                "series": rows[split].series,
                "before_ns": round(before_ns),
                "after_ns": round(after_ns),
                "change_share": share,
                "cause": cause,
                "cause_ns": cause_ns,
                "by": by,
                "said": said,
                "n_commits": len(commits),
                "commits": "; ".join([*commits[:_N_COMMITS], *more]),
            }

    def _cause(self, before: list[KeptRun], after: list[KeptRun]) -> tuple[str, int]:
        """The cause whose cost changed most, by medians, and by how much; empty for none."""
        medians = [self.costs.loc[[row.key for row in rows]].median() for rows in (before, after)]
        more_ns = (medians[1] - medians[0]).sort_values(key=np.abs, ascending=False, kind="stable")
        return (str(more_ns.index[0]), round(more_ns.iloc[0])) if len(more_ns) else ("", 0)

    def _compared(self, before: list[KeptRun], after: list[KeptRun]) -> tuple[str, str]:
        """Whether it is the code or the machine, by typical runs of both levels; and one of them.

        The machine, if all parts moved by one factor. Over several pairs chance moves them less
        than over one.
        """
        found = []
        for pair in zip(_typical(before), _typical(after), strict=False):
            with suppress(TraceFormatError):  # removed, or of another version
                found.append(
                    RunDiff(*(RunProfile.read(self.kept.profile_file(row.key)) for row in pair))
                )
        if not found:
            return "unclear", ""
        parts = pd.concat([one.critical_path(by="name") for one in found])
        sums = parts.groupby(["bound", "name"], sort=False)[_TIMES].sum() / len(found)
        sums["noise_ns"] /= np.sqrt(len(found))
        if has_same_calls(found[0].ops()) and (alike := all_alike(sums.reset_index())):
            return "machine", f"{alike.in_words[0].upper()}{alike.in_words[1:]}."
        said = [one.verdict() for one in found if one.is_change and not one.damage]
        return ("code", said[0]) if 2 * len(said) > len(found) else ("unclear", found[0].verdict())

    def _commits(self, before: str, after: str) -> list[str]:
        """The commits from one to another, the first one first; none if git cannot tell."""
        if not before or not after:
            return []
        options = ("log", "--reverse", "--oneline", "--no-decorate", "--abbrev=7")
        try:
            found = git(self.kept.folder.parent, *options, f"{before}..{after}")
        except (OSError, subprocess.SubprocessError):
            return []
        return [] if found.returncode else found.stdout.splitlines()

    @property
    def headline(self) -> str:
        """How many runs and changes there are, and the last change, in one or two sentences."""
        said = f"{human_count(len(self.rows), 'run')}, {human_count(len(self.changes), 'change')}"
        if self.changes.empty:
            return f"{said.removesuffix('0 changes')}no change of the step time beyond noise."
        last = self.changes.iloc[-1]
        how = "slower" if last["change_share"] > 0 else "faster"
        times = " → ".join(human_duration(last[name]) for name in ("before_ns", "after_ns"))
        return (
            f"{said} of the step time. The last one, {last['time'][:16]}: "
            f"{human_percent(abs(last['change_share']))} {how}, {times}."
        )

    def figure(self) -> Figure:
        """The step time of the runs, and what each cause costs, with the changes: needs plotly.

        Returns
        -------
        plotly.graph_objects.Figure
        """
        # Deferred: a table needs no figures.
        from htagraph.reports.plots import run_history  # noqa: PLC0415

        return run_history(self.runs, costs=self.costs, changes=self.changes)

    def __repr__(self) -> str:
        """The headline."""
        return f"History({self.headline})"


def history(folder: str | Path, *, last: int = 500) -> History:
    """The runs that are kept in a folder, and where their step time changed.

    Parameters
    ----------
    folder : str or Path
        The folder of the traces, which `htagraph watch` was given, or ``keep`` of a profile.
    last : int, default=500
        How many runs are taken, the last ones.

    Returns
    -------
    History

    Raises
    ------
    QueryError
        If no run is kept there.

    Examples
    --------
    >>> import tempfile
    >>> import htagraph as hg
    >>> folder = tempfile.mkdtemp()
    >>> for name in ("none", "dataloader"):
    ...     run = hg.report(hg.demo_trace(name), write=False)
    ...     _ = hg.KeptRuns(folder).keep(run.summary, "report")
    >>> history(folder).runs[["name", "first", "moved"]].plain.values.tolist()
    [['none', 'GPU compute: costs 72%', ''],
     ['dataloader', 'Data loading: costs 72%', '79% slower (noise 40%)']]
    """
    kept = KeptRuns(folder)
    rows = sorted((row for row in kept if not row.error), key=lambda row: row.start_ns)
    if not rows:
        hint = "htagraph watch, report --keep and check --keep keep runs."
        raise QueryError(f"no run is kept in {folder}.", hint=hint)
    return History(kept, tuple(rows[-last:]))


def _typical(rows: list[KeptRun]) -> list[KeptRun]:
    """Some runs of a level, the one whose steps take as long as the median first."""
    steps_ns = [row.typical_step_ns or 0 for row in rows]
    median_ns = float(np.median(steps_ns))
    far = np.abs(np.array(steps_ns) - median_ns).argsort(kind="stable")
    return [rows[row] for row in far[:_N_PAIRS]]


def _clearly(step_ns: F64, before: slice, after: slice) -> tuple[int, int]:
    """The last run that is clearly not of the level after, and the first not of that before.

    The change is between them: a run next to it may be of either level.
    """
    levels = [np.median(step_ns[part]) for part in (before, after)]
    spread = [_NORMAL * np.median(np.abs(step_ns[part] - np.median(step_ns[part])))
              for part in (before, after)]  # fmt: skip
    is_before = np.abs(step_ns[before] - levels[1]) > _CLEARLY * spread[1]
    is_after = np.abs(step_ns[after] - levels[0]) > _CLEARLY * spread[0]
    last = np.flatnonzero(is_before)[-1] if is_before.any() else 0
    first = np.flatnonzero(is_after)[0] if is_after.any() else len(is_after) - 1
    return before.start + int(last), after.start + int(first)
