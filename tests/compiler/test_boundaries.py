"""Boundaries: starts and ends of host events, thread by thread."""

from __future__ import annotations

import numpy as np
import pytest

from htagraph.compiler.structure import Boundaries, examine
from htagraph.synth import timeline


@pytest.fixture
def between() -> Boundaries:
    """Two threads, between which a stream has the lane of no thread."""
    return examine(
        timeline("""
            us       |0         10        20
            cpu 1    |[a    [b  ]   ]   [c]
            stream 7 |[k]
            cpu 2    |     [d ]
        """)
    ).boundaries


def test_boundaries_are_in_the_order_of_their_threads(between):
    """Where nothing is innermost, -1."""
    names = between.events.names()
    inside = [names[event] if event >= 0 else "" for event in between.inside.tolist()]

    assert names[between.node >> 1].tolist() == ["a", "b", "b", "a", "c", "c", "d", "d"]
    assert inside == ["a", "b", "a", "", "c", "", "d", ""]
    assert (between.ts_ns // 1_000).tolist() == [0, 6, 11, 15, 18, 21, 5, 9]


def test_the_last_boundary_of_a_thread_is_followed_by_none(between):
    """What comes next in the table is another thread's."""
    assert np.flatnonzero(~between.is_followed).tolist() == [5, 7]


def test_a_lane_without_host_events_has_no_boundaries(between):
    """Lanes are numbered through hosts and devices."""
    lanes = range(len(between.events.lanes))
    sizes = sorted(len(range(*between.of_lane(lane).indices(8))) for lane in lanes)

    assert sizes == [0, 2, 6]


def test_the_last_boundary_until_a_time_is_one_at_that_time_or_before(between):
    """On each lane its own; -1 before its first."""
    one, two = between.lane[[0, 6]].tolist()
    lanes = np.array([two, one, one, two, one])
    times = np.array([4_999, 11_000, 99_000, 5_000, 10_999])

    assert between.last(lanes, times).tolist() == [-1, 2, 5, 6, 1]


def test_long_times_are_those_between_boundaries_of_one_thread(between):
    """From 21 us on the first to 5 us on the second is none."""
    assert between.longer_than(4_000).tolist() == [0, 1]
    assert between.longer_than(3_999).tolist() == [0, 1, 2, 6]
