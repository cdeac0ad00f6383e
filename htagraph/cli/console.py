"""The terminal: output, notices, errors and progress."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich import filesize
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.segment import Segment
from rich.text import Text

from htagraph.compiled import Compiled, LoadOptions, compiled
from htagraph.errors import CaptureNotChosenError, HTAGraphError, HTAGraphWarning
from htagraph.model.progress import heard_by
from htagraph.readers.rank_paths import name_of
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

    It has the stage, what is done in it, and how many of how many there are, with the share and the
    time that is left. Where nobody knows how much there is, it has the time since the stage began.

    Parameters
    ----------
    quiet : bool
        Show nothing; nothing is shown either where the error stream is no terminal.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        console = notices(quiet=quiet)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[amount]}", markup=False),
            TimeElapsedColumn(),
            _TimeLeft(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._stage, self._part = "Opening", ""
        self._task = self._added(None)

    def _added(self, total: int | None) -> TaskID:
        """Begin to count anew."""
        text = f"{self._stage} · {self._part}" if self._part else self._stage
        return self._progress.add_task(text, total=total, amount="")

    @contextmanager
    def shown(self) -> Iterator[Waiting]:
        """Show the progress line while the block runs; notices go above it, and later below."""
        others = [one for one in _LOG.handlers if not isinstance(one, _ToConsole)]
        _LOG.handlers[:] = [*others, _ToConsole(self._progress.console)]
        with self._progress, heard_by(self._hear):
            yield self

    def stage(self, doing: str) -> None:
        """Show the next stage, whose length is not known."""
        self._progress.remove_task(self._task)
        self._stage, self._part = doing, ""
        self._task = self._added(None)

    def _hear(self, doing: str, done: int, total: int, awaited: str) -> None:
        """Show a part of the stage; of several that take as long, how many are done."""
        if doing != self._part or not total:
            self._part = doing
            description = f"{self._stage} · {doing}"
            if total:
                self._progress.remove_task(self._task)
                self._task = self._added(total)
            else:
                self._progress.update(self._task, description=description, total=None, amount="")
        if total:
            amount = f"{min(done + 1, total):,} of {total:,}, {done / total:.0%}"
            amount += f", awaiting {awaited}" if awaited else ""
            self._progress.update(self._task, completed=done, total=total, amount=amount)

    def compiled(
        self,
        path: Path,
        *,
        stacks: bool = False,
        infer: bool = True,
        beside: Sequence[Path] = (),
        folder: Path | None = None,
    ) -> Compiled:
        """Read a trace and what is beside it, compile it, and show the progress.

        A folder, where one is given, keeps both.
        """
        self.stage(f"Reading {name_of(path)}")

        def advance(done: int, total: int) -> None:
            """Move the bar."""
            amount = filesize.decimal(done)
            if total:
                amount = f"{amount} of {filesize.decimal(total)}, {done / total:.0%}"
            self._progress.update(self._task, completed=done, total=total or None, amount=amount)

        return compiled(
            path,
            beside,
            LoadOptions(stacks=stacks, infer=infer),
            folder=folder,
            progress=advance,
            stage=self.stage,
        )


class _TimeLeft(ProgressColumn):
    """Time that is left at the speed so far; nothing where it is not known."""

    def render(self, task: Task) -> Text:
        """Show it in minutes and seconds."""
        left_s = task.time_remaining
        if left_s is None or not task.completed or task.finished:
            return Text("")
        return Text(f"about {int(left_s) // 60}:{int(left_s) % 60:02d} left")


class _ToConsole(logging.Handler):
    """Prints what the package logs for its users, above the progress line."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        self._console.print(record.getMessage(), style="dim", markup=False)
