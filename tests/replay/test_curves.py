"""Curves of speed-ups: each point is the replay of that change, and bends are where others bind."""

from __future__ import annotations

import htagraph as hg
from htagraph.replay.curves import speed_ups
from htagraph.replay.rehearsal import Rehearsal
from htagraph.synth import timeline
from tests.synth.simulator import simulate
from tests.synth.training import training_rank


def test_a_curve_is_flat_from_where_another_stream_binds():
    """Two kernels on two streams, both waited for, one 2 us of its 25 us longer: 8%."""
    graph = hg.Trace.from_events(
        timeline("""
            cpu 1    |[launch >a][launch >b]  [sync @*     ]
            stream 7 |              [gemm <a               ]
            stream 9 |              [conv <b             ]
        """)
    ).compile()

    found = speed_ups(Rehearsal(graph.dag, graph.interval), ["gemm"])

    assert found["less_share"].tolist() == [0, 0.1, 0.25, 0.5, 0.75, 1]
    assert found["saves_ns"].tolist() == [0] + [2_000] * 5


def test_each_point_is_what_the_change_saves():
    """By every reading, as `what_if` predicts it for the same window."""
    rank = simulate(training_rank(steps=2, layers=1))
    graph = hg.Trace.from_events(rank.events).compile()
    rehearsal = Rehearsal(graph.dag, graph.interval)
    name = "ampere_sgemm_128x64_nn"

    found = speed_ups(rehearsal, [name]).set_index("less_share")

    for less in (0.25, 0.5, 1.0):
        saving = rehearsal.saving((hg.scale(name, by=1 - less),))
        point = found.loc[less, ["low_ns", "saves_ns", "high_ns"]]
        assert point.tolist() == [saving.low_ns, saving.expected_ns, saving.high_ns]
    assert found["saves_ns"].max() > 0
