"""Which lengths of steps are near each other, and which steps do the same work."""

from __future__ import annotations

import numpy as np
import pytest

from htagraph.compiler.passes import compile_events
from htagraph.lookup.steady_steps import are_near, steady_steps
from htagraph.synth import timeline


@pytest.mark.parametrize(
    ("lengths", "near", "far"),
    [
        pytest.param([100] * 5, 109, 111, id="a tenth, if all others are equal"),
        pytest.param([96] * 4 + [100] + [104] * 4, 117, 119, id="three deviations of 4 * 1.4826"),
        pytest.param([80, 90, 100, 110, 120], 124, 126, id="a quarter, however widely they spread"),
    ],
)
def test_a_length_is_near_up_to_some_share_of_the_median(lengths, near, far):
    among = np.arange(len(lengths) + 2) < len(lengths)

    assert are_near(np.array([*lengths, near, far]), among)[-2:].tolist() == [True, False]


def test_one_event_more_of_a_hundred_is_the_same_work():
    """Of 150, one is, two are not: a few extra calls, not another kind of step."""
    rows = [[], []]
    for number, n_events in enumerate((150, 150, 150, 151, 152)):
        rows[0].append(f"{{ProfilerStep#{number}".ljust(608) + "}")
        rows[1].append(("[op]" * n_events).ljust(609))
    dag = compile_events(timeline("".join(f"cpu 1 |{''.join(row)}\n" for row in rows)))
    found = steady_steps(dag)

    assert found.n_different.tolist() == [0, 0, 0, 1, 2]
    assert found.is_same_work.tolist() == [True, True, True, True, False]
