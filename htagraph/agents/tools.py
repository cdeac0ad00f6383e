"""The tools, which answer with plain values in a bounded number of tokens.

A client reads the docstring of a tool and the descriptions of its fields.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal

import pandas as pd
from pydantic import Field

from htagraph.agents.budget import Part, fitted, plain, rows_part
from htagraph.agents.documents import helpful_changes, notes_part, verdict_parts, window_head
from htagraph.agents.target import Session, Target
from htagraph.agents.tool import Options, RunTool, TableTool, Texts, Tokens, Tool, Window
from htagraph.comparison.diff import run_profile
from htagraph.comparison.limits import DEFAULT_FAIL_ABOVE, Limits, check_run
from htagraph.comparison.run_diff import RunDiff
from htagraph.comparison.run_profile import RunProfile, is_baseline
from htagraph.errors import QueryError, one_of
from htagraph.graph import TraceGraph
from htagraph.job.catalogue import all_questions
from htagraph.job.dumps import load_dumps
from htagraph.job.job import JOB_QUESTIONS, Job
from htagraph.job.workers import load_workers
from htagraph.lookup.conditions import rows_where
from htagraph.model.progress import begin_stage
from htagraph.path import CriticalPath
from htagraph.questions import QUESTIONS
from htagraph.readers.flight_recorder.reader import find_dumps
from htagraph.readers.worker_timeline.reader import is_worker_timeline
from htagraph.replay.change_options import ChangeOptions
from htagraph.reports.no_rows import not_recorded
from htagraph.reports.prediction import (
    bounds_of,
    caveats_of,
    prediction_in_words,
    ranks_of,
    readings_of,
)
from htagraph.scenario import what_if
from htagraph.synonyms import targets_of

__all__ = ["TOOLS"]

_SEGMENT = ("start_ns", "dur_ns", "bound", "name", "op", "track", "rule", "is_inferred")
_KERNELS = (
    *("rank", "group", "class", "sum_ns", "share", "on_path_ns"),
    *("n_kernels", "mean_ns", "max_ns"),
)
_CHANGE = ("change", "before_ns", "after_ns", "delta_ns", "noise_ns")
_KERNEL_CHANGE = ["name", *_CHANGE, "calls_before", "calls_after"]
_N_MISSING = 32
"""Chosen: ranks without a dump that an answer lists."""
_MORE = "a larger max_tokens."


class CapturesTool(TableTool):
    """List the traces in a folder by capture: what was recorded together, one row per file.

    Start here where no path is known. A capture is one rank, or all ranks of a job.
    """

    name = "captures"
    path: str = Field(".", description="Folder, with its subfolders.")
    full_names: bool = Field(True, description="Whether long paths keep their middle.")

    def answer(self, session: Session) -> dict[str, Any]:
        """The captures in a folder."""
        folder = session.root.existing(self.path)
        if not folder.is_dir():
            raise QueryError(f"{self.path} is a file.", hint="name the folder that it is in.")
        found, notes = session.root.captures(folder)
        shown = found[
            ["capture", "rank", "world_size", "steps", "dur_ns", "n_bytes", "is_complete"]
        ]
        # File names may hold bytes that are no UTF-8, which text columns of Arrow refuse.
        paths = pd.Series([*map(session.root.shown, found["path"])], found.index, dtype=object)
        shown = shown.assign(path=paths, note=found["note"])
        n_captures = int(found.loc[found["capture"] > 0, "capture"].nunique())
        head = {"folder": plain(self.path), "n_captures": n_captures}
        return self.fitted(head, self.rows("files", shown), notes_part(notes))


class VerdictTool(RunTool):
    """Say what limits a run: findings with evidence, what repairing each would save, caveats.

    The main question. Times of the critical path add up to the window; findings are ranked by
    what they would save. A withheld verdict says why.
    """

    name = "verdict"

    def answer(self, session: Session) -> dict[str, Any]:
        """The findings of a report."""
        file = session.root.existing(self.path)
        if is_worker_timeline(file):
            workers = load_workers(file)
            head = {"verdict": plain(workers.verdict().split("\n"), longest=None)}
            tables = ("stages", workers.stages()), ("savings", workers.savings())
            return self.fitted(head, *(rows_part(name, one, _MORE) for name, one in tables))
        head, parts = verdict_parts(self.target(session))
        return self.fitted(head, *parts)


class PathTool(TableTool, RunTool):
    """Give the critical path: what each instant had to wait for, by group or by segment.

    Groups add up to the window. Shortening what is not on the path changes nothing.
    """

    name = "path"
    by: Literal["bound", "name", "op", "kind", "track", "rule", "step", "rank", "segment"] = Field(
        "bound", description="Group by this (rank: of a job); 'segment' lists the path itself."
    )
    order: Literal["time", "longest"] = Field(
        "longest", description="Of segments: in order of time, or the longest first."
    )

    def answer(self, session: Session) -> dict[str, Any]:
        """The critical path as a table."""
        target = self.target(session)
        begin_stage("Finding the critical path")
        found = target.run.critical_path()
        is_trace = isinstance(found, CriticalPath)
        if self.by in ("rank", "step") and (self.by == "step") != is_trace:
            raise QueryError(
                f"this path cannot be broken down by {self.by!r}.",
                hint="by rank is for a folder, by step for a trace.",
            )
        if self.by == "segment":
            frame = found.segments[[*(() if is_trace else ("rank",)), *_SEGMENT]]
            if self.order == "longest":
                frame = frame.sort_values("dur_ns", ascending=False, kind="stable")
        else:
            groups: Any = found.breakdown
            frame = groups(by=self.by).rename_axis(self.by).reset_index()
        interval = found.window if isinstance(found, CriticalPath) else found
        head = {"window": window_head(found.window_name, interval.start_ns, found.dur_ns)}
        return self.fitted(head, self.rows(self.by, frame), notes_part(target.notes))


class KernelsTool(TableTool, RunTool):
    """Sum up device work: how often, how long, and how much of it is on the critical path.

    ``on_path_ns`` is given by name, of one trace: a kernel that is not on the path is not
    what the run waits for.
    """

    name = "kernels"
    by: Literal["name", "class", "op", "stream", "shape", "module"] = Field(
        "name", description="Group of kernels."
    )

    def answer(self, session: Session) -> dict[str, Any]:
        """Device work by group."""
        target = self.target(session)
        run = target.run
        begin_stage("Summing up kernels")
        frame = run.kernel_breakdown(by=self.by)
        if isinstance(run, TraceGraph) and self.by == "name":
            on_path = run.critical_path().breakdown(by="name")["dur_ns"]
            dur_ns = frame["group"].astype(object).map(on_path).fillna(0).astype("int64")
            frame.insert(1, "on_path_ns", dur_ns)
        shown = frame[[name for name in _KERNELS if name in frame]]
        notes = [not_recorded("kernel_breakdown", frame, self.by), *target.notes]
        return self.fitted(_head(run), self.rows("kernels", shown), notes_part(notes))


class WhatIfTool(TableTool, RunTool):
    """Predict what changes would save, by replaying the run; without changes, what would help.

    NAME is a name, glob or regex of kernels, operators or calls. An answer's
    ``scale('gemm*', by=0.5)`` is ``scale: ['gemm*=0.5']`` here. Between low_ns and high_ns lies
    what the trace leaves open.
    """

    name = "what_if"
    scale: Texts = Field((), description="'NAME=FACTOR': take FACTOR times as long.")
    remove: Texts = Field((), description="NAME: are not there; 'sync': nothing waits.")
    no_wait: Texts = Field((), description="NAME: do not wait for the device.")
    insert: Texts = Field((), description="'NAME=50us': are followed by as much more.")
    overlap: Texts = Field((), description="NAME: run concurrently with all other device work.")
    fuse: Texts = Field((), description="'NAME,NAME': kernels that follow become one.")
    at_roof: Texts = Field((), description="NAME or 'all': take what the device needs at least.")
    prefetch: bool = Field(False, description="Data is loaded during the step, one batch ahead.")
    graphed: bool = Field(False, description="Each step is captured as a CUDA or HIP graph.")
    bandwidth: float = Field(
        0, description="Collectives move data so many times as fast; 0: as now."
    )
    equalise: bool = Field(False, description="Of a job: no rank is later than the median rank.")
    rank: int = Field(-1, description="Of a job: change this rank only; -1: all.")

    def answer(self, session: Session) -> dict[str, Any]:
        """The prediction for the changes, or what would help."""
        changes = self._changes
        made = changes.changes()
        target = self.target(session)
        if changes.needs_job and not target.is_job:
            hint = "give the folder with the traces of its ranks."
            raise QueryError("equalise and rank need the ranks of a job.", hint=hint)
        run: Any = target.job if target.is_job else target.summary.graph
        target_notes = target.notes if target.is_job else target.summary.window_caveats
        begin_stage("Replaying")
        scenario: Any = what_if(run, *made, on="window")
        notes = notes_part([*caveats_of(scenario), *target_notes])
        head = _head(run)
        if scenario.withheld and not made:
            return self.fitted({**head, "withheld": plain(scenario.withheld)}, notes)
        if not made:
            found = run.opportunities() if target.is_job else target.summary.opportunities
            return self.fitted(head, notes, self.rows("opportunities", helpful_changes(found)))
        head["changes"] = plain([str(change) for change in made])
        head["prediction"] = plain(prediction_in_words(scenario), longest=400)
        if scenario.withheld:
            return self.fitted(head, notes)
        saves = scenario.saves_ns
        head |= {
            "after_ns": scenario.dur_ns,
            "saves_ns": saves.expected_ns,
            "low_ns": saves.low_ns,
            "high_ns": saves.high_ns,
        }
        return self.fitted(
            head,
            rows_part("path_by_bound", bounds_of(scenario), _MORE),
            *([rows_part("path_by_rank", ranks_of(scenario), _MORE)] if target.is_job else []),
            notes,
            rows_part("readings", readings_of(scenario), _MORE),
        )

    @property
    def _changes(self) -> ChangeOptions:
        options = self.model_dump(include={field.name for field in fields(ChangeOptions)})
        options["bandwidth"] = self.bandwidth or None
        options["rank"] = self.rank if self.rank >= 0 else None
        return ChangeOptions(**options)


class DiffTool(TableTool):
    """Compare two runs step by step: what changed beyond noise, and where it comes from.

    Times are means of alike steps; deltas of the path add up. A change "unknown" has too few steps.
    `check` is passed, broken, or withheld: not comparable, damaged, or within noise.
    """

    name = "diff"
    before: str = Field(description="A trace, a job's folder, or JSON of a report.")
    after: str = Field(description="The same after the change.")
    by: Literal["bound", "op", "name"] = Field("bound", description="Groups of the path.")
    kernels_by: Literal["name", "shape", "module"] = Field(
        "name", description="Group; shape: two devices."
    )
    fail_above: float = Field(DEFAULT_FAIL_ABOVE, ge=0, description="Allowed slowdown.")
    window: Window = ""

    def answer(self, session: Session) -> dict[str, Any]:
        """The differences as tables."""
        runs, notes = [], []
        for name in (self.before, self.after):
            begin_stage(f"Profiling {name}")
            file = session.root.existing(name)
            if file.is_file() and is_baseline(file):
                if self.window:
                    raise QueryError(f"{name} is a stored report: its window is fixed.")
                runs.append(RunProfile.read(file))
                continue
            target = Target(session, name, self.window)
            runs.append(run_profile(target.run, name=name))
            notes += target.notes
        found = RunDiff(*runs)
        limits = Limits(fail_above=self.fail_above)
        limit = check_run(found.after, limits, baseline=found.before).limits[0]
        path, kernels = found.critical_path(by=self.by), found.kernels(by=self.kernels_by)
        bound = [] if self.by == "bound" else ["bound"]
        damage = [plain(said, longest=None) for said in found.damage]
        return self.fitted(
            {
                "verdict": plain(found.verdict(), longest=None),
                "is_comparable": not found.not_comparable,
                "check": limit.state,
                "check_says": plain(limit.said * (limit.state == "withheld"), longest=None),
                **{key: plain(found.steps[key]) for key in _CHANGE},
            },
            Part("damage", damage, len(damage), _MORE),
            self.rows(f"path_by_{self.by}", path[["name", *bound, *_CHANGE]]),
            self.rows("kernels", kernels.loc[kernels["change"] != "noise", _KERNEL_CHANGE]),
            notes_part([*found.notes[len(damage) :], *notes]),
        )


class HangTool(TableTool):
    """Say where a job hangs, from Flight Recorder dumps: one file per rank, JSON or pickle.

    For each group of ranks, the first collective that a member never entered, or entered as
    another one; and where each rank waits, since when, at which line.
    """

    name = "hang"
    path: str = Field(description="Folder with the dumps of all ranks; other files are ignored.")

    def answer(self, session: Session) -> dict[str, Any]:
        """The differences between ranks."""
        folder = session.root.existing(self.path)
        dumps = load_dumps([path for path in find_dumps(folder) if session.root.holds(path)])
        last = dumps.last_collectives().sort_values("is_waiting", ascending=False, kind="stable")
        head = {
            "verdict": plain(dumps.verdict().split("\n")[0], longest=None),
            "n_ranks": len(dumps.ranks),
            "missing_ranks": dumps.missing_ranks[:_N_MISSING],
        }
        return self.fitted(
            head,
            self.rows("hangs", dumps.hangs().drop(columns="description")),
            self.rows("last_collectives", last.drop(columns="stack")),
        )


class QuestionsTool(Tool):
    """List the questions for `ask`: their options with defaults, and what they answer."""

    name = "questions"
    max_tokens: Tokens = 4_000

    def answer(self, session: Session) -> dict[str, Any]:  # noqa: ARG002
        """All questions."""
        return fitted(
            {}, [rows_part("questions", all_questions(), _MORE, longest=None)], self.max_tokens
        )


class AskTool(TableTool, RunTool):
    """Ask any question of a trace, or of every rank of a job: idle time, launches, slack, ...

    Answers are tables. Of a folder, they have a column ``rank``.
    """

    name = "ask"
    question: str = Field(description="Its name; `questions` lists them.")
    options: Options = Field(
        default_factory=dict, description="Options of the question, for example {'by': 'op'}."
    )
    where: str = Field(
        "", description="Keep rows for which this holds: \"dur_ns > 1_000 and 'gemm' in name\"."
    )
    columns: Texts = Field((), description="Columns to give; none: all.")
    largest: str = Field(
        "", description="Column by which the largest come first; empty: as answered."
    )

    def answer(self, session: Session) -> dict[str, Any]:
        """The requested rows."""
        if self.question not in QUESTIONS and self.question not in JOB_QUESTIONS:
            near = targets_of(self.question, (*QUESTIONS, *JOB_QUESTIONS))
            calls = " or ".join(f"`{target.call()}`" for target in near)
            hint = f"try {calls}; `questions` lists all." if near else "`questions` lists them."
            raise QueryError(f"unknown question {self.question!r}.", hint=hint)
        target = self.target(session)
        if self.question not in QUESTIONS and not target.is_job:
            hint = "give the folder with the traces of its ranks."
            raise QueryError(f"{self.question!r} is a question about a job.", hint=hint)
        run = target.run
        begin_stage(f"Answering {self.question}")
        frame = run.ask(self.question, **self.options)
        lacks = not_recorded(self.question, frame, self.options.get("by"))
        if self.where:
            frame = rows_where(frame, self.where)
        for name in (*self.columns, *([self.largest] if self.largest else [])):
            if name not in frame.columns:
                hint = one_of(name, map(str, frame.columns), "columns are")
                raise QueryError(f"the answer has no column {name!r}.", hint=hint)
        if self.largest:
            frame = frame.sort_values(self.largest, ascending=False, kind="stable")
        rows = self.rows("rows", frame[list(self.columns or frame)])
        head = {**_head(run), "question": self.question, "n_rows": len(frame)}
        return self.fitted(head, rows, notes_part([lacks, *target.notes]))


def _head(run: TraceGraph | Job) -> dict[str, Any]:
    """The window that the answer is about."""
    if isinstance(run, Job):
        return {"ranks": len(run), "window": plain(str(run.asked_window or "job"))}
    window = run.interval
    return {"window": window_head(window.name, window.start_ns, window.dur_ns)}


TOOLS: dict[str, type[Tool]] = {
    tool.name: tool
    for tool in (
        *(CapturesTool, VerdictTool, PathTool, KernelsTool, WhatIfTool, DiffTool, HangTool),
        *(QuestionsTool, AskTool),
    )
}
"""The tools by name, in the order in which clients list them."""
