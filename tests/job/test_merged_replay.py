"""The replays of all ranks as one: its order, and what has none."""

from __future__ import annotations

import numpy as np

from htagraph.compiler.passes import compile_events
from htagraph.job.merged_replay import MergedReplay
from htagraph.replay.assumptions import Assumption, Reading
from htagraph.replay.collective_members import Members
from htagraph.replay.draft import Draft
from htagraph.replay.replay import replay_of
from htagraph.synth import timeline


def test_collectives_that_each_wait_for_the_other_keep_nobody_waiting() -> None:
    """At 20 us each rank ends what needs the start of what the other one begins then."""
    dag = compile_events(
        timeline("""
            us       |0         10        20        30
            cpu 1    |[launch >a] [launch >b]
            stream 7 |          [first <a][second <b]
        """)
    )
    first, second = np.flatnonzero(dag.events.is_device).tolist()
    replay, met_ns = replay_of(dag), int(dag.events.ts_ns[second])
    assert dag.events.end_ns[first] == met_ns

    def members(rank: int) -> Members:
        nothing = np.zeros(2, dtype=np.int64)
        return Members(
            rank=rank,
            match=np.array([rank, 1 - rank]),
            event=np.array([first, second]),
            came=np.array([first, second]),
            waits=np.array([True, False]),
            is_awaited=np.array([False, True]),
            arrived_ns=np.array([dag.events.ts_ns[first], met_ns]),
            met_ns=np.array([met_ns, met_ns]),
            since_ns=nothing,
            late_ns=nothing,
            least_since_ns=nothing,
            least_late_ns=nothing,
            latency_ns=np.full(2, np.nan),
            latency_error=np.full(2, np.nan),
        )

    merged = MergedReplay.of({0: replay, 1: replay}, {0: members(0), 1: members(1)})
    assert [bool(own.waits.any()) for own in merged.members.values()] == [False, False]
    reading = Reading(Assumption.AS_BOUND, replay)
    drafts = {rank: Draft(dag, reading, own) for rank, own in merged.members.items()}
    times = merged.times_ns(drafts)
    assert times[0].tolist() == times[1].tolist() == replay.ts_ns.tolist()
