"""Steps that are missing between others are told by the numbers of those."""

from __future__ import annotations

import json

import pytest

import htagraph as hg


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((4, 5, 6), []),
        ((4, 6, 9), ["1 step between ProfilerStep#4 and ProfilerStep#6 is missing",
                     "2 steps between ProfilerStep#6 and ProfilerStep#9 are missing"]),
        ((4, 4, 6), []),
    ],
)  # fmt: skip
def test_the_numbers_of_steps_tell_which_are_missing(numbers, said):
    """The profiler counts up by one; two threads may both have steps."""
    steps = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 1, "tid": 1,
         "ts": 100 * place, "dur": 90}
        for place, number in enumerate(numbers)
    ]  # fmt: skip
    found = hg.load(json.dumps({"traceEvents": steps}).encode()).compile().damage()

    assert [one.split(":")[0] for one in found["consequence"]] == said
