"""Findings: the planted fault comes first, and no verdict is better than a guess."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import htagraph as hg
from htagraph import Trace
from htagraph.cli.inputs import windowed
from htagraph.compiler.passes import compile_events
from htagraph.explain.attributed_time import attributed_time
from htagraph.explain.critical_path import critical_path
from htagraph.findings.context import Light
from htagraph.findings.findings import TITLES
from htagraph.findings.rules import ADVICE
from htagraph.findings.verdict import Fix
from htagraph.findings.window_bounds import find_bounds, light_on
from htagraph.model.events import EventTable
from htagraph.model.kinds import Cause, EventKind
from htagraph.model.recording import STACKS, Recording
from htagraph.replay.predictions import UNRANKED
from htagraph.synth import timeline
from tests.drawn import drawn_graph
from tests.findings.planted import CAUSES
from tests.findings.test_planted import PLANTED
from tests.queries.recorded_shapes import A100, Op, recorded
from tests.real_traces import case, located
from tests.synth.program import Launch, Machine, Program, Spend, Synchronize, Work
from tests.synth.simulator import simulate
from tests.synth.training import training_rank


def test_findings_share_the_window():
    """No time is charged twice, none is left out, and no cause costs more than its time."""
    path = Trace.from_events(simulate(training_rank()).events).compile().critical_path()

    found = find_bounds(path).findings

    assert sum(finding.path_ns for finding in found) == path.dur_ns
    assert all(0 <= finding.cost_ns <= finding.path_ns for finding in found)
    assert all(0 <= (finding.fix.saves_ns or 0) <= finding.cost_ns for finding in found)
    assert all(sum(dur_ns for _, dur_ns in finding.parts) == finding.path_ns for finding in found)


def test_a_host_on_the_path_costs_what_a_replay_of_the_run_says():
    """The host launches all the time, the device runs right behind: 52 of 73 us are computed."""
    path = drawn_graph("""
        cpu 1    |[launch >a    ][launch >b    ][launch >c    ][launch >d    ]
        stream 7 |               [k <a       ]  [k <b       ]  [k <c       ]  [k <d       ]
    """).critical_path()
    by_cause = {finding.cause: finding for finding in find_bounds(path).findings}
    host, compute = by_cause["CPU work"], by_cause["GPU compute"]

    assert path.dur_ns == 73_000
    assert host.cost_ns == 73_000 - 4 * 13_000 - 3 * 1_000
    assert host.hidden == "on 82% of the critical path, partly hidden"
    assert host.fix.saves_ns == 73_000 - 15_000 - 4 * 13_000 - 3 * 1_000
    assert host.advice == "Launch less: capture each step as a CUDA graph (saves about 4%)."
    assert compute.cost_ns == compute.path_ns == 13_000
    assert compute.hidden == ""


def test_evidence_says_what_and_how_long():
    """Two kernels of one name are one line of evidence."""
    path = drawn_graph("""
        cpu 1    |[graph >a]
        stream 7 |     [gemm <a    ][gemm <a    ][relu <a]
    """).critical_path()

    (compute,) = (
        finding for finding in find_bounds(path).findings if finding.cause == "GPU compute"
    )

    assert [(item.label, item.dur_ns, item.n_segments) for item in compute.evidence] == [
        ("gemm", 26_000, 2),
        ("relu", 9_000, 1),
    ]


def test_three_names_are_evidence():
    """Of four kernels, the longest."""
    path = drawn_graph("""
        cpu 1    |[graph >a]
        stream 7 |     [gemm <a    ][conv <a   ][bmm <a  ][relu <a]
    """).critical_path()
    (compute,) = (
        finding for finding in find_bounds(path).findings if finding.cause == "GPU compute"
    )

    assert [item.label for item in compute.evidence] == ["gemm", "conv", "bmm"]


def full_device(rest_ns=0):
    """Eight steps in which ready work finds no room beside a kernel that fills the device."""
    body = tuple(
        action
        for step in range(8)
        for action in (
            Launch(Work("fills", 500_000 + 40_000 * step, n_blocks=1_000, n_threads=1_024)),
            Spend(20_000 + 7_000 * step),
            Launch(Work("ready", 20_000, n_blocks=4, n_threads=128), 20),
            Synchronize(),
            *([Spend(rest_ns)] if rest_ns else []),
        )
    )
    machine = Machine(launch_latency_ns=5_000, stream_gap_ns=800, n_sms=10)
    return Trace.from_events(simulate(Program(body, machine, sync_records=False)).events)


def test_a_full_device_is_evidence_by_what_waits_and_what_fills_it():
    """Either name alone does not say which two kernels are in each other's way."""
    path = full_device().compile().critical_path()

    (full,) = (
        found
        for found in find_bounds(path).findings
        if found.cause == "kernels waiting for free SMs"
    )

    assert [(item.label, item.n_segments) for item in full.evidence] == [
        ("ready waits for fills", 8)
    ]
    assert full.title == "Kernels waiting for free SMs"


