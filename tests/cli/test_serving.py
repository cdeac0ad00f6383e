"""The server of `htagraph view`: one file, on loopback, to one page."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from htagraph.cli.serving import ONLINE_UI, TraceServer, View
from htagraph.errors import OutputError, TraceError

CONTENT = bytes(range(256)) * 1000


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "rank 0.pftrace"
    file.write_bytes(CONTENT)
    (tmp_path / "secret.txt").write_text("not for you")
    return file


@contextmanager
def serving(server: TraceServer, *, once: bool = False) -> Iterator[threading.Thread]:
    """Serve in a thread while the block runs."""
    with server:
        thread = threading.Thread(target=server.serve, kwargs={"once": once})
        thread.start()
        try:
            yield thread
        finally:
            server.stop()
            thread.join(timeout=10)
            assert not thread.is_alive()


def ask(
    server: TraceServer, path: str, *, method: str = "GET", headers: dict[str, str] | None = None
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Send one request exactly as given; return status, headers and content."""
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    client.request(method, path, headers={"Host": f"127.0.0.1:{server.port}", **(headers or {})})
    answer = client.getresponse()
    content = answer.read()
    client.close()
    return answer.status, answer.headers, content


def test_the_trace_is_sent_byte_for_byte(trace: Path) -> None:
    """The UI gets the file as it is, whatever it is."""
    server = TraceServer(trace, port=0)
    with serving(server):
        status, headers, content = ask(server, server.trace_path, headers={"Origin": ONLINE_UI})
    assert (status, content == CONTENT, headers["Content-Length"]) == (200, True, "256000")


def test_only_pages_of_the_ui_may_read_it(trace: Path) -> None:
    """The allowed origin is a constant: that of the asking page is never repeated."""
    server = TraceServer(trace, port=0)
    with serving(server):
        asked = [
            ask(server, server.trace_path, headers={"Origin": origin})
            for origin in (ONLINE_UI, "https://evil.example")
        ]
    assert [(status, headers["Access-Control-Allow-Origin"]) for status, headers, _ in asked] == [
        (200, "https://ui.perfetto.dev"),
        (403, "https://ui.perfetto.dev"),
    ]


def test_a_name_that_was_made_to_lead_here_is_refused(trace: Path) -> None:
    """DNS rebinding: evil.example resolves to 127.0.0.1, but the host in the request is another."""
    server = TraceServer(trace, port=0)
    with serving(server):
        status, _, content = ask(
            server, server.trace_path, headers={"Host": f"evil.example:{server.port}"}
        )
    assert (status, CONTENT[:256] in content) == (403, False)


@pytest.mark.parametrize(
    "path",
    [
        "/secret.txt",
        "/report.html",
        "/trace/",
        "/trace/secret.txt",
        "/trace/../secret.txt",
        "/trace/%2e%2e/secret.txt",
    ],
)
def test_no_other_path_leads_anywhere(trace: Path, path: str) -> None:
    """One file is offered; its neighbors are not."""
    server = TraceServer(trace, port=0)
    with serving(server):
        status, _, content = ask(server, path)
    assert (status, b"not for you" in content) == (404, False)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_it_only_reads(trace: Path, method: str) -> None:
    """What is not GET, HEAD or OPTIONS is not implemented."""
    server = TraceServer(trace, port=0)
    with serving(server):
        status, _, _ = ask(server, server.trace_path, method=method)
    assert (status, trace.read_bytes() == CONTENT) == (501, True)


def test_a_browser_is_told_that_the_ui_may_reach_this_machine(trace: Path) -> None:
    """A public page that fetches from loopback sends a preflight first."""
    server = TraceServer(trace, port=0)
    with serving(server):
        status, headers, _ = ask(
            server, server.trace_path, method="OPTIONS", headers={"Origin": ONLINE_UI}
        )
    assert (status, headers["Access-Control-Allow-Private-Network"]) == (204, "true")


def test_it_listens_on_loopback_alone(trace: Path) -> None:
    """The same port of another address of this machine is free."""
    with TraceServer(trace, port=0) as server, socket.socket() as other:
        other.bind(("127.0.0.2", server.port))
        assert other.getsockname() == ("127.0.0.2", server.port)


def test_it_stops_when_the_trace_was_fetched_if_asked_to(trace: Path) -> None:
    """`--once`: a script that opens a trace ends by itself; a refused request is no fetch."""
    server = TraceServer(trace, port=0)
    with serving(server, once=True) as thread:
        ask(server, "/nothing")
        ask(server, server.trace_path, method="HEAD")
        assert thread.is_alive()
        ask(server, server.trace_path)
        thread.join(timeout=10)
        assert not thread.is_alive()
    assert server.n_fetched == 1


def test_it_stops_by_itself_when_nobody_asks_any_more(trace: Path) -> None:
    """The UI keeps what it has fetched; a forgotten server does not stay for days."""
    server = TraceServer(trace, port=0, idle_s=0.5)
    with serving(server) as thread:
        assert ask(server, server.trace_path)[0] == 200
        assert thread.is_alive()
        thread.join(timeout=10)
        assert not thread.is_alive()


