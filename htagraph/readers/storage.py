"""Where files are: on disk, or in a store that `fsspec` opens, named by a URL.

A URL is kept as a `Path`, which has one slash where the URL has two: ``s3:/bucket/run/rank-0.json``
has the name, suffix and parents of its key. A path on disk that would look like one, in a folder
named ``s3:``, is kept as an absolute path. So what a folder holds is never taken for a URL: no name
in an archive of traces makes a request. Only this file knows the difference, and imports `fsspec`,
when it sees a URL.

Ranks that share a file: a path below the file names one of them, ``run.sqlite/rank-1``.
"""

from __future__ import annotations

import errno
import glob
import io
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from htagraph.errors import MissingEventsError, TraceError, TraceNotFoundError, did_you_mean

_URL = re.compile(r"([a-zA-Z][\w+.-]+(?:::[a-zA-Z][\w+.-]+)*):/+(.*)", re.DOTALL)
"""A scheme of two letters or more (not a drive), or several: ``simplecache::s3``."""

_ON_DISK = ("file", "local")


def path_of(given: str | Path) -> Path:
    """Path of what a user names: text is a URL only with ``://``.

    A `Path` has one slash less. It is a URL unless there is such a file or folder on disk.
    """
    path, found = Path(given), _URL.match(str(given))
    if isinstance(given, str):
        is_url = found is not None and given.startswith("//", found.end(1) + 1)
    else:
        is_url = not os.path.lexists(given)
    return path if is_url else _on_disk(path)


def _on_disk(path: Path) -> Path:
    """A path on disk, absolute if it looks like a URL."""
    return path.absolute() if is_remote(path) else path


def is_remote(path: str | Path) -> bool:
    """Whether a path is a URL."""
    return _URL.match(str(path)) is not None


def url_of(path: str | Path) -> str:
    """The URL of a path; other paths unchanged."""
    found = _URL.match(str(path))
    if found is None:
        return str(path)
    root = "/" if found[1].endswith(_ON_DISK) else ""
    return f"{found[1]}://{root}{found[2]}"


def _store(path: Path) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra
    except ImportError as exc:
        raise MissingEventsError(
            f"{url_of(path)} needs fsspec.",
            missing="fsspec",
            hint="pip install 'htagraph[remote]'.",
        ) from exc
    try:
        store, key = url_to_fs(url_of(path))
    except ImportError as exc:  # names the package for the scheme
        raise MissingEventsError(
            f"{url_of(path)} cannot be opened: {exc}.",
            missing="fsspec",
            hint="install the package that fsspec needs for it.",
        ) from exc
    except Exception as exc:
        raise _unanswered(path, exc) from exc
    return store, key


def _unanswered(path: Path, exc: Exception) -> TraceError:
    """Error for a failed request to a store; packages raise anything."""
    return TraceError(
        f"cannot be read: {exc}.", path=url_of(path), hint="check the URL and its credentials."
    )


def _request(path: Path, method: str) -> Any:  # noqa: ANN401 - as the store has it
    store, key = _store(path)
    try:
        return getattr(store, method)(key)
    except FileNotFoundError:
        raise
    except Exception as exc:
        raise _unanswered(path, exc) from exc


def open_file(path: Path) -> BinaryIO:
    """Open a file to read its bytes."""
    if is_remote(path):
        return cast("BinaryIO", _request(path, "open"))
    try:
        mode = path.stat().st_mode
    except ValueError as exc:  # a byte 0
        raise FileNotFoundError(errno.ENOENT, str(exc)) from exc
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode):
        raise TraceError(
            "is not a regular file: it can be read only once.",
            path=path,
            hint="save it to a file, or give its bytes to `load`; commands read pipes.",
        )
    return path.open("rb")


def n_bytes_of(path: Path) -> int:
    """Size of a file in bytes; 0 if it is missing or unreadable."""
    try:
        return int(_request(path, "size") or 0) if is_remote(path) else path.stat().st_size
    except (OSError, TraceError):
        return 0


def size_of(file: BinaryIO) -> int:
    """Size of an open file in bytes; 0 for a pipe."""
    try:
        return os.fstat(file.fileno()).st_size
    except (OSError, AttributeError):  # in memory, or elsewhere
        at, end = file.tell(), file.seek(0, io.SEEK_END)
        file.seek(at)
        return end


def _is(path: Path, it: Callable[[Path], bool]) -> bool:
    """Whether a test of a path succeeds; false for names that no file can have."""
    try:
        return it(path)
    except ValueError:  # a byte 0
        return False
    except OSError as exc:
        if exc.errno == errno.ENAMETOOLONG:
            return False
        raise


