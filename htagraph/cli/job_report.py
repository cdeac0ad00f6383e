"""The report on a folder of ranks: who is late, what it costs, where the job's path runs."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from htagraph.cli.console import Waiting
from htagraph.cli.tables import print_titled, rich_table
from htagraph.errors import OutputError
from htagraph.report.job_summary import JobSummary
from htagraph.report.markdown import human_frame, markdown_table
from htagraph.writers.atomic import output_file

__all__ = ["print_job", "write_job_files"]

_N_RANKS = 12
_LATE = ["rank", "n_last", "caused_wait_ns", "longest_wait_ns", "own_wait_ns", "cause_bound", "cause_op"]
_DEVICE = ["rank", "device", "idle_share", "compute_share", "communication_share", "memory_share"]


def print_job(console: Console, summary: JobSummary) -> None:
    """Print a job's summary: what keeps it waiting, and the tables behind that."""
    console.print(summary.name, style="bold", markup=False)
    console.print(summary.facts, markup=False)
    console.print("\n[bold]What keeps the job waiting[/]")
    for number, finding in enumerate(summary.findings, start=1):
        console.print(f"  {number}. [bold]{escape(finding.sentence)}[/]")
        console.print(Padding(Text(finding.evidence), (0, 0, 0, 5), expand=False))
        console.print(Padding(Text(f"try: {finding.to_try}", style="italic"), (0, 0, 0, 5), expand=False))
    for title, frame in _tables(summary):
        print_titled(console, title, rich_table(frame.head(_N_RANKS)))
    if len(summary.job.failures):
        print_titled(console, "Left out", rich_table(summary.job.failures))


def _tables(summary: JobSummary) -> list[tuple[str, pd.DataFrame]]:
    """Return the tables of a report, with their titles."""
    return [
        ("The job's path by rank", summary.path.breakdown(by="rank").reset_index(names="rank")),
        ("The job's path by bound", summary.path.breakdown(by="bound").rename_axis("name").reset_index()),
        ("Who the others wait for", summary.stragglers[_LATE]),
        ("Devices", summary.devices[_DEVICE]),
    ]


def _markdown(summary: JobSummary) -> str:
    """Return the summary as Markdown."""
    lines = [f"# {summary.name}", "", summary.facts, "", "## What keeps the job waiting", ""]
    for number, finding in enumerate(summary.findings, start=1):
        lines += [f"{number}. **{finding.sentence}.** {finding.evidence}. Try: {finding.to_try}"]
    for title, frame in _tables(summary):
        lines += ["", f"## {title}", "", markdown_table(human_frame(frame))]
    return "\n".join(lines) + "\n"


def write_job_files(summary: JobSummary, folder: Path, waiting: Waiting) -> dict[str, Path]:
    """Write the files of a job's report into a folder, which is made; return them by what they are."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise OutputError(
            f"no folder can be made here: {exc.strerror}.", path=folder, hint="choose another --out."
        ) from exc
    files = {"perfetto": folder / "job.pftrace", "summary": folder / "summary.md", "json": folder / "job.json"}
    waiting.stage(f"Writing {files['perfetto']}")
    summary.path.to_perfetto(files["perfetto"])
    for what, text in (
        ("summary", _markdown(summary)),
        ("json", json.dumps(summary.document(), indent=2, default=str) + "\n"),
    ):
        with output_file(files[what]) as file:
            file.write(text.encode())
    return files
