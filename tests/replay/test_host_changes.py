"""What changes to the host save on a drawn trace, by hand."""

from __future__ import annotations

import htagraph as hg
from tests.replay.drawn import drawn, saved_us


def test_a_batch_that_is_prefetched_is_there_as_long_after_the_one_before_as_it_took():
    """The first is waited for. Steps of 8 us hide that much of the other two.

    Or nothing, where it costs as much to take a batch over from another process.
    """
    graph = drawn("""
        cpu 1 |{data_loading}[work  ]{data_loading}[work  ]{data_loading}[work  ]
    """)

    assert graph.dur_ns == 66_000
    assert saved_us(graph, hg.prefetch()) == 16
    assert hg.what_if(graph, hg.prefetch(), on="window").saves_ns[:3] == (0, 16_000, 16_000)


def test_a_graphed_step_costs_one_launch():
    """All is launched by a call of 10 us: the last of three kernels ends at 30, in place of 48."""
    graph = drawn("""
        us       |0         10        20        30        40        50
        cpu 1    |[op [launch >a]][op [launch >b]][op [launch >c]]
        stream 7 |         [k1 <a]         [k2 <b]         [k3 <c]
    """)

    assert saved_us(graph, hg.graphed()) == 18
