"""Both passes of the critical path method, against a loop over edges."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays.removals import retime_without
from htagraph.arrays.retime import DROPPED, NO_DEADLINE, latest_times, retime

I64 = npt.NDArray[np.int64]


class Graph(NamedTuple):
    """Edges by head, as `retime` takes them."""

    offsets: I64
    tail: npt.NDArray[np.int32]
    weight_ns: I64
    release_ns: I64

    @property
    def edges(self) -> list[tuple[int, int, int]]:
        """Tail, head and row of each edge, in order of the heads."""
        head = np.repeat(np.arange(len(self.release_ns)), np.diff(self.offsets))
        return list(zip(self.tail.tolist(), head.tolist(), range(len(head)), strict=True))


_lags = st.one_of(st.integers(0, 99), st.just(DROPPED))


def _integers(values: list[int]) -> I64:
    return np.array(values, dtype=np.int64)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Nodes in a topological order, some edges twice, some dropped."""
    n = draw(st.integers(1, 8))
    into = [
        draw(st.lists(st.integers(0, node - 1), max_size=3)) if node else [] for node in range(n)
    ]
    tail = np.array([one for tails in into for one in tails], dtype=np.int32)
    return Graph(
        np.cumsum([0, *map(len, into)]),
        tail,
        _integers(draw(st.lists(_lags, min_size=len(tail), max_size=len(tail)))),
        _integers(draw(st.lists(st.integers(0, 99), min_size=n, max_size=n))),
    )


def _arrivals(graph: Graph) -> list[int]:
    """Times by one edge after the other."""
    times = graph.release_ns.tolist()
    for tail, head, row in graph.edges:
        times[head] = max(times[head], times[tail] + int(graph.weight_ns[row]))
    return times


@given(graphs(), st.randoms(use_true_random=False))
def test_a_node_happens_at_its_latest_arrival_or_release(graph: Graph, random) -> None:
    """However the nodes are numbered, if the order says so."""
    expected = _arrivals(graph)
    assert retime(*graph).tolist() == expected

    number = list(range(len(expected)))
    random.shuffle(number)
    order = np.array(number, dtype=np.int32)
    old = np.argsort(order)
    rows = [np.arange(graph.offsets[node], graph.offsets[node + 1]) for node in old.tolist()]
    edges = np.concatenate([np.empty(0, dtype=np.int64), *rows]).astype(np.int64)
    renumbered = Graph(
        np.cumsum([0, *map(len, rows)]),
        order[graph.tail[edges]],
        graph.weight_ns[edges],
        graph.release_ns[old],
    )
    assert retime(*renumbered, order).tolist() == [expected[node] for node in old.tolist()]


@given(graphs(), st.data())
def test_without_a_group_its_edges_weigh_less(graph: Graph, data: st.DataObject) -> None:
    """More groups than one pass holds; an edge may be of two."""
    n_groups, m = 18, len(graph.tail)
    pairs = data.draw(st.lists(st.permutations(range(-1, n_groups)), min_size=m, max_size=m))
    group = np.array([pair[:2] for pair in pairs], dtype=np.int32).reshape(-1, 2)
    less = data.draw(st.lists(st.tuples(_lags, _lags), min_size=m, max_size=m))
    without = _integers([one for pair in less for one in pair]).reshape(-1, 2)
    without = np.minimum(without, graph.weight_ns[:, None])
    last = np.array([len(graph.release_ns) - 1])

    found = retime_without(graph, without, group, n_groups, [last, np.arange(0)])

    for number in range(n_groups):
        weight = graph.weight_ns.copy()
        for side in (0, 1):
            mine = group[:, side] == number
            weight[mine] = without[mine, side]
        times = _arrivals(graph._replace(weight_ns=weight))
        assert found[number].tolist() == [times[-1], graph.release_ns.min()]


@given(graphs(), st.data())
def test_the_latest_time_moves_no_node_past_its_deadline(graph, data: st.DataObject) -> None:
    n = len(graph.release_ns)
    some = st.one_of(st.integers(0, 999), st.just(NO_DEADLINE))
    deadline = _integers(data.draw(st.lists(some, min_size=n, max_size=n)))
    expected = deadline.tolist()
    for tail, head, row in reversed(graph.edges):
        expected[tail] = min(expected[tail], expected[head] - int(graph.weight_ns[row]))

    assert latest_times(graph.offsets, graph.tail, graph.weight_ns, deadline).tolist() == expected
