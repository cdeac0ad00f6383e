"""The files of a report: traces with the path on top, a summary, and a page with plots."""

from __future__ import annotations

import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from htagraph.errors import IncompleteTraceWarning
from htagraph.job.ranks import Work
from htagraph.model.progress import begin_stage
from htagraph.native.memory import returns_memory
from htagraph.path import CriticalPath
from htagraph.replay.excerpt import excerpt_of
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.markdown import markdown_job_summary, markdown_summary
from htagraph.reports.summary import Summary
from htagraph.writers.output_file import new_folder, write_text

MOST_RANKS = 64
"""Ranks in the Perfetto trace of a job: each is opened once more for it, one after the other."""
FEWEST_RANKS = 2
"""Ranks in it however large they are: a late rank is compared with another one.

Pinned by `test_the_trace_of_large_ranks_has_few_of_them`.
"""
MOST_EVENTS = 1_000_000
"""Events above which a part stands for a trace or a job in Perfetto: its UI opens hardly more."""


def page_work(n_ranks: int) -> tuple[Work, ...]:
    """Work on every rank that the page of a job needs."""
    # Deferred: a report without files needs no page.
    from htagraph.reports.page.rank_answers import job_page_work  # noqa: PLC0415

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

    Parameters
    ----------
    whole : bool, default=False
        Whether all of a trace, or all ranks up to `MOST_RANKS`, of more than `MOST_EVENTS` events
        go to Perfetto.
    record : str
        Last lines of the summary.

    Returns
    -------
    dict of str to Path
        ``perfetto``, ``dot`` (of one rank), ``summary``, ``page``.

    Raises
    ------
    OutputError
        If one cannot be written.
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
            text = markdown_summary(summary)
        else:
            begin_stage(f"Writing {files['perfetto']}")
            # Not on a thread: it opens ranks, one at a time.
            _write_job_trace(files["perfetto"], summary, whole=whole)
            text = markdown_job_summary(summary)
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
    """The path for Perfetto; of a large trace, representative steps of it.

    Warns
    -----
    IncompleteTraceWarning
        If only a part is shown.
    """
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
