"""Names of the files that the handler writes: rank, first step, and the time of writing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["TraceName"]

_NAME = re.compile(
    r"rank(?P<rank>\d{1,9})(?:-step(?P<step>\d{1,15}))?\.(?P<time>\d{19})\.pt\.trace\.json(?:\.gz)?"
)


@dataclass(frozen=True)
class TraceName:
    """The name of a trace file.

    Parameters
    ----------
    step : int, optional
        First recorded step, None where the profiler counts no steps.
    written_ns : int, unit=ns
        When it was written, since the epoch; no two files of a rank have the same.

    Examples
    --------
    >>> str(TraceName(3, 5, 1795291158414602831))
    'rank3-step5.1795291158414602831.pt.trace.json'
    >>> TraceName.of("rank3-step5.1795291158414602831.pt.trace.json.gz").rank
    3
    """

    rank: int
    step: int | None
    written_ns: int

    def __str__(self) -> str:
        """The name, of a file that is not compressed."""
        return f"rank{self.rank}{self._of_step}.{self.written_ns:019}.pt.trace.json"

    @classmethod
    def of(cls, name: str) -> TraceName | None:
        """What a name says, None for the name of another file."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        step = None if found["step"] is None else int(found["step"])
        return cls(int(found["rank"]), step, int(found["time"]))

    @property
    def _of_step(self) -> str:
        return "" if self.step is None else f"-step{self.step}"

    def plain(self, folder: Path) -> Path:
        """The file while it is not compressed; hidden, so that nobody takes it for a trace."""
        return folder / f".{self}"

    def trace(self, folder: Path) -> Path:
        """The file."""
        return folder / f"{self}.gz"

    def report(self, folder: Path) -> Path:
        """The folder of the report on the capture that the file is of."""
        return folder / f"report{self._of_step}.{self.written_ns:019}"
