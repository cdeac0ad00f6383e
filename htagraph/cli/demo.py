"""`htagraph demo`: reports on training runs, each with a planted fault."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from htagraph.cli import options
from htagraph.cli.console import notices, output, shown_progress
from htagraph.cli.tables import print_titled, print_verdict
from htagraph.errors import OutputError
from htagraph.findings.verdict import percent
from htagraph.job.loading import load_job
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.report import write_files
from htagraph.reports.summary import Summary
from htagraph.run.compiled import LoadOptions
from htagraph.synth.demo_traces import demo_trace

PLANTED = {
    "captured": "loading a batch sleeps 40 ms",
    "none": "nothing is wrong",
    "dataloader": "the data loader stalls",
    "sync_in_loop": ".item() in every layer",
    "small_kernels": "many tiny kernels",
    "exposed_allreduce": "gradients reduced in one late bucket",
    "synchronous_copy": "batches copied from pageable memory",
}
"""Faults of the demo traces, in words."""

_SHOWN = "captured"
_JOB = "job"
_LATE_RANK = 2


def demo(
    *,
    out: Annotated[Path, typer.Option(help="Folder for traces and reports.")] = Path(
        "htagraph-demo"
    ),
    quiet: options.Quiet = False,
) -> None:
    """Report on training runs, each with a planted fault. Nothing is downloaded."""
    summaries: dict[str, Summary] = {}
    with shown_progress(quiet=quiet):
        for fault in PLANTED:
            summaries[fault] = Summary(*LoadOptions().made(_copied(demo_trace(fault), out)))
            write_files(summaries[fault], out / fault, page=fault == _SHOWN)
        ranks = out / _JOB
        for rank in sorted(demo_trace(_JOB).iterdir()):
            _copied(rank, ranks)
        job = JobSummary(load_job(ranks), "a job of four ranks")
        job_files = write_files(job, out / f"{_JOB}-report")
    console = output()
    print_verdict(console, summaries[_SHOWN])
    print_titled(
        console,
        "All runs: one recorded with PyTorch on a CPU, and six simulated",
        _comparison(summaries),
    )
    console.print(
        f"\nA simulated job: four ranks, rank {_LATE_RANK} slowed down, clocks up to 5 ms apart",
        style="bold",
    )
    console.print(job.verdict.headline, markup=False)
    shown = out / _SHOWN
    aside = notices(quiet=quiet)
    aside.print()
    aside.print(f"Wrote {len(summaries)} traces and a report on each to {out}/", markup=False)
    if (shown / "report.html").exists():
        aside.print(f"  look   {shown / 'report.html'} in a browser", markup=False)
    if "page" in job_files:
        aside.print(f"         {job_files['page']}: the job of four ranks", markup=False)
    aside.print(f"  open   htagraph view {shown / 'critical.pftrace'}   (Perfetto)", markup=False)
    aside.print(f"         htagraph view {job_files['perfetto']}: across four ranks", markup=False)
    aside.print(f"  read   {shown / 'summary.md'}, {job_files['summary']}", markup=False)
    aside.print(
        f"  draw   dot -Tsvg {shown / 'critical.dot'} > path.svg   (needs Graphviz)", markup=False
    )
    aside.print("  next   htagraph report YOUR_TRACE.json.gz")


def _copied(trace: Path, folder: Path) -> Path:
    """Copy a trace into a folder, which is made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copyfile(trace, folder / trace.name))
    except OSError as exc:
        hint = "choose a folder that can be written."
        raise OutputError(str(exc), path=folder, hint=hint) from exc


def _comparison(summaries: dict[str, Summary]) -> Table:
    """Table of what was planted and what was found."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for header in ("trace", "planted", "found first"):
        table.add_column(header, overflow="fold")
    table.add_column("costs", justify="right")
    for fault, summary in summaries.items():
        verdict = summary.verdict
        first = verdict.items[0]
        cost = percent(first.cost_ns or 0, verdict.dur_ns)
        table.add_row(fault, PLANTED[fault], first.title, cost)
    return table
