"""What changes to collectives save on a drawn trace, by hand."""

from __future__ import annotations

import htagraph as hg
from htagraph.replay.assumptions import Assumption
from tests.replay.drawn import drawn


def test_twice_the_bandwidth_halves_all_but_the_latency():
    """Of 42 us, 5 are; 0 to 10 by other readings. Nothing is saved where others are late."""
    graph = drawn("""
        us       |0         10        20        30        40        50
        cpu 1    |[launch >a]
        stream 7 |      [ncclAllReduce <a                        ]
    """)
    saving = hg.what_if(graph, hg.bandwidth(2)).saves_ns

    assert saving is not None
    assert dict(saving.readings)[Assumption.RIGID] == 16_000
    assert (saving.low_ns, saving.expected_ns, saving.high_ns) == (0, 18_500, 21_000)
