"""Files that a client may name: those in one folder, after links and `..` are resolved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from htagraph.errors import QueryError, TraceNotFoundError
from htagraph.model.units import human_count
from htagraph.readers.captures import CaptureName, choose_capture, discover
from htagraph.readers.discover import find_traces
from htagraph.readers.rank_paths import file_of


@dataclass(frozen=True)
class Root:
    """The folder whose files may be read.

    Parameters
    ----------
    folder : Path
        Absolute, without links.

    Examples
    --------
    >>> Root.of("/srv/traces").inside("../../etc/passwd")
    Traceback (most recent call last):
    htagraph.errors.QueryError: ../../etc/passwd is outside of /srv/traces, ...
    """

    folder: Path

    @classmethod
    def of(cls, folder: str | Path) -> Root:
        """The root of a folder, which may be a link."""
        return cls(Path(folder).resolve())

    def inside(self, name: str) -> Path:
        """The file or folder that a client names, without links.

        Raises
        ------
        QueryError
            If it lies outside, whether it exists or not.
        """
        try:
            path = (self.folder / name).resolve()
        except (OSError, RuntimeError, ValueError):  # links in a circle, a null byte
            raise QueryError(f"{name!r} is no path.", hint=self._hint) from None
        if not path.is_relative_to(self.folder):
            raise QueryError(
                f"{name} is outside of {self.folder}, the only folder that is read here.",
                hint=self._hint,
            )
        return path

    def existing(self, name: str) -> Path:
        """The existing file or folder that a client names.

        Raises
        ------
        QueryError
            If it lies outside.
        TraceNotFoundError
            If there is no such file or folder.
        """
        path = self.inside(name)
        if not file_of(path).exists():
            raise TraceNotFoundError("no such file or folder.", path=name, hint=self._hint)
        return path

    @property
    def _hint(self) -> str:
        return f"paths are relative to {self.folder}; `captures` lists what is there."

    def shown(self, path: str | Path) -> str:
        """A path as a client names it: relative to the root."""
        path = Path(path)
        return str(path.relative_to(self.folder)) if path.is_relative_to(self.folder) else str(path)

    def holds(self, path: Path) -> bool:
        """Whether a file is inside, after links."""
        return path.resolve().is_relative_to(self.folder)

    def captures(self, folder: Path) -> tuple[pd.DataFrame, list[str]]:
        """The captures in a folder, and a note on links in it that lead outside.

        Returns
        -------
        DataFrame, schema `frames.CAPTURES`
            Without those links.
        """
        found = find_traces(folder)
        inside = [path for path in found if self.holds(path)]
        n_outside = len(found) - len(inside)
        note = f"{human_count(n_outside, 'link')} to files outside of the root left out."
        if not inside:
            raise QueryError(f"{self.shown(folder)}: {note}", hint=self._hint)
        return discover(inside), [note] if n_outside else []

    def capture(self, folder: Path, capture: CaptureName) -> tuple[list[Path], list[str]]:
        """The files of one capture in a folder, and notes on the choice.

        Raises
        ------
        CaptureNotChosenError
            If the captures are of unrelated runs, or overlap.
        QueryError
            If there is no such capture.
        """
        captures, notes = self.captures(folder)
        paths, note = choose_capture(captures, self.shown(folder), capture)
        return paths, [*notes, *([note] if note else [])]
