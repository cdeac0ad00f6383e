"""The report on a capture, made by a process of its own: the training goes on beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from htagraph.errors import HTAGraphError

__all__ = ["verdict"]

_POLL_S = 1.0
_NICENESS = 19


def verdict(
    trace: Path,
    folder: Path | None,
    out: Path,
    *,
    stacks: bool = False,
    meanwhile: Callable[[str], None] = lambda _: None,
) -> str:
    """Write the report on a trace, or on all ranks of its capture; the head of it as text.

    Parameters
    ----------
    trace : Path
        File of one rank.
    folder : Path, optional
        Where the files of the other ranks are, None for a job of one.
    out : Path
        Folder for the report.
    stacks : bool, default=False
        The trace has Python stacks.
    meanwhile : callable, optional
        Told every second what is going on.

    Raises
    ------
    HTAGraphError
        If there is no report; it says what the command line said.
    """
    about = [str(trace)] if folder is None else [str(folder), "--capture", trace.name]
    options = ["--out", str(out), *(["--stacks"] if stacks else [])]
    # -P: what lies in the working directory hides no module; the training's path comes along.
    command = [sys.executable, "-P", "-m", "htagraph", "report", *about, *options]
    known = os.pathsep.join(dict.fromkeys(path for path in sys.path if path))
    child = subprocess.Popen(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "PYTHONPATH": known, "PYTHONIOENCODING": "utf-8"},
        process_group=0 if os.name == "posix" else None,  # Ctrl-C is for the training
    )
    with suppress(OSError, AttributeError):  # the training goes first
        os.setpriority(os.PRIO_PROCESS, child.pid, _NICENESS)
    while True:
        with suppress(subprocess.TimeoutExpired):
            said, complaints = child.communicate(timeout=_POLL_S)
            break
        meanwhile(f"writing the report into {out}")
    if child.returncode:
        last = (complaints.strip() or f"exit code {child.returncode}").splitlines()[-1]
        raise HTAGraphError(f"there is no report: {last.removeprefix('error: ')}")
    return _head(said)


def _head(text: str) -> str:
    """The paragraphs of a report on what was recorded, and on what bounds it."""
    lines = [line.rstrip() for line in text.splitlines()]
    return "\n\n".join("\n".join(lines).split("\n\n")[:2]).strip()
