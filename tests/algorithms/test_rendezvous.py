"""Slices that begin together: against a simulation that lets time pass event by event."""

from __future__ import annotations

import numpy as np

from htagraph.algorithms.rendezvous import rendezvous_of


def simulated(group: list[int], edges: list[tuple[int, int]], dur: list[int]) -> list[int]:
    """Begin of each slice: a group begins when all that any of its slices needs has ended."""
    begin: dict[int, int] = {}
    needs = {one: [a for a, b in edges if group[b] == one] for one in set(group)}
    while len(begin) < len(needs):
        for one, before in needs.items():
            if one not in begin and all(group[slice_] in begin for slice_ in before):
                begin[one] = max((begin[group[a]] + dur[a] for a in before), default=0)
    return [begin[one] for one in group]


def test_slices_begin_when_all_that_their_group_needs_has_ended() -> None:
    """Random runs of four workers, whose slices meet in one order on all of them."""
    for seed in range(40):
        draw = np.random.default_rng(seed)
        group, edges, last = [], [], [-1] * 4
        for meeting in range(30):
            for worker in draw.permutation(4)[: draw.integers(1, 5)].tolist():
                if last[worker] >= 0:
                    edges.append((last[worker], len(group)))
                last[worker] = len(group)
                group.append(meeting)
        dur = draw.integers(0, 100, len(group))
        before, after = np.array(edges, dtype=np.int64).reshape(-1, 2).T
        order = draw.permutation(len(before))

        found = rendezvous_of(np.array(group), before[order], after[order])
        assert found.starts(dur).tolist() == simulated(group, edges, dur.tolist())
        assert len(found.cyclic) == 0


def test_groups_that_wait_for_themselves_are_named() -> None:
    """Two workers meet in other orders: 0 then 1, and 1 then 0; group 2 comes after."""
    group = np.array([0, 1, 1, 0, 2, 3])
    found = rendezvous_of(group, np.array([0, 2, 1]), np.array([1, 3, 4]))

    assert found.cyclic.tolist() == [0, 1, 2]
