"""The report on a folder of ranks: what bounds the job, late ranks, its critical path."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from htagraph.cli.console import Waiting
from htagraph.cli.files import new_folder, write_text
from htagraph.cli.tables import print_head, print_titled
from htagraph.job.ranks import Work
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.markdown import job_tables, markdown_job_summary

__all__ = ["page_work", "print_job", "write_job_files"]

_N_ROWS = 12


def print_job(console: Console, summary: JobSummary) -> None:
    """Print the summary of a job: its verdict, and the tables behind it."""
    print_head(console, summary)
    if summary.inferred:
        console.print(f"\n{summary.inferred}", style="dim", markup=False)
    for title, frame in job_tables(summary):
        of = f", first {_N_ROWS} of {len(frame):,}" if len(frame) > _N_ROWS else ""
        print_titled(console, f"{title}{of}", frame.head(_N_ROWS))


def page_work(n_ranks: int) -> tuple[Work, ...]:
    """The work on every rank that the page of a job needs; none where no page can be written."""
    if find_spec("plotly") is None:
        return ()
    # Deferred: plotly is an extra.
    from htagraph.reports.page.rank_answers import job_page_work  # noqa: PLC0415

    return job_page_work(n_ranks)


def write_job_files(
    summary: JobSummary, folder: Path, waiting: Waiting, *, record: str = ""
) -> dict[str, Path]:
    """Write the files of a job's report into a folder; they are returned by what they are.

    The summary ends with the record.
    """
    new_folder(folder)
    files = {"perfetto": folder / "job.pftrace", "summary": folder / "summary.md"}
    waiting.stage(f"Writing {files['perfetto']}")
    summary.path.to_perfetto(files["perfetto"])
    waiting.stage(f"Writing {files['summary']}")
    write_text(files["summary"], markdown_job_summary(summary) + record)
    if find_spec("plotly") is not None:
        from htagraph.reports.page import write_page  # noqa: PLC0415  deferred: plotly is an extra

        files["page"] = folder / "report.html"
        waiting.stage(f"Writing {files['page']}")
        write_page(files["page"], summary, perfetto_file=files["perfetto"].name)
    return files
