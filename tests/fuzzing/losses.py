"""Loses parts of traces and jobs, and compares what is answered first with the whole.

Where `tests.fuzzing.traces` breaks events, this takes away what profilers, copies and clocks lose:
steps, collectives, buffers, ends of files, ranks. What is left looks whole; `tests.headlines` has
the law that its answers keep.
"""

from __future__ import annotations

import json
import random
import tempfile
import zipfile
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np

from tests.damage import KINDS, LOSSES, Files
from tests.headlines import SILENT, Answer, answer, damaged_files, outcome, read, written
from tests.real_traces import CAPTURES
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank

_RANKS = {
    "compute": {},
    "data loader": {"fault": "dataloader"},
    "syncs": {"fault": "sync_in_loop"},
    "small kernels": {"fault": "small_kernels"},
    "synchronous copies": {"fault": "synchronous_copy"},
    "all-reduce": {"fault": "exposed_allreduce"},
}
_JOBS = {
    "late host": {"ranks": 2, "straggler": 1},
    "late kernels": {"ranks": 3, "straggler": 2, "delay": "kernel"},
    "late loader": {"ranks": 3, "straggler": 0, "delay": "data_loading", "max_offset_ns": 10**6},
    "pipeline": {"ranks": 4, "pipeline": 2, "straggler": 3},
}
_CAPTURED = ("allreduce_2", "ddp_sleep_2", "ddp_sleep_4", "fsdp2_2", "pipeline_2")

_UNMATCHED = {"pipeline_2": "clock_set"}
"""A known gap: a clock that is set forward between its few sends looks like a pause, untold."""

SOURCES = (*_RANKS, *_JOBS, *_CAPTURED)
"""Simulated traces and jobs by what limits them, and captured jobs."""


@cache
def files_of(source: str) -> Files:
    """The documents of a source."""
    if source in _CAPTURED:
        return read(CAPTURES / "jobs" / source)
    with tempfile.TemporaryDirectory() as folder:
        if source in _JOBS:
            options = {"steps": 3, "layers": 2, **_JOBS[source]}
            simulate_job(training_job(**options)).write(folder)  # type: ignore[arg-type]
            return read(Path(folder))
        rank = simulate(training_rank(steps=3, layers=2, **_RANKS[source]))  # type: ignore[arg-type]
        return read(rank.write(Path(folder) / "trace.json"))


@cache
def whole(source: str) -> Answer:
    """What is answered first of a source."""
    with tempfile.TemporaryDirectory() as folder:
        return answer(written(files_of(source), Path(folder)))


def mutated(rng: random.Random) -> bytes:
    """A zip archive: the name of a source, what was lost, and the files that are left."""
    source = rng.choice(SOURCES)
    kinds = [*(LOSSES if source in _RANKS else KINDS)]
    kinds = [kind for kind in kinds if kind != _UNMATCHED.get(source)]
    lost = ""
    while not lost:
        chosen = rng.sample(kinds, rng.choice((1, 1, 1, 3)))
        numbers = np.random.default_rng(rng.randrange(1 << 30))
        files, lost = damaged_files(files_of(source), numbers, chosen)
    archive = BytesIO()
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(archive, "w") as packed:
        written(files, Path(folder))
        for name in files:
            packed.write(Path(folder) / name, name)
        packed.writestr("lost", json.dumps([source, lost]))
    return archive.getvalue()


def answered(data: bytes) -> str:
    """How the answer compares with that on the whole; raise if it is another one and hides it."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(BytesIO(data)) as packed:
        source, lost = json.loads(packed.read("lost"))
        names = [name for name in packed.namelist() if name != "lost"]
        packed.extractall(folder, names)
        place = Path(folder)
        now = answer(place / names[0] if source in _RANKS else place)
    how = outcome(whole(source), now)
    assert not how.startswith(SILENT), f"{lost}: {whole(source).headline} -> {now.headline}"
    return how
