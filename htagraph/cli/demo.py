"""`htagraph demo`: reports on planted faults; and `warm`: native code compiled in advance."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from htagraph.arrays.clocks import follow
from htagraph.arrays.code_cache import at_home
from htagraph.arrays.passes import PASSES
from htagraph.arrays.sequences import Timed, align
from htagraph.cli import options
from htagraph.cli.console import notices, output, shown_progress
from htagraph.cli.tables import print_titled, print_verdict
from htagraph.errors import HTAGraphError, OutputError
from htagraph.findings.verdict import percent
from htagraph.job.job import JOB_QUESTIONS
from htagraph.job.loading import load_job
from htagraph.model.kinds import Cause
from htagraph.model.progress import begin_stage
from htagraph.queries.questions import QUESTIONS
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.json_document import json_document
from htagraph.reports.report import write_files
from htagraph.reports.summary import Summary
from htagraph.run.compiled import LoadOptions
from htagraph.run.trace import load
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
    console.print(job.verdict.headline)
    shown = out / _SHOWN
    aside = notices(quiet=quiet)
    aside.print()
    aside.print(f"Wrote {len(summaries)} traces and a report on each to {out}/")
    if (shown / "report.html").exists():
        aside.print(f"  look   {shown / 'report.html'} in a browser")
    if "page" in job_files:
        aside.print(f"         {job_files['page']}: the job of four ranks")
    aside.print(f"  open   htagraph view {shown / 'critical.pftrace'}   (Perfetto)")
    aside.print(f"         htagraph view {job_files['perfetto']}: across four ranks")
    aside.print(f"  read   {shown / 'summary.md'}, {job_files['summary']}")
    aside.print(f"  draw   dot -Tsvg {shown / 'critical.dot'} > path.svg   (needs Graphviz)")
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


_MANY = 12_000
"""Chosen: more names than the initial size of a symbol table."""


def warm(*, quiet: options.Quiet = False) -> None:
    """Compile all native code now, so that the first trace is as fast as the second.

    Meant for container images. Takes seconds with a released wheel, half a minute in a checkout;
    code that is already compiled is skipped.
    """
    started = time.perf_counter()
    with (
        TemporaryDirectory() as folder,
        at_home() as place,
        shown_progress(quiet=quiet),
    ):
        begin_stage("Compiling the readers")
        load(_broken_trace())
        begin_stage("Compiling the analysis of a rank")
        _ask_a_rank(Path(folder))
        begin_stage("Compiling the analysis of a job")
        _ask_a_job()
    n_passes = sum(len(forms) for forms in PASSES.values())
    seconds = time.perf_counter() - started
    where = f"kept in {place}" if place else "not kept: no folder for them can be written"
    output().print(f"{n_passes} functions ready after {seconds:.1f} s, {where}", soft_wrap=True)


def _broken_trace() -> bytes:
    """A damaged trace, with more names and bytes than one piece of a file has."""
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f"{k:0200}", "pid": 1, "tid": 1, "ts": k, "dur": 1}
        for k in range(_MANY)
    ]
    halves = [{"ph": ph, "name": "half", "pid": 1, "tid": 2, "ts": 1} for ph in "BE"]
    good = json.dumps({"traceEvents": halves + events}).encode()
    return good.replace(b'"dur": 1}', b'"dur": 0x1}', 1) + b", {nothing"


def _ask_a_rank(folder: Path) -> None:
    """Answer all questions about a rank of the demo."""
    trace = load(demo_trace("dataloader"))
    graph = trace.compile()
    for question in QUESTIONS:
        with suppress(HTAGraphError, TypeError):  # it needs an option
            graph.ask(question)
    _ = graph.select(kind="kernel").ancestors() & graph.select(kind="op").descendants()
    path = graph.critical_path()
    _ = path.outline
    path.to_perfetto(folder / "critical.pftrace")
    path.trials.next_causes(Cause.DATA_LOADING)  # in the demo no two causes run side by side
    load(folder / "critical.pftrace")
    load(demo_trace("dataloader"), window="first", cache=folder)
    follow(*np.zeros((3, 2), dtype=np.int64))  # the clocks of the demo do not drift
    summary = Summary(trace, graph)
    json_document(summary)
    _ = summary.first_changes


def _ask_a_job() -> None:
    """Answer all questions about the job of the demo."""
    job = load_job(demo_trace("job"))
    for question in JOB_QUESTIONS:
        with suppress(HTAGraphError, TypeError):
            job.ask(question)
    json_document(JobSummary(job, "a job"))
    once, both = np.zeros(1, dtype=np.int64), np.ones(1, dtype=bool)
    one = Timed(once, once, once, once, both, both)
    align(one, one, 1, 1)  # the ranks of the demo do not differ
