"""Phases, steady steps, data loaders, waits of the host: what steps are made of."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import htagraph as hg
from htagraph.compiler.passes import compile_events
from htagraph.errors import QueryError
from htagraph.lookup.collectives import readiness
from htagraph.lookup.programs import can_capture, find_loading, is_replayed
from htagraph.lookup.queues import long_waits
from htagraph.lookup.steady_steps import MOST_KINDS, are_near, steady_steps
from htagraph.lookup.work_groups import runs_in_closure
from htagraph.model.dag import Dag
from htagraph.run.compiled import LoadOptions
from htagraph.run.graph import TraceGraph
from htagraph.synth import timeline
from tests.drawn import drawn_dag, drawn_graph
from tests.job.simulated import MACHINE, meet
from tests.real_traces import case, located
from tests.synth.program import (
    Action,
    Group,
    JobProgram,
    Launch,
    Op,
    Program,
    Record,
    Spend,
    StreamWait,
    Synchronize,
    Work,
)
from tests.synth.simulator import simulate_job


def slices(*rows: tuple[str, int, int, dict[str, int]]) -> hg.TraceGraph:
    """Operators with their start and length, each with a kernel at its end; args besides.

    Modules are Python frames.
    """
    events: list[dict[str, Any]] = []
    for number, (name, start, dur, args) in enumerate(rows, start=1):
        on = {"ph": "X", "pid": 1, "tid": 1, "ts": start, "dur": dur, "name": name}
        is_module = name.startswith("nn.Module: ")
        events.append(on | {"cat": "python_function" if is_module else "cpu_op", "args": args})
        if not name.startswith(("autograd", "Optimizer", "nn.Module: ")):
            call = {"name": "cudaLaunchKernel", "cat": "cuda_runtime", "ts": start + dur - 2}
            events.append(on | call | {"dur": 1, "args": {"correlation": number}})
            kernel = {"name": f"kernel of {name}", "cat": "kernel", "ts": 1_000 + 10 * number}
            where = {"device": 0, "stream": 7, "correlation": number}
            events.append(on | kernel | {"dur": 5, "tid": 7, "args": where})
    return hg.load(json.dumps({"traceEvents": events}).encode(), stacks=True).compile()


def phases_of(*inside: tuple[str, int]) -> dict[str, int]:
    """Kernels by phase: `linear` and `relu`, and a function that calls operators by number."""
    own = {"Sequence number": 4, "Fwd thread id": 1}
    graph = slices(
        ("aten::linear", 0, 40, {"Sequence number": 3}),
        ("aten::relu", 50, 40, {"Sequence number": 4}),
        ("autograd::engine::evaluate_function: ReluBackward0", 100, 300, own),
        ("ReluBackward0", 110, 280, own),
        *(
            (name, 120 + 50 * place, 40, {} if number < 0 else {"Sequence number": number})
            for place, (name, number) in enumerate(inside)
        ),
        ("Optimizer.step#Adam.step", 500, 100, {}),
        ("aten::add_", 510, 50, {}),
    )
    found = graph.kernel_breakdown(by="phase")
    return dict(zip(found["group"], found["n_kernels"].tolist(), strict=True))


def test_forward_recomputed_backward_and_optimizer():
    """Two operators run again inside of `ReluBackward0`, in the same order, and record gradients.

    What runs between them, or before, restores what they need.
    """
    checkpointed = phases_of(
        ("aten::detach", -1), ("aten::linear", 9), ("aten::relu", 10), ("aten::mm", -1)
    )
    rest = {"forward": 2, "optimizer": 1}

    assert checkpointed == {**rest, "recomputed forward": 3, "backward": 2}


def test_what_is_recomputed_is_told_by_module():
    """Of the rest of a step, the phase suffices."""
    own = {"Sequence number": 4, "Fwd thread id": 1}
    graph = slices(
        ("aten::linear", 0, 40, {"Sequence number": 3}),
        ("aten::relu", 50, 40, {"Sequence number": 4}),
        ("autograd::engine::evaluate_function: ReluBackward0", 100, 300, own),
        ("nn.Module: Block_0", 110, 60, {}),
        ("aten::linear", 120, 40, {"Sequence number": 9}),
        ("nn.Module: Block_1", 180, 60, {}),
        ("aten::relu", 190, 40, {"Sequence number": 10}),
        ("aten::mm", 250, 40, {}),
    )
    found = graph.roofline(by="phase").groupby("group")["n_kernels"].sum()

    assert found.to_dict() == {
        "forward": 2,
        "recomputed forward of nn.Module: Block_0": 1,
        "recomputed forward of nn.Module: Block_1": 1,
        "backward": 1,
    }


@pytest.mark.parametrize(
    "inside",
    [
        pytest.param([("aten::linear", 9), ("aten::mm", -1)], id="one is no pass"),
        pytest.param([("aten::relu", 9), ("aten::linear", 10), ("aten::mm", -1)], id="other order"),
        pytest.param([("aten::linear", 9), ("aten::relu", 10)], id="gradients of gradients"),
    ],
)
def test_a_backward_pass_that_records_gradients_may_repeat_nothing(inside):
    """With `create_graph=True` all that it calls records, and nothing else follows."""
    assert phases_of(*inside) == {"forward": 2, "backward": len(inside) + 1, "optimizer": 1}


def test_a_closure_that_the_optimizer_calls_is_forward_and_backward():
    """As in Lightning: all of a training step runs inside of the optimizer's."""
    own = {"Sequence number": 3, "Fwd thread id": 1}
    graph = slices(
        ("Optimizer.step#Adam.step", 0, 600, {}),
        ("aten::linear", 10, 50, {"Sequence number": 3}),
        ("autograd::engine::evaluate_function: AddmmBackward0", 100, 300, own),
        ("AddmmBackward0", 110, 280, own),
        ("aten::add_", 510, 50, {}),
    )
    found = graph.kernel_breakdown(by="phase")

    assert dict(zip(found["group"], found["n_kernels"], strict=True)) == {
        "forward": 1,
        "backward": 1,
        "optimizer": 1,
    }


