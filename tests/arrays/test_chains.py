"""Chains of nodes of one float."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays.reach import chains

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

    found = chains(float_ns, is_near, binding, np.array(tail, dtype=np.int32))

    of = found.chain.tolist()
    assert (found.chain >= 0).tolist() == is_near.tolist()
    begins = [float_ns[last] for last in found.last.tolist()]
    assert begins == sorted(begins)
    for number, (first, last) in enumerate(zip(found.first, found.last, strict=True)):
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
    found = chains(
        np.array([2, 2]), np.ones(2, bool), np.array([-1, 0], np.int32), np.zeros(1, np.int32)
    )

    assert (found.first.tolist(), found.last.tolist()) == ([0], [1])
