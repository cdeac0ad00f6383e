"""Ranks that share one file: a path below the file names one of them, ``run.sqlite/rank-1``."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from htagraph.readers.first_bytes import first_bytes

__all__ = ["OF_SEVERAL_RANKS", "SQLITE", "file_of", "name_of", "rank_paths"]

SQLITE = b"SQLite format 3\x00"
"""First bytes of such a file."""

OF_SEVERAL_RANKS = (".sqlite",)
"""Endings of files that may hold several ranks."""

_OF_ONE_RANK = (".json", ".json.gz")


def file_of(path: Path) -> Path:
    """The file that a path names, or that holds the rank that it names.

    Examples
    --------
    >>> file_of(Path("nowhere/rank-1"))
    PosixPath('nowhere/rank-1')
    """
    return path.parent if path.parent.is_file() else path


def name_of(path: Path) -> str:
    """What a trace is called: its file, and its rank where that has several.

    Examples
    --------
    >>> name_of(Path("runs/trace.json")), name_of(Path("runs/run.sqlite/rank-1"))
    ('trace.json', 'run.sqlite/rank-1')
    """
    is_part = not path.suffix and path.parent.name.endswith(OF_SEVERAL_RANKS)
    return f"{path.parent.name}/{path.name}" if is_part else path.name


def rank_paths(path: Path) -> list[Path]:
    """The ranks of a file, each by its path; the path itself where there is one, or nobody knows.

    Parameters
    ----------
    path : Path

    Returns
    -------
    list of Path
    """
    if path.name.endswith(_OF_ONE_RANK) or first_bytes(path, len(SQLITE)) != SQLITE:
        return [path]
    state = path.stat()
    return list(_in_export(path, state.st_size, state.st_mtime_ns))


@lru_cache(maxsize=256)
def _in_export(path: Path, _n_bytes: int, _changed_ns: int) -> tuple[Path, ...]:
    """The ranks of an export of Nsight Systems, as it is now."""
    from htagraph.errors import TraceError  # noqa: PLC0415
    from htagraph.readers.nsys import nsys_ranks  # noqa: PLC0415 - imports sqlite3

    try:
        ranks = nsys_ranks(path)
    except TraceError:  # who reads it will say why
        return (path,)
    if len(ranks) < 2:
        return (path,)
    return tuple(path / f"rank-{one.rank}" for one in ranks)
