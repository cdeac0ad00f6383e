"""Ranks that share a file: a path below the file names one of them, ``run.sqlite/rank-1``."""

from __future__ import annotations

import os
import re
from pathlib import Path

SQLITE = b"SQLite format 3\x00"
"""First bytes of an SQLite file."""

_OF_SEVERAL_RANKS = (".sqlite", ".pftrace", ".pftrace.gz")
"""Endings of files that may hold several ranks."""


_RANKS_IN_NAME = [
    re.compile(rf"(?:^|[^a-zA-Z]){word}[-_.]?(\d{{1,9}})(?!\d)", re.IGNORECASE)
    for word in ("rank", "(?:worker|tp|dp)")
]
"""The rank of the job first: vLLM writes ``dp0_pp0_tp1_dcp0_ep1_rank1.pt.trace.json.gz``."""


def file_of(path: Path) -> Path:
    """The file that a path names, or that holds the rank that it names."""
    # Unlike those of `Path`, functions of `os.path` answer for names that no file can have.
    return path.parent if os.path.isfile(path.parent) else path  # noqa: PTH113


def file_and_part(path: Path) -> tuple[Path, str]:
    """A file, and the part in it that a path names; ``""`` for the whole file.

    Examples
    --------
    >>> file_and_part(Path(__file__) / "rank-1")[1], file_and_part(Path("run.sqlite"))[1]
    ('rank-1', '')
    """
    file = file_of(path)
    return file, "" if file == path else path.name


def name_of(path: Path) -> str:
    """Display name of a trace: its file, and its rank if the file has several.

    Examples
    --------
    >>> name_of(Path("runs/trace.json")), name_of(Path("runs/run.sqlite/rank-1"))
    ('trace.json', 'run.sqlite/rank-1')
    """
    is_part = not path.suffix and path.parent.name.endswith(_OF_SEVERAL_RANKS)
    return f"{path.parent.name}/{path.name}" if is_part else path.name


def rank_in_name(path: Path) -> int | None:
    """The rank in a file's name, or None.

    Examples
    --------
    >>> rank_in_name(Path("rank-3.json.gz")), rank_in_name(Path("trace.json"))
    (3, None)
    """
    found = [match for one in _RANKS_IN_NAME if (match := one.search(path.name))]
    return int(found[0].group(1)) if found else None
