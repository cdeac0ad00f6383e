"""Trace files of a folder or glob, and the ranks in a file."""

from __future__ import annotations

import glob
import warnings
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from htagraph.errors import IncompleteTraceWarning, TraceError, TraceFormatError
from htagraph.readers.byte_stream import first_bytes
from htagraph.readers.formats import other_format
from htagraph.readers.storage import (
    SQLITE,
    exists,
    file_of,
    files_matching,
    files_within,
    is_file,
    is_folder,
    is_remote,
    kind_of,
    not_found,
    path_of,
    url_of,
)

TRACE_SUFFIXES = (".json", ".json.gz", ".sqlite")
"""Endings of files that profilers write."""

_BY_PATH = (".pftrace", ".pftrace.gz", ".perfetto-trace")
"""Endings that count only if there are no others: reports write such files, too."""

_OF_ONE_RANK = (".json", ".json.gz")
_NOT_EXPORTED = (".nsys-rep", ".qdrep")

_N_NAMED = 3
"""Chosen: entries that are no files that a warning names."""
_MOST_RECOGNIZED = 100
"""Files of a folder without traces that are opened, to say what they are. A limit of time."""


def find_traces(where: str | Path | Iterable[str | Path]) -> list[Path]:
    """The trace files of a folder, with its subfolders, or of a glob; sorted by name. A list stays.

    A file of several ranks gives a path for each (`htagraph.readers.storage`).
    """
    if isinstance(where, str | Path):
        where = path_of(where)
    if not isinstance(where, Path):
        found = [path_of(path) for path in where]
    elif is_folder(where):
        files = files_within(where)
        found = _regular(path for path in files if _is_trace(path))
        found = found or _regular(path for path in files if _is_trace(path, _BY_PATH))
    elif is_file(file_of(where)):
        found = [where]
    else:
        found = _regular(path for path in files_matching(where) if _is_trace(path, _BY_PATH))
    if not found and isinstance(where, Path) and not (is_glob(where) or exists(where)):
        raise not_found(where)
    found = [rank for path in found for rank in rank_paths(path)]
    if not found:
        raise TraceFormatError(
            "no traces found.",
            path=url_of(str(where)),
            hint=_how_to_find(where),
        )
    return found


def is_glob(where: str | Path) -> bool:
    """Whether a path has wildcards."""
    return glob.has_magic(str(where))


def holds_several(where: str | Path) -> bool:
    """Whether a path may name several traces: a folder, a glob, or a file of several ranks."""
    path = path_of(where)
    return is_folder(path) or is_glob(where) or len(rank_paths(path)) > 1


def _is_trace(path: Path, also: tuple[str, ...] = ()) -> bool:
    return path.name.endswith(TRACE_SUFFIXES + also) and not path.name.startswith(".")


def _regular(found: Iterable[Path]) -> list[Path]:
    """The regular files among some paths; a warning names the others."""
    kinds = {path: kind_of(path) for path in found}
    others = [f"{path.name} ({kind})" for path, kind in kinds.items() if kind]
    if others:
        more = " …" if len(others) > _N_NAMED else ""
        warnings.warn(
            f"left out, because they are not files: {', '.join(others[:_N_NAMED])}{more}.",
            IncompleteTraceWarning,
            stacklevel=3,
        )
    return [path for path, kind in kinds.items() if not kind]


def _how_to_find(where: object) -> str:
    folder = where if isinstance(where, Path) else Path()
    files = files_within(folder) if not is_remote(folder) and folder.is_dir() else []
    reports = [path for path in files if path.name.endswith(_NOT_EXPORTED)]
    if reports:
        return f"export it first: nsys export --type sqlite {reports[0]}"
    for path in files[:_MOST_RECOGNIZED]:
        if (other := other_format(path)) is not None:
            return f"{path.name} is {other.name}: {other.hint_on(path)}"
    return f"files end in {' or '.join(TRACE_SUFFIXES)}; check the path."


def rank_paths(path: Path) -> list[Path]:
    """The path of each rank in a file; the file itself if it holds one rank, or is not readable."""
    may_have_several = not (path.name.endswith(_OF_ONE_RANK) or is_remote(path))
    if not may_have_several or first_bytes(path, len(SQLITE)) != SQLITE:
        return [path]
    state = path.stat()
    return list(_in_export(path, state.st_size, state.st_mtime_ns))


@lru_cache(maxsize=256)
def _in_export(path: Path, _n_bytes: int, _changed_ns: int) -> tuple[Path, ...]:
    """The ranks of an Nsight Systems export, cached for its size and time of change."""
    from htagraph.readers.nsys.ranks import nsys_ranks  # noqa: PLC0415 - imports sqlite3

    try:
        ranks = nsys_ranks(path)
    except TraceError:  # loading it reports why
        return (path,)
    if len(ranks) < 2:
        return (path,)
    return tuple(path / f"rank-{one.rank}" for one in ranks)
