"""The structure of a trace: launches, and what streams had been given by some time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from htagraph.compiler.structure import Structure, examine
from htagraph.model.events import EventTable
from htagraph.synth import timeline


@pytest.fixture
def given() -> Structure:
    """Three kernels on stream 7, the last of which ends first, and one on stream 9."""
    return examine(
        timeline("""
            us       |0         10        20        30        40        50        60
            cpu 1    |[launch >a][launch >b][launch >c][launch >d]
            stream 7 |   [k0 <a     ]                   [k1 <b      ]
            stream 7 |                                      [k2 <d]
            stream 9 |                                   [k3 <c]
        """)
    )


def names(structure: Structure, events: np.ndarray) -> list[str]:
    """Names of events, nothing of -1."""
    found = structure.events.names()
    return [found[event] if event >= 0 else "" for event in events.tolist()]


def test_launches_are_found_by_their_correlation(given):
    """And the time at which they began."""
    assert names(given, given.queue) == ["k0", "k1", "k2", "k3"]
    assert (given.launched_ns(given.queue) // 1_000).tolist() == [0, 11, 33, 22]
    assert given.queue_starts.tolist() == [True, False, False, True]
    assert given.queue_id.tolist() == [-1, -1, -1, -1, 0, 0, 0, 1]


def test_a_stream_has_what_was_launched_before_a_time(given):
    """Of it, what ends last; a launch that begins at that time comes after."""
    before = 1_000 * np.array([0, 1, 11, 12, 33, 34])

    assert names(given, given.covered(np.zeros(6, dtype=np.int64), before)) == [
        "",
        "k0",
        "k0",
        "k1",
        "k1",
        "k1",
    ]
    assert given.covered_on(0, before).tolist() == given.covered(np.zeros(6, int), before).tolist()
    assert names(given, given.covered_on(1, before)) == ["", "", "", "", "k3", "k3"]


def test_the_first_work_of_a_stream_since_a_time_is_launched_then_or_later(given):
    """None after the last launch, nor on a stream that ran nothing."""
    stream = np.array([0, 0, 0, 0, 1, 1, -1])
    since = 1_000 * np.array([0, 1, 11, 34, 0, 23, 0])

    assert names(given, given.first_after(stream, since)) == ["k0", "k1", "k1", "", "k3", "", ""]


def test_streams_are_numbered_by_device_and_name(given):
    """-1 for one that ran nothing."""
    assert given.find_queue(np.array([0, 0, 0, 1]), np.array([9, 7, 8, 7])).tolist() == [
        1,
        0,
        -1,
        -1,
    ]


def test_times_of_device_work_have_a_unit(given):
    """Starts and lengths are multiples of it."""
    kernel = given.events.kind == given.events.kind[given.queue[0]]
    finer = replace(given.events, dur_ns=given.events.dur_ns + 500 * kernel)

    assert given.resolution_ns == 1_000
    assert examine(finer).resolution_ns == 500
    assert examine(timeline("cpu 1 |[a]")).resolution_ns == 1


def numbered(correlation: list[int]) -> EventTable:
    """Two launches and a kernel with some correlation ids."""
    events = timeline("""
        cpu 1    |[launch >a][launch >b]
        stream 7 |                  [k <a][k <b]
    """)
    return replace(events, correlation=np.array(correlation))


@pytest.mark.parametrize(
    ("correlation", "launches", "n_ambiguous"),
    [
        ([1, 2, 1, 2], [0, 1], 0),
        ([2, 1, 1, 2], [1, 0], 0),
        ([3, 3, 3, 3], [0, 0], 1),  # the earlier one
        ([3, 3, 4, 2], [-1, -1], 0),  # an ambiguous id that no work has
        ([0, 1, 0, 1], [-1, 1], 0),  # 0 is none
    ],
)
def test_the_earliest_call_with_the_id_of_work_launched_it(correlation, launches, n_ambiguous):
    structure = examine(numbered(correlation))

    assert structure.launch[2:].tolist() == launches
    assert structure.n_ambiguous_correlations == n_ambiguous


def test_a_call_that_launched_more_than_one_thing_replays_a_graph():
    assert examine(numbered([3, 4, 3, 3])).replays.tolist() == [True, False, False, False]
    assert not examine(numbered([1, 2, 1, 2])).replays.any()
