"""Names of the files that the handler writes: rank, first step, time of writing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(
    r"rank(?P<rank>\d{1,9})(?:-step(?P<step>\d{1,15}))?\.(?P<time>\d{19})\.pt\.trace\.json(?:\.gz)?"
)


@dataclass(frozen=True)
class TraceName:
    """The name of a trace file.

    Parameters
    ----------
    step : int, optional
        First recorded step, None if the profiler counts no steps.
    written_ns : int, unit=ns
        Time of writing since the epoch; differs for every file of a rank.
    """

    rank: int
    step: int | None
    written_ns: int

    def __str__(self) -> str:
        """The name of the uncompressed file."""
        return f"rank{self.rank}{self._of_step}.{self.written_ns:019}.pt.trace.json"

    @classmethod
    def of(cls, name: str) -> TraceName | None:
        """The name read; None for a file that the handler did not write."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        step = None if found["step"] is None else int(found["step"])
        return cls(int(found["rank"]), step, int(found["time"]))

    @property
    def _of_step(self) -> str:
        return "" if self.step is None else f"-step{self.step}"

    def plain(self, folder: Path) -> Path:
        """The uncompressed file; hidden, so that no tool takes it for a trace."""
        return folder / f".{self}"

    def trace(self, folder: Path) -> Path:
        """The compressed file."""
        return folder / f"{self}.gz"

    def report(self, folder: Path) -> Path:
        """The folder for the report on the capture of the file."""
        return folder / f"report{self._of_step}.{self.written_ns:019}"
