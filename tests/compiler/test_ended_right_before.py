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


@pytest.mark.parametrize(("alone_us", "is_wait"), [(190, True), (210, False)])
def test_work_whose_launch_is_not_known_waits_for_what_ran_half_of_the_time(
    compiled, rules, alone_us, is_wait
):
    """What stream 7 had been given is not known; k2 begins 400 us after p."""
    dag = compiled(f"""
        cpu 1    |[launch >a]
        stream 9 |{"":10}[w <a]{"":10}[p   ]{"":400}[k2  ]
        stream 7 |{" " * (32 + alone_us)}[k1{" " * (394 - alone_us)}]
    """)

    assert rules(dag, "sync") == ({"k2<": "ended right before"} if is_wait else {})


def test_a_wait_is_for_all_that_the_stream_had_been_given(compiled, arrows):
    """Even if the last of it ran for a small part of the wait; another thread launches k2."""
    dag = compiled(f"""
        cpu 2    |           [launch >b]
        cpu 1    |[graph >a]
        stream 7 |{"":20}[k0 <a{"":300}][k1 <a{"":90}]
        stream 9 |{"":433}[k2 <b   ]
    """)

    assert arrows(dag, "sync") == [("k1>", "k2<", 0)]


def test_what_came_to_the_other_stream_later_is_not_waited_for(compiled, arrows):
    """However soon k2 begins after it."""
    dag = compiled(f"""
        cpu 1    |[launch >b][launch >a]
        stream 9 |{"":431}[k2 <b   ]
        stream 7 |{"":20}[k1 <a {"":400}]
    """)

    assert arrows(dag, "sync") == []
