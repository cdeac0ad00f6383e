"""Passes over graphs: ancestors, chains, components, walks, retiming."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
import rustworkx
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays import ancestors
from htagraph.arrays import reach as components_room
from htagraph.arrays.ancestors import depths, highest, nearest, parents_first, sums_under
from htagraph.arrays.binding import origins, walk_back, walks_back
from htagraph.arrays.by_head import EdgeColumns, InOrder, by_head
from htagraph.arrays.delays import pass_on
from htagraph.arrays.reach import chains, components
from htagraph.arrays.removals import retime_without
from htagraph.arrays.retime import DROPPED, NO_DEADLINE, latest_times, retime
from htagraph.compiler.passes import compile_events
from tests.synth.simulator import simulate
from tests.synth.strategies import programs


@st.composite
def forests(draw: st.DrawFn) -> npt.NDArray[np.int64]:
    """Draw parents; events are numbered in any order."""
    n = draw(st.integers(1, 12))
    parent = np.array([draw(st.integers(-1, k - 1)) for k in range(n)])
    place = np.array(draw(st.permutations(range(n))))
    out = np.empty(n, dtype=np.int64)
    out[place] = np.where(parent >= 0, place[parent], -1)
    return out


def chain(parent: npt.NDArray[np.int64], event: int) -> list[int]:
    """An event and its ancestors, upwards: the slow way."""
    found = []
    while event >= 0:
        found.append(event)
        event = int(parent[event])
    return found


@given(forests(), st.data())
def test_depth_nearest_and_highest_are_those_of_a_walk(
    parent: npt.NDArray[np.int64], data: st.DataObject
) -> None:
    """For each event asked for, also twice; -1 has none."""
    n = len(parent)
    events = np.array(data.draw(st.lists(st.integers(-1, n - 1), max_size=9)), dtype=np.int64)
    holds = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    chains = [chain(parent, event) for event in events.tolist()]
    holding = [[event for event in one if holds[event]] for one in chains]

    assert depths(parent, events).tolist() == [len(one) for one in chains]
    assert nearest(parent, events, holds).tolist() == [one[0] if one else -1 for one in holding]
    assert highest(parent, events, holds).tolist() == [one[-1] if one else -1 for one in holding]
    order = parents_first(parent, events).tolist()
    assert sorted(order) == sorted({event for one in chains for event in one})
    assert all(
        order.index(parent[event]) < order.index(event) for event in order if parent[event] >= 0
    )


@given(forests(), st.data())
def test_a_value_counts_once_for_each_code_above_it(
    parent: npt.NDArray[np.int64], data: st.DataObject
) -> None:
    """However many ancestors have the code."""
    n = len(parent)
    code = np.array(data.draw(st.lists(st.integers(-1, 2), min_size=n, max_size=n)))
    values = np.array(data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n)))
    expected = np.zeros(3, dtype=np.int64)
    for event in range(n):
        for one in {int(code[above]) for above in chain(parent, event)} - {-1}:
            expected[one] += values[event]

    assert sums_under(parent, code, values, 3).tolist() == expected.tolist()


class _Counted(list[int]):
    """Parents that count how often they are asked for."""

    n = 0

    def __getitem__(self, event: int) -> int:  # type: ignore[override]
        self.n += 1
        return super().__getitem__(event)


def test_events_nested_in_each_other_are_visited_once() -> None:
    """A thousand, each in the one before: a thousand steps, not half a million."""
    parent = _Counted(range(-1, 999))
    room = [0] * 1000
    visit = ancestors._parents_first.__wrapped__  # type: ignore[attr-defined]

    n = visit(parent, list(range(999, -1, -1)), room, list(room), [False] * 1000)

    assert (n, parent.n) == (1000, 1000)


_table = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)), max_size=8)


def _columns(rows: list[tuple[int, int, int]], first: int) -> EdgeColumns:
    """Edges by tail, head and kind, whose other columns say which they are."""
    tail, head, kind = np.reshape(np.array(rows, dtype=np.int64), (-1, 3)).T
    number = np.arange(first, first + len(rows))
    return EdgeColumns.of([tail, head, kind, number, number, number % 100])


def _check(tables: list[list[tuple[int, int, int]]]) -> None:
    firsts = np.cumsum([0, *map(len, tables)])
    found = by_head([_columns(rows, first) for rows, first in zip(tables, firsts, strict=False)])

    rows = [(*row, number) for number, row in enumerate(row for rows in tables for row in rows)]
    rows.sort(key=lambda row: (row[1], row[2], row[0], row[3]))
    columns = np.reshape(np.array(rows, dtype=np.int64), (-1, 4)).T
    for of, expected in zip(found, (*columns, columns[3], columns[3] % 100), strict=True):
        assert of.tolist() == expected.tolist()


@given(st.lists(_table, max_size=3))
def test_edges_are_in_the_order_of_a_graph(tables):
    """Head, kind, tail; equal ones in the order of the tables."""
    _check(tables)


def test_heads_of_very_many_edges_are_sorted_as_others():
    drawn = np.random.default_rng(1).integers(0, [9, 3, 3], (200, 3))

    _check([[tuple(row) for row in drawn.tolist()]])


def test_edges_of_chains_need_no_columns():
    """Nodes 0, 2, 5 in order and 1, 3: later edges last, with the time between as lag."""
    rule, first, times = np.array([7, 9, 0, 7, 0], np.int8), np.array([0, 3, 5]), 10 * np.arange(6)
    nodes, events = np.array([0, 2, 5, 1, 3], np.int32), np.array([4, -1, 0, 6, 0], np.int32)

    found = by_head(
        [_columns([(1, 2, 1), (4, 5, 0)], 50)], InOrder(nodes, events, rule, first, times, 1, 9)
    )

    assert np.array(found[:2]).T.tolist() == [[0, 2], [1, 2], [1, 3], [4, 5], [2, 5]]
    assert found.kind.tolist() == [1, 1, 1, 0, 1]
    assert found.lag_ns.tolist() == [20, 50, 20, 51, 0]
    assert found.event.tolist() == [4, 50, 6, 51, -1]
    assert found.rule.tolist() == [7, 50, 7, 51, 9]


_nodes = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 2), st.booleans()), min_size=1, max_size=10
)


@given(_nodes)
def test_chains_are_maximal_runs_of_one_float_back_along_binding_edges(nodes):
    """A node has at most the float of what it binds; those of less than 2 are not near."""
    binding = np.full(len(nodes), -1, dtype=np.int32)
    tail, float_ns = [], np.zeros(len(nodes), dtype=np.int64)
    for node, (before, more, is_root) in enumerate(nodes):
        float_ns[node] = more
        if node and not is_root:
            binding[node] = len(tail)
            tail.append(before % node)
            float_ns[node] += float_ns[tail[-1]]
    is_near = float_ns >= 2

    chain_of, firsts, lasts = chains(float_ns, is_near, binding, np.array(tail, dtype=np.int32))

    of = chain_of.tolist()
    assert (chain_of >= 0).tolist() == is_near.tolist()
    begins = [float_ns[last] for last in lasts.tolist()]
    assert begins == sorted(begins)
    for number, (first, last) in enumerate(zip(firsts, lasts, strict=True)):
        members, node = [], int(last)
        while True:
            members.append(node)
            if node == first:
                break
            node = tail[binding[node]]
        assert {float_ns[one] for one in members} == {float_ns[last]}
        assert sorted(members) == [one for one, chain in enumerate(of) if chain == number]
        if binding[first] >= 0:
            assert of[tail[binding[first]]] < number  # another chain, found before, or none
        later = [node for node in range(int(last) + 1, len(nodes)) if binding[node] >= 0]
        assert all(
            of[node] < number
            for node in later
            if tail[binding[node]] == last and float_ns[node] == float_ns[last]
        )


def test_a_chain_goes_back_over_the_first_edge_of_all():
    _, first, last = chains(
        np.array([2, 2]), np.ones(2, bool), np.array([-1, 0], np.int32), np.zeros(1, np.int32)
    )

    assert (first.tolist(), last.tolist()) == ([0], [1])


_N = 12
nodes_of_components = st.integers(0, _N - 1)


@given(edges=st.lists(st.tuples(nodes_of_components, nodes_of_components), max_size=16))
def test_components_are_those_of_rustworkx_by_their_smallest_node(edges):
    """In whatever order and direction edges come."""
    graph = rustworkx.PyDiGraph()
    graph.add_nodes_from(range(_N))
    graph.add_edges_from_no_data(edges)
    expected = np.arange(_N)
    for members in rustworkx.weakly_connected_components(graph):
        expected[list(members)] = min(members)
    tail, head = np.array(edges, dtype=np.int32).reshape(-1, 2).T.copy()

    assert components(tail, head, _N).tolist() == expected.tolist()


class Counted(list[int]):
    """Numbers that count how often they are asked for."""

    n = 0

    def __getitem__(self, node: int) -> int:  # type: ignore[override]
        self.n += 1
        return super().__getitem__(node)


@pytest.mark.parametrize("ends", [(999, 0), (0, 999)])
def test_a_long_path_becomes_shorter_whenever_it_is_walked(ends):
    """A thousand nodes, joined from the last one back, and a thousand edges between both ends."""
    path = [(node - 1, node) for node in range(999, 0, -1)]
    tail, head = zip(*path, *[ends] * 1000, strict=True)
    root = Counted(range(1000))

    components_room._join.__wrapped__(tail, head, root)  # type: ignore[attr-defined]

    assert root == [0] * 1000
    assert root.n < 20_000


def _walked(dag, node: int, until_ns: int) -> tuple[list[int], int]:
    """Edges back from a node, latest first, and the node at which the walk ends."""
    edges = []
    while dag.binding[node] >= 0 and dag.events.node_ts_ns[node] > until_ns:
        edges.append(int(dag.binding[node]))
        node = int(dag.edges.tail[edges[-1]])
    return edges, node


@given(program=programs(max_blocks=2), data=st.data())
def test_a_walk_follows_binding_edges_back_to_its_time(program, data):
    """Many at once, and one, which has its earliest edge first."""
    dag = compile_events(simulate(program).events)
    graph = dag.binding, dag.edges.tail, dag.events.node_ts_ns
    nodes = st.lists(st.sampled_from(dag.order.tolist()), max_size=6)
    node = np.array(data.draw(nodes), dtype=np.int64)
    until = dag.events.node_ts_ns[node] - data.draw(st.integers(0, 200_000))

    walks, edge, lasts = walks_back(node, until, *graph)

    for walk, (start, until_ns) in enumerate(zip(node.tolist(), until.tolist(), strict=True)):
        edges, last = _walked(dag, start, until_ns)
        assert edge[walks == walk].tolist() == edges
        assert lasts[walk] == last
        assert walk_back(start, *graph, until_ns=until_ns).tolist() == edges[::-1]


@given(program=programs(max_blocks=2), data=st.data())
def test_an_origin_is_the_first_anchor_on_the_walk_back(program, data):
    """An anchor is its own."""
    dag = compile_events(simulate(program).events)
    anchors = data.draw(st.lists(st.sampled_from(dag.order.tolist()), max_size=5))
    is_anchor = np.isin(np.arange(len(dag.binding)), anchors)

    found = origins(dag.order, dag.binding, dag.edges.tail, is_anchor)

    for node in dag.order.tolist():
        edges, last = _walked(dag, node, -(2**62))
        met = [node, *dag.edges.tail[edges].tolist()]
        assert found[node] == next((one for one in met if is_anchor[one]), -1)
        assert last == met[-1]


def test_no_walks_have_no_edges():
    none = np.empty(0, dtype=np.int64)
    walk, _, last = walks_back(none, none, np.empty(0, np.int32), np.empty(0, np.int32), none)

    assert (len(walk), len(last)) == (0, 0)


def test_amounts_that_do_not_divide_are_kept_whole() -> None:
    """10 among three equal parts."""
    own, passed = pass_on(np.array([10]), np.array([0, 3]), np.ones(3), np.full(3, -1))

    assert (sorted(own.tolist()), passed.tolist()) == ([3, 3, 4], [0, 0, 0])


def test_what_is_passed_on_twice_arrives() -> None:
    """Row 2 is due to row 1, which is due to row 0."""
    own, passed = pass_on(
        np.array([1, 20, 300]), np.array([0, 1, 2, 3]), np.ones(3), np.array([-1, 0, 1])
    )

    assert (own.tolist(), passed.tolist()) == ([1, 0, 0], [320, 0, 0])


@given(data=st.data(), counts=st.lists(st.integers(1, 4), min_size=1, max_size=8))
def test_parts_keep_the_sum_of_all_amounts(data: st.DataObject, counts: list[int]) -> None:
    """Whatever the weights, also of minutes in nanoseconds; and parts that pass on keep nothing."""
    row = np.repeat(np.arange(len(counts)), counts)
    amount = np.array([data.draw(st.integers(0, 10**12)) for _ in counts])
    weight = np.array([data.draw(st.floats(1e-3, 1e12)) for _ in row])
    to = np.array([data.draw(st.integers(-1, max(int(own) - 1, -1))) for own in row])
    own, passed = pass_on(amount, np.append(0, np.cumsum(counts)), weight, to)

    assert own.sum() + passed.sum() == amount.sum()
    assert (own >= 0).all()
    assert (passed >= 0).all()
    assert not (own + passed)[to >= 0].any()


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
