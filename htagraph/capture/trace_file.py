"""A trace on its way to the disk: exported at once, compressed in the background.

Files are named by rank, first step and time of writing, so names tell which ranks have written.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from htagraph.capture.sampler import Sampler
from htagraph.errors import OutputError
from htagraph.writers.output_file import output_file

_NAME = re.compile(
    r"rank(?P<rank>\d{1,9})(?:-step(?P<step>\d{1,15}))?\.(?P<time>\d{19})\.pt\.trace\.json(?:\.gz)?"
)


@dataclass(frozen=True)
class TraceName:
    """The name of a trace file."""

    rank: int
    step: int | None  # First recorded step, None if the profiler counts no steps
    written_ns: int  # Time of writing since the epoch; differs for every file of a rank

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


_CHUNK = 1 << 23
"""Bytes compressed at a time, chosen: between chunks the training gets the GIL."""

_END = 64
"""Bytes checked at the end of a file, chosen: longer than white space after the last bracket."""


@dataclass(frozen=True)
class TraceFile:
    """The file of one cycle of one rank."""

    folder: Path
    name: TraceName
    with_stack: bool = False  # Whether Python stacks were recorded
    sampler: Sampler | None = None  # Has the stacks that were sampled meanwhile

    @property
    def _plain(self) -> Path:
        return self.name.plain(self.folder)

    @property
    def kept(self) -> Path:
        """Where the trace is if it cannot be compressed."""
        return self.folder / str(self.name)

    def export(self, profiler: Any) -> None:  # noqa: ANN401  torch has no door here
        """Have a profiler write its trace uncompressed, because the training waits for it."""
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
        """The compressed file, with the samples that belong to it."""
        trace = self.name.trace(self.folder)
        try:
            if self.sampler is not None:
                self.sampler.write_into(self._plain)
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


POLL_S = 1.0
"""Seconds between checks, chosen: no answer depends on it, and a network disk can bear it."""

_N_NAMED = 8
"""Ranks in a message, chosen: they fit into a line. Pinned by the example of `ranks_in_words`."""


@dataclass(frozen=True)
class Arrivals:
    """The files that appear in a folder after those that were there."""

    folder: Path
    # Names that do not count: files of earlier runs
    earlier: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def after_now(cls, folder: Path) -> Arrivals:
        """The files that appear from now on."""
        return cls(folder, frozenset(_names(folder)))

    def ranks(self, step: int | None, n: int = 1) -> set[int]:
        """The ranks with at least `n` files of cycles that began in a step."""
        found = [TraceName.of(name) for name in _names(self.folder) if name not in self.earlier]
        n_files = Counter(name.rank for name in found if name is not None and name.step == step)
        return {rank for rank, n_of_rank in n_files.items() if n_of_rank >= n}

    def missing(
        self,
        world_size: int,
        step: int | None,
        n: int = 1,
        *,
        timeout_s: float,
        meanwhile: Callable[[str], None] = lambda _: None,
    ) -> list[int]:
        """The ranks whose files are still missing; waits until none is, or time is up.

        `meanwhile`: called at each check with a message.
        """
        end_s = time.monotonic() + timeout_s
        while True:
            missing = sorted(set(range(world_size)) - self.ranks(step, n))
            left_s = end_s - time.monotonic()
            if not missing or left_s <= 0:
                return missing
            meanwhile(f"waiting for the traces of {ranks_in_words(missing)}, {left_s:.0f} s left")
            time.sleep(min(POLL_S, left_s))


def ranks_in_words(ranks: Sequence[int]) -> str:
    """Ranks by number; of many, the first ones."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    named = ", ".join(map(str, ranks[:_N_NAMED]))
    return f"{len(ranks):,} ranks ({named}{', …' if len(ranks) > _N_NAMED else ''})"


def _names(folder: Path) -> list[str]:
    """The names in a folder; none if it cannot be read at the moment."""
    try:
        return os.listdir(folder)  # noqa: PTH208  names are enough
    except OSError:
        return []
