"""Breaks what lies next to a trace: logs of monitoring tools and execution traces.

Lines and nodes trade places and values, come twice, vanish, belong to another clock or another
tool. The trace keeps its events whatever its companion is; the companion gives an error of the
package, or nodes and samples that are counted, and a graph that answers.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import tempfile
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import htagraph as hg
from htagraph.errors import GraphError, HTAGraphError
from htagraph.model.events import EVENT_DTYPES
from htagraph.model.recording import Recording
from htagraph.readers.beside import with_beside
from tests.readers.test_monitoring import FORMATS, _query_log, _trace
from tests.real_traces import CAPTURES

_FIELDS = (
    "",
    "-",
    "N/A",
    "[N/A]",
    "0",
    "-1",
    "1e308",
    "nan",
    "inf",
    "9" * 30,
    "x",
    '"',
    "2024/05/01",
)
_VALUES = (
    None, True, -1, 0, 1, 2**31, 2**63, -(2**63), 0.5, 1e308, "", "x", "\ud800", "9" * 30, [], [[]],
    [None], {}, {"values": 1},
)  # fmt: skip
_N_NODES = 120
_LEAST = 20
"""Nodes that are left, so that there is something to break."""
_STOPS = 0.3
"""How often a mutation hits a value whole, not something within."""
_ASKED = ("counters", "utilization", "execution_nodes", "sampled_counters", "quality")


@cache
def logs() -> list[str]:
    """What tools write."""
    return [
        *(text for text, _ in FORMATS.values()),
        _query_log(1, range(8)),
        _query_log(0, range(9)),
    ]


@cache
def execution_trace() -> dict[str, Any]:
    """Some nodes of a captured run, in its file's document."""
    text = gzip.decompress((CAPTURES / "features" / "et.et.json.gz").read_bytes())
    document: dict[str, Any] = json.loads(text)
    return document | {"nodes": document["nodes"][:_N_NODES]}


@cache
def recording(is_log: bool) -> Recording:
    """The trace next to which it lies."""
    if is_log:
        return _trace(0, 1)
    return hg.load(CAPTURES / "features" / "et.pt.trace.json.gz").recording


def mutated(rng: random.Random) -> bytes:
    """A log or an execution trace with some damage."""
    return _log(rng) if rng.random() < 0.5 else _nodes(rng)


def _log(rng: random.Random) -> bytes:
    lines = rng.choice(logs()).splitlines()
    for _ in range(rng.choice((1, 2, 5, 20))):
        at = rng.randrange(len(lines)) if lines else 0
        how = rng.randrange(8)
        if how == 0:
            lines.insert(at, rng.choice(rng.choice(logs()).splitlines()))
        elif not lines:
            continue
        elif how == 1:
            rng.shuffle(lines)
        elif how == 2:
            lines.insert(rng.randrange(len(lines)), lines[at])
        elif how == 3:
            del lines[at : at + rng.choice((1, 3))]
        elif how == 4:  # the clock is set, or of another zone, or of another year
            lines[at] = re.sub(
                r"\d", lambda _: str(rng.randrange(10)), lines[at], count=rng.choice((1, 14))
            )
        elif how == 5:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        else:
            mark = "," if "," in lines[at] else " "
            fields = lines[at].split(mark)
            where = rng.randrange(len(fields))
            if how == 6:
                fields[where] = rng.choice(_FIELDS)
            else:
                fields[where:where] = fields[: rng.randrange(3)]
            lines[at] = mark.join(fields)
    return "\n".join(lines).encode()


def _nodes(rng: random.Random) -> bytes:
    document = json.loads(json.dumps(execution_trace()))
    nodes = document["nodes"]
    for _ in range(rng.choice((1, 2, 5, 30))):
        at, how = rng.randrange(len(nodes)), rng.randrange(6)
        if how == 0:
            rng.shuffle(nodes)
        elif how == 1:
            nodes.append(json.loads(json.dumps(rng.choice(nodes))))
        elif how == 2 and len(nodes) > _LEAST:
            del nodes[at : at + rng.choice((1, 5))]
        elif how == 3 and rng.random() < _STOPS:
            nodes[at] = _value(rng)
        else:
            _break(nodes[at], rng.choice(nodes), rng)
    if rng.random() < 0.1:
        document[rng.choice((*document, "nodes"))] = _value(rng)
    return json.dumps(document).encode()


def _value(rng: random.Random) -> Any:
    """A value of its own: lists may be filled later."""
    return deepcopy(rng.choice(_VALUES))


def _break(node: Any, other: Any, rng: random.Random) -> None:
    """A node takes the id or the parent of another, or a value of it changes or vanishes."""
    place = _place(node, rng)
    if place is None:
        return
    holder, key = place
    how = rng.randrange(3)
    if how == 0 and isinstance(node, dict) and isinstance(other, dict):
        node[rng.choice(("id", "ctrl_deps"))] = other.get(rng.choice(("id", "ctrl_deps")))
    elif how == 1 and isinstance(holder, dict):
        del holder[key]
    else:
        holder[key] = _value(rng)


def _place(value: Any, rng: random.Random) -> tuple[Any, Any] | None:
    """A key within a value, and what holds it; None if it holds nothing."""
    holder: tuple[Any, Any] | None = None
    while isinstance(value, dict | list) and value:
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        holder, value = (value, key), value[key]
        if rng.random() < _STOPS:
            break
    return holder


def answered(data: bytes) -> str:
    """How it went to add a companion; raise what none deserves."""
    is_log = not data.lstrip().startswith(b"{")
    before = recording(is_log)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "beside"
        path.write_bytes(data)
        try:
            found = with_beside(before, [path])
        except GraphError:
            raise
        except HTAGraphError as error:
            return type(error).__name__
    added = found.attached[-1]
    assert 0 <= added.n_matched <= added.n
    assert all(
        np.array_equal(getattr(found.events, name), getattr(before.events, name))
        for name in EVENT_DTYPES
    )
    graph = hg.Trace(found).compile()
    path_of = graph.critical_path()
    assert int(path_of.segments["dur_ns"].sum()) == graph.dur_ns
    for question in _ASKED:
        try:
            graph.ask(question)
        except GraphError:
            raise
        except HTAGraphError:  # it needs what this file does not have
            continue
    return "matched" if added.n_matched else "nothing matched"
