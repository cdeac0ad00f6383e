"""Findings: the planted fault comes first, and no verdict is better than a guess."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from htagraph import Trace
from htagraph.findings.window_bounds import find_bounds
from htagraph.model.kinds import EventKind
from htagraph.model.recording import STACKS, Recording
from htagraph.synth import timeline
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
    path = (
        Trace.from_events(
            timeline("""
            cpu 1    |[launch >a    ][launch >b    ][launch >c    ][launch >d    ]
            stream 7 |               [k <a       ]  [k <b       ]  [k <c       ]  [k <d       ]
        """)
        )
        .compile()
        .critical_path()
    )
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
    path = (
        Trace.from_events(
            timeline("""
            cpu 1    |[graph >a]
            stream 7 |     [gemm <a    ][gemm <a    ][relu <a]
        """)
        )
        .compile()
        .critical_path()
    )

    (compute,) = (
        finding for finding in find_bounds(path).findings if finding.cause == "GPU compute"
    )

    assert [(item.label, item.dur_ns, item.n_segments) for item in compute.evidence] == [
        ("gemm", 26_000, 2),
        ("relu", 9_000, 1),
    ]


def test_three_names_are_evidence():
    """Of four kernels, the longest."""
    path = (
        Trace.from_events(
            timeline("""
            cpu 1    |[graph >a]
            stream 7 |     [gemm <a    ][conv <a   ][bmm <a  ][relu <a]
        """)
        )
        .compile()
        .critical_path()
    )
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
    path = (
        Trace.from_events(
            timeline("""
            cpu 1    |{train step                      }
            cpu 1    |                        [aten::mm]
        """)
        )
        .compile()
        .critical_path()
    )

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
    path = (
        Trace.from_events(
            timeline(
                """
            cpu 1    |[aten::mm       ]          [step          ]
            cpu 1    |                            [aten::add_ ]
        """,
                us_per_column=10,
                names={"step": "Optimizer.step#Adam.step"},
            )
        )
        .compile()
        .critical_path()
    )

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
    path = (
        Trace.from_events(timeline("cpu 1 |[aten::mm       ][nccl:all_reduce           ]"))
        .compile()
        .critical_path()
    )
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

    assert recorded.to_record.startswith("Record Python code to name it: profile(with_stack=True)")
    assert unread.to_record.endswith("htagraph report --stacks.")
    assert unread.findings[0].evidence[0].label == "Python not read (--stacks)"
    assert repr(recorded).count("with_stack") == repr(unread).count("--stacks.") == 1


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
    path = (
        Trace.from_events(
            timeline("""
            cpu 1    |[launch >a][launch >b]
            stream 7 |     [k1 <a]
            stream 9 |                                                                      [k2 <b]
        """)
        )
        .compile()
        .critical_path()
    )

    verdict = find_bounds(path)

    assert (verdict.findings, "unknown waits" in verdict.withheld) == ((), True)


def test_no_verdict_on_an_empty_trace():
    """There is nothing to be bound by."""
    verdict = find_bounds(Trace.from_events(timeline("")).compile().critical_path())

    assert verdict.withheld == (
        "nothing was recorded in this window. What was recorded: htagraph info FILE"
    )


def test_no_verdict_on_an_empty_window_names_the_whole():
    """The whole trace is what can be judged."""
    graph = Trace.from_events(timeline("cpu 1 |[aten::mm]")).compile()
    start_ns = graph.interval.start_ns

    withheld = find_bounds(graph.window((start_ns, start_ns)).critical_path()).withheld

    assert withheld.endswith("htagraph report FILE -w trace")