def test_the_backward_pass_of_another_thread_is_no_closure():
    """It trains a model of its own, while this one is updated."""
    graph = hg.Trace.from_events(
        hg.synth.timeline("""
            us    |0         10        20        30        40
            cpu 1 |{Optimizer.step#Adam.step          }
            cpu 1 | [aten::add_         ]
            cpu 2 |  [autograd::engine::evaluate_function: A ]
        """)
    ).compile()
    added = graph.dag.events.names() == "aten::add_"

    assert not runs_in_closure(
        graph.dag, np.flatnonzero(added), graph.dag.events.ts_ns[added]
    ).any()


def test_inference_has_no_phases():
    found = slices(("aten::linear", 0, 50, {})).kernel_breakdown(by="phase")

    assert found["group"].tolist() == [""]


@pytest.mark.parametrize("name", [case("tracelens/resnet_act_checkpoint.json.gz")])
def test_a_checkpointed_model_recomputes_its_forward_pass(name):
    """Backward has twice the operations of forward; all but the last layers run again."""
    found = hg.load(located(name)).compile().roofline(by="phase").groupby("group")["gflop"].sum()

    assert found["backward"] / found["forward"] == pytest.approx(2, abs=0.1)
    assert found["recomputed forward"] / found["forward"] == pytest.approx(0.93, abs=0.01)


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
    dag = drawn_dag("".join(f"cpu 1 |{''.join(row)}\n" for row in rows))
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
    dag = drawn_dag(f"cpu 1 |{row}\n")
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


ALONE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


@pytest.mark.parametrize(
    ("first", "second", "loading"),
    [(WORKERS, ALONE, "by workers"), (ALONE, WORKERS, "in process")],
)
def test_of_two_loaders_the_one_that_takes_longer_counts(first, second, loading):
    """11 of 21 us."""
    events = timeline("cpu 1 |{first    }{second  }", names={"first": first, "second": second})

    assert find_loading(compile_events(events)) == loading


@pytest.mark.parametrize(
    ("drawing", "loading"),
    [
        ("cpu 1 |{load              }\ncpu 1 |   [collate  ]", "after workers"),
        ("cpu 1 |{load              }\ncpu 1 |   [collate]", "by workers"),
        ("cpu 1 |{load              }\ncpu 2 |   [pin      ]", "pinned by a thread"),
        ("cpu 1 |{load              }\ncpu 2 |   [pin    ]", "by workers"),
        ("cpu 1 |{load              }\ncpu 1 |                     [pin      ]", "by workers"),
    ],
)
def test_what_follows_the_workers_counts_if_it_takes_most_of_the_time(drawing, loading):
    """11 or 9 of 20 us: operators in the step, or a thread that pins."""
    names = {"load": WORKERS} | ({"pin": "aten::pin_memory"} if "pin" in drawing else {})

    assert find_loading(drawn_dag(drawing, names=names)) == loading


OWN = """
    cpu 1 |{get_rows         }[aten::mm  ]
    cpu 1 |  [aten::index ]
"""


def loading_ns(graph: hg.TraceGraph) -> int:
    return int(graph.critical_path().breakdown()["dur_ns"].get("data_loading", 0))


def test_ranges_of_a_users_own_names_load_data(tmp_path):
    """19 us, with the operator in them; saved graphs and their workers know it."""
    trace = hg.Trace.from_events(timeline(OWN))
    graph = trace.compile(data_loading=["get_*"])
    opened = hg.TraceGraph.open(graph.save(tmp_path / "graph"))

    assert (loading_ns(trace.compile()), loading_ns(graph), loading_ns(opened)) == (
        0,
        19_000,
        19_000,
    )
    assert loading_ns(trace.compile(data_loading="get_*")) == 19_000
    assert graph.dag.data_loading == opened.dag.data_loading == ("get_*",)
    assert hg.what_if(graph, hg.without("data loading")).dur_ns == 12_000


