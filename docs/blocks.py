"""Blocks of code of a document: what they are, and what they print when they are run.

A page runs from top to bottom in one folder, its Python in one namespace:

- ``bash``: commands of `htagraph`, one a line;
- ``console``: the same after ``$ ``, each with its output below, which is compared;
- ``python``: code; a ``text`` block right below has what it prints, and the value of its last line.

A block that does not run says why, after its language (``bash no-run: installs``) or in a comment
in the line before (``<!-- no-run: installs -->``). One marked ``torch`` in the same way runs where
torch is installed.

``python -m docs.blocks PAGE ...`` runs pages as a test does, and writes what they print into them.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from htagraph.cli.demo import PLANTED
from htagraph.cli.main import main
from htagraph.synth.demo_traces import demo_trace
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

__all__ = ["WIDTH", "Block", "blocks", "printed", "write_captures"]

_FENCE = re.compile(
    r"(?:^<!-- (?P<said>no-run: [^\n]+|torch) -->\n)?"
    r"^```(?P<language>\w+)(?: (?P<note>[^\n]+))?\n(?P<body>.*?)^```$"
    r"(?:\n+```text\n(?P<shown>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
_COMMAND = re.compile(
    r"(?P<call>.*?)"
    r"(?: \| head -(?P<lines>\d+)| \| sed -n (?P<first>\d+),(?P<last>\d+)p"
    r"| \| grep '(?P<part>[^']+)'|(?P<code>; echo \$\?))?"
)
_LANGUAGES = ("bash", "console", "python")
_ROOT = Path(__file__).parents[1]
_REAL = (
    "tests/data/captures/jobs/ddp_sleep_4",
    "tests/data/captures/flight_recorder/hangs/other_order",
    "tests/data/captures/pipelines/pp4_1f1b_slow",
)
WIDTH = "100"
"""Columns of the terminal of documents."""


@dataclass(frozen=True)
class Block:
    """A block of code.

    Parameters
    ----------
    language : str
        ``bash``, ``console`` or ``python``.
    body : str
    not_run : str
        Why it is not run, empty if it is.
    shown : str or None
        What the document says it prints; None where it does not say.
    start, end : int
        Where its body, or that of its output, is in the document.
    """

    language: str
    body: str
    not_run: str
    shown: str | None
    start: int
    end: int


def blocks(text: str) -> list[Block]:
    """Blocks of a document that are run, or say why not."""
    found = []
    for fence in _FENCE.finditer(text):
        if fence["language"] not in _LANGUAGES:
            continue
        note = fence["said"] or fence["note"] or ""
        why = note.removeprefix("no-run:").strip() if note.startswith("no-run:") else ""
        if note == "torch" and find_spec("torch") is None:
            why = "needs torch"
        shown, part = (fence["shown"], "shown") if fence["shown"] is not None else (None, "body")
        if fence["language"] == "console":
            shown, part = fence["body"], "body"
        found.append(Block(fence["language"], fence["body"], why, shown, *fence.span(part)))
    return found


def printed(page: list[Block]) -> Iterator[tuple[Block, str]]:
    """Blocks of a page with what they print, run in the current folder."""
    names: dict[str, object] = {"__name__": "__main__"}
    for block in page:
        if not block.not_run:
            run = {"python": _python, "console": _console, "bash": _bash}[block.language]
            yield block, _tidy(run(block.body, names))


def _tidy(text: str) -> str:
    """Text without blanks at the ends of lines, and without empty lines around it."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"


def _python(body: str, names: dict[str, object]) -> str:
    """Run code as a notebook does: what it prints, and the value of a last expression."""
    tree = ast.parse(body)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(tree, "<block>", "exec"), names)  # noqa: S102  the documents' own code
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<block>", "eval"), names)  # noqa: S307
            if value is not None:
                print(value)  # noqa: T201  as a notebook shows it
    return output.getvalue()


def _console(body: str, _names: dict[str, object]) -> str:
    """Run the commands of a session: the session as it should be."""
    commands = [line[2:] for line in body.splitlines() if line.startswith("$ ")]
    return "\n".join(f"$ {command}\n{_tidy(_run(command))}".rstrip("\n") for command in commands)


def _bash(body: str, _names: dict[str, object]) -> str:
    """Run commands, one a line; what they print is of no interest."""
    lines = body.replace("\\\n", " ").splitlines()
    return "".join(_run(line) for line in lines if line and not line.startswith("#"))


def _run(command: str) -> str:
    """What a command of ours prints.

    Raises
    ------
    ValueError
        If it is no command of ours, or fails.
    """
    parts = _COMMAND.fullmatch(command)
    words = shlex.split(parts["call"] if parts else command, comments=True)
    if parts is None or words[0] != "htagraph":
        raise ValueError(f"{command!r} is none of ours: say why it is not run.")
    code = 0
    with (
        contextlib.redirect_stdout(io.StringIO()) as output,
        contextlib.redirect_stderr(io.StringIO()) as notices,
    ):
        try:
            main(words[1:])
        except SystemExit as ended:
            code = int(ended.code or 0)
    lines = [line for line in output.getvalue().splitlines() if (parts["part"] or "") in line]
    if parts["code"]:
        lines.append(str(code))
    elif code:
        raise ValueError(f"{command!r} ends with {code}: {notices.getvalue()}")
    first, last = int(parts["first"] or 1), parts["last"] or parts["lines"]
    return "\n".join(lines[first - 1 : int(last) if last else None]) + "\n"


def write_captures(folder: Path) -> None:
    """Write the traces that documents name: the demo's, a rank's, a job's, and real jobs."""
    runs = folder / "htagraph-demo"
    runs.mkdir()
    for fault in PLANTED:
        shutil.copy(demo_trace(fault), runs)
    shutil.copytree(demo_trace("job"), runs / "job")
    shutil.copytree(demo_trace("job"), folder / "traces")
    for real in _REAL:
        shutil.copytree(_ROOT / real, folder / real)
    simulate(training_rank(steps=7)).write(folder / "rank0.pt.trace.json.gz")


def _rewrite(page: Path, captures: Path) -> None:
    """Run a page, and write into it what its blocks print."""
    text = page.read_text()
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(captures, folder, dirs_exist_ok=True)
        os.chdir(folder)
        try:
            shown = [(one, out) for one, out in printed(blocks(text)) if one.shown is not None]
        finally:
            os.chdir(home)
    for block, output in reversed(shown):
        text = text[: block.start] + output + text[block.end :]
    page.write_text(text)


if __name__ == "__main__":
    os.environ["COLUMNS"] = WIDTH
    with tempfile.TemporaryDirectory() as made:
        write_captures(Path(made))
        for name in sys.argv[1:]:
            _rewrite(Path(name).resolve(), Path(made))
