"""Commands to paste: they name the trace and the folder of the page by their whole paths."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from shlex import quote

from htagraph.readers.storage import is_remote, url_of
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.summary import Summary


@dataclass(frozen=True)
class Commands:
    """What to type to see more of what the page shows.

    Parameters
    ----------
    source : str
        The trace, or the folder of a job, as a shell takes it.
    window : str
        Option for the window of the page; empty for the default.
    """

    source: str
    window: str = ""

    @classmethod
    def on(cls, summary: Summary | JobSummary) -> Commands:
        """Commands on the trace or the job of a report."""
        if isinstance(summary, JobSummary):
            asked = summary.job.asked_window
            option = f" -w {quote(asked)}" if isinstance(asked, str) else ""
            return cls(_folder([rank.path for rank in summary.job.summaries.values()]), option)
        trace, window = summary.trace, summary.path.window
        source = shell_path(trace.path) if trace.path else "FILE"
        span = summary.graph.dag.span
        if summary.graph.asked is None:
            return cls(source)
        is_name = window == span or window.name in set(trace.steps["name"])
        times = f"{window.start_ns - span.start_ns}:{window.end_ns - span.start_ns}"
        return cls(source, f" -w {quote(window.name) if is_name else times}")

    def of(self, verb: str) -> str:
        """Command of a verb, in the window of the page.

        Examples
        --------
        >>> Commands("/runs/trace.json", " -w 5").of("ask idle_time")
        'htagraph ask idle_time /runs/trace.json -w 5'
        """
        return f"htagraph {verb} {self.source}{self.window}"


def shell_path(path: Path) -> str:
    """A path that is valid in every folder, or a URL, as a shell takes it."""
    whole = url_of(path) if is_remote(path) else str(path.absolute())
    return quote(whole.encode("utf-8", "replace").decode())  # a page is UTF-8


def _folder(files: Sequence[Path]) -> str:
    """The folder that holds all files of a job; a placeholder if none does."""
    if len(files) == 1:
        return shell_path(files[0])
    try:
        return shell_path(Path(os.path.commonpath(files)))
    except ValueError:  # on several drives
        return "FOLDER"


def command_html(command: str, *, file: str = "") -> str:
    """A command with a button that copies it.

    Parameters
    ----------
    file : str
        Path in the command of a file next to the page; follows the page where it is moved.
    """
    beside = f' data-beside="{escape(file)}"' if file else ""
    return (
        f'<span class="command"><code{beside}>{escape(command)}</code> '
        '<button type="button" class="copy">copy</button></span>'
    )
