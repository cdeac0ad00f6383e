"""Entries of a cache folder, which may be shared: their names, and which may be used."""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from htagraph.errors import IncompleteTraceWarning, OutputError
from htagraph.model.archive import Arrays
from htagraph.readers.storage import file_of
from htagraph.writers.output_file import new_folder

if TYPE_CHECKING:  # `import htagraph` does without zipfile
    from zipfile import ZipInfo

_ENDS = 1 << 16
"""Bytes at each end of a file that identify it in a cache (chosen)."""

_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Neither what a link points to nor a pipe, which would be waited for, is an entry."""

_Made = TypeVar("_Made")


class Entry(NamedTuple):
    """What is kept of files: arrays, under a name that all who know the files can compute."""

    folder: Path
    # What it is made of, and by what. The entry is sealed with it, so that one that was renamed is
    # none.
    key: str

    @property
    def path(self) -> Path:
        """The file."""
        digest = sha256(self.key.encode("utf-8", "surrogatepass")).hexdigest()
        return self.folder / f"{digest[:32]}.npz"

    def read(self, of: Callable[[Arrays], _Made]) -> _Made | None:
        """What is made of the arrays; None if absent, not trusted, of another key, or damaged."""
        from htagraph.readers.graph_file import BROKEN, arrays_in  # noqa: PLC0415  only where kept

        try:
            with os.fdopen(os.open(self.path, os.O_RDONLY | _NO_LINK), "rb") as file:
                return of(arrays_in(file, self._seal)) if self._trusts(file.fileno()) else None
        except BROKEN:
            return None

    def write(self, arrays: Arrays) -> None:
        """Keep arrays."""
        from htagraph.writers.output_file import write_arrays  # noqa: PLC0415  only where kept

        new_folder(self.folder, hint="choose another cache.")
        write_arrays(self.path, arrays, seal=self._seal)

    def write_or_warn(self, arrays: Arrays) -> None:
        """Keep arrays, or warn that nothing is kept."""
        try:
            self.write(arrays)
        except OutputError as exc:
            warnings.warn(f"nothing is kept: {exc}", IncompleteTraceWarning, stacklevel=4)

    def _seal(self, members: Sequence[ZipInfo]) -> bytes:
        """Digest of the key, and of the checksums of all arrays."""
        content = [(one.filename, one.file_size, one.CRC) for one in members]
        return sha256(f"{self.key} {content}".encode("utf-8", "surrogatepass")).hexdigest().encode()

    def _trusts(self, file: int) -> bool:
        """Whether an open file is of this user, of root or of the folder's owner.

        A valid graph of another trace would change answers. So an entry that every user can write
        to is not trusted either. Windows does not tell.
        """
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode) or not hasattr(os, "getuid"):
            return stat.S_ISREG(state.st_mode)
        is_own = state.st_uid in {0, os.getuid(), self.folder.stat().st_uid}
        return is_own and not state.st_mode & stat.S_IWOTH


def entry_of(files: Iterable[Path], folder: Path, kind: str) -> Entry:
    """The entry of some kind for files as they are now, made by this state of the package."""
    states = [(str(file.absolute()), _state(file_of(file))) for file in files]
    return Entry(folder, f"{_code()} {kind} {states}")


def _state(path: Path) -> tuple[object, ...]:
    """What changes with the content of a file; nothing if it is missing."""
    if not path.is_file():
        return ()
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            ends = sha256(file.read(_ENDS))
            file.seek(max(state.st_size - _ENDS, 0))
            ends.update(file.read(_ENDS))
    except OSError:
        return ()
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, ends.hexdigest()


@lru_cache
def _code() -> str:
    """The state of the package: when its files were last changed."""
    states = ((file, file.stat()) for file in sorted(Path(__file__).parent.rglob("*.py")))
    known = [(file.name, state.st_size, state.st_mtime_ns) for file, state in states]
    return sha256(str(known).encode()).hexdigest()
