"""Which files of a folder are traces of ranks."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path

from htagraph.errors import TraceFormatError

__all__ = ["TRACE_SUFFIXES", "find_traces"]

TRACE_SUFFIXES = (".json", ".json.gz")
"""What the files of a profiler are called."""


def find_traces(where: str | Path | Iterable[str | Path]) -> list[Path]:
    """Return the trace files of a folder (with its subfolders), of a glob, or of a list; sorted by name.

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
        matched = (Path(path) for path in glob.glob(str(where), recursive=True))  # noqa: PTH207  also absolute patterns
        found = sorted(path for path in matched if _is_trace(path))
    if not found:
        raise TraceFormatError(
            "no traces found.",
            path=str(where),
            hint=f"files end in {' or '.join(TRACE_SUFFIXES)}; check the path.",
        )
    return found


def _is_trace(path: Path) -> bool:
    return path.is_file() and path.name.endswith(TRACE_SUFFIXES) and not path.name.startswith(".")
