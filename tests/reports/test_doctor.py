"""What a report says of captures, devices, and of what would help."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import htagraph as hg
from htagraph import Trace, load
from htagraph.model.dag import Dag
from htagraph.model.recording import Origin
from htagraph.reports.doctor import capture_cost, examine
from htagraph.reports.markdown import losses_in_words, markdown_summary, seems_busier, use_in_words
from htagraph.synth import timeline
from tests.queries.gridded import gridded
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


def demo(name: str) -> hg.Summary:
    trace = hg.load(hg.demo_trace(name))
    return hg.Summary.of(trace, trace.compile())


def test_what_one_can_do_is_listed_by_what_it_saves():
    """The fixes of the cards that are replayed, as they are advised, and parts twice as fast."""
    summary = demo("dataloader")
    found = summary.first_changes

    assert found["change"].tolist() == [
        "DataLoader.__next__ twice as fast",
        'Launch less: torch.compile(mode="reduce-overhead") captures each step as a CUDA graph',
        "ampere_sgemm_128x64_nn twice as fast",
    ]
    fix = summary.verdict.findings[1].fix
    assert (fix.do, fix.saves_ns) == (f"{found['change'][1]}.", found["saves_ns"][1])
    assert f"| {found['change'][0].replace('__', chr(92) + '_' + chr(92) + '_')} |" in (
        markdown_summary(summary)
    )


def test_what_one_can_do_saves_what_an_opportunity_saves():
    summary = demo("dataloader")
    every = summary.opportunities.set_index("change")["saves_ns"]

    assert summary.first_changes["saves_ns"][2] == every["scale('ampere_sgemm_128x64_nn', by=0.5)"]


def test_a_late_rank_is_listed_by_what_it_costs():
    """First of the job: no rank waits for it then."""
    summary = hg.JobSummary(hg.load_job(hg.demo_trace("job")), "job")
    first = summary.first_changes.iloc[0]

    assert first["change"] == "Rank 2 is late: if it kept up"
    assert first["saves_ns"] == summary.verdict.findings[0].cost_ns


def test_eight_changes_are_listed():
    """Of twelve kernels one after the other, each a twelfth of the run."""
    kernels = "".join(f"[k{n} <a{n}       ]" for n in range(12))
    launches = "".join(f"[launch >a{n}]" for n in range(12))
    drawing = f"cpu 1 |{launches}[sync @*]\nstream 7 |    {kernels}"
    trace = hg.Trace.from_events(timeline(drawing))

    assert len(hg.Summary(trace, trace.compile()).first_changes) == 8


def test_a_saving_below_one_percent_is_not_listed():
    assert demo("none").first_changes["saves_share"].min() >= 0.01


def test_nothing_is_predicted_where_nothing_is_judged():
    """An empty trace: no table."""
    trace = hg.Trace.from_events(timeline(""))
    summary = hg.Summary(trace, trace.compile())

    assert summary.first_changes.empty
    assert "What would help" not in markdown_summary(summary)


OPERATOR = b'{"ph":"X","cat":"cpu_op","name":"mm","pid":1,"tid":1,"ts":5,"dur":2}'
FLOW = b'{"ph":"s","cat":"ac2g","name":"ac2g","pid":1,"tid":1,"ts":5,"id":7}'
FRAME = b'{"ph":"X","cat":"python_function","name":"a.py(1): f","pid":1,"tid":1,"ts":1,"dur":9}'


def _said(trace: hg.Trace) -> dict[str, str]:
    return dict(capture_cost(trace, trace.compile()))


def test_bytes_are_those_of_all_events_also_of_what_is_not_loaded():
    """Two operators, a flow and a frame, as long as they stand in the file."""
    listed = b", ".join([OPERATOR, FLOW, OPERATOR, FRAME])
    sizes = hg.load(b'{"traceEvents": [' + listed + b"]}").sizes
    columns = ["category", "n_loaded", "n_skipped", "n_bytes", "kind"]

    assert sizes[columns].to_numpy().tolist() == [
        ["cpu_op", 2, 0, 2 * len(OPERATOR), "op"],
        ["python_function", 0, 1, len(FRAME), "python"],
        ["ac2g", 0, 1, len(FLOW), "flow"],
    ]
    assert sizes["share"].sum() == 1


def test_stacks_are_named_with_what_they_take():
    """One frame beside one operator is more than half of it."""
    events = b", ".join([OPERATOR, FRAME])
    share = len(FRAME) / len(OPERATOR + FRAME)

    assert _said(hg.load(b'{"traceEvents": [' + events + b"]}"))["Python stacks"] == (
        f"{share:.1%} of the capture, due to with_stack=True; without them, host code has no lines "
        "and kernels no modules"
    )


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> hg.Trace:
    """Six steps of the same work, in a compressed file."""
    path = tmp_path_factory.mktemp("alike") / "rank0.json.gz"
    simulate(training_rank(steps=6)).write(path)
    return hg.load(path)


def test_one_of_the_steps_that_are_alike_would_do(alike):
    """Six equal steps are all of the capture but two percent; two have a range more."""
    assert "one is enough and saves 81.8% of the capture (about" in _said(alike)["steps"]


def test_a_step_takes_its_part_of_the_file(alike):
    """Of what is on disk, and what it unpacks to."""
    size = Path(str(alike.path)).stat().st_size
    said = _said(alike)

    assert said["size"].startswith(f"{size / 1000:,.0f} kB on disk, ")
    step = f"166 events, 16.3% of the capture (about {size * 0.163 / 1000:.0f} kB)"
    assert said["a step"] == step


def test_nothing_is_advised_where_steps_differ():
    """The third step saves a checkpoint."""
    trace = hg.Trace.from_events(
        timeline("""
            cpu 1 |{ProfilerStep#0 [a  ]}{ProfilerStep#1 [a  ]}{ProfilerStep#2 [save      ]}
        """)
    )

    assert _said(trace)["steps"] == (
        "3, fewer than three of them typical: one is not representative (`steady_state` says why)"
    )


def test_two_steps_do_not_say_whether_one_would_do():
    """What both do may be chance."""
    trace = hg.Trace.from_events(
        timeline("cpu 1 |{ProfilerStep#0 [a  ]}{ProfilerStep#1 [a  ]}[b  ]")
    )

    assert _said(trace)["steps"] == "2: too few to tell whether one is enough"
    assert _said(trace)["a step"].endswith("; 20.0% is outside steps")


def graph(dag: Dag) -> hg.TraceGraph:
    """The graph of a whole trace."""
    return hg.TraceGraph(dag, dag.span)


def test_full_utilisation_of_a_sixteenth_is_said_in_one_sentence() -> None:
    """One block of 4 warps on one of 4 SMs."""
    full = graph(gridded("stream 7 |[k     ]", k=(1, 128)))

    assert use_in_words(full.utilization()) == (
        "A kernel runs 100% of the time, on 25% of the SMs, and fills 25% of their warp slots: "
        "6.2% of all (estimated)."
    )
    assert losses_in_words(full.utilization_losses()) == (
        "Empty warp slots: 75% because grids have fewer blocks than the device has SMs, 19% "
        "because grids have fewer blocks than fit."
    )
    assert seems_busier(full.utilization())


def test_what_is_known_of_a_part_says_so() -> None:
    """8 of 12 us of kernels have a grid."""
    part = graph(gridded("stream 7 |[k     ][x ]", k=(4, 512)))

    assert use_in_words(part.utilization()).endswith("(estimated from 67% of the time of kernels).")


@pytest.mark.parametrize(
    ("drawing", "said"),
    [
        (
            "stream 7 |[x ]",
            (
                "A kernel runs 100% of the time; too few launch geometries are recorded to tell "
                "how full the device is then."
            ),
        ),
        ("stream 7 |[Memset]", "A kernel runs 0% of the time."),
        ("cpu 1 |[op ]", ""),
    ],
)
def test_nothing_is_said_of_what_is_not_known(drawing: str, said: str) -> None:
    found = graph(gridded(drawing)).utilization()

    assert use_in_words(found) == said
    assert not seems_busier(found)


def test_several_devices_are_told_by_their_means() -> None:
    """Of a job, or of a rank with two."""
    shares = {"gpu_utilization": [1.0, 0.5], "sm_activity": [0.5, 0.25]}
    used = pd.DataFrame(shares | {"sm_occupancy": [0.25, 0.125], "grid_coverage": [1.0, 1.0]})

    assert use_in_words(used).startswith(
        "On average of devices, a kernel runs 75% of the time, on 50% of the SMs"
    )
