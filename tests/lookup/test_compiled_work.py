"""Whether work comes from captured graphs."""

from __future__ import annotations

import pytest

from htagraph.compiler.passes import compile_events
from htagraph.lookup.compiled_work import is_replayed
from htagraph.synth import timeline


@pytest.mark.parametrize(("drawn", "replayed"), [("[m <b    ]", False), ("[m <b     ]", True)])
def test_work_is_replayed_if_most_of_its_time_is(drawn: str, replayed: bool) -> None:
    """10 us of one kernel, and 10 us or 11 us of a captured graph."""
    dag = compile_events(
        timeline(f"""
        cpu 1    |[launch >a][graph >b]
        stream 7 |   [k <a    ]    {drawn}
        """)
    )
    assert is_replayed(dag, dag.span) is replayed
