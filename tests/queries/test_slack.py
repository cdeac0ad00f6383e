"""How much later events may end, worked out by hand; and that it is so, by replay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import htagraph as hg
from htagraph.arrays.retime import retime
from htagraph.compiler.passes import compile_events
from htagraph.model.window import Window
from htagraph.queries.cost import slack
from htagraph.replay.changes import scale
from htagraph.replay.rehearsal import Rehearsal
from htagraph.synth import timeline
from tests.real_traces import located
from tests.synth.simulator import simulate
from tests.synth.strategies import programs

DRAWING = """
    us       |0         10        20        30        40
    cpu 1    |[launch >a][launch >b]        [sync @*   ]
    stream 7 |      [a <a                       ]
    stream 9 |                 [b <b   ][c    ]
"""


def floats(drawing: str, window: Window | None = None) -> dict[str, tuple[int, int]]:
    """Total and free float by name, in us; of the last of a name."""
    dag = compile_events(timeline(drawing))
    found = slack(dag, window or dag.span)
    both = zip(found["total_float_ns"] // 1000, found["free_float_ns"] // 1000, strict=True)
    return dict(zip(found["name"], both, strict=True))


def test_work_beside_the_path_has_the_time_until_it_is_needed() -> None:
    """The wait ends at 42, 7 us after a: c ends at 33, b right before c starts."""
    found = floats(DRAWING)

    assert (found["a"], found["cudaDeviceSynchronize"]) == ((0, 0), (0, 0))
    assert found["c"] == (9, 9)
    assert found["b"] == (9, 0)


def test_what_is_critical_has_no_float() -> None:
    """The flag is the number, and the events of the path are critical."""
    dag = compile_events(timeline(DRAWING))
    found = slack(dag, dag.span)

    assert found.loc[found["is_critical"], "name"].tolist() == ["a", "cudaDeviceSynchronize"]
    assert found["is_critical"].tolist() == (found["total_float_ns"] == 0).tolist()


def test_a_window_has_what_ends_in_it() -> None:
    """Up to 30 us: c is begun by then, and may begin 4 us later; what runs on is not there."""
    assert floats(DRAWING, Window(15_000, 30_000, "part")) == {
        "cudaLaunchKernel": (0, 0),
        "b": (4, 0),
    }


def test_threads_that_nothing_waits_for_may_end_with_the_window() -> None:
    """A watchdog polls on a thread of its own; the steps of another bound the trace."""
    found = floats("""
        us       |0         10        20        30        40
        cpu 1    |{ProfilerStep#1                          }
        cpu 1    | [work                                  ]
        cpu 2    |     [poll]
    """)

    assert found["poll"] == (31, 31)


@given(program=programs(max_blocks=4), data=st.data())
def test_an_event_that_ends_later_than_its_float_delays_the_end_by_the_rest(program, data) -> None:
    """Exactly; and free float delays nothing else."""
    dag = compile_events(simulate(program).events)
    found, rehearsal = slack(dag, dag.span), Rehearsal(dag, dag.span)
    row = found.iloc[data.draw(st.integers(0, len(found) - 1))]
    end = rehearsal.expected.replay.places[2 * row["event"] + 1]

    def later(by_ns: int) -> np.ndarray:
        replay = rehearsal.expected.replay
        release = replay.release_ns.copy()
        release[end] = replay.ts_ns[end] + by_ns
        return retime(replay.offsets, replay.tail, replay.weight_ns, release)

    for more_ns in (0, 1, 70_000):
        times = later(int(row["total_float_ns"]) + more_ns)
        assert rehearsal.dur_ns(times) == dag.span.dur_ns + more_ns
    moved = later(int(row["free_float_ns"])) > rehearsal.expected.replay.ts_ns
    moved[end] = False
    assert not moved.any()


@given(program=programs(max_blocks=4), by=st.sampled_from((1.5, 3.0, 20.0)), data=st.data())
def test_work_that_takes_longer_than_its_float_makes_the_window_longer(program, by, data) -> None:
    """A kernel scaled by itself: by exactly what it takes more than its float."""
    graph = hg.Trace.from_events(simulate(program).events).compile()
    found = graph.slack()
    found = found[found["kind"] == "kernel"]
    row = found.iloc[data.draw(st.integers(0, len(found) - 1))]
    rehearsal = Rehearsal(graph.dag, graph.interval)
    one = graph.select(where=f"event == {row['event']}")
    run = rehearsal.run([scale(one, by=by)])
    more_ns = int(np.rint(row["dur_ns"] * by)) - int(row["dur_ns"])

    assert rehearsal.dur_ns(run.times_ns) - graph.dur_ns == max(
        more_ns - int(row["total_float_ns"]), 0
    )


@pytest.mark.public("hta/trace_diff/control/control.json.gz")
def test_a_real_trace_has_its_path_among_what_is_critical() -> None:
    """Every piece of device work that the path ends with is critical."""
    graph = hg.load(located("hta/trace_diff/control/control.json.gz")).compile()
    found = graph.slack().set_index("event")
    path = graph.critical_path().segments
    work = path.loc[path["kind"] == "span", "event"]

    assert len(work)
    assert found.loc[work, "is_critical"].all()
