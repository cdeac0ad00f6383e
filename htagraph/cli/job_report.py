"""The report on a folder of ranks: what bounds the job, late ranks, its critical path."""

from __future__ import annotations

from rich.console import Console

from htagraph.cli.tables import print_head, print_titled
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.markdown import job_tables

__all__ = ["print_job"]

_N_ROWS = 12


def print_job(console: Console, summary: JobSummary) -> None:
    """Print the summary of a job: its verdict, and the tables behind it."""
    print_head(console, summary)
    if summary.inferred:
        console.print(f"\n{summary.inferred}", style="dim", markup=False)
    for title, frame in job_tables(summary):
        of = f", first {_N_ROWS} of {len(frame):,}" if len(frame) > _N_ROWS else ""
        print_titled(console, f"{title}{of}", frame.head(_N_ROWS))
