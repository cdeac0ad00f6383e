"""`htagraph watch`: one line for each new trace of a folder, and a row in its `.htagraph`.

A file is reported when it is whole, and once: its row is written last, so a watcher that is killed
and started again finds what has no row. Runs are read by another process, which is replaced now and
then: a file that takes all memory costs a line, not the watcher.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated

import msgspec
import typer

from htagraph.cli import options
from htagraph.cli.console import notices, output
from htagraph.cli.report import summary_of
from htagraph.errors import OutputError, QueryError, TraceFormatError, TraceNotFoundError
from htagraph.job.executors import IsolatedProcesses, failure_in_words
from htagraph.job.opened import is_too_large, opened
from htagraph.model.recording import DamageKind
from htagraph.model.units import human_count
from htagraph.readers.arrivals import Arrivals, Sign, Together, together
from htagraph.readers.captures import Chosen
from htagraph.readers.storage import file_of
from htagraph.reports.json_document import summary_profile
from htagraph.reports.kept_runs import KeptFile, KeptRun, KeptRuns, row_of, unread
from htagraph.run.compiled import Compiled, LoadOptions
from htagraph.writers.output_file import locked, new_folder

_POLL_S = 1.0
"""Seconds between two scans of the folder: chosen. A scan of 1,000 files takes 10 ms."""

_ALL_S = 60.0
"""Seconds after which the folder is scanned although no change was heard of: network file systems
tell of none. Chosen."""

_CHECK_S = 0.2
"""How often it is checked whether to stop: chosen."""

_MOST_RUNS = 100
"""Runs that one process reads: chosen, as its libraries keep some memory of each."""

_EACH_S = 60.0
"""Seconds that the command of `--each` may take: chosen, as nothing is reported meanwhile."""


def watch(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder that traces arrive in.")],
    *,
    each: Annotated[
        str,
        typer.Option(
            metavar="CMD", help="Command for each run: it gets the row as JSON on standard input."
        ),
    ] = "",
    wait: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="How long to wait for the other ranks."),
    ] = 120.0,
    once: Annotated[
        bool, typer.Option("--once", help="End when all that is there is reported.")
    ] = False,
    infer: options.Infer = True,
    quiet: options.Quiet = False,
) -> None:
    """Print a line for each new trace: what limits it, and the change against the last run.

    Rows and profiles are kept in FOLDER/.htagraph, for `htagraph history`.
    """
    if not folder.is_dir():
        raise TraceNotFoundError("no such folder.", path=folder, hint="create it first.")
    kept = KeptRuns(folder)
    new_folder(kept.folder)
    with locked(kept.folder / "watch.lock") as is_mine, _stopping() as stop:
        if not is_mine:
            hint = "end the other one first."
            raise OutputError("another `htagraph watch` is at work.", path=folder, hint=hint)
        watcher = _Watcher(folder, kept, each, wait, stop, infer=infer, quiet=quiet)
        try:
            for may_have_changed in _ticks(folder, stop):
                if may_have_changed or watcher.is_waiting:
                    watcher.report_new()
                if stop.is_set() or (once and not watcher.is_waiting):
                    break
        finally:
            watcher.end()


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; a second signal ends the process at once."""
    stop = threading.Event()

    def hear(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ticks(folder: Path, stop: threading.Event) -> Iterator[bool]:
    """Every second until it stops, whether the folder may have changed."""
    yield True
    try:
        from watchfiles import watch as heard  # noqa: PLC0415  optional: without it, polling
    except ImportError:
        while not stop.wait(_POLL_S):
            yield True
        return
    scanned_s = time.monotonic()
    for changes in heard(
        folder, stop_event=stop, rust_timeout=int(_POLL_S * 1e3), yield_on_timeout=True
    ):
        is_due = bool(changes) or time.monotonic() - scanned_s > _ALL_S
        scanned_s = time.monotonic() if is_due else scanned_s
        yield is_due


class _Watcher:
    """Reports the new files of a folder."""

    def __init__(
        self,
        folder: Path,
        kept: KeptRuns,
        each: str,
        wait_s: float,
        stop: threading.Event,
        *,
        infer: bool,
        quiet: bool,
    ) -> None:
        self._kept, self._each, self._wait_s, self._stop = kept, each, wait_s, stop
        self._infer, self._aside, self._console = infer, notices(quiet=quiet), output()
        self._arrivals = Arrivals(folder)
        self._keys: set[str] = set()
        self._digests: set[str] = set()
        self._know(kept)
        # When each file that is not reported was found whole, and its content
        self._whole: dict[tuple[Path, Sign], tuple[float, str]] = {}
        self._grouped: list[tuple[Path, Sign]] = []
        self._runs: list[Together] = []
        self._reader: IsolatedProcesses | None = None
        self._n_read = 0
        if self._keys:
            said = f"{human_count(len(self._keys), 'run')} reported before."
            self._aside.print(said, style="dim", markup=False)

    @property
    def is_waiting(self) -> bool:
        """Whether files are there that may still be reported."""
        return bool(self._arrivals.changing)

    def report_new(self) -> None:
        """Report what is whole, in order of time, but for jobs whose ranks are awaited."""
        now_s, before = time.monotonic(), self._whole
        self._whole, found = {}, set(self._digests)
        for path in self._arrivals.whole():
            sign = self._arrivals.sign(path)
            with suppress(OSError):  # it was renamed meanwhile
                since_s, digest = before.get((path, sign)) or (now_s, KeptFile.of(path).digest)
                if digest in self._digests:  # reported under another name, or touched since
                    self._arrivals.known.add(sign)
                elif digest not in found:  # of copies, the first
                    self._whole[path, sign] = since_s, digest
                    found.add(digest)
        if (files := [*self._whole]) != self._grouped:
            self._grouped = files
            self._runs, others = together([path for path, _ in files])
            self._arrivals.known |= {self._arrivals.sign(path) for path in others}
        since = {path: since_s for (path, _), (since_s, _) in self._whole.items()}
        for run in self._runs:
            latest_s = max(since.get(path, now_s) for path in run.files)
            if run.is_complete or now_s - latest_s >= self._wait_s:
                self._report(run)
            if self._stop.is_set():
                return

    def _report(self, run: Together) -> None:
        """Report a run: its row comes last, so it is reported again if this is killed before."""
        found = self._read(run)
        if not found.done():  # it is to stop
            return
        if isinstance(row := self._row(found, run), str):
            for path in run.files:
                self._arrivals.cut_off(path)
            self._aside.print(f"{run.files[0].name} {row}", style="dim", markup=False)
            return
        if self._each:
            self._call(row)
        self._kept.add(row)
        self._know([row])
        self._console.file.write(f"{row.line}\n")
        self._console.file.flush()

    def _know(self, rows: Iterable[KeptRun]) -> None:
        """Remember the files of runs that are reported."""
        for row in rows:
            self._keys.add(row.key)
            self._digests |= {one.digest for one in row.files}
            self._arrivals.known |= {Sign(one.n_bytes, one.changed_ns) for one in row.files}

    def _read(self, run: Together) -> Future[KeptRun | None]:
        """A run, read by another process; it is not done if this is to stop."""
        if self._reader is None or self._n_read >= _MOST_RUNS:
            self.end()
            self._reader, self._n_read = IsolatedProcesses(1), 0
        self._n_read += 1
        found = self._reader.submit(read_run, run.paths, self._kept, self._infer)
        while not found.done() and not self._stop.is_set():
            wait_for([found], _CHECK_S)
        return found

    def _row(self, found: Future[KeptRun | None], run: Together) -> KeptRun | str:
        """The row of a run that was read, or tried; or why there is none."""
        error = found.exception()
        if error is None:
            return found.result() or "is not complete: it is read when it changes."
        if isinstance(error, TraceFormatError | FileNotFoundError):
            return f"is left out until it changes: {error}"
        if isinstance(error, OutputError):  # of a full disk: all others would fail, too
            raise error
        return unread(run.files, run.start_ns, failure_in_words(error), "watch")

    def _call(self, row: KeptRun) -> None:
        """Call the command of `--each`; its failure is told, and is no reason to stop."""
        try:
            done = subprocess.run(  # noqa: S602  the user's own command
                self._each,
                shell=True,
                input=msgspec.json.encode(row),
                stdout=sys.stderr.fileno(),
                timeout=_EACH_S,
                check=False,
                start_new_session=True,  # Ctrl-C is for the watcher, which lets it finish
            )
            failed = f"exit code {done.returncode}" if done.returncode else ""
        except (OSError, subprocess.SubprocessError) as exc:
            failed = str(exc)
        if failed:
            self._aside.print(f"--each failed for {row.name}: {failed}.", markup=False)

    def end(self) -> None:
        """End the process that reads."""
        if self._reader is not None:
            self._reader.end()
            self._reader = None


def read_run(paths: list[Path], kept: KeptRuns, infer: bool) -> KeptRun | None:
    """The row of a run, whose profile is written; None if a file is cut off."""
    if len(paths) == 1 and is_too_large(paths[0]):
        raise QueryError("it needs more memory than there is.", hint="htagraph report reads it.")
    warnings.simplefilter("ignore")  # the row has what they say
    found = opened(Chosen(paths, {}, ""), LoadOptions(stacks=None, infer=infer))
    if isinstance(found, Compiled):
        damage = {repair.damage for repair in found.trace.recording.repairs}
    else:
        damage = {one.kind for rank in found.summaries.values() for one in rank.damage}
    if DamageKind.CUT_FILE in damage:
        return None
    name = f"{paths[0].parent.resolve().name}, {human_count(len(paths), 'rank')}"
    summary = summary_of(found, "", name, has_page=False)
    profile = summary_profile(summary)
    files = list(dict.fromkeys(map(file_of, paths)))
    return kept.prepare(row_of(summary, profile, "watch", files=files), profile)
