"""Memory over time, steps, and the utilisation of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from htagraph.compiler.passes import compile_events
from htagraph.lookup.find_window import find_window
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window
from htagraph.queries.counters import memory_timeline
from htagraph.queries.steps import steady_state, step_times
from htagraph.synth import timeline
from tests.drawn import drawn_dag
from tests.synth.actions import Action, Annotation, Call, Launch, Op, Spend, Synchronize
from tests.synth.simulator import simulate
from tests.synth.training import training_rank
from tests.synth.work import Work


def recorded_memory():
    """A graph in which two instants were recorded, one inside an operator."""
    events = timeline(
        "cpu 1 |[aten::mm ^x ]  ^y",
        names={"x": "[memory]", "y": "[memory]"},
        columns={
            "bytes": {"x": 512, "y": -512},
            "total_allocated": {"x": 512, "y": 0},
            "total_reserved": {"x": 1024, "y": 1024},
            "device_type": {"x": 1, "y": 1},
            "device_id": {"x": 0, "y": 0},
        },
    )
    is_memory = events.names() == "[memory]"
    return compile_events(
        replace(events, kind=np.where(is_memory, EventKind.INSTANT, events.kind).astype(np.int8))
    )


def test_memory_is_told_with_the_operator_that_took_it():
    """aten::mm takes 512 bytes; they are given back outside of any operator."""
    dag = recorded_memory()
    frame = memory_timeline(dag, Window(0, 100_000, "all"))

    assert frame[["ts_ns", "bytes", "allocated", "reserved", "op"]].to_numpy().tolist() == [
        [10_000, 512, 512, 1024, "aten::mm"],
        [16_000, -512, 0, 1024, ""],
    ]


def test_the_starts_of_steps_are_told():
    """Those in the window."""
    steps = "cpu 1 |{ProfilerStep#0  }{ProfilerStep#1  }"
    frame = memory_timeline(drawn_dag(steps), Window(5_000, 100_000, "later"))
    assert frame.attrs["steps_ns"] == [18_000]


def test_only_the_window_is_told():
    """Half-open: an instant at the end is not in it."""
    assert memory_timeline(recorded_memory(), Window(0, 16_000, "first"))["bytes"].tolist() == [512]


_DAG = drawn_dag("""
    us       |0         10        20        30        40
    cpu 1    |{ProfilerStep#0 [launch >a]}{ProfilerStep#1 [launch >b]}
    stream 7 |                    [gemm <a         ]         [relu <b ]
""")


def test_a_step_tells_what_it_launched_and_what_ran_meanwhile():
    """Gemm (18) was launched in step 0, which is done with it; step 1 lasts from there."""
    frame = step_times(_DAG, _DAG.span)
    columns = ["name", "dur_ns", "n_launches", "launched_ns", "idle_ns", "compute_ns"]

    assert frame[columns].to_numpy().tolist() == [
        ["ProfilerStep#0", 38_000, 1, 18_000, 20_000, 18_000],
        ["ProfilerStep#1", 19_000, 1, 10_000, 9_000, 10_000],
    ]


def test_a_trace_without_a_device_has_steps_that_idle():
    """One row a step, device -1."""
    dag = drawn_dag("cpu 1 |{ProfilerStep#0 }")
    frame = step_times(dag, dag.span)

    assert frame[["device", "n_launches", "idle_ns"]].to_numpy().tolist() == [[-1, 0, 17_000]]


def test_a_trace_without_steps_has_no_rows():
    """Nothing marks them."""
    dag = drawn_dag("stream 7 |[k]")

    assert len(step_times(dag, dag.span)) == 0


_MS = 1_000_000


def _steps(dag: Dag) -> pd.DataFrame:
    return steady_state(dag, dag.span)


def _trained(steps: int, odd: dict[int, Callable[[tuple[Action, ...]], tuple[Action, ...]]]) -> Dag:
    """A training rank in which the bodies of some steps are changed."""
    program = training_rank(steps=steps, layers=2, seed=3)
    marked = [number for number, one in enumerate(program.body) if isinstance(one, Annotation)]
    body = list(program.body)
    for step, change in odd.items():
        annotation = body[marked[step]]
        assert isinstance(annotation, Annotation)
        body[marked[step]] = replace(annotation, body=change(annotation.body))
    return compile_events(simulate(replace(program, body=tuple(body))).events)


def test_steps_of_training_are_steady_and_one_represents_them():
    """Durations are drawn at random around the same base; so many steps, so many events."""
    frame = _steps(_trained(6, {}))

    assert frame["is_steady"].tolist() == [True] * 6
    assert frame["is_representative"].sum() == 1
    assert frame["n_different"].tolist() == [0] * 6
    assert frame["reason"].tolist() == [""] * 6


_ODD = {
    "a checkpoint": (
        lambda body: (*body, Op("torch.save", (Spend(9 * _MS), Op("aten::copy_", (Spend(_MS),))))),
        "2 events more than usual (+1 aten::copy_, +1 torch.save); ",
        "ms torch.save)",
    ),
    "calls of the allocator": (
        lambda body: (*body, *(Call("cudaMalloc", 400_000) for _ in range(20))),
        "20 events more than usual (+20 cudaMalloc); ",
        "ms cudaMalloc)",
    ),
    "a garbage collection": (
        lambda body: (*body, Spend(10 * _MS)),
        "",
        "ms untraced code)",
    ),
    "a slow pair": (
        lambda body: (
            Op("outer", (Op("six", (Spend(6 * _MS),)), Op("four", (Spend(4 * _MS),)))),
            *body,
        ),
        "",
        "ms six)",
    ),
    "an early end": (
        lambda body: body[: len(body) // 2],
        "events fewer than usual",
        "",
    ),
    "a slow kernel": (
        lambda body: (
            Op("aten::mm", (Launch(Work("slow_gemm", 10 * _MS)), Synchronize())),
            *body,
        ),
        "(+1 aten::mm, +1 cudaDeviceSynchronize, +1 cudaLaunchKernel, …)",
        "ms slow_gemm on the device)",
    ),
}


@pytest.mark.parametrize("place", [0, 2, 4], ids=["first", "amidst", "last"])
@pytest.mark.parametrize("odd", _ODD)
def test_a_planted_odd_step_is_the_only_one_and_its_reason_names_the_plant(odd, place):
    """First and last steps are judged like all others."""
    change, work, time = _ODD[odd]
    frame = _steps(_trained(5, {place: change}))

    assert frame.index[~frame["is_steady"]].tolist() == [place]
    assert not frame["is_representative"][place]
    assert frame["is_representative"].sum() == 1
    assert work in frame["reason"][place]
    assert frame["reason"][place].endswith(time)


def test_the_representative_is_the_steady_step_of_median_length():
    """Of 10, 11 and 12 us after the first step, that of 11; the step of 17 is none of them."""
    dag = drawn_dag(
        """
            us    |0         10        20        30        40        50        60
            cpu 1 |{s0       }{s1      }{s2       }{s3        }{s4             }
            """,
        names={f"s{number}": f"ProfilerStep#{number}" for number in range(5)},
    )
    frame = _steps(dag)

    assert frame["period_ns"].tolist() == [11_000, 10_000, 11_000, 12_000, 17_000]
    assert frame["delta_ns"].tolist() == [0, -1_000, 0, 1_000, 6_000]
    assert frame["is_steady"].tolist() == [True, True, True, True, False]
    assert frame["is_representative"].tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("n_steps", [1, 2])
def test_fewer_than_three_steps_are_not_judged(n_steps):
    """Two that are alike may both be odd."""
    dag = _trained(n_steps, {})
    frame = _steps(dag)

    assert frame["is_steady"].tolist() == [False] * n_steps
    assert not frame["is_representative"].any()
    assert frame["reason"].tolist() == [f"too few steps to compare: {n_steps}"] * n_steps


def test_of_three_steps_two_are_too_few_to_be_steady():
    """The odd one still has its reason."""
    dag = _trained(3, {1: lambda body: (*body, Spend(10 * _MS))})
    frame = _steps(dag)

    assert not frame["is_steady"].any()
    assert frame["reason"][[0, 2]].tolist() == ["too few typical steps: 2"] * 2
    assert "untraced code" in frame["reason"][1]


def test_steps_that_take_turns_are_not_mixed():
    """Every second one accumulates gradients only: the others have an optimizer."""
    without = lambda body: body[:-2]  # noqa: E731
    frame = _steps(_trained(7, {1: without, 3: without, 5: without}))

    assert frame["is_steady"].tolist() == [True, False, True, False, True, False, True]


def test_polls_and_other_threads_make_no_step_odd():
    """How often a host asks, and what workers do, depends on the clock."""
    dag = drawn_dag("""
        us       |0         10        20        30        40        50        60
        cpu 1    |{ProfilerStep#0  }{ProfilerStep#1  }{ProfilerStep#2  [cudaEventQuery]}
        cpu 2    |                     [work][work]
        """)

    assert _steps(dag)["n_different"].tolist() == [0, 0, 0]


def test_time_between_markers_counts():
    """Serving markers: the third waits 12 us for the next request; the last is not judged by it."""
    dag = drawn_dag("""
        us    |0         10        20        30        40        50        60        70
        cpu 1 |{execute_a  }  {execute_a  }  {execute_a  }            {execute_a  }  {execute_a  }
        """)
    frame = _steps(dag)

    assert frame["period_ns"].tolist() == [15_000, 15_000, 25_000, 15_000, 13_000]
    assert frame["is_steady"].tolist() == [True, True, False, True, True]
    assert frame["reason"][2] == "67% longer (+10.0 us untraced code)"


def test_what_happens_between_steps_is_part_of_the_reason_also_if_the_last_step_is_the_usual():
    """The first step is followed by an evaluation, and the last has no such part."""
    dag = drawn_dag("""
        us    |0         10        20        30        40        50        60        70
        cpu 1 |{execute_a    }[eval     ]{execute_a    }{execute_a  }{execute_a     }{execute_a   }
        """)
    frame = _steps(dag)

    assert frame["is_representative"].tolist() == [False, False, False, False, True]
    assert frame["reason"][0] == "1 event more than usual (+1 eval); 73% longer (+11.0 us eval)"


def test_only_steps_of_the_window_are_shown_but_all_are_compared():
    """A window of one step says how usual it is."""
    dag = _trained(5, {})
    step = find_window(dag, "ProfilerStep#2")

    assert steady_state(dag, step).to_dict("list") == _steps(dag)[2:3].to_dict("list")


def test_a_trace_without_steps_has_no_rows_of_steady_state():
    """Nothing marks them."""
    assert len(_steps(drawn_dag("stream 7 |[k]"))) == 0
