"""The doctor says what a trace lacks, and does not ask for what it has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from htagraph import Trace, load
from htagraph.model.recording import Origin
from htagraph.reports.doctor import examine
from htagraph.synth import timeline
from tests.real_traces import located
from tests.synth.simulator import simulate
from tests.synth.training import training_rank


def diagnoses(trace):
    return {found.subject: found for found in examine(trace, trace.compile())}


def test_work_without_a_launch_was_enqueued_before_the_capture():
    """A kernel without a launch, and nothing else."""
    found = diagnoses(Trace.from_events(timeline("stream 7 |[gemm  ]")))

    assert not found["launches"].is_enough
    assert found["launches"].consequence.startswith("1 device event without a known launch")
    assert found["device work"].is_enough
    assert found["device work"].advice == ""


def test_steps_of_the_profiler_are_found():
    """`profiler.step()` was called."""
    steps = diagnoses(Trace.from_events(simulate(training_rank()).events))["steps"]

    assert (steps.is_enough, steps.found_by) == (True, "profiler step")


@pytest.mark.parametrize("name", ["execute_context_0(0)_generation_8(8)", "step[DECODE bs=4]"])
def test_steps_of_a_serving_engine_need_no_profiler_step(name):
    """Engines such as vLLM and SGLang mark their steps themselves."""
    events = timeline("cpu 1 |{step    }", names={"step": name})
    steps = diagnoses(Trace.from_events(events))["steps"]

    assert (steps.n, steps.is_enough, steps.found_by) == (1, True, "serving marker")
    assert steps.advice == ""


@pytest.mark.public("tracelens/vllm_piecewise_graph.json.gz")
def test_a_real_vllm_trace_has_steps():
    """Its steps are `execute_…` ranges."""
    steps = diagnoses(load(located("tracelens/vllm_piecewise_graph.json.gz")))["steps"]

    assert (steps.is_enough, steps.found_by) == (True, "serving marker")


def test_collective_metadata_are_missed_only_where_there_are_collectives():
    """Whatever library the kernels come from."""
    lone = Trace.from_events(timeline("stream 7 |[gemm  ]"))
    names = {"ring": "void vllm::cross_device_reduce_1stage<float>"}
    parallel = Trace.from_events(timeline("stream 7 |[ring  ]", names=names))

    assert diagnoses(lone)["collective metadata"].is_enough
    assert not diagnoses(parallel)["collective metadata"].is_enough


def test_what_nsight_systems_did_not_record_is_not_asked_of_the_pytorch_profiler():
    """Its exports have no Python stacks; steps are ranges of NVTX."""
    trace = Trace.from_events(timeline("cpu 1 |[launch >k]\nstream 7 |    [k <k ]"))
    said = {"recorded by": "NVIDIA Nsight Systems"}
    exported = Trace(replace(trace.recording, origin=Origin(b"", metadata=said)))
    found = diagnoses(exported)

    assert "Python stacks" not in found
    assert "NVTX range" in found["steps"].advice
    assert not any("profiler.step" in one.advice for one in found.values())
