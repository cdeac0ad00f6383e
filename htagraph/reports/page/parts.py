"""What pages share: their head, marks in the colors of labels, and commands to paste.

Commands name the trace and the folder of the page by their whole paths.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import count
from pathlib import Path
from shlex import quote
from string import Template

from htagraph.model.colors import IDLE
from htagraph.model.kinds import bound_in_words
from htagraph.model.labels import printable
from htagraph.readers.storage import is_remote, url_of
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.plots.drawing import BOUND_COLORS, CAUSE_COLORS
from htagraph.reports.summary import Summary
from htagraph.writers.output_file import write_text

_MARKED = CAUSE_COLORS | BOUND_COLORS | {"idle": IDLE}

Texts = defaultdict[str, int]
"""Numbers of texts that a page stores once: names of kernels are long. A new text gets the next."""


def new_texts() -> Texts:
    """No text yet."""
    return defaultdict(count().__next__)


def mark(label: str) -> str:
    """Attribute of an element that shows the color of a bound or a cause before its text."""
    return f' data-key="{escape(label)}"' if label in _MARKED else ""


def legend(names: Iterable[str]) -> str:
    """List of bounds with their colors; empty if any name is no bound."""
    labels = {bound_in_words(name): name for name in BOUND_COLORS}
    told = list(dict.fromkeys(map(bound_in_words, names)))
    if not told or not labels.keys() >= set(told):
        return ""
    items = "".join(f"<li{mark(labels[name])}>{escape(name)}</li>" for name in told)
    return f'<ul class="legend" aria-label="Colors">{items}</ul>'


def resource(name: str) -> str:
    """Text of a file next to this module."""
    return files("htagraph.reports.page").joinpath(name).read_text(encoding="utf-8")


def write_html(out: str | Path, body: str, *, title: str, style: str, **parts: str) -> Path:
    """Write a page, whole or not at all; `parts` fill the placeholders of the file `body`."""
    colors = "\n".join(
        f'[data-key="{name}"] {{ --key: {color.css}; --fill: {color.fill}; --ink: {color.ink}; }}'
        for name, color in _MARKED.items()
    )
    style = f"{resource('page.css')}\n{colors}\n{style}"
    page = Template(resource("head.html") + resource(body))
    text = page.substitute(title=escape(title), style=style, **parts)
    write_text(out, "\n".join(map(printable, text.split("\n"))))
    return Path(out)


@dataclass(frozen=True)
class Commands:
    """What to type to see more of what the page shows."""

    source: str  # The trace, or the folder of a job, as a shell takes it
    window: str = ""  # Option for the window of the page; empty for the default

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
        """Command of a verb, in the window of the page."""
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
    """A command with a button that copies it; a `file` next to the page moves with it."""
    beside = f' data-beside="{escape(file)}"' if file else ""
    return (
        f'<span class="command"><code{beside}>{escape(command)}</code> '
        '<button type="button" class="copy">copy</button></span>'
    )
