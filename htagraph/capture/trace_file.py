"""A trace on its way to the disk: exported at once, compressed in the background."""

from __future__ import annotations

import io
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from htagraph.capture.trace_name import TraceName
from htagraph.errors import OutputError
from htagraph.writers.output_file import output_file

_CHUNK = 1 << 23
"""Bytes compressed at a time, chosen: between chunks the training gets the GIL."""

_END = 64
"""Bytes checked at the end of a file, chosen: longer than white space after the last bracket."""


@dataclass(frozen=True)
class TraceFile:
    """The file of one cycle of one rank.

    Parameters
    ----------
    with_stack : bool, default=False
        Whether Python stacks were recorded.
    """

    folder: Path
    name: TraceName
    with_stack: bool = False

    @property
    def _plain(self) -> Path:
        return self.name.plain(self.folder)

    @property
    def kept(self) -> Path:
        """Where the trace is if it cannot be compressed."""
        return self.folder / str(self.name)

    def export(self, profiler: Any) -> None:  # noqa: ANN401  torch has no door here
        """Have a profiler write its trace uncompressed, because the training waits for it.

        Raises
        ------
        OutputError
            If there is no file afterwards. Kineto only logs that the disk is full.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(self._plain))
        if not self._plain.is_file() or not self._plain.stat().st_size:
            self.discard()
            raise OutputError(
                "the profiler could not write its trace.",
                path=self.folder,
                hint="check the free space and the permissions.",
            )

    def is_cut_off(self) -> bool:
        """Whether the profiler wrote only part of the file, which it does not report."""
        with self._plain.open("rb") as file:
            file.seek(-min(self._plain.stat().st_size, _END), io.SEEK_END)
            return not file.read().rstrip().endswith((b"}", b"]"))

    def compress(self) -> Path:
        """The compressed file.

        Raises
        ------
        OutputError
            If it cannot be compressed. It is then `kept` as it is.
        """
        trace = self.name.trace(self.folder)
        try:
            with self._plain.open("rb") as plain, output_file(trace) as packed:
                shutil.copyfileobj(plain, packed, _CHUNK)
        except OSError as error:
            self._plain.rename(self.kept)
            raise OutputError(
                "the trace stays uncompressed.", path=self.kept, hint=str(error)
            ) from error
        self.discard()
        return trace

    def discard(self) -> None:
        """Remove the uncompressed file."""
        unfinished = self._plain.with_name(f"{self._plain.name}.tmp")  # Kineto renames it when done
        for file in (self._plain, unfinished):
            with suppress(OSError):
                file.unlink()
