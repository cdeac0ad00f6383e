"""The server of `htagraph view`: one trace, on loopback, for the Perfetto UI."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from htagraph.cli.view import TraceServer, View
from htagraph.errors import OutputError

CONTENT = bytes(range(256)) * 1000
UI = "https://ui.perfetto.dev"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "rank 0.pftrace"
    file.write_bytes(CONTENT)
    (tmp_path / "secret.txt").write_text("not for you")
    return file


@contextmanager
def serving(server: TraceServer) -> Iterator[threading.Thread]:
    """Serve in a thread while the block runs."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield thread
        finally:
            server.shutdown()
            thread.join(timeout=10)
            assert not thread.is_alive()


def ask(
    server: TraceServer, path: str, *, method: str = "GET", token: str | None = None, **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Send one request for a path below the token; return status, headers and content."""
    port = server.server_address[1]
    path = (f"/{server.token}" if token is None else token) + path
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    client.request(method, path, headers={"Host": f"127.0.0.1:{port}", **headers})
    answer = client.getresponse()
    content = answer.read()
    client.close()
    return answer.status, answer.headers, content


def test_the_ui_reads_the_trace_byte_for_byte(trace: Path) -> None:
    server = TraceServer(trace, View(), port=0)
    with serving(server):
        status, headers, content = ask(server, "/trace/rank%200.pftrace", Origin=UI)

    assert (status, content == CONTENT, headers["Content-Length"]) == (200, True, "256000")
    assert headers["Access-Control-Allow-Origin"] == UI


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Host": "evil.example:9001"}]
)
def test_no_other_page_reads_it(trace: Path, headers: dict[str, str]) -> None:
    """A page of another origin, or one whose host name resolves to loopback (DNS rebinding)."""
    server = TraceServer(trace, View(), port=0)
    with serving(server):
        status, _, content = ask(server, "/trace/rank%200.pftrace", **headers)

    assert (status, CONTENT[:256] in content) == (403, False)


@pytest.mark.parametrize("with_ui", [False, True])
@pytest.mark.parametrize(
    "path", ["/secret.txt", "/report.html", "/trace/../secret.txt", "/%2e%2e/secret.txt"]
)
def test_no_other_file_is_served(trace: Path, path: str, *, with_ui: bool) -> None:
    ui = trace.parent / "ui"
    ui.mkdir()
    server = TraceServer(trace, View(), port=0, ui=ui if with_ui else None)
    with serving(server):
        status, _, content = ask(server, path)

    assert (status, b"not for you" in content) == (404, False)


@pytest.mark.parametrize("with_ui", [False, True])
@pytest.mark.parametrize("token", ["", "/", "/wrong", "/%2e%2e", "/\u00e9"])
@pytest.mark.parametrize("path", ["/trace/rank%200.pftrace", "/report.html", "/?ts=1&dur=1", "/"])
def test_who_does_not_know_the_token_reads_nothing(
    trace: Path, path: str, token: str, *, with_ui: bool
) -> None:
    """Any user of the machine can connect; neither the trace nor a way to the token is theirs."""
    ui, page = trace.parent / "ui", trace.parent / "report.html"
    ui.mkdir()
    page.write_text("the report")
    server = TraceServer(trace, View(), port=0, ui=ui if with_ui else None, page=page)
    port = server.server_address[1]
    with serving(server), socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        host = f"Host: 127.0.0.1:{port}\r\nConnection: close"
        client.sendall(f"GET {token}{path} HTTP/1.0\r\n{host}\r\n\r\n".encode())
        answer = b"".join(iter(lambda: client.recv(1 << 16), b""))

    assert answer.split()[1] in (b"404", b"301")
    assert server.token.encode() not in answer
    assert b"the report" not in answer
    assert CONTENT[:256] not in answer


def test_two_servers_have_different_tokens(trace: Path) -> None:
    with TraceServer(trace, View(), port=0) as one, TraceServer(trace, View(), port=0) as other:
        assert one.token != other.token
        assert len(one.token) == len(other.token) == 43  # as the page expects


def test_many_connections_at_once_are_all_answered(trace: Path) -> None:
    """Of 500, 45 were dropped: five may wait by default."""
    server = TraceServer(trace, View(), port=0)
    port = server.server_address[1]
    clients = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(300)]
    asked = (
        f"HEAD /{server.token}/trace/rank%200.pftrace HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n"
    )
    with serving(server):
        for client in clients:
            client.sendall(asked.encode())
        answers = [client.recv(1 << 12)[:12] for client in clients]
    for client in clients:
        client.close()

    assert set(answers) == {b"HTTP/1.0 200"}


def test_it_listens_on_loopback_alone(trace: Path) -> None:
    """The same port of another address of this machine is free."""
    with TraceServer(trace, View(), port=0) as server, socket.socket() as other:
        other.bind(("127.0.0.2", server.server_address[1]))


def test_once_it_ends_when_the_trace_was_fetched(trace: Path) -> None:
    server = TraceServer(trace, View(), port=0, once=True)
    with serving(server) as thread:
        ask(server, "/nothing")
        ask(server, "/trace/rank%200.pftrace", method="HEAD")
        time.sleep(0.2)
        assert thread.is_alive()
        ask(server, "/trace/rank%200.pftrace")
        thread.join(timeout=10)
        assert not thread.is_alive()


def test_a_closed_tab_prints_nothing(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trace.write_bytes(CONTENT * 100)
    server = TraceServer(trace, View(), port=0)
    with serving(server):
        with socket.create_connection(server.server_address[:2]) as client:
            host = f"127.0.0.1:{server.server_address[1]}"
            asked = f"/{server.token}/trace/rank%200.pftrace"
            client.sendall(f"GET {asked} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            client.recv(10)
        assert ask(server, "/nothing")[0] == 404
        time.sleep(0.2)

    assert capfd.readouterr().err == ""


def test_the_address_names_the_trace_and_what_to_show(trace: Path) -> None:
    """The online UI fetches the file, pins the path and zooms to the window."""
    with TraceServer(trace, View(1_000, 2_000), port=0) as server:
        address = urlsplit(server.url())
    asked = parse_qs(address.fragment.removeprefix("!/?"))

    assert f"{address.scheme}://{address.netloc}" == UI
    assert asked["url"] == [f"{server.home}/{server.token}/trace/rank%200.pftrace"]
    assert (asked["visStart"], asked["visEnd"]) == (["1000"], ["2000"])
    assert [command["id"] for command in json.loads(asked["startupCommands"][0])] == [
        "dev.perfetto.PinTracksByRegex",
        "dev.perfetto.ExpandTracksByRegex",
    ]


def test_findings_are_listed_but_not_at_a_link(trace: Path) -> None:
    """Who comes from the page has read them."""
    server = TraceServer(trace, View(1_000, 2_000, findings=["Data loading, costs 71%"]), port=0)
    with serving(server):
        _, headers, _ = ask(server, "/?ts=5000&dur=700")
    assert "RunQueryAndShowTab" in server.url()
    assert "RunQueryAndShowTab" not in headers["Location"]


@pytest.mark.parametrize(
    ("times", "shown"),
    [((400, 500), (350, 600)), ((0, 100), (1, 251)), ((900, 1_000), (749, 999))],
)
def test_a_selected_slice_is_shown_off_center_within_the_trace(
    times: tuple[int, int], shown: tuple[int, int]
) -> None:
    """The UI ignores times outside of the trace, and zooms out where centering moves nothing."""
    asked = View(*times, selects=True, last_ns=1_000).parameters
    assert (asked["ts"], asked["dur"]) == (str(times[0]), "100")
    assert (int(asked["visStart"]), int(asked["visEnd"])) == shown


@pytest.mark.parametrize("with_ui", [False, True])
def test_a_page_leads_to_a_time_of_the_trace(trace: Path, tmp_path: Path, *, with_ui: bool) -> None:
    """``/?ts=START_NS&dur=DUR_NS`` redirects to the UI, which selects the slice."""
    (tmp_path / "index.html").write_text("the UI")
    page = tmp_path / "report.html"
    page.write_text("the report")
    server = TraceServer(trace, View(), port=0, ui=tmp_path if with_ui else None, page=page)
    with serving(server):
        status, headers, _ = ask(server, "/?ts=5000&dur=700")
        report = ask(server, "/report.html")
        home = ask(server, "/", token="")
        private = ask(server, "/")
    address = urlsplit(headers["Location"])
    asked = parse_qs(address.fragment.removeprefix("!/?"))

    assert (status, f"{address.scheme}://{address.netloc}") == (302, server.home if with_ui else UI)
    assert [asked[name] for name in ("ts", "dur")] == [["5000"], ["700"]]
    assert (report[0], report[2]) == (200, b"the report")
    assert (home[0], b"the UI" in home[2]) == ((200, True) if with_ui else (404, False))
    assert (private[0], private[1]["Location"]) == (302, server.url())


def test_a_taken_port_is_named(trace: Path) -> None:
    with TraceServer(trace, View(), port=0) as first:
        port = first.server_address[1]
        with pytest.raises(OutputError, match=f"port {port} cannot be used") as error:
            TraceServer(trace, View(), port=port)

    assert error.value.hint == "stop the other `htagraph view`."
