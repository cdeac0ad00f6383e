"""Ancestors of events: against walks of one event after the other, and by count of steps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays import ancestors
from htagraph.arrays.ancestors import depths, highest, nearest, parents_first, sums_under


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
