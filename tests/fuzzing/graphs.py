"""Breaks saved graphs: arrays of any type, shape and content, and bytes of the file.

Any damage gives one line of error, or a graph that can be walked. A value that only
makes a sum wrong is found by the sum.
"""

from __future__ import annotations

import random
import tempfile
import zipfile
from contextlib import suppress
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np

from htagraph.errors import HTAGraphError, TraceFormatError
from htagraph.model.archive import pack
from htagraph.queries.questions import QUESTIONS
from htagraph.run.graph import TraceGraph
from htagraph.run.trace import Trace
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

_N_ASKED = 8
"""Questions to each damaged graph; over all graphs, each question is asked many times."""

Arrays = dict[str, np.ndarray]


@cache
def arrays() -> Arrays:
    """What a saved graph of a small training run holds."""
    graph = Trace.from_events(simulate(training_rank(steps=1, layers=1)).events).compile()
    return pack(graph.dag, rank=0, origin=None)


def archived(arrays: Arrays) -> bytes:
    """A file that holds some arrays."""
    file = BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def mutated(rng: random.Random) -> bytes:
    """A saved graph with some damage."""
    if rng.random() < 0.5:
        name = rng.choice(list(arrays()))
        return archived(arrays() | {name: _somehow(arrays()[name], rng)})
    content = bytearray(_whole())
    at = rng.choice(_headers()) + rng.randrange(200) if rng.random() < 0.7 else -1
    content[at if at >= 0 else rng.randrange(len(content))] = rng.randrange(256)
    return bytes(content[: rng.choice((len(content), rng.randrange(len(content))))])


@cache
def _whole() -> bytes:
    return archived(arrays())


@cache
def _headers() -> list[int]:
    """Where the members of the file begin."""
    with zipfile.ZipFile(BytesIO(_whole())) as archive:
        return [entry.header_offset for entry in archive.infolist()]


def _somehow(value: np.ndarray, rng: random.Random) -> np.ndarray:
    """An array with some damage."""
    how = rng.randrange(7)
    if how == 0 or not value.size:
        return value.astype(rng.choice((np.int8, np.int32, np.int64, np.float64, np.bool_, ">i4")))
    if how == 1:
        return np.resize(value, rng.choice((0, 1, len(value) - 1, len(value) + 1)))
    if how == 2:
        return value.reshape(rng.choice(((-1, 1), (1, -1))))
    changed = value.copy()
    places = [rng.randrange(len(value)) for _ in range(rng.choice((1, 1, 5)))]
    if how == 3 and value.dtype != np.bool_:
        limits = np.iinfo(value.dtype) if value.dtype.kind in "iu" else np.finfo(value.dtype)
        changed[places] = rng.choice((limits.min, limits.max, 0, 1, limits.max // 2))
    elif how == 4:
        changed[places] = value[rng.randrange(len(value))]
    elif how == 5:
        np.random.default_rng(rng.randrange(1 << 30)).shuffle(changed)
    else:
        changed[places] = np.roll(changed, 1)[places]
    return changed


def answered(data: bytes) -> str:
    """Open a graph, ask for its path and a few questions; our errors are answers, too."""
    rng = random.Random(len(data))  # noqa: S311  reproducible
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        Path(file.name).write_bytes(data)
        try:
            graph = TraceGraph.open(file.name)
        except TraceFormatError:
            return "refused"
        with suppress(HTAGraphError):
            graph.critical_path().breakdown(by="bound")
        for question in rng.sample(list(QUESTIONS), _N_ASKED):
            with suppress(HTAGraphError):
                graph.ask(question)
    return "valid"