def test_a_full_device_saves_no_more_than_its_kernels_leave():
    """Work that goes first delays the kernel that it waited for: the device computes as long."""
    path = full_device().compile().critical_path()

    (full,) = (
        found
        for found in find_bounds(path).findings
        if found.cause == "kernels waiting for free SMs"
    )

    computed_ns = sum(500_000 + 40_000 * step for step in range(8))
    assert full.cost_ns <= path.dur_ns - computed_ns < full.path_ns
    assert full.hidden == "on 96% of the critical path, partly hidden"


def test_code_that_was_not_recorded_is_called_so():
    """A gap inside an annotation is not the annotation's own work."""
    path = drawn_graph("""
        cpu 1    |{train step                      }
        cpu 1    |                        [aten::mm]
    """).critical_path()

    (code,) = (found for found in find_bounds(path).findings if found.cause == "Python code")

    assert code.evidence[0].label == "untraced code in train step, before aten::mm"


def test_a_python_frame_names_a_host_gap_where_stacks_were_read():
    """With `load(stacks=True)`, frames name the code of a gap, each for as long as it ran."""
    events = timeline(
        """
            cpu 1    |{train step                            }
            cpu 1    |[aten::mm] [load_batch     ] [aten::mm]
        """,
        us_per_column=10,
    )
    is_frame = events.names() == "load_batch"
    kind = np.where(is_frame, EventKind.PYTHON, events.kind).astype(np.int8)
    path = Trace.from_events(replace(events, kind=kind)).compile().critical_path()
    operators, code = find_bounds(path).findings[:2]

    assert [(item.label, item.dur_ns) for item in operators.evidence] == [("aten::mm", 200_000)]
    assert [(item.label, item.dur_ns) for item in code.evidence] == [
        ("load_batch", 170_000),
        ("untraced code in train step, after aten::mm", 20_000),
    ]


def test_functions_cost_what_goes_with_all_that_they_call():
    """The three largest of at least 5%, and not the one that calls all of them."""
    times_us = [400, 300, 150, 100, 50]
    begins = np.cumsum([0, *times_us])[:-1]
    events = EventTable.of(
        ts_ns=1_000 * np.array([0, *begins, *begins]),
        dur_ns=1_000 * np.array([1_000, *times_us, *times_us]),
        kind=[EventKind.PYTHON] * 6 + [EventKind.OP] * 5,
        name=["train.py(9): step", *(f"f.py({n}): f{n}" for n in range(5)), *("abcde")],
        lane=[(1, 1)] * 11,
    )

    verdict = find_bounds(Trace.from_events(events).compile().critical_path())

    assert verdict.by_function == (
        "With all that they call: f0 (f.py:0) costs 40%, mostly a; f1 (f.py:1) costs 30%, mostly b;"
        " f2 (f.py:2) costs 15%, mostly c."
    )
    assert verdict.by_function in [one.text for one in verdict.paragraphs]
    assert verdict.document()["notes"][0] == verdict.by_function


