"""A micro-batch that takes longer than the others in every step."""

from __future__ import annotations

import json

import pytest

import htagraph as hg


def graph_of(*steps: tuple[int, ...], rest: int = 0, name: str = "micro_batch") -> hg.TraceGraph:
    """Steps with ranges of these lengths in us, one after the other, and the rest of each step."""
    rows, at = [], 0
    for number, lengths in enumerate(steps):
        rows.append(("user_annotation", f"ProfilerStep#{number}", at, sum(lengths) + rest))
        for length in lengths:
            rows.append(("user_annotation", name, at, length))
            at += length
        at += rest
    rows.append(("cpu_op", "aten::mm", at - 1, 1))
    events = [
        {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur}
        for cat, name, ts, dur in rows
    ]
    return hg.load(json.dumps({"traceEvents": events}).encode()).compile()


SAID = "Call 3 of 4 of micro_batch takes 2.1 times as long as the others, in every step."


@pytest.mark.parametrize(
    ("steps", "rest", "said"),
    [
        pytest.param([(100, 102, 212, 100)] * 2, 0, SAID, id="the third of four"),
        pytest.param([(100, 102, 212, 100)], 0, "", id="one step tells nothing"),
        pytest.param([(100, 212)] * 4, 0, "", id="two calls: either may be the usual one"),
        pytest.param([(100, 102, 149, 100)] * 3, 0, "", id="half as long again is not reached"),
        pytest.param([(100, 120, 212, 150)] * 3, 0, "", id="the others differ as much"),
        pytest.param([(100, 100, 212, 100), (100, 150, 230, 100)] * 2, 0, "2.2", id="noise"),
        pytest.param([(100, 100, 212, 100)] * 4 + [(100,) * 4], 0, "", id="not in every step"),
        pytest.param([(100, 102, 212, 100)] * 3 + [(100,) * 3], 0, "", id="steps differ"),
        pytest.param([(100, 102, 212, 100)] * 3, 2_300, "", id="less than 5% of the step"),
    ],
)
def test_a_call_that_takes_longer_in_every_step_is_uneven(steps, rest, said) -> None:
    verdict = graph_of(*steps, rest=rest).window("trace").verdict()

    assert said in verdict.uneven
    assert bool(said) == bool(verdict.uneven)


def test_what_a_library_names_is_no_call_of_the_program() -> None:
    """The first of several collectives waits for other ranks, which tells nothing of this one."""
    steps = [(100, 102, 212, 100)] * 3
    collectives = graph_of(*steps, name="gloo:all_reduce").window("trace").verdict()

    assert not collectives.uneven


def test_the_first_screen_says_so_once() -> None:
    verdict = graph_of(*[(100, 102, 212, 100)] * 3).window("trace").verdict()

    assert " ".join(str(verdict).split()).count(SAID) == 1
    assert SAID in verdict.document()["notes"]
