"""The terminal: output, notices, errors and progress."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich import filesize
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment

from htagraph.errors import CaptureNotChosenError, HTAGraphError, HTAGraphWarning, TraceError
from htagraph.trace import Trace, load
from htagraph.writers.labels import printable

__all__ = ["Waiting", "complain", "notices", "output", "sentences"]

_LOG = logging.getLogger("htagraph")
_PIPED_WIDTH = 140


class Terminal(Console):
    """Console on which text is data: what a trace calls an event moves no cursor and rings no bell.

    Only rich itself writes escapes, for colors and for the progress line.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Segments of what is printed, with pictures of control characters; line ends stay."""
        for text, style, control in super().render(renderable, options):
            shown = text if control else "\n".join(map(printable, text.split("\n")))
            yield Segment(shown, style, control)


def output() -> Console:
    """Console of the answer; where it is no terminal, of a fixed width and without colors.

    ``COLUMNS`` of the environment goes before the fixed width.
    """
    is_asked = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Terminal(width=None if is_asked else _PIPED_WIDTH, highlight=False)


def notices(*, quiet: bool = False) -> Console:
    """Console of notices, on the error stream."""
    return Terminal(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)


def complain(error: HTAGraphError) -> None:
    """Print an error in one line; before it, the table that it is about."""
    console = notices()
    text = str(error)
    if isinstance(error, CaptureNotChosenError):
        text = f"{error.message} Hint: {error.hint}"
        console.print(error.listing, markup=False)
    console.print("[bold red]error:[/] ", end="")
    console.print(" ".join(text.split()), markup=False)


@contextmanager
def sentences() -> Iterator[None]:
    """Print what the package warns of as sentences, each once; other warnings are not for users."""
    said: set[str] = set()

    def say(message: Warning | str, *_where: object) -> None:
        """Print a warning that was not printed yet."""
        if str(message) not in said:
            said.add(str(message))
            _LOG.warning("%s", message)

    before = list(_LOG.handlers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", HTAGraphWarning)
        warnings.showwarning = say  # type: ignore[assignment]
        try:
            yield
        finally:
            _LOG.handlers[:] = before


class Waiting:
    """Progress line shown while a command works.

    Parameters
    ----------
    quiet : bool
        Show nothing; nothing is shown either where the error stream is no terminal.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        console = notices(quiet=quiet)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[amount]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._progress.add_task("Opening", total=None, amount="")

    @contextmanager
    def shown(self) -> Iterator[Waiting]:
        """Show the progress line while the block runs; notices go above it, and later below."""
        _LOG.addHandler(_ToConsole(self._progress.console))
        with self._progress:
            yield self

    def stage(self, doing: str) -> None:
        """Show the next stage, whose length is not known."""
        self._progress.remove_task(self._task)
        self._task = self._progress.add_task(doing, total=None, amount="")

    def load(self, path: Path, *, stacks: bool = False) -> Trace:
        """Read a trace and show the progress."""
        if path.is_dir():
            raise _folder_error(path)
        self.stage(f"Reading {path.name}")

        def advance(done: int, total: int) -> None:
            """Move the bar."""
            self._progress.update(
                self._task, completed=done, total=total or None, amount=filesize.decimal(done)
            )

        return load(path, stacks=stacks, progress=advance)


class _ToConsole(logging.Handler):
    """Prints what the package logs for its users, above the progress line."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        self._console.print(record.getMessage(), style="dim", markup=False)


def _folder_error(folder: Path) -> TraceError:
    """Error for a folder where one trace is expected; it names a trace inside."""
    inside = sorted(path for ending in ("*.json", "*.json.gz") for path in folder.rglob(ending))
    if not inside:
        return TraceError(
            "a folder without traces (.json, .json.gz).",
            path=folder,
            hint="give the file of one rank.",
        )
    return TraceError(
        f"a folder with {len(inside)} traces; this command takes one rank at a time.",
        path=folder,
        hint=f"give one file, for example {inside[0]}; htagraph.load_job answers for all of them",
    )
