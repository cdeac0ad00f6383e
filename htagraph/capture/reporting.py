"""The report on a capture, written by a child process while the training continues."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from htagraph.capture.arrivals import POLL_S

_NICENESS = 19
"""The lowest priority that POSIX has: the training goes first."""


class Reported(NamedTuple):
    """What to print of a report: without its files, all that it found; and why they are not there.

    Parameters
    ----------
    failure : str
        Empty if the files are there.
    """

    findings: str
    failure: str


def reported(
    trace: Path,
    folder: Path | None,
    out: Path,
    *,
    stacks: bool = False,
    meanwhile: Callable[[str], None] = lambda _: None,
) -> Reported:
    """Write the report on a trace, or on all ranks of its capture.

    Parameters
    ----------
    trace : Path
        File of one rank.
    folder : Path, optional
        Folder with the files of the other ranks, None for a job of one.
    out : Path
        Folder for the report.
    stacks : bool, default=False
        Whether the trace has Python stacks.
    meanwhile : callable, optional
        Called every second with a message.
    """
    about = [str(trace)] if folder is None else [str(folder), "--capture", trace.name]
    options = ["--out", str(out), *(["--stacks"] if stacks else [])]
    # -P: files in the working directory hide no module; the child gets the path of the training.
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
        process_group=0 if os.name == "posix" else None,  # Ctrl-C ends the training only
    )
    with suppress(OSError, AttributeError):  # Windows has no setpriority
        os.setpriority(os.PRIO_PROCESS, child.pid, _NICENESS)
    while True:
        with suppress(subprocess.TimeoutExpired):
            output, errors = child.communicate(timeout=POLL_S)
            break
        meanwhile(f"writing the report into {out}")
    if not child.returncode:
        return Reported(_head(output), "")
    # On a full disk, what was printed before is all that is left of minutes of analysis.
    last = (errors.strip() or f"exit code {child.returncode}").splitlines()[-1]
    return Reported(output.strip(), last.removeprefix("error: "))


def _head(text: str) -> str:
    """The paragraphs on what was recorded and what limits it."""
    lines = [line.rstrip() for line in text.splitlines()]
    return "\n\n".join("\n".join(lines).split("\n\n")[:2]).strip()