def test_what_a_card_says_of_a_function_is_not_said_again():
    """`hook` is all of the first card; gradients are told where they are large."""
    file = located("captures/single/backwardhook_stack.pt.trace.json.gz")
    graph = hg.load(file, stacks=True).compile()

    verdict = graph.verdict()

    assert verdict.findings[0].evidence[0].frame == "single.py:85 in hook"
    assert [one.frame for one in verdict.functions] == [
        "single.py(84): hook",
        "common.py(50): forward",
    ]
    assert verdict.by_function == (
        "With all that they call: forward (common.py:50) costs 8%, mostly aten::addmm, and its "
        "gradients up to 14%."
    )


def test_a_wait_is_named_by_the_line_that_waits():
    """`.item()` for logging: the frame is around the operator, and the call is in it."""
    events = timeline(
        """
        cpu 1    |       [train.py(40): log                      ]
        cpu 1    |[launch >a][aten::item                      ]   [launch >b]
        cpu 1    |             [cudaStreamSynchronize        ]
        stream 7 |       [gemm <a                     ]                [k2 <b ]
        """,
        us_per_column=10,
    )
    is_frame = events.names() == "train.py(40): log"
    kind = np.where(is_frame, EventKind.PYTHON, events.kind).astype(np.int8)
    path = Trace.from_events(replace(events, kind=kind)).compile().critical_path()
    (wait,) = (one for one in find_bounds(path).findings if one.cause == "GPU synchronization")

    assert [item.label for item in wait.evidence] == [
        "cudaStreamSynchronize in aten::item at train.py(40): log"
    ]


def test_a_python_frame_loses_its_middle():
    """80 characters are left of 200."""
    frame = "a" * 100 + "b" * 100
    events = timeline("cpu 1 |{train step     [frame    ]}", names={"frame": frame})
    is_frame = events.names() == frame
    kind = np.where(is_frame, EventKind.PYTHON, events.kind).astype(np.int8)
    path = Trace.from_events(replace(events, kind=kind)).compile().critical_path()
    evidence = find_bounds(path).findings[0].evidence
    (label,) = (one.label for one in evidence if one.frame)

    assert len(label) == 80


