"""How much communication is hidden."""

from __future__ import annotations

import pytest

from htagraph.compiler.passes import compile_events
from htagraph.queries.communication import overlap
from htagraph.synth import timeline


def test_overlap_is_the_time_in_which_both_run():
    """Nccl runs for 10 us, 6 of them under gemm."""
    dag = compile_events(
        timeline("""
            stream 7 |[gemm   ]
            stream 9 |   [ncclX   ]
        """)
    )
    frame = overlap(dag, dag.span)

    assert frame.iloc[0].tolist()[1:] == [9_000, 10_000, 6_000, 4_000, pytest.approx(0.6)]


def test_no_communication_has_no_share():
    """None of nothing is hidden."""
    dag = compile_events(timeline("stream 7 |[gemm]"))

    assert overlap(dag, dag.span)["overlap_share"].isna().tolist() == [True]