def exists(path: Path) -> bool:
    """Whether there is a file or folder."""
    return bool(_request(path, "exists")) if is_remote(path) else _is(path, Path.exists)


def is_file(path: Path) -> bool:
    """Whether there is a file."""
    return bool(_request(path, "isfile")) if is_remote(path) else _is(path, Path.is_file)


def is_folder(path: Path) -> bool:
    """Whether there is a folder."""
    return bool(_request(path, "isdir")) if is_remote(path) else _is(path, Path.is_dir)


def kind_of(path: Path) -> str:
    """What a path on disk is, if it is no regular file; empty for files and URLs."""
    if is_remote(path) or path.is_file():
        return ""
    kinds = {"a pipe": path.is_fifo(), "a socket": path.is_socket(), "a device": path.exists()}
    return next((kind for kind, is_it in kinds.items() if is_it), "a broken link")


def not_found(path: Path) -> TraceNotFoundError:
    """Error for a missing file or folder; the hint names one with a similar name."""
    if is_remote(path):
        return TraceNotFoundError(
            "no such file or folder.", path=url_of(path), hint="check the URL."
        )
    missing = path
    while missing.parent != missing and not exists(missing.parent):
        missing = missing.parent
    names: list[str] = []
    with suppress(OSError):
        names = sorted(entry.name for entry in missing.parent.iterdir())
    meant = did_you_mean(missing.name, names)
    return TraceNotFoundError("no such file or folder.", path=path, hint=meant + "check the path.")


def _is_hidden(path: Path) -> bool:
    """Whether a folder of a path is hidden."""
    return any(part.startswith(".") for part in path.parts[:-1])


def files_within(folder: Path) -> list[Path]:
    """The files of a folder and its subfolders, by name, with what is no regular file.

    Those of hidden subfolders are left out, as a shell does.
    """
    if not is_remote(folder):
        inside = (path for path in sorted(folder.rglob("*")) if not path.is_dir())
        return [_on_disk(path) for path in inside if not _is_hidden(path.relative_to(folder))]
    _, root = _store(folder)
    return _below(folder, root, _request(folder, "find"))


def _matching(pattern: str) -> Iterator[str]:
    """What a glob matches; below ``**``, each folder once, even with circular links."""
    parts = Path(pattern).parts
    if "**" not in parts:
        yield from glob.glob(pattern)  # noqa: PTH207  may be absolute
        return
    n_above = parts.index("**")
    rest = parts[n_above + 1 :] or ("*",)
    for above in _matching(str(Path(*parts[:n_above]))) if n_above else ["."]:
        for folder in _folders_below(above):
            yield from _matching(str(Path(glob.escape(folder), *rest)))


def _folders_below(above: str) -> Iterator[str]:
    """A folder and all below it that are not hidden, each once."""
    seen = set()
    for folder, below, _ in os.walk(above, followlinks=True):
        about = Path(folder).stat()
        below[:] = sorted(name for name in below if not name.startswith("."))
        if (about.st_dev, about.st_ino) in seen:
            below.clear()
            continue
        seen.add((about.st_dev, about.st_ino))
        yield folder


def files_matching(pattern: str | Path) -> list[Path]:
    """The files that a glob matches, by name, with what is no regular file."""
    if not is_remote(pattern):
        found = set(map(Path, _matching(str(pattern))))
        return sorted(_on_disk(path) for path in found if not path.is_dir())
    parts = Path(pattern).parts
    n_plain = next((n for n, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    folder = Path(*parts[:n_plain])
    _, root = _store(folder)
    return _below(folder, root, _request(Path(pattern), "glob"))


def _below(folder: Path, root: str, keys: list[str]) -> list[Path]:
    return sorted(folder / key.removeprefix(root).lstrip("/") for key in keys)


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
    """A file, and the part in it that a path names; ``""`` for the whole file."""
    file = file_of(path)
    return file, "" if file == path else path.name


def name_of(path: Path) -> str:
    """Display name of a trace: its file, and its rank if the file has several."""
    is_part = not path.suffix and path.parent.name.endswith(_OF_SEVERAL_RANKS)
    return f"{path.parent.name}/{path.name}" if is_part else path.name


def rank_in_name(path: Path) -> int | None:
    """The rank in a file's name, or None."""
    found = [match for one in _RANKS_IN_NAME if (match := one.search(path.name))]
    return int(found[0].group(1)) if found else None
