"""SYNC by time alone: work starts right after work of another stream ended."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(("gap_us", "is_wait"), [(40, True), (60, False)])
def test_the_end_lies_in_an_eighth_of_the_wait(compiled, rules, gap_us, is_wait):
    """k2 is ready at 31 us and starts at 431 us: in a longer part, an end may be chance."""
    dag = compiled(f"""
        cpu 1    |[launch >a][launch >b]
        stream 7 |{"":20}[k1 <a {"":{403 - gap_us}}]
        stream 9 |{"":431}[k2 <b   ]
    """)

    assert rules(dag, "sync") == ({"k2<": "ended right before"} if is_wait else {})
