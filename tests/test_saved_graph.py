"""A saved graph comes back as it was."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from htagraph import Trace, TraceGraph
from htagraph.errors import HTAGraphError, TraceFormatError
from htagraph.model.archive import pack
from htagraph.questions import QUESTIONS
from htagraph.synth import simulate, timeline, training_rank
from tests.synth.strategies import programs


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(program=programs(max_blocks=3))
def test_every_array_survives(tmp_path, program):
    """Events, edges, bindings, names: all of it."""
    graph = Trace.from_events(simulate(program).events, rank=3).compile()
    again = TraceGraph.open(graph.save(tmp_path / "graph.npz"))
    before, after = (pack(g.dag, rank=g.rank, origin=g.origin) for g in (graph, again))

    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert repr(graph) == repr(again)


def test_names_of_any_content_survive():
    """A name may hold what is no valid text."""
    from htagraph.model.archive import unpack

    graph = Trace.from_events(timeline("cpu 1 |[op  ]", names={"op": "a\ud800\n\u0000é"})).compile()
    dag, _, _ = unpack(pack(graph.dag, rank=0, origin=None))

    assert dag.events.names()[0] == "a\ud800\n\u0000é"


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 broken"])
def test_what_is_no_graph_is_refused_clearly(tmp_path, content):
    """One line, not a trace of calls."""
    path = tmp_path / "broken.npz"
    path.write_bytes(content)

    with pytest.raises(TraceFormatError, match="not a graph"):
        TraceGraph.open(path)


def test_a_pickle_in_the_file_is_not_executed(tmp_path):
    """Object arrays are refused."""
    path = tmp_path / "pickled.npz"
    np.savez(
        path, **{"facts.bytes": np.array([{}], dtype=object), "facts.offsets": np.array([0, 1])}
    )

    with pytest.raises(TraceFormatError):
        TraceGraph.open(path)


Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def arrays() -> Arrays:
    """What a saved graph of a small training run holds."""
    graph = Trace.from_events(simulate(training_rank(steps=1, layers=1)).events).compile()
    return pack(graph.dag, rank=0, origin=None)


def _set(name: str, place: int, value: int) -> Callable[[Arrays], None]:
    def tamper(arrays: Arrays) -> None:
        arrays[name] = arrays[name].copy()
        arrays[name][place] = value

    return tamper


def _change(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Arrays], None]:
    def tamper(arrays: Arrays) -> None:
        arrays[name] = change(arrays[name])

    return tamper


def _facts(**changed: Any) -> Callable[[Arrays], None]:
    def tamper(arrays: Arrays) -> None:
        facts = json.loads(arrays["facts.bytes"].tobytes()) | changed
        text = json.dumps(facts).encode()
        arrays["facts.bytes"] = np.frombuffer(text, dtype=np.uint8)
        arrays["facts.offsets"] = np.array([0, len(text)])

    return tamper


def _own_parent(arrays: Arrays) -> None:
    arrays["dag.parent"] = arrays["dag.parent"].copy()
    arrays["dag.parent"][:2] = 1, 0


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (_set("edges.tail", 0, 2**31 - 1), "tail of the edges is out of range"),
        (_set("edges.head", 0, -1), "head of the edges is out of range"),
        (_set("edges.rule", 0, 99), "rule of the edges is out of range"),
        (_set("edges.lag_ns", 0, 2**62), "an edge runs backward in time"),
        (_set("edges.lag_ns", 0, -5), "a lag is below zero"),
        (_set("events.name", 0, 10**6), "name of an event is out of range"),
        (_set("events.lane", 3, -1), "lane is out of range"),
        (_set("events.kind", 3, 120), "kind of an event is out of range"),
        (_set("events.ts_ns", 3, 2**63 - 1), "ts_ns is out of range"),
        (_set("events.dur_ns", 3, -1), "dur_ns of an event is out of range"),
        (_set("dag.parent", 0, 10**6), "parent of an event is out of range"),
        (_own_parent, "an event is its own parent"),
        (_set("dag.binding", 1, 10**6), "binding is out of range"),
        (_set("dag.residual_ns", 5, 77), "residual_ns is not what the edges leave"),
        (_change("dag.order", lambda a: a[::-1].copy()), "order is cyclic"),
        (_change("dag.order", np.zeros_like), "order lacks nodes"),
        (_change("dag.launch", lambda a: a[:-1]), "launch of the events is int32 of shape"),
        (_change("events.ts_ns", lambda a: a.astype(float)), "ts_ns of the events is float64"),
        (_change("events.ts_ns", lambda a: a.astype(">i8")), "ts_ns of the events is >i8"),
        (_change("edges.kind", lambda a: a[:, None]), "kind of the edges is int8 of shape"),
        (_change("edges.kind", lambda a: a[:3]), "edge columns differ in length"),
        (_change("events.ts_ns", lambda a: a[0]), "unsized object"),
        (_facts(lanes={}), "lane is out of range"),
        (_facts(span={"start_ns": 0, "end_ns": 2**60, "name": "x"}), "not that of the work"),
        (_facts(span={"start_ns": "0", "end_ns": 9, "name": "x"}), "not supported between"),
        (_facts(calibration={"launch_floor_ns": None}), "the calibration is no numbers"),
        (_facts(rank="0"), "its rank or its time is no number"),
        (_facts(notes=[]), "the notes are no numbers"),
    ],
)
def test_a_graph_that_was_tampered_with_is_refused_in_a_line(
    tmp_path: Path, arrays: Arrays, tamper: Callable[[Arrays], None], message: str
) -> None:
    """Its indices lead out of the arrays, its order is a circle: compiled code would follow."""
    path, broken = tmp_path / "graph.npz", dict(arrays)
    tamper(broken)
    np.savez(path, **broken)

    with pytest.raises(TraceFormatError, match=message) as refused:
        TraceGraph.open(path)
    assert str(refused.value).startswith(f"{path}: not a graph that can be opened: ")
    assert "\n" not in str(refused.value)


def test_a_compressed_archive_is_refused(tmp_path: Path, arrays: Arrays) -> None:
    """A saved graph is not compressed, so no small file can become a large one."""
    np.savez_compressed(tmp_path / "graph.npz", **arrays)

    with pytest.raises(TraceFormatError, match="it is compressed"):
        TraceGraph.open(tmp_path / "graph.npz")


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


_N_ASKED = 8
"""Questions to each damaged graph; over all graphs, each question is asked many times."""


def _asked(graph: TraceGraph, rng: random.Random) -> None:
    """Ask a graph for its path and a few questions; errors of the package are answers, too."""
    with suppress(HTAGraphError):
        graph.critical_path().breakdown(by="bound")
    for question in rng.sample(list(QUESTIONS), _N_ASKED):
        with suppress(HTAGraphError):
            graph.ask(question)


def test_a_damaged_graph_is_refused_or_answers(tmp_path: Path, arrays: Arrays) -> None:
    """Whatever array has whatever damage: a line that says so, or a graph that can be walked.

    A value that only makes a sum wrong is found by the sum.
    """
    rng, outcomes = random.Random(5), {"refused": 0, "answers": 0}  # noqa: S311  reproducible
    for _ in range(150):
        name = rng.choice(list(arrays))
        np.savez(tmp_path / "graph.npz", **(arrays | {name: _somehow(arrays[name], rng)}))
        try:
            graph = TraceGraph.open(tmp_path / "graph.npz")
        except TraceFormatError:
            outcomes["refused"] += 1
            continue
        _asked(graph, rng)
        outcomes["answers"] += 1

    assert min(outcomes.values()) > 5


def test_a_damaged_file_is_refused_or_answers(tmp_path: Path, arrays: Arrays) -> None:
    """The same for bytes of the file; its checksums find most."""
    path, rng = tmp_path / "graph.npz", random.Random(6)  # noqa: S311  reproducible
    np.savez(path, **arrays)
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        headers = [entry.header_offset for entry in archive.infolist()]
    for _ in range(150):
        content = bytearray(whole)
        at = rng.choice(headers) + rng.randrange(200) if rng.random() < 0.7 else -1
        content[at if at >= 0 else rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content[: rng.choice((len(content), rng.randrange(len(content))))])
        try:
            _asked(TraceGraph.open(path), rng)
        except TraceFormatError:
            continue