def test_without_a_device_the_host_is_told_what_it_does_not_to_record_one():
    """Operators, code, optimizer: each has its own title and advice."""
    path = drawn_graph(
        """
            cpu 1    |[aten::mm       ]          [step          ]
            cpu 1    |                            [aten::add_ ]
        """,
        us_per_column=10,
        names={"step": "Optimizer.step#Adam.step"},
    ).critical_path()

    found = find_bounds(path).findings

    assert [(finding.cause, finding.path_ns // 1000) for finding in found] == [
        ("CPU operators", 170),
        ("optimizer", 160),
        ("Python code", 100),
    ]
    assert found[2].evidence[0].label == "untraced code after aten::mm"
    assert not any("CUDA" in finding.fix.do for finding in found)


def test_a_run_that_used_a_device_without_recording_it_is_told_so():
    """Collectives of NCCL run on devices: what its operators take says nothing of computation."""
    path = drawn_graph("cpu 1 |[aten::mm       ][nccl:all_reduce           ]").critical_path()
    verdict = find_bounds(path)

    assert [one.cause for one in verdict.findings] == ["CPU work"]
    assert "ProfilerActivity.CUDA" in verdict.to_record


def test_what_would_name_untraced_code_is_said_once():
    """Stacks that the file has need no new recording."""
    events = timeline("""
        cpu 1    |[aten::a]                                [launch >a]
        stream 7 |                                              [k <a]
    """)
    recorded = Trace.from_events(events).compile().verdict()
    unread = Trace(Recording(events, rank=0, skipped={STACKS: 3})).compile().verdict()

    assert recorded.to_record.startswith("Record Python code to name it: with htagraph.profile")
    assert unread.to_record.endswith("htagraph report --stacks.")
    assert unread.findings[0].evidence[0].label == "Python not read (--stacks)"
    assert repr(recorded).count("htagraph.handler") == repr(unread).count("--stacks.") == 1


def test_a_finding_says_in_which_steps_it_is():
    """Three steps with a slow data loader."""
    path = (
        Trace.from_events(simulate(training_rank(fault="dataloader")).events)
        .compile()
        .critical_path()
    )
    first = find_bounds(path).findings[0]

    assert (first.n_steps, first.first_step, first.last_step) == (
        3,
        "ProfilerStep#0",
        "ProfilerStep#2",
    )
    assert "; in 3 steps, ProfilerStep#0 to ProfilerStep#2" in first.evidence_sentence


def test_no_verdict_where_the_path_is_mostly_unexplained():
    """The second kernel was enqueued long before and nothing says why it waited."""
    path = drawn_graph("""
        cpu 1    |[launch >a][launch >b]
        stream 7 |     [k1 <a]
        stream 9 |                                                                      [k2 <b]
    """).critical_path()

    verdict = find_bounds(path)

    assert (verdict.findings, "unknown waits" in verdict.withheld) == ((), True)


def test_no_verdict_on_an_empty_trace():
    """There is nothing to be bound by."""
    verdict = find_bounds(drawn_graph("").critical_path())

    assert verdict.withheld == (
        "nothing was recorded in this window. What was recorded: htagraph info FILE"
    )


def test_no_verdict_on_an_empty_window_names_the_whole():
    """The whole trace is what can be judged."""
    graph = drawn_graph("cpu 1 |[aten::mm]")
    start_ns = graph.interval.start_ns

    withheld = find_bounds(graph.window((start_ns, start_ns)).critical_path()).withheld

    assert withheld.endswith("htagraph report FILE -w trace")


JUDGED = set(Cause) - set(UNRANKED)
every_cause = pytest.mark.parametrize("cause", sorted(JUDGED))

DRAWN_ONLY = {
    Cause.ALLOCATION,
    Cause.ANOMALY_DETECTION,
    Cause.AUTOTUNING,
    Cause.CHECKPOINTING,
    Cause.COMPILATION,
    Cause.COPIES,
    Cause.WAITING_FOR_SMS,
    Cause.GAPS_BETWEEN_KERNELS,
    Cause.EXPERT_IMBALANCE,
    Cause.ONE_TIME_SETUP,
    Cause.PIPELINE,
    Cause.GARBAGE_COLLECTION,
    Cause.RECOMPUTATION,
    Cause.UNRECORDED_WAIT,
    Cause.WAITING_FOR_WORK,
}
"""Causes that no simulated job and no capture plants as its first finding; drawings have them."""


@every_cause
def test_a_cause_has_a_title_and_advice(cause: Cause) -> None:
    """What a report calls it, and what to try."""
    assert cause in TITLES, f"no title of {cause!r} in TITLES of htagraph/findings/findings.py"
    assert cause in ADVICE, (
        f"no advice on {cause!r} in htagraph/findings/rules.py; its conditions "
        "are cases of tests/findings/test_rules.py"
    )


@pytest.mark.parametrize("fault", sorted(set(CAUSES) - {"straggler"}))
def test_a_planted_fault_is_attributed_to_its_cause(fault: str) -> None:
    """`test_planted_faults.py`, which is slow, says whether it is the first finding, too."""
    rank = simulate(training_rank(steps=2, layers=2, fault=fault))
    dag = compile_events(rank.events)
    found = set(attributed_time(dag, critical_path(dag, dag.span))["cause"].astype(str))

    assert CAUSES[fault] in found, (
        f"no time of fault {fault!r} is attributed to {CAUSES[fault]!r}: its names in "
        "htagraph/explain/topics.py, or its segments in htagraph/explain/attributed_time.py"
    )


@every_cause
def test_a_cause_is_planted(cause: Cause) -> None:
    """A fault whose first finding it is, in a simulated job or a real capture."""
    planted = {*CAUSES.values(), *(expected[2] for expected in PLANTED)}

    assert (cause in planted) != (cause in DRAWN_ONLY), (
        f"{cause!r} needs a fault in tests/synth/training.py and CAUSES of "
        "tests/findings/planted.py, or a place in DRAWN_ONLY here: one of the two"
    )


LATE = """
    cpu 1    |{first}[launch >a][launch >b]{rest}
    stream 7 |{gap}     [k1 <a]
    stream 9 |{gap}                                             [k2 <b]
"""


def test_the_command_reports_on_the_part_before_an_unexplained_wait() -> None:
    """k2 starts late and nothing says why; the half before its wait is the host's."""
    graph = drawn_graph(LATE.format(first="[aten::mm" + " " * 50 + "]", gap=" " * 60, rest=""))

    withheld = find_bounds(graph.critical_path()).withheld

    found = re.search(r"(\d+)% of it can be judged: htagraph report FILE -w (\S+)$", withheld)
    assert found is not None
    assert 50 <= int(found[1]) < 80
    part = find_bounds(windowed(graph, found[2]).critical_path())
    assert (part.withheld, part.findings[0].cause) == ("", "CPU work")


def test_where_no_part_can_be_judged_the_checks_come_next() -> None:
    """The wait is nearly all there is. Inferred, it would be that for work before the capture."""
    drawing = LATE.format(first="", gap="", rest="").replace(" [k2", " " * 300 + "[k2")
    graph = hg.Trace.from_events(timeline(drawing)).compile(infer=False)

    withheld = find_bounds(graph.critical_path()).withheld

    assert withheld.endswith("No part of it can be judged; all checks: htagraph info FILE")


@pytest.mark.parametrize(("op_us", "is_judged"), [(12, False), (35, True)])
def test_a_part_is_judged_from_a_tenth_on(op_us: int, is_judged: bool) -> None:
    """Of 400 us, most of which are an unknown wait."""
    first = "[aten::mm" + " " * (op_us - 10) + "]"
    drawing = LATE.format(first=first, gap=" " * op_us, rest="").replace(
        " [k2", " " * (360 - op_us) + "[k2"
    )
    graph = hg.Trace.from_events(timeline(drawing)).compile(infer=False)
    withheld = find_bounds(graph.critical_path()).withheld

    assert ("of it can be judged: htagraph" in withheld) is is_judged


@pytest.mark.public("tracelens/vllm_piecewise_graph.json.gz")
def test_the_command_can_be_pasted() -> None:
    """It names the file, and the part that it names is judged. Inferred, all of it would be."""
    file = located("tracelens/vllm_piecewise_graph.json.gz")
    trace = hg.load(file)
    graph = trace.compile(infer=False)

    withheld = hg.Summary(trace, graph).verdict.withheld

    found = re.search(rf"htagraph report {re.escape(str(file))} -w (\S+)$", withheld)
    assert found is not None
    assert find_bounds(windowed(graph, found[1]).critical_path()).withheld == ""


def first_detail(drawing: str, names: dict[str, str] | None = None) -> str:
    """Detail of the first finding of a drawing, in which a column is 10 us."""
    events = timeline(drawing, us_per_column=10, names=names or {})
    return hg.Trace.from_events(events).compile().verdict().findings[0].detail


def test_a_range_of_the_program_names_host_code() -> None:
    """Of 400 us between operators, 300 are in `validation`."""
    assert (
        first_detail("""
    cpu 1    |[aten::mm]          {validation                   }[aten::mm]
    """)
        == "most of it in validation"
    )


@pytest.mark.parametrize(("n", "is_named"), [(14, False), (16, True)])
def test_most_of_it_is_more_than_half(n: int, is_named: bool) -> None:
    """140 or 160 us of 300: the rest is before the range."""
    drawing = "cpu 1 |[aten::mm]" + " " * (30 - n) + "{eval" + " " * (n - 6) + "}[aten::mm]"

    assert first_detail(drawing) == ("most of it in eval" if is_named else "")


@pytest.mark.parametrize(("n", "is_named"), [(85, True), (92, False)])
def test_a_range_around_nearly_all_tells_nothing(n: int, is_named: bool) -> None:
    """From nine tenths of the window on."""
    drawing = "cpu 1 |[aten::mm" + " " * (90 - n) + "]{train" + " " * (n - 7) + "}"

    assert first_detail(drawing) == ("most of it in train" if is_named else "")


def test_the_smallest_of_nested_ranges_is_named() -> None:
    """All of `epoch` and of `metrics` is code; `epoch` has 410 us, `metrics` 300 of them."""
    assert (
        first_detail("""
    cpu 1    |[aten::mm]{epoch                                   }[aten::mm   ]
    cpu 1    |             {metrics                      }
    """)
        == "most of it in metrics"
    )


@pytest.mark.parametrize(
    "name",
    [
        "ProfilerStep#3",
        "Optimizer.zero_grad#SGD.zero_grad",
        "DistributedDataParallel.forward",
        "gloo:all_reduce",
        "FSDP::pre_forward (blocks.0)",
        "Forward 3",
    ],
)
def test_ranges_of_pytorch_are_not_the_programs(name: str) -> None:
    """They are around code that the program did not name."""
    drawing = "cpu 1 |[aten::mm]          {range                        }[aten::mm]"
    assert first_detail(drawing, {"range": name}) == ""


def test_waits_are_in_the_range_of_the_call_that_waits() -> None:
    """The host time that `aten::item` delays, after the range, is charged to it as well."""
    graph = drawn_graph(
        """
    cpu 1    |       {logging                               }
    cpu 1    |[launch >a][aten::item                      ]   [launch >b]
    cpu 1    |             [cudaStreamSynchronize        ]
    stream 7 |       [gemm <a                     ]                [k2 <b ]
    """,
        us_per_column=10,
    )
    (wait,) = (one for one in graph.verdict().findings if one.cause == "GPU synchronization")

    assert wait.detail == "most of it in logging"


def withheld(drawing: str, us_per_column: int = 1000) -> str:
    return drawn_graph(drawing, us_per_column=us_per_column).verdict().withheld


def test_a_step_without_anything_in_it_is_not_judged() -> None:
    """Two events of 1.01 s; what is missing is what to capture."""
    assert withheld(
        """
    us       |0         10
    cpu 1    |{ProfilerStep#5%s}
    cpu 2    |[a]
    """
        % (" " * 990)
    ) == (
        "2 events, no device work, and 0 ns of 1.01 s in operators, calls or ranges of the "
        "program. Capture whole steps: profile around the training loop, with "
        "ProfilerActivity.CPU and the device's activity (ProfilerActivity.CUDA); htagraph.profile "
        "does, and samples Python code."
    )


@pytest.mark.parametrize(("n", "is_judged"), [(8, False), (12, True)])
def test_a_hundredth_of_the_path_in_operators_is_enough(n: int, is_judged: bool) -> None:
    """8 or 12 of 1,000 columns."""
    drawing = "cpu 1 |{ProfilerStep#5" + " " * 970 + "}[" + "a" * (n - 2) + "]"

    assert (withheld(drawing) == "") is is_judged


@pytest.mark.parametrize(("n_events", "is_judged"), [(99, False), (100, True)])
def test_a_hundred_events_are_enough(n_events: int, is_judged: bool) -> None:
    """The place of a long pause is known if its neighbours are."""
    drawing = "cpu 1 |[a]" + " " * 50_000 + "[a]" * (n_events - 1)

    assert (withheld(drawing) == "") is is_judged


@pytest.mark.parametrize(
    "event", ["cpu 1 |{validation%s}", "cpu 1 |[launch >a]%s\nstream 7 |%s[k <a]"]
)
def test_a_range_of_the_program_or_device_work_is_enough(event: str) -> None:
    """Both say what the time is for."""
    drawing = event.replace("%s", " " * 500)

    assert "Capture whole steps" not in withheld(drawing)


@pytest.mark.parametrize(
    "name", [case("hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz")]
)
def test_rank_34_of_300_is_not_judged(name: str) -> None:
    """A step marker, five operators of 4 us, and gloo on another thread."""
    said = hg.load(located(name)).compile().verdict().withheld

    assert said.startswith("18 events, no device work, and 3.96 us of 1.28 s in operators")


SLOW = Op("aten::mm", [[16384, 16384], [16384, 16384]], [("gemm", 20_000)])
"""8.89 ms at the peak."""
FAST = SLOW._replace(kernels=[("gemm", 9_000)])
OWN = Op("mylib::attention", [[8]], [("attention", 20_000)])
"""An operator without a model."""


def light_graph_of(*ops) -> hg.TraceGraph:
    return recorded(*ops, is_awaited=True)


IN_FP32 = SLOW._replace(
    dims=[[8192, 8192], [8192, 8192]],
    types=["float"] * 2,
    kernels=[("ampere_sgemm_128x128_tn", 61_000)],
)
"""1.1 PFLOP on an A100: 56.4 ms at the peak of FP32, 7.05 at that of TF32."""
IN_TF32 = IN_FP32._replace(kernels=[("cutlass_80_tensorop_s1688gemm_128x128_16x4_tn", 61_000)])


def fix(graph: hg.TraceGraph) -> Fix:
    """What to do about compute."""
    return next(one.fix for one in graph.verdict().findings if one.cause == "GPU compute")


def advice(*ops) -> str:
    return fix(light_graph_of(*ops)).do


def test_the_operator_with_most_to_gain_is_named():
    assert advice(SLOW) == (
        "Speed up aten::mm 2x bf16[16384, 16384]: it runs at 44% of the peak of its matrix units."
    )


def test_an_operator_near_its_roof_is_not_named():
    """9 of 8.89 ms: kernels alone save 1%."""
    assert advice(FAST) == "Make operators fewer or smaller: they run at 99% of their roofs."


def test_little_is_said_if_little_has_a_model():
    assert light_on(light_graph_of(FAST, OWN).critical_path()) == Light()
    assert advice(FAST, OWN).startswith("Start with the largest kernel")


def test_tf32_is_advised_where_products_run_in_fp32():
    """At 92% of the peak of FP32, there is little to gain but by another pipe."""
    graph = recorded(IN_FP32, device=A100, is_awaited=True)
    (found,) = (one for one in graph.verdict().findings if one.cause == "GPU compute")

    assert found.advice == (
        'Allow TF32: torch.set_float32_matmul_precision("high"), and for convolutions '
        "torch.backends.cudnn.allow_tf32 = True (saves up to 87%)."
    )
    assert found.fix.saves_ns == graph.dur_ns - hg.what_if(graph, hg.allow_tf32()).dur_ns


@pytest.mark.parametrize("op", [IN_TF32, IN_FP32._replace(types=["c10::Half"] * 2)])
def test_tf32_is_not_advised_where_it_changes_nothing(op):
    assert not fix(recorded(op, device=A100, is_awaited=True)).do.startswith("Allow")


def test_tf32_is_not_advised_where_another_product_has_it():
    graph = recorded(IN_FP32, IN_TF32, device=A100, is_awaited=True)

    assert fix(graph).do.startswith("Speed up aten::mm")


def test_the_change_is_the_named_operator_at_its_roof():
    """By its shapes: another product of the same name stays as slow as it is."""
    other = SLOW._replace(dims=[[8192, 8192], [8192, 8192]], kernels=[("gemm", 3_000)])
    graph = light_graph_of(SLOW, other)
    change = fix(graph).change
    (cost_ns,) = graph.speed_of_light().query("group == 'aten::mm 2x bf16[16384, 16384]'")[
        "cost_ns"
    ]

    assert str(change) == "at_roof('aten::mm 2x bf16[16384, 16384]')"
    assert graph.dur_ns - hg.what_if(graph, change).dur_ns == pytest.approx(cost_ns, rel=1e-3)
    assert graph.dur_ns - hg.what_if(graph, hg.at_roof("aten::mm")).dur_ns > 1.1 * cost_ns
