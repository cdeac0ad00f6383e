"""`htagraph report`: what bounds a run, on the terminal and as files to look into."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from htagraph.cli.console import Waiting, notices, output
from htagraph.cli.job_report import print_job
from htagraph.cli.options import (
    CaptureOption,
    DaskOption,
    InferOption,
    QuietOption,
    ReportArgument,
    StacksOption,
    WindowOption,
    WorkersOption,
    windowed,
)
from htagraph.cli.ranks import (
    asked_captures,
    executor_of,
    loaded_job,
    print_captures,
    windowed_job,
)
from htagraph.cli.tables import BAR_WIDTH, bar, print_head, print_titled
from htagraph.errors import QueryError
from htagraph.model.colors import COLORS
from htagraph.model.kinds import in_words
from htagraph.model.units import human_count, human_duration
from htagraph.readers.captures import CaptureName
from htagraph.reports.files import page_work, write_files
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.json_document import job_document, json_document
from htagraph.reports.report_folder import ReportOrigin
from htagraph.reports.summary import Summary
from htagraph.writers.text_file import write_text

__all__ = ["print_summary", "report", "report_job"]

_N_TOP = 6
_N_STEPS = 12
_WHERE_TO_OPEN = {
    "perfetto": "  (htagraph view, or https://ui.perfetto.dev)",
    "page": "  (in a browser)",
}
_COLORS = {bound.label: color.terminal for bound, color in COLORS.items()}


def report(
    trace: ReportArgument,
    *,
    window: WindowOption = "",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the files.", show_default="./htagraph-report/<parent>/<trace>"
        ),
    ] = None,
    json_file: Annotated[
        str,
        typer.Option(
            "--json", metavar="FILE", help="Also write the report as JSON; - prints only the JSON."
        ),
    ] = "",
    capture: CaptureOption = "",
    workers: WorkersOption = 0,
    dask: DaskOption = "",
    stacks: StacksOption = False,
    infer: InferOption = True,
    quiet: QuietOption = False,
) -> None:
    """Say what bounds a run and what to try first. A folder holds the ranks of a job."""
    if capture == "list":
        print_captures(trace)
        return
    captures = asked_captures(trace, capture)
    if len(captures) > 1 and (out is not None or json_file):
        raise QueryError(
            "--out and --json are for one report, not for all captures.", hint="give --capture N."
        )
    if trace.is_dir():
        for number in captures:
            report_job(
                trace,
                window,
                out,
                json_file,
                capture=number,
                workers=workers,
                dask=dask,
                stacks=stacks,
                infer=infer,
                quiet=quiet,
            )
        return
    origin = ReportOrigin.of(trace, window)
    if out is not None:
        origin.check(out)
    with Waiting(quiet=quiet).shown() as waiting:
        loaded = waiting.load(trace, stacks=stacks)
        waiting.stage("Compiling the graph")
        graph = loaded.compile(infer=infer)
        summary = (
            Summary(loaded, windowed(graph, window))
            if window
            else Summary.by_default(loaded, graph)
        )
        waiting.stage("Finding the critical path")
        into = out or origin.folder(summary.name)
        files = write_files(summary, into, doing=waiting.stage, record=origin.record)
        origin.remove_stale(into, files.values())
    if _written_alone(json_document(summary, files), json_file, files):
        return
    print_summary(output(), summary)
    _print_files(files, quiet=quiet)


def report_job(
    folder: Path,
    window: str,
    out: Path | None,
    json_file: str,
    *,
    capture: CaptureName,
    workers: int,
    dask: str,
    stacks: bool,
    infer: bool,
    quiet: bool,
) -> None:
    """Say what bounds a job and which ranks are late; write its trace with the path on top."""
    origin = ReportOrigin.of(folder, window, capture)
    if out is not None:
        origin.check(out)
    with Waiting(quiet=quiet).shown() as waiting, executor_of(workers, dask) as executor:
        job = loaded_job(waiting, folder, executor, stacks=stacks, infer=infer, capture=capture)
        waiting.stage("Finding the path across ranks")
        also = page_work(len(job))
        summary = JobSummary(windowed_job(job, window), folder.resolve().name, also)
        into = out or origin.folder(summary.name)
        files = write_files(summary, into, doing=waiting.stage, record=origin.record)
        origin.remove_stale(into, files.values())
        document = job_document(summary, files)
    if _written_alone(document, json_file, files):
        return
    print_job(output(), summary)
    _print_files(files, quiet=quiet)


def _written_alone(document: dict[str, Any], json_file: str, files: dict[str, Path]) -> bool:
    """Write the report as JSON if asked for; the result tells whether nothing else is printed."""
    text = json.dumps(document, indent=2, default=str) + "\n"
    if json_file == "-":
        typer.echo(text, nl=False)
        return True
    if json_file:
        files["json"] = Path(json_file)
        write_text(files["json"], text)
    return False


def _print_files(files: dict[str, Path], *, quiet: bool) -> None:
    """Print the files that were written and how to open them."""
    beside = notices(quiet=quiet)
    beside.print()
    for what, file in files.items():
        beside.print(f"Wrote {file}{_WHERE_TO_OPEN.get(what, '')}", markup=False)
    if "page" not in files:
        beside.print(
            "For a page with plots: pip install 'htagraph[plot]'", style="dim", markup=False
        )


def print_summary(console: Console, summary: Summary) -> None:
    """Print the summary of a trace: its verdict, and the tables behind it."""
    print_head(console, summary)
    if len(summary.by_step):
        n_steps = len(summary.by_step)
        of = f", first {_N_STEPS} of {n_steps:,}" if n_steps > _N_STEPS else ""
        print_titled(console, f"By step{of}", summary.by_step.head(_N_STEPS))
    segments = human_count(len(summary.path.segments), "segment")
    title = f"Critical path: {human_duration(summary.path.dur_ns)} in {segments}"
    print_titled(console, title, _bound_table(summary, console.width))
    if summary.inferred:
        console.print(summary.inferred, style="dim", markup=False)
    for title, frame in (
        ("Operators on the path", summary.by_op),
        ("What ran on the path", summary.by_name),
    ):
        named = frame.head(_N_TOP).rename_axis("name").reset_index()
        named["name"] = named["name"].replace("", "(no operator)")
        print_titled(console, title, named)
    weak = summary.weak_checks[["check", "share", "verdict", "consequence"]]
    if len(weak):
        print_titled(console, "What the trace does not show", weak)
    if len(summary.trace.repairs):
        print_titled(console, "Repairs of the file", summary.trace.repairs)


def _bound_table(summary: Summary, width: int) -> Table:
    """The path by bound, as a table, with bars where there is room."""
    frame = summary.by_bound
    rows = [
        (in_words(bound), human_duration(dur_ns), f"{share:.1%}")
        for bound, dur_ns, share in zip(
            frame.index.astype(str), frame["dur_ns"].tolist(), frame["share"].tolist(), strict=True
        )
    ]
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    if width < sum(max(map(len, cells)) + 2 for cells in zip(*rows, strict=True)) + BAR_WIDTH:
        for row in rows:
            table.add_row(*row)
        return table
    table.add_column(no_wrap=True)
    for row, bound, share in zip(rows, frame.index.astype(str), frame["share"], strict=True):
        table.add_row(*row, Text(bar(share), style=_COLORS[bound]))
    return table