def test_a_project_names_its_ranges_that_load_data(tmp_path, monkeypatch):
    """In the pyproject.toml of the working directory; an argument wins."""
    (tmp_path / "pyproject.toml").write_text('[tool.htagraph]\ndata-loading = ["get_*"]\n')
    monkeypatch.chdir(tmp_path)
    trace = hg.Trace.from_events(timeline(OWN))

    assert loading_ns(trace.compile()) == 19_000
    assert loading_ns(trace.compile(data_loading=())) == 0
    assert LoadOptions().data_loading == ("get_*",)


def test_names_of_ranges_are_a_list(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[tool.htagraph]\ndata-loading = "get_*"\n')
    monkeypatch.chdir(tmp_path)

    with pytest.raises(QueryError, match="data-loading is no list of names"):
        drawn_graph(OWN)


def test_ranks_of_a_job_know_the_names_too():
    """The demo's optimizer, on each rank."""
    job = hg.load_job(hg.demo_trace("job"), data_loading=["Optimizer.step*"])

    assert job.map(loading_ns)[0] > 0


def test_a_synchronization_of_more_than_two_launches_is_a_wait():
    """Launches usually take up to 4 us: 8 us may be a call that returned at once."""
    dag = drawn_dag("""
        cpu 1    |[launch >a][sync  ][launch >b][sync   ]
        stream 7 | [a <a ]            [b <b ]
    """)

    assert dag.calibration.launch_usual_ns == 4_000
    assert dag.events.names()[long_waits(dag)].tolist() == ["cudaDeviceSynchronize"]
    assert dag.events.dur_ns[long_waits(dag)].tolist() == [9_000]


PAIR = Group("0", (0, 1))


def backward(dur_ns: int) -> tuple[Action, ...]:
    """A kernel, and a collective of the stream beside it that needs it."""
    compute = Op("aten::mm", (Launch(Work("gemm", dur_ns), 7),))
    return (compute, Record("grad", 7), StreamWait("grad", 20), meet(group=PAIR))


def graph_of_rank_0(first: tuple[Action, ...], second: tuple[Action, ...]) -> TraceGraph:
    """The graph of the first of two ranks."""
    programs = tuple(
        Program((*body, Synchronize()), MACHINE, rank, 2, groups=(PAIR,), start_ns=0)
        for rank, body in enumerate((first, second))
    )
    dag = compile_events(simulate_job(JobProgram(programs)).ranks[0].events)
    return TraceGraph(dag, dag.span)


def test_a_collective_is_ready_when_its_gradient_is() -> None:
    """Rank 1 is 5 ms late to the first of two; the second one's gradient is there long before."""
    both = (*backward(50_000), *backward(70_000))
    graph = graph_of_rank_0(both, (Spend(5_000_000), *both))
    dag, table = graph.dag, graph.collectives()
    found = readiness(dag, table["event"].to_numpy(np.int64))
    gemms = np.flatnonzero(dag.events.named(dag.events.symbols.searched("gemm")))

    assert found.ready_ns.tolist() == dag.events.end_ns[gemms].tolist()
    assert (table["start_ns"] - found.ready_ns).iloc[1] > 4_900_000
    assert found.ready_after.tolist() == [-1, -1]
    assert table["after"].tolist() == [-1, 0]


def test_what_nothing_holds_up_starts_when_it_is_ready() -> None:
    """The gradient is the last thing that the collective needs."""
    graph = graph_of_rank_0(backward(50_000), backward(50_000))
    table = graph.collectives()
    found = readiness(graph.dag, table["event"].to_numpy(np.int64))

    assert (table["start_ns"] - found.ready_ns).iloc[0] == MACHINE.stream_wait_ns


@pytest.mark.parametrize(
    ("first", "second", "replayed"), [("graph", "launch", True), ("launch", "graph", False)]
)
def test_a_run_is_replayed_if_graphs_take_more_than_half_of_its_device_time(
    first, second, replayed
):
    """11 or 10 of 21 us."""
    dag = drawn_dag(f"""
        cpu 1    |[{first} >a][{second} >b]
        stream 7 |          [k1 <a    ][k2 <b   ]
    """)

    assert is_replayed(dag, dag.span) is replayed


@pytest.mark.parametrize(
    ("launch", "before", "can"),
    [
        ("cudaLaunchKernel", "aten::mm", True),
        ("hipLaunchKernel", "aten::mm", True),
        ("musaLaunchKernel", "aten::mm", False),
        ("cudaGraphLaunch", "aten::mm", False),
        ("cudaLaunchKernel", "cudaStreamBeginCapture", False),
    ],
)
def test_launches_of_cuda_and_hip_can_be_captured_once(launch, before, can):
    """Not what a graph launched, nor where the trace captures one."""
    drawing = """
        cpu 1    |[first ][launch_ >a]
        stream 7 |             [kernel <a ]
    """
    dag = drawn_dag(drawing, names={"launch_": launch, "first": before})

    assert can_capture(dag, dag.span) is can


def test_what_nothing_launched_cannot_be_captured():
    """Calls alone: the device was not recorded."""
    dag = drawn_dag("cpu 1 |[call_ ]", names={"call_": "cudaLaunchKernel"})

    assert not can_capture(dag, dag.span)
