"""Whether most device time comes from captured graphs."""

from __future__ import annotations

import pytest

from htagraph.compiler.passes import compile_events
from htagraph.lookup.compiled_work import is_replayed
from htagraph.synth import timeline


@pytest.mark.parametrize(
    ("first", "second", "replayed"), [("graph", "launch", True), ("launch", "graph", False)]
)
def test_a_run_is_replayed_if_graphs_take_more_than_half_of_its_device_time(
    first, second, replayed
):
    """11 or 10 of 21 us."""
    dag = compile_events(
        timeline(f"""
            cpu 1    |[{first} >a][{second} >b]
            stream 7 |          [k1 <a    ][k2 <b   ]
        """)
    )

    assert is_replayed(dag, dag.span) is replayed
