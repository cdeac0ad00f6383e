"""Counters of a trace: each of a stream, and of a device where several streams share it."""

from __future__ import annotations

from dataclasses import replace

from htagraph import Trace, synth
from htagraph.explain.counter_tracks import counter_tracks
from htagraph.model.samples import SampleTable, Series
from tests.queries.gridded import gridded

NAMES = {
    "up7": "Memcpy HtoD (Pinned -> Device)",
    "up9": "Memcpy HtoD (Pageable -> Device)",
    "down": "Memcpy DtoH (Device -> Pinned)",
}
DRAWING = """
    cpu 1    |[L >k]
    stream 7 |   [k <k ][up7    ]
    stream 9 |            [up9    ]  [down]
"""


def test_streams_that_copy_in_one_direction_are_also_counted_together() -> None:
    """Two streams copy to the device: 1 GB/s, then both, then 2 GB/s; one copies back."""
    events = synth.timeline(
        DRAWING,
        names=NAMES,
        columns={"memory_bandwidth": {"up7": 1.0, "up9": 2.0, "down": 4.0}},
    )
    tracks = counter_tracks(Trace.from_events(events).compile().dag)
    found = {(one.name, one.stream): one.value.tolist() for one in tracks}
    assert found == {
        ("queue length", 7): [1, 0],
        ("bandwidth, Memcpy DtoH", 9): [4],
        ("bandwidth, Memcpy HtoD", 7): [1, 0],
        ("bandwidth, Memcpy HtoD", 9): [2, 0],
        ("bandwidth, Memcpy HtoD", -1): [1, 3, 2, 0],
    }


def test_the_estimate_of_sm_activity_is_a_track_of_the_device() -> None:
    """5 blocks on 4 multiprocessors: all of them for 4 us, one for 4 us, none."""
    dag = gridded("cpu 1    |[op          ]\nstream 7 | [k     ]", k=(5, 512))
    track = next(one for one in counter_tracks(dag) if one.unit == "%")
    assert (track.name, track.device) == ("SM activity (estimate)", 0)
    assert (track.ts_ns.tolist(), track.value.tolist()) == ([1_000, 5_000, 9_000], [100, 25, 0])


def test_there_is_no_track_of_what_is_not_known() -> None:
    """Half of the time of kernels is without a grid."""
    dag = gridded("stream 7 |[k     ][other ]", k=(5, 512))
    assert not [one for one in counter_tracks(dag) if one.unit == "%"]


def test_samples_are_tracks_of_their_device_that_say_how_uncertain_times_are() -> None:
    """Each value holds half way to its neighbours, from the start of the trace to its end."""
    events = synth.timeline("cpu 1 |[aten::mm          ]")
    series = Series("power.draw", "W", 0, "nvidia-smi", 1_500_000_000)
    samples = SampleTable.of([(series, [-8_000, 4_000, 16_000], [100.0, 200.0, 300.0])])
    (track,) = counter_tracks(Trace.from_events(replace(events, samples=samples)).compile().dag)

    assert (track.name, track.unit) == ("power.draw (nvidia-smi, +-1.50 s)", "W")
    assert (track.device, track.stream) == (0, -1)
    assert track.ts_ns.tolist() == [0, 10_000]
    assert track.value.tolist() == [200.0, 300.0]