def test_a_trace_that_is_gone_is_not_found(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The file was deleted while it was served: an answer, and nothing on the terminal."""
    server = TraceServer(trace, port=0)
    with serving(server):
        trace.unlink()
        status, _, _ = ask(server, server.trace_path)
    assert (status, capfd.readouterr().err) == (404, "")


@pytest.mark.parametrize("path", ["/%00", "/index.html%00.js", "/" + "a" * 5_000, "//x", "/%ff%fe"])
def test_a_path_that_no_file_can_have_is_not_found(
    trace: Path, tmp_path: Path, path: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A byte 0, a name too long, no UTF-8: an answer, and nothing on the terminal."""
    (tmp_path / "ui").mkdir()
    server = TraceServer(trace, port=0, ui=tmp_path / "ui")
    with serving(server):
        status, _, _ = ask(server, path)
    assert (status, capfd.readouterr().err) == (404, "")


def test_what_is_no_address_is_refused(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The address of a machine has an open bracket."""
    server = TraceServer(trace, port=0)
    with serving(server):
        statuses = [ask(server, path)[0] for path in ("http://[", "http://[x]y/")]
    assert (statuses, capfd.readouterr().err) == ([400, 400], "")


def test_a_browser_that_breaks_off_says_nothing_on_the_terminal(
    trace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its connection is reset in the middle of a request; the next one is answered."""
    server = TraceServer(trace, port=0)
    with serving(server):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"GET /tra")
            now = struct.pack("ii", 1, 0)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
        assert ask(server, server.trace_path)[0] == 200
        time.sleep(0.2)
    assert capfd.readouterr().err == ""


def test_a_folder_of_the_ui_is_served_and_nothing_above_it(trace: Path, tmp_path: Path) -> None:
    """The offline UI is static files; a path that climbs out of it leads nowhere."""
    ui = tmp_path / "ui"
    ui.mkdir()
    (ui / "index.html").write_text("<title>UI</title>")
    server = TraceServer(trace, port=0, ui=ui)
    with serving(server):
        found = [
            ask(server, path)[0]
            for path in (
                "/",
                "/index.html",
                "/../secret.txt",
                "/%2e%2e/secret.txt",
                server.trace_path,
            )
        ]
    assert found == [200, 200, 404, 404, 200]


def test_the_address_names_the_trace_and_what_to_show(trace: Path) -> None:
    """The online UI takes the file from port 9001, pins the path and zooms to the window."""
    with TraceServer(trace, port=0, view=View(1_000, 2_000)) as server:
        address = urlsplit(server.url)
        asked = {
            name: values[0]
            for name, values in parse_qs(address.fragment.removeprefix("!/?")).items()
        }
    assert f"{address.scheme}://{address.netloc}" == "https://ui.perfetto.dev"
    assert asked["url"] == f"http://127.0.0.1:{server.port}/trace/rank%200.pftrace"
    assert (asked["visStart"], asked["visEnd"]) == ("1000", "2000")
    assert [command["id"] for command in json.loads(asked["startupCommands"])] == [
        "dev.perfetto.PinTracksByRegex",
        "dev.perfetto.ExpandTracksByRegex",
    ]


@pytest.mark.parametrize("with_ui", [False, True])
def test_a_page_leads_to_a_time_of_the_trace(trace: Path, tmp_path: Path, *, with_ui: bool) -> None:
    """``/?ts=START_NS&dur=DUR_NS`` goes on to the UI, which selects what is there."""
    (tmp_path / "index.html").write_text("the UI")
    page = tmp_path / "report.html"
    page.write_text("the report")
    server = TraceServer(trace, port=0, ui=tmp_path if with_ui else None, page=page)
    with serving(server):
        status, headers, _ = ask(server, "/?ts=5000&dur=700")
        answers = [
            ask(server, path)[0] for path in ("/?ts=5000", "/?ts=1e9&dur=2", "/?dur=2", "/?ts=-5")
        ]
        report = ask(server, "/report.html")
        home = ask(server, "/")
    address = urlsplit(headers["Location"])
    asked = parse_qs(address.fragment.removeprefix("!/?"))
    here = f"http://127.0.0.1:{server.port}"
    assert (status, f"{address.scheme}://{address.netloc}") == (302, here if with_ui else ONLINE_UI)
    assert asked["url"] == [f"{here}/trace/rank%200.pftrace"]
    assert [asked[name] for name in ("ts", "dur", "visStart", "visEnd")] == [
        *(["5000"], ["700"], ["5000"], ["5700"])
    ]
    assert answers == [302, 400, 400, 400]
    assert (report[0], report[1]["Content-Type"], report[2]) == (200, "text/html", b"the report")
    assert (home[0], home[2]) == ((200, b"the UI") if with_ui else (302, b""))
    assert server.page_url == f"{here}/report.html"


def test_a_taken_port_is_said_to_be_taken(trace: Path) -> None:
    """Somebody else listens there: say so, and how to go on."""
    with (
        TraceServer(trace, port=0) as first,
        pytest.raises(OutputError, match=f"port {first.port} cannot be used") as error,
    ):
        TraceServer(trace, port=first.port)
    assert error.value.hint == "stop the other `htagraph view`."


def test_a_missing_file_is_no_server(tmp_path: Path) -> None:
    """Nothing is opened for a file that is not there."""
    with pytest.raises(TraceError, match="no such file"):
        TraceServer(tmp_path / "none.pftrace", port=0)
