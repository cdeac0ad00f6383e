"""Which lengths of steps are near each other, and which steps do the same work."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htagraph.compiler.passes import compile_events
from htagraph.lookup.steady_steps import MOST_KINDS, are_near, steady_steps
from htagraph.model.dag import Dag
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


_WORK = st.lists(st.sampled_from(["[a]", "[b]", "[c]", "{x1[a]}", "{x2}", "{y}"]), max_size=4)


@given(st.lists(st.tuples(_WORK, _WORK), min_size=1, max_size=9))
def test_kinds_of_steps_are_those_of_a_table_of_all_names(steps):
    """Of few steps and names, which a table of all pairs has room for."""
    row = "".join(
        f"{{ProfilerStep#{number} {''.join(within)}}}{''.join(after)}"
        for number, (within, after) in enumerate(steps)
    )
    dag = compile_events(timeline(f"cpu 1 |{row}\n"))
    found = steady_steps(dag)
    kind, away = _kinds_by_table(dag)

    assert found.kind.tolist() == kind
    assert found.n_different.tolist() == away


def _kinds_by_table(dag: Dag) -> tuple[list[int], list[int]]:
    """The kind of each step, and its difference from the typical one."""
    parts = steady_steps(dag).parts
    n = len(parts.step)
    names = dag.events.names(parts.event).tolist()
    every = sorted(set(names))
    counts = np.zeros((n, 2, len(every)), dtype=np.int64)
    for part, name in zip(parts.part.tolist(), names, strict=True):
        counts[part // 2, part % 2, every.index(name)] += 1
    if n > 1:
        counts[-1, 1] = _median(counts[:-1, 1])
    counts = counts.sum(axis=1)
    ranges = {name: re.sub(r"\d+", "#", name) for name in every if name[0] in "xy"}
    has = [{ranges[every[k]] for k in np.flatnonzero(row) if every[k] in ranges} for row in counts]
    has = [{one for one in own if sum(one in other for other in has) > 1} for own in has]
    kind, rest, first = [number + MOST_KINDS for number in range(n)], list(range(n)), None
    for number in range(MOST_KINDS):
        if rest:
            near_median = np.abs(counts[rest] - _median(counts[rest])).sum(axis=1)
            typical = rest[int(near_median.argmin())]
            away = np.abs(counts - counts[typical]).sum(axis=1)
            first = away if first is None else first
            alike = 0.01 * counts[typical].sum() >= away
            own = [step for step in rest if alike[step] and has[step] == has[typical]]
            rest = [step for step in rest if step not in own]
            for step in own:
                kind[step] = number
    return kind, first.tolist()


def _median(counts: np.ndarray) -> np.ndarray:
    """The lower median of each column."""
    return np.sort(counts, axis=0)[(len(counts) - 1) // 2]
