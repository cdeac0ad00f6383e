"""`report`: what `htagraph report` says and writes, from Python in one call."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from htagraph.arrays.memory import returns_memory
from htagraph.errors import IncompleteTraceWarning
from htagraph.findings.path import CriticalPath
from htagraph.findings.verdict import Verdict
from htagraph.job.job import Job
from htagraph.job.opened import opened
from htagraph.job.ranks import Work
from htagraph.model.progress import begin_stage
from htagraph.readers.captures import CaptureName, chosen
from htagraph.replay.excerpt import excerpt_of
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.json_document import json_document
from htagraph.reports.markdown import markdown_summary
from htagraph.reports.report_folder import ReportOrigin
from htagraph.reports.summary import Summary
from htagraph.run.compiled import Compiled, LoadOptions
from htagraph.run.trace import Trace
from htagraph.writers.notebook_cell import escaped
from htagraph.writers.output_file import new_folder, write_text

MOST_RANKS = 64
"""Ranks in the Perfetto trace of a job: each is opened once more for it, one after the other."""
FEWEST_RANKS = 2
"""Ranks in it however large they are: a late rank is compared with another one. Pinned by
test_the_trace_of_large_ranks_has_few_of_them.
"""
MOST_EVENTS = 1_000_000
"""Events above which a part stands for a trace or a job in Perfetto: its UI opens hardly more."""


def page_work(n_ranks: int) -> tuple[Work, ...]:
    """Work on every rank that the page of a job needs."""
    # Deferred: a report without files needs no page.
    from htagraph.reports.page.sections import job_page_work  # noqa: PLC0415

    return job_page_work(n_ranks)


def write_files(
    summary: Summary | JobSummary,
    folder: Path,
    *,
    page: bool = True,
    whole: bool = False,
    record: str = "",
) -> dict[str, Path]:
    """Write the files of a report into a folder.

    `whole`: whether all of a trace, or all ranks up to `MOST_RANKS`, of more than `MOST_EVENTS`
    events go to Perfetto. `record`: last lines of the summary. ``perfetto``, ``dot`` (of one rank),
    ``summary``, ``page``.
    """
    new_folder(folder)
    of_rank = isinstance(summary, Summary)
    files = {"perfetto": folder / ("critical.pftrace" if of_rank else "job.pftrace")}
    trace: Future[Path] | None = None
    with ThreadPoolExecutor(1, "htagraph-trace") as beside:
        if isinstance(summary, Summary):
            shown = summary.path if whole else shown_in_perfetto(summary.path, files["perfetto"])
            write = partial(shown.to_perfetto, findings=summary.verdict.by_cause)
            trace = beside.submit(write, files["perfetto"])
            files["dot"] = folder / "critical.dot"
            begin_stage(f"Writing {files['dot']}")
            returns_memory()
            summary.path.to_dot(files["dot"])
            returns_memory()
        else:
            begin_stage(f"Writing {files['perfetto']}")
            # Not on a thread: it opens ranks, one at a time.
            _write_job_trace(files["perfetto"], summary, whole=whole)
        text = markdown_summary(summary)
        files["summary"] = folder / "summary.md"
        begin_stage(f"Writing {files['summary']}")
        write_text(files["summary"], text + record)
        if page:
            # Deferred: a report without files needs no page.
            from htagraph.reports.page import write_page  # noqa: PLC0415

            files["page"] = folder / "report.html"
            begin_stage(f"Writing {files['page']}")
            write_page(files["page"], summary, perfetto_file=files["perfetto"].name)
        if trace is not None:
            begin_stage(f"Writing {files['perfetto']}")
            trace.result()
    return files


def shown_in_perfetto(
    path: CriticalPath, file: Path, *, most_events: int = MOST_EVENTS
) -> CriticalPath:
    """The path for Perfetto; of a large trace, representative steps of it."""
    if len(path.dag.events) <= most_events:
        return path
    n_events = most_events * 2 // 5
    part = excerpt_of(path.dag, path.window, large=0, n_events=n_events)
    if not part.n_steps:
        return path
    warnings.warn(
        f"{file.name} has {part.window.name}, {part.n_steps:,} of {part.n_alike:,} similar "
        "steps, with their own critical path; --whole writes all.",
        IncompleteTraceWarning,
        stacklevel=3,
    )
    return replace(path, dag=part.dag, window=part.window)


def _write_job_trace(file: Path, summary: JobSummary, *, whole: bool) -> Path:
    """Write the Perfetto trace of a job; of many ranks, those that matter, with a warning."""
    ranks = summary.ranks_by_interest()
    shown = ranks[:MOST_RANKS]
    if not whole:
        n_events = np.cumsum([summary.job.summaries[rank].n_events for rank in shown])
        fit = int(np.searchsorted(n_events, MOST_EVENTS, side="right"))
        shown = shown[: max(fit, FEWEST_RANKS)]
    if len(shown) < len(ranks):
        more = "" if len(shown) == MOST_RANKS else " --whole writes more."
        warnings.warn(
            f"{file.name} has {len(shown)} of {len(ranks):,} ranks: those with most of the path, "
            f"then the late ones.{more}",
            IncompleteTraceWarning,
            stacklevel=3,
        )
    return summary.path.to_perfetto(file, findings=summary.verdict.by_cause, ranks=shown)


@dataclass(frozen=True, repr=False)
class Report:
    """What limits a run, and the files that say more; made by `report`.

    Parameters
    ----------
    summary : Summary or JobSummary
        Everything that it says, as data.
    files : mapping of str to Path
        What was written: ``summary``, ``page``, ``perfetto``, ``dot``; empty for nothing.
    """

    summary: Summary | JobSummary
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """What limits the run."""
        return self.summary.verdict

    @property
    def document(self) -> dict[str, Any]:
        """The report as JSON has it; keys in `htagraph.reports.json_document`."""
        return json_document(self.summary, self.files)

    @property
    def _head(self) -> list[str]:
        """What the trace is, and what one has to know to read the verdict."""
        return [self.summary.name, self.summary.facts, *self.summary.caveats]

    def __repr__(self) -> str:
        """The head of the report, as the terminal shows it, and the files."""
        wrote = [f"Wrote {file}" for file in self.files.values()]
        return "\n".join([*self._head, "", repr(self.verdict), *([""] if wrote else []), *wrote])

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        head = "".join(f"<div>{escaped(line)}</div>" for line in self._head)
        wrote = "".join(f"<div>Wrote {escaped(str(file))}</div>" for file in self.files.values())
        return f"{head}<br>{self.verdict._repr_html_()}<br>{wrote}"


def report(
    where: str | Path | Trace | Job | Iterable[str | Path],
    out: str | Path | None = None,
    *,
    window: str = "",
    capture: CaptureName = "latest",
    stacks: bool | None = None,
    infer: bool = True,
    executor: Executor | None = None,
    write: bool = True,
    whole: bool = False,
) -> Report:
    """What limits a run, with the files that `htagraph report` writes.

    Parameters
    ----------
    where : str, Path, Trace, Job, or iterable of str or Path
        A trace; or a folder, a glob or a list with those of a job.
    out : str or Path, optional
        Folder for the files; ``htagraph-report/<parent>/<trace>`` by default.
    window : str
        A step or other host range, by name, glob or regex; empty for all.
    capture : int or "latest", default="latest"
        Which capture of a folder with several.
    stacks : bool, optional
        Whether Python stacks are read. By default those of small files, and where untraced code
        is the largest part of the path.
    infer : bool
        As for `Trace.compile`.
    executor : concurrent.futures.Executor, optional
        Runs the work on the ranks of a job.
    write : bool, default=True
        Whether files are written.
    whole : bool, default=False
        Whether all of a trace of more than a million events is written for Perfetto, not steps
        that stand for it.

    Returns
    -------
    Report

    Raises
    ------
    TraceNotFoundError
        If there is no such file or folder.
    OutputError
        If the folder holds a report on something else, or cannot be written.

    Examples
    --------
    >>> import htagraph as hg
    >>> hg.report(hg.load(hg.demo_trace("dataloader")), write=False).verdict.findings[0].title
    'Data loading'
    """
    place = _place(where)
    if isinstance(where, Job):
        source: Compiled | Job = where
    elif isinstance(where, Trace):
        source = Compiled(where, where.compile(infer=infer))
    else:
        traces = chosen(where if isinstance(where, str | Path) else list(where), capture)
        if len(traces.paths) == 1:
            place, capture = traces.paths[0], "latest"
        elif not isinstance(where, str | Path):
            place = traces.paths[0].parent
        source = opened(traces, LoadOptions(stacks=stacks, infer=infer), executor=executor)
    if isinstance(source, Job):
        job = source.window(window) if window else source
        name = place.resolve().name if isinstance(where, str | Path) else "job"
        also = page_work(len(job)) if write else ()
        summary: Summary | JobSummary = JobSummary.of_answering(job, name, also)
    else:
        summary = Summary.of(*source, window)
    if not write:
        return Report(summary)
    origin = ReportOrigin.of(place, window, capture)
    if out is not None:
        origin.check(Path(out))
    into = Path(out) if out is not None else origin.folder(summary.name)
    files = write_files(summary, into, whole=whole, record=origin.record)
    origin.remove_stale(into, files.values())
    return Report(summary, files)


def _place(where: str | Path | Trace | Job | Iterable[str | Path]) -> Path:
    """Where the source of a report lies: its file or folder, or that of its first rank."""
    if isinstance(where, Job):
        return Path(next(iter(where.summaries.values())).path).parent
    if isinstance(where, Trace):
        return where.path or Path("trace")
    return Path(where) if isinstance(where, str | Path) else Path()
