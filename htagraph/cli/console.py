"""The terminal: output, notices, errors and progress."""

from __future__ import annotations

import logging
import os
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import rich.progress
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Column
from rich.text import Text

from htagraph.errors import (
    CaptureNotChosenError,
    HTAGraphError,
    HTAGraphWarning,
    QueryError,
)
from htagraph.model.labels import printable
from htagraph.model.progress import Progress, listening

_LOG = logging.getLogger("htagraph")
_PIPED_WIDTH = 140
"""Chosen: characters in a line of output that goes into a pipe or a file."""
_TEXT_WIDTH = 88
"""Chosen: columns of text; longer lines are hard to read."""


class Terminal(Console):
    """Console on which text is data: escapes and markup in names of a trace have no effect.

    Only rich itself writes escapes, for colors and for the progress line.
    """

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  as rich's own
        super().__init__(markup=False, highlight=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Segments to print, with control characters replaced by symbols; line ends stay."""
        for text, style, control in super().render(renderable, options):
            shown = text if control else "\n".join(map(printable, text.split("\n")))
            yield Segment(shown, style, control)


def output() -> Console:
    """Console of the answer; into a pipe, of a fixed width and without colors.

    The environment variable ``COLUMNS`` overrides the fixed width.
    """
    is_asked = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Terminal(width=None if is_asked else _PIPED_WIDTH)


def notices(*, quiet: bool = False) -> Console:
    """Console of notices, on the error stream."""
    return Terminal(stderr=True, quiet=quiet, soft_wrap=True)


def print_sentence(console: Console, text: str, *, style: str = "", indent: int = 0) -> None:
    """Print a sentence, wrapped between words; further lines are indented by two."""
    lines = textwrap.wrap(
        printable(text),
        min(console.width, _TEXT_WIDTH),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent and indent + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )
    console.print(Text("\n".join(lines), style=style), soft_wrap=True)


def print_notes(console: Console, notes: Iterable[str]) -> None:
    """Print what there is to know besides a verdict, below it."""
    for note in notes:
        print_sentence(console, note, style="dim", indent=2)


def complain(error: HTAGraphError) -> None:
    """Print an error in one line, after the table that it refers to and above its excerpt."""
    console = notices()
    text = HTAGraphError.__str__(error) if isinstance(error, QueryError) else str(error)
    if isinstance(error, CaptureNotChosenError):
        console.print(error.listing)
    # At once, or the output of a worker may come between.
    console.print(Text.assemble(("error:", "bold red"), " ", " ".join(text.split())))
    for line in getattr(error, "excerpt", "").splitlines():
        console.print(f"    {line}")


@contextmanager
def sentences() -> Iterator[None]:
    """Print warnings of the package as sentences, each once; hide all others."""
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


@contextmanager
def shown_progress(*, quiet: bool = False) -> Iterator[None]:
    """Show the progress of the block on a line, if the error stream is a terminal.

    Notices of the package go above the line; later ones go below.
    """
    line = _ProgressLine(quiet=quiet)
    others = [one for one in _LOG.handlers if not isinstance(one, _ToConsole)]
    _LOG.handlers[:] = [*others, _ToConsole(line.console)]
    with line, listening(line.hear):
        yield


class _ProgressLine(rich.progress.Progress):
    """A line with the stage, its part, what is counted and the time left."""

    def __init__(self, *, quiet: bool = False) -> None:
        console = notices(quiet=quiet)
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[amount]}", markup=False),
            TimeElapsedColumn(),
            _TimeLeft(Column(no_wrap=True, min_width=len(_TIME_LEFT.format(0, 0)))),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._last = Progress("Opening")
        self._task = self.add_task("Opening", total=None, amount="")

    def hear(self, now: Progress) -> None:
        """Show progress; the clock restarts when a stage or a count begins."""
        last, self._last = self._last, now
        total = now.total or None
        if now.stage != last.stage or (now.total and now.part != last.part):
            self.remove_task(self._task)
            self._task = self.add_task(now.title, total=total, amount="")
        self.update(
            self._task, description=now.title, completed=now.done, total=total, amount=now.amount
        )


_TIME_LEFT = "about {}:{:02d} left"


class _TimeLeft(ProgressColumn):
    """Estimated time left, if known."""

    def render(self, task: Task) -> Text:
        """Show it in minutes and seconds."""
        left_s = task.time_remaining
        if left_s is None or not task.completed or task.finished:
            return Text("")
        return Text(_TIME_LEFT.format(*divmod(int(left_s), 60)))


class _ToConsole(logging.Handler):
    """Prints log messages of the package above the progress line."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(record.getMessage(), style="dim")
