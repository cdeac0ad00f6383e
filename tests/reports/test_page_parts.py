"""Figures, cards and details of segments: what the page computes for itself."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

import htagraph as hg
from htagraph.findings.verdict import Verdict
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.page.headline import first_screen, tiles
from htagraph.reports.page.panels import learnt, segment_details
from htagraph.reports.page.parts import Commands, new_texts
from htagraph.reports.summary import Summary
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

TWO_STEPS = """
us       |0         10        20        30        40
cpu 1    |{ProfilerStep#0    }{ProfilerStep#1    }
cpu 1    |[launch >a][launch >b][sync @*        ]
stream 7 |          [gemm <a ]     [ncclK <b   ]
"""


def drawn(drawing: str) -> Summary:
    trace = hg.Trace.from_events(hg.synth.timeline(drawing))
    return Summary(trace, trace.compile())


@pytest.fixture(scope="module")
def two_steps() -> Summary:
    return drawn(TWO_STEPS)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> JobSummary:
    """Three ranks, the last of them late."""
    folder = tmp_path_factory.mktemp("job")
    program = training_job(ranks=3, straggler=2, delay_ns=9_000_000, steps=3, layers=1)
    simulate_job(program).write(folder)
    return JobSummary(hg.load_job(folder))


def told(verdict: Verdict, devices: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Name, number and text of each figure."""
    return [(one.name, one.text, one.about) for one in tiles(verdict, devices)]


def test_three_figures_say_what_they_are_of(two_steps: Summary) -> None:
    """10 us of gemm and 13 us of communication in two steps of 40 us."""
    assert told(two_steps.verdict, two_steps.graph.temporal_breakdown()) == [
        ("step time", "20.0 us", "2 steps in 40.0 us"),
        ("GPU busy", "57%", "23.0 us of 40.0 us"),
        ("exposed communication", "32%", "13.0 us of 40.0 us"),
    ]


def test_what_does_not_apply_has_no_figure() -> None:
    """A trace of the host alone, without steps."""
    summary = drawn("cpu 1 |[a ]")
    found = told(summary.verdict, summary.graph.temporal_breakdown())
    assert found == [("length", "4.00 us", "of this run")]


def test_figures_are_those_of_the_headline_and_the_answers(two_steps: Summary) -> None:
    """No figure is a number of another finding."""
    step, busy, exposed = tiles(two_steps.verdict, two_steps.graph.temporal_breakdown())
    (device,) = two_steps.graph.temporal_breakdown().to_dict("records")
    assert step.value == two_steps.verdict.dur_ns / two_steps.verdict.n_steps
    assert busy.value == pytest.approx(1 - device["idle_share"])
    assert exposed.value == pytest.approx(device["communication_share"])
    assert two_steps.verdict.lasts(two_steps.verdict.dur_ns) == step.text


def test_figures_of_a_job_name_the_extreme_rank(job: JobSummary) -> None:
    """Shares are of the time of all devices, as in the profile of a run whose steps are typical."""
    found = {one.name: one for one in tiles(job.verdict, job.devices)}
    idle = job.devices["idle_share"]

    profile = hg.run_profile(job.job)
    assert profile.n_compared == profile.n_steps == 3
    assert found["GPU busy"].value == pytest.approx(1 - profile.share("device", "idle"), abs=1e-7)
    assert found["GPU busy"].about == (
        f"mean of 3 devices; least on rank {idle.idxmax()}: {1 - idle.max():.0%}"
    )
    assert found["step time"].value == job.verdict.dur_ns / 3


def test_a_bar_is_as_long_as_the_cost_and_hatched_as_far_as_the_path() -> None:
    """GPU compute of the demo costs 6% and is on 8% of the path; data loading is not hidden."""
    trace = hg.load(hg.demo_trace("dataloader"))
    summary = Summary.of(trace, trace.compile())
    first, _, third = summary.verdict.cards
    html = first_screen(summary, summary.graph.temporal_breakdown(), Commands("FILE"), None)
    parts, hidden = (
        re.findall(rf'<i class="{kind}" style="width:([\d.]+)%"', html)
        for kind in ("part", "hidden")
    )

    assert (parts[0], hidden[0]) == (f"{100 * first.share:.2f}", "0.00")
    path_share = third.findings[0].path_ns / summary.verdict.dur_ns
    assert parts[2] == f"{100 * third.share:.2f}"
    assert hidden[2] == f"{100 * (path_share - third.share):.2f}"


def test_a_segment_says_what_it_waited_for_and_why(two_steps: Summary) -> None:
    """The collective runs after its launch; that it ran is a record."""
    texts, path = new_texts(), two_steps.path
    row = path.segments.loc[2]
    found = segment_details(
        path.segments,
        path.attributed_time,
        [2],
        start_ns=0,
        support={},
        texts=texts,
        held={row["edge"]: "it ran for 13.0 us."},
    )
    start_ns, dur_ns, _, name, asked, *numbers = found["rows"][2]
    by_number = list(texts)

    assert (start_ns, dur_ns, by_number[name]) == (25_000, 13_000, "ncclK")
    assert asked == str(row["event"])
    assert dict(zip(found["fields"], [by_number[n] for n in numbers], strict=True)) == {
        "bound": "communication",
        "cause": "communication",
        "operator": "ProfilerStep#0",
        "start": "+25.0 us",
        "duration": "13.0 us",
        "on": "stream 7",
        "waited for": "ncclK (launch latency)",
        "why": "it ran for 13.0 us.",
        "rule": "duration",
        "evidence": "recorded by the profiler",
    }


def test_what_is_unexplained_is_never_called_recorded() -> None:
    """The kernel starts 51 us after its launch was done, and nothing says why.

    Its launch is recorded, and so is that it ran; what it waited for meanwhile is not.
    """
    path = drawn("""
        cpu 1    |[launch >w]  [launch >a]
        stream 7 |    [w <w ]                                                                [k <a ]
    """).path
    segments, texts = path.segments, new_texts()
    at = segments["bound"].tolist().index("unknown_waits")
    details = segment_details(
        segments, path.attributed_time, [at, at + 1], start_ns=0, support={}, texts=texts, held={}
    )
    by_number = list(texts)
    wait, ran = (
        dict(zip(details["fields"], [by_number[n] for n in numbers], strict=True))
        for _, _, _, _, _, *numbers in details["rows"].values()
    )

    assert segments["dur_ns"][at] == 51_000
    assert wait["evidence"] == "none: no record says what this time was spent on"
    assert ran["waited for"] == "unknown: the 51.0 us before are an unknown wait"
    assert ran["evidence"] == "recorded by the profiler"


def test_what_was_learnt_is_told_with_its_chance() -> None:
    """Only rules that learn from pairs have support."""
    frame = pd.DataFrame(
        {
            "rule": ["recurring in replays", "wait for another thread"],
            "n_pairs": [2, 0],
            "n_matched": [40, 0],
            "n_all": [42, 0],
            "chance": [0.001, float("nan")],
        }
    )
    assert learnt(frame) == {
        (-1, "recurring in replays"): "learned from 2 pairs of places: 40 of 42 waits match, "
        "at most 0.1% by chance"
    }


def test_times_of_segments_are_those_of_the_perfetto_trace(job: JobSummary, tmp_path: Path) -> None:
    """The first slice of the path stands where the page says that its first segment does."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as PerfettoTrace

    trace = PerfettoTrace()
    trace.ParseFromString(job.path.to_perfetto(tmp_path / "job.pftrace").read_bytes())
    starts = {packet.timestamp for packet in trace.packet if packet.HasField("track_event")}
    segments = job.path.segments
    expected = set((segments["start_ns"] - job.path.origin_ns).tolist())

    assert min(starts) == 0
    assert expected <= starts
