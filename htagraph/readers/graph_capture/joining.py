"""Which capture each replay of a graph is of: by the names of all kernels, in order.

One program run captures several graphs (a piece for each layer), and a step replays them in that
order. Most pieces have the same kernels, so only the order tells layers apart: a program is found
where as many replays follow each other as it has graphs, and each fits its own. At the begin and
the end of a trace, a step may be recorded in part; it fits if the graph at its outer end is like no
other of the program, so that a shift by one would show.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from htagraph.model.arrays import I64

_LEAST_PART = 0.5
"""Share of a captured graph that a replay without its end must have, and share of a program that a
step recorded in part must have: a few kernels begin many graphs. Chosen; `test_graph_captures.py`
has replays and steps of a little more and a little less."""
CODE_BYTES = 8
"""Bytes of the code of a kernel."""


class Program(NamedTuple):
    """Graphs that were captured one after the other.

    Parameters
    ----------
    graphs : tuple of bytes
        Codes of the kernels of each graph.
    file : int
        Number of the file.
    numbers : tuple of int
        Numbers of its graphs in the file: empty ones replay nothing, and are left out.
    batch : int
        Batch size, -1 if unknown.
    """

    graphs: tuple[bytes, ...]
    file: int
    numbers: tuple[int, ...]
    batch: int

    def alone(self) -> list[Program]:
        """Each graph as a program of its own."""
        return [
            Program((graph,), self.file, (number,), self.batch)
            for graph, number in zip(self.graphs, self.numbers, strict=True)
        ]


class Replays(NamedTuple):
    """Replays of graphs in order of time: codes of their kernels, and batch sizes or -1."""

    graphs: tuple[bytes, ...]
    batch: I64


class Joined(NamedTuple):
    """The capture of each replay.

    Parameters
    ----------
    file, graph : ndarray of shape (n_replays,), dtype=int64
        Numbers of the file and of the graph in it; -1 for none.
    n_ambiguous : int
        Replays that fit several captures, of which none is the right one for sure.
    n_of_other_batch : int
        Replays whose kernels fit captures of a smaller batch only.
    """

    file: I64
    graph: I64
    n_ambiguous: int
    n_of_other_batch: int


def _fits(replay: bytes, graph: bytes) -> bool:
    """Whether a replay ran the kernels of a graph, or all but its end."""
    return graph.startswith(replay) and len(replay) >= _LEAST_PART * len(graph)


def joined(programs: list[Program], replays: Replays) -> Joined:
    """The capture of each replay.

    Graphs of a program, such as one for each batch size, are also tried alone; then all replays
    must fit, as single short graphs fit by chance.
    """
    whole = _in_order(programs, replays, programs)
    if (whole.file >= 0).all():
        return whole
    alone = _in_order([each for one in programs for each in one.alone()], replays, ())
    if (alone.file >= 0).all() or (whole.file >= 0).any():
        return alone if (alone.file >= 0).all() else whole
    n_fit = (alone.file >= 0).sum() + alone.n_ambiguous + alone.n_of_other_batch
    return alone._replace(file=whole.file, graph=whole.graph) if n_fit == len(whole.file) else whole


def _in_order(programs: Sequence[Program], replays: Replays, in_part: Sequence[Program]) -> Joined:
    """Programs one after the other; some of them also in part."""
    n = len(replays.graphs)
    file, graph = np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    n_ambiguous = n_of_other_batch = at = 0
    while at < n:  # one iteration per replay at most
        options = [one for one in programs if _runs_at(one, replays, at)]
        found = [(one, 0) for one in options]
        found = found or _in_part(in_part, replays, at)
        if not found:
            at += 1
            continue
        batch = int(replays.batch[at])
        large = [one for one in found if batch < 0 or one[0].batch < 0 or batch <= one[0].batch]
        # An engine pads to the next size that it captured.
        order = {one: (one[0].batch, _n_missing(*one, replays, at)) for one in large}
        chosen = [one for one in large if order[one] == min(order.values())]
        program, skipped = (chosen or found)[0]
        until = min(at + len(program.graphs) - skipped, n)
        if len(chosen) == 1:
            file[at:until] = program.file
            graph[at:until] = program.numbers[skipped : skipped + until - at]
        elif chosen:
            n_ambiguous += until - at
        else:
            n_of_other_batch += until - at
        at = until
    return Joined(file, graph, n_ambiguous, n_of_other_batch)


def _n_missing(program: Program, skipped: int, replays: Replays, at: int) -> int:
    """Kernels of a program's graphs that its replays lack."""
    pairs = zip(program.graphs[skipped:], replays.graphs[at:], strict=False)
    return sum(len(graph) - len(replay) for graph, replay in pairs) // CODE_BYTES


def _runs_at(program: Program, replays: Replays, at: int) -> bool:
    """Whether a whole program is replayed from some replay on."""
    until = at + len(program.graphs)
    return until <= len(replays.graphs) and _fit(replays.graphs[at:until], program.graphs)


def _fit(replays: tuple[bytes, ...], graphs: tuple[bytes, ...]) -> bool:
    """Whether each replay fits its graph."""
    return all(_fits(*pair) for pair in zip(replays, graphs, strict=True))


def _in_part(programs: Sequence[Program], replays: Replays, at: int) -> list[tuple[Program, int]]:
    """Programs of which the trace begins with the end, or ends with the begin; graphs skipped."""
    found, left = [], len(replays.graphs) - at
    for one in programs:
        n, times = len(one.graphs), Counter(one.graphs)
        if _LEAST_PART * n <= left < n and times[one.graphs[0]] == 1:
            found += [(one, 0)] * (replays.graphs[at:] == one.graphs[:left])
        if at == 0 and times[one.graphs[-1]] == 1:
            found += [
                (one, n - kept)
                for kept in range(math.ceil(_LEAST_PART * n), min(n, left + 1))
                if replays.graphs[:kept] == one.graphs[n - kept :]
            ]
    return found


def share_alike(replay: bytes, graph: bytes) -> tuple[int, int]:
    """Positions at which a replay and a graph have the same kernel, and positions of the longer."""
    a, b = (np.frombuffer(one, dtype=np.int64) for one in (replay, graph))
    n = min(len(a), len(b))
    return int((a[:n] == b[:n]).sum()), max(len(a), len(b))
