"""Traces of ranks: the files of a folder, and the rank that a file's name says."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from htagraph.errors import TraceFormatError, TraceNotFoundError, did_you_mean

__all__ = ["TRACE_SUFFIXES", "find_traces", "is_glob", "not_found", "rank_in_name"]

TRACE_SUFFIXES = (".json", ".json.gz")
"""Endings of the files that profilers write."""

_RANK_IN_NAME = re.compile(
    r"(?:^|[^a-zA-Z])(?:rank|worker|tp|dp)[-_.]?(\d{1,9})(?!\d)", re.IGNORECASE
)


def find_traces(where: str | Path | Iterable[str | Path]) -> list[Path]:
    """The trace files of a folder, with its subfolders, or of a glob; sorted by name.

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
    elif Path(where).is_file():
        found = [Path(where)]
    else:
        matched = map(Path, glob.glob(str(where), recursive=True))  # noqa: PTH207  may be absolute
        found = sorted(path for path in matched if _is_trace(path))
    if not found and isinstance(where, str | Path) and not (is_glob(where) or Path(where).exists()):
        raise not_found(Path(where))
    if not found:
        raise TraceFormatError(
            "no traces found.",
            path=str(where),
            hint=f"files end in {' or '.join(TRACE_SUFFIXES)}; check the path.",
        )
    return found


def is_glob(where: str | Path) -> bool:
    """Whether a path has wildcards."""
    return glob.has_magic(str(where))


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


def _is_trace(path: Path) -> bool:
    return path.is_file() and path.name.endswith(TRACE_SUFFIXES) and not path.name.startswith(".")
