"""A trace on its way to the disk: exported at once, compressed in the background.

Files are named by rank, first step and time of writing, so names tell which ranks have written.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
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

    def report(self, folder: Path) -> Path:
        """The folder for the report on the capture of the file."""
        return folder / f"report{self._of_step}.{self.written_ns:019}"


_CHUNK = 1 << 23
"""Bytes compressed at a time, chosen: between chunks the training gets the GIL."""

_END = 64
"""Bytes checked at the ends of a file, chosen: longer than the white space around its brackets."""


@dataclass(frozen=True)
class TraceFile:
    """The file of one cycle of one rank."""

    folder: Path
    name: TraceName
    with_stack: bool = False  # Whether Python stacks were recorded
    sampler: Sampler | None = None  # Has the stacks that were sampled meanwhile
    # ``steps`` after the recording, and how long one takes, ``step_ns``; empty for none
    unrecorded: Mapping[str, int] = field(default_factory=dict)

    @property
    def _plain(self) -> Path:
        """The uncompressed file; hidden, so that no tool takes it for a trace."""
        return self.folder / f".{self.name}"

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
        """The compressed file, with the samples and the other steps that belong to it."""
        trace = self.folder / f"{self.name}.gz"
        try:
            if self.sampler is not None:
                self.sampler.write_into(self._plain)
            with self._plain.open("rb") as plain, output_file(trace) as packed:
                if self.unrecorded and (head := plain.read(_END)).lstrip().startswith(b"{"):
                    packed.write(f'{{"unrecorded": {json.dumps(self.unrecorded)},'.encode())
                    plain.seek(head.index(b"{") + 1)
                else:
                    plain.seek(0)
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


def missing_ranks(
    folder: Path,
    earlier: Collection[str],
    world_size: int,
    step: int | None,
    n: int = 1,
    *,
    timeout_s: float,
    meanwhile: Callable[[str], None] = lambda _: None,
) -> list[int]:
    """The ranks without `n` files of cycles that began in a step; waits until none, or time is up.

    Names of `earlier` runs do not count. `meanwhile`: called at each check with a message.
    """
    end_s = time.monotonic() + timeout_s
    while True:
        found = [TraceName.of(name) for name in names_in(folder) if name not in earlier]
        n_files = Counter(name.rank for name in found if name is not None and name.step == step)
        missing = [rank for rank in range(world_size) if n_files[rank] < n]
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


def names_in(folder: Path) -> list[str]:
    """The names in a folder; none if it cannot be read at the moment."""
    try:
        return os.listdir(folder)  # noqa: PTH208  names are enough
    except OSError:
        return []
