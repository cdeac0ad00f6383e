"""Traces of ranks: the files of a folder, and the rank that a file's name says."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from htagraph.errors import TraceFormatError, TraceNotFoundError, did_you_mean
from htagraph.readers.rank_paths import file_of, rank_paths

__all__ = ["TRACE_SUFFIXES", "find_traces", "holds_several", "is_glob", "not_found", "rank_in_name"]

TRACE_SUFFIXES = (".json", ".json.gz", ".sqlite")
"""Endings of the files that profilers write."""

_BY_PATH = (".pftrace", ".pftrace.gz", ".perfetto-trace")
"""Endings of traces that are searched for only by a glob: reports write such files, too."""

_NOT_EXPORTED = (".nsys-rep", ".qdrep")

_RANK_IN_NAME = re.compile(
    r"(?:^|[^a-zA-Z])(?:rank|worker|tp|dp)[-_.]?(\d{1,9})(?!\d)", re.IGNORECASE
)


def find_traces(where: str | Path | Iterable[str | Path]) -> list[Path]:
    """The trace files of a folder, with its subfolders, or of a glob; sorted by name.

    A file of several ranks gives a path for each (`htagraph.readers.rank_paths`).

    Parameters
    ----------
    where : str, Path, or iterable of them
        A list is taken as it is.

    Returns
    -------
    list of Path

    Raises
    ------
    TraceFormatError
        If there is none.
    """
    if not isinstance(where, str | Path):
        found = [Path(path) for path in where]
    elif Path(where).is_dir():
        found = sorted(path for path in Path(where).rglob("*") if _is_trace(path))
    elif file_of(Path(where)).is_file():
        found = [Path(where)]
    else:
        matched = map(Path, glob.glob(str(where), recursive=True))  # noqa: PTH207  may be absolute
        found = sorted(path for path in matched if _is_trace(path, _BY_PATH))
    if not found and isinstance(where, str | Path) and not (is_glob(where) or Path(where).exists()):
        raise not_found(Path(where))
    found = [rank for path in found for rank in rank_paths(path)]
    if not found:
        raise TraceFormatError(
            "no traces found.",
            path=str(where),
            hint=_how_to_find(where),
        )
    return found


def is_glob(where: str | Path) -> bool:
    """Whether a path has wildcards."""
    return glob.has_magic(str(where))


def holds_several(where: str | Path) -> bool:
    """Whether a path may name several traces: a folder, a glob, or a file of several ranks."""
    path = Path(where)
    return path.is_dir() or is_glob(where) or len(rank_paths(path)) > 1


def not_found(path: Path) -> TraceNotFoundError:
    """Error for a file or folder that is not there; its hint names one that is called alike."""
    missing = path
    while missing.parent != missing and not missing.parent.exists():
        missing = missing.parent
    names: list[str] = []
    with suppress(OSError):
        names = sorted(entry.name for entry in missing.parent.iterdir())
    meant = did_you_mean(missing.name, names)
    return TraceNotFoundError("no such file or folder.", path=path, hint=meant + "check the path.")


def rank_in_name(path: Path) -> int | None:
    """The rank that a file's name says, None where it says none.

    Examples
    --------
    >>> rank_in_name(Path("rank-3.json.gz")), rank_in_name(Path("trace.json"))
    (3, None)
    """
    found = _RANK_IN_NAME.search(path.name)
    return int(found.group(1)) if found else None


def _is_trace(path: Path, also: tuple[str, ...] = ()) -> bool:
    is_named = path.name.endswith(TRACE_SUFFIXES + also) and not path.name.startswith(".")
    return is_named and path.is_file()


def _how_to_find(where: object) -> str:
    """What to do where there is no trace."""
    folder = Path(where) if isinstance(where, str | Path) else Path()
    reports = (
        [path for ending in _NOT_EXPORTED for path in sorted(folder.glob(f"**/*{ending}"))]
        if folder.is_dir()
        else []
    )
    if reports:
        return f"export it first: nsys export --type sqlite {reports[0]}"
    return f"files end in {' or '.join(TRACE_SUFFIXES)}; check the path."
