"""Phases of training, as PyTorch records them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import htagraph as hg
from htagraph.lookup.work_groups import runs_in_closure
from tests.real_traces import case, located


def slices(*rows: tuple[str, int, int, dict[str, int]]) -> hg.TraceGraph:
    """Operators with their start and length, each with a kernel at its end; args besides."""
    events: list[dict[str, Any]] = []
    for number, (name, start, dur, args) in enumerate(rows, start=1):
        on = {"ph": "X", "pid": 1, "tid": 1, "ts": start, "dur": dur, "name": name}
        events.append(on | {"cat": "cpu_op", "args": args})
        if not name.startswith(("autograd", "Optimizer")):
            call = {"name": "cudaLaunchKernel", "cat": "cuda_runtime", "ts": start + dur - 2}
            events.append(on | call | {"dur": 1, "args": {"correlation": number}})
            kernel = {"name": f"kernel of {name}", "cat": "kernel", "ts": 1_000 + 10 * number}
            where = {"device": 0, "stream": 7, "correlation": number}
            events.append(on | kernel | {"dur": 5, "tid": 7, "args": where})
    return hg.load(json.dumps({"traceEvents": events}).encode()).compile()


def test_forward_recomputed_backward_and_optimizer():
    """`aten::linear` runs again inside of `MulBackward0`, and records gradients."""
    own = {"Sequence number": 4, "Fwd thread id": 1}
    graph = slices(
        ("aten::linear", 0, 50, {"Sequence number": 3}),
        ("autograd::engine::evaluate_function: MulBackward0", 100, 300, own),
        ("MulBackward0", 110, 280, own),
        ("aten::relu", 120, 50, {"Sequence number": 9}),
        ("aten::mm", 200, 50, {}),
        ("Optimizer.step#Adam.step", 500, 100, {}),
        ("aten::add_", 510, 50, {}),
    )
    found = graph.kernel_breakdown(by="phase")
    kernels = {row.group: row.n_kernels for row in found.itertuples()}

    assert kernels == {"forward": 1, "recomputed forward": 1, "backward": 2, "optimizer": 1}


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
