"""Key figures, steps to choose and details of segments: what the page computes for itself."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from htagraph.reports.page.key_figures import KeyFigure, key_figures
from htagraph.reports.page.step_views import job_step_choice, step_choice

import htagraph as hg
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.page.rank_answers import RankAnswers
from htagraph.reports.page.segment_details import learnt, segment_details
from htagraph.reports.page.texts import Texts
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


def figures_of(summary: Summary) -> list[KeyFigure]:
    graph = summary.graph
    return key_figures(summary, graph.temporal_breakdown())


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


def test_figures_say_what_they_are_of(two_steps: Summary) -> None:
    """10 us of gemm and 13 us of communication in a window of 40 us."""
    told = [(figure.name, figure.text, figure.about) for figure in figures_of(two_steps)]

    assert told[:6] == [
        ("step time", "20.0 us", "median of 2 steps, no three typical"),
        ("device busy", "57.5%", "23.0 us of the run, 40.0 us"),
        ("exposed communication", "32.5%", "13.0 us of the run, 40.0 us"),
        ("device idle", "42.5%", "17.0 us of the run, 40.0 us"),
        ("SM activity, estimate", "–", "neither grids nor multiprocessors are known"),
        ("unknown_waits", "0.0%", "of the critical path, 40.0 us"),
    ]


def test_the_saving_is_that_of_the_first_change(two_steps: Summary) -> None:
    """With its range, as the table below has it; rows above say what causes cost."""
    saving, table = figures_of(two_steps)[-1], two_steps.what_helps
    first = table[table["kind"] != "without"].iloc[0]

    assert saving.value == first["saves_share"]
    assert (first["saves_ns"], first["low_ns"], first["high_ns"]) == (9_000, 0, 10_000)
    assert (saving.text, saving.section) == ("22.5%", "help")
    assert saving.about == "of the run, 0.0% to 25.0%: cudaLaunchKernel twice as fast"


def test_what_is_not_known_is_no_zero() -> None:
    """A trace of the host alone, without steps."""
    told = {figure.name: (figure.text, figure.about) for figure in figures_of(drawn("cpu 1 |[a ]"))}

    assert told["step time"] == ("–", "no whole step in this time")
    assert told["device idle"] == ("–", "no device work recorded")


def test_figures_of_a_job_name_the_extreme_rank(job: JobSummary) -> None:
    """Shares are means over the devices of all ranks, as the figure of the section says."""
    asked = RankAnswers.of(job)
    figures = key_figures(job, job.devices)
    told = {figure.name: figure for figure in figures}
    idle = job.devices["idle_share"]

    assert told["device idle"].value == idle.mean()
    assert told["device idle"].about == (
        f"of the run, mean of 3 devices; most on rank {idle.idxmax()}: {idle.max():.1%}"
    )
    assert told["step time"].about.startswith("median of 3 ranks, ")


def test_steps_add_up_to_the_path(two_steps: Summary, job: JobSummary) -> None:
    """Each step has its time of the path: cut at its bounds, or in which a rank's code began."""
    choice = step_choice(two_steps.path, "all")
    by_step = two_steps.by_step.set_index("step")["dur_ns"]
    assert {view.name: view.dur_ns for view in choice.views} == by_step.to_dict()
    assert dict(zip(*choice.views[1].bounds[["bound", "dur_ns"]].T.to_numpy(), strict=True)) == {
        "communication": 13_000,
        "launch": 5_000,
        "sync": 1_000,
        "untraced_code": 1_000,
    }

    path = job.path
    inside = path.attributed_time[path.attributed_time["step"] != ""]
    views = job_step_choice(path, "the job").views
    assert len(views) == 3
    assert sum(view.dur_ns for view in views) == inside["dur_ns"].sum()


def test_of_many_steps_the_longest_and_the_usual_can_be_chosen() -> None:
    """14 steps, the second to last is long: 12 are shown in order, two are named."""
    steps = "".join(f"{{ProfilerStep#{n}{' ' * (20 if n == 12 else 4)}}}" for n in range(10, 24))
    choice = step_choice(drawn(f"cpu 1 |{steps}").path, "all", usual="ProfilerStep#23")
    names = [view.name for view in choice.views]

    assert len(names) == 12
    assert names == sorted(names)
    assert {"ProfilerStep#12", "ProfilerStep#23"} <= set(names)
    assert [name.partition(",")[0] for name in choice.left_out] == [
        "ProfilerStep#21",
        "ProfilerStep#22",
    ]


def test_a_segment_says_what_it_waited_for_and_why(two_steps: Summary) -> None:
    """The collective runs after its launch; that it ran is a record."""
    texts, path = Texts(), two_steps.path
    found = segment_details(
        path.segments, path.attributed_time, [2], start_ns=0, support={}, texts=texts
    )
    start_ns, dur_ns, _, name, *numbers = found["rows"][2]
    by_number = list(texts)

    assert (start_ns, dur_ns, by_number[name]) == (25_000, 13_000, "ncclK")
    assert dict(zip(found["fields"], [by_number[n] for n in numbers], strict=True)) == {
        "bound": "communication",
        "cause": "communication",
        "operator": "ProfilerStep#0",
        "start": "+25.0 us",
        "duration": "13.0 us",
        "on": "stream 7",
        "waited for": "ncclK (launch latency)",
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
    segments, texts = path.segments, Texts()
    at = segments["bound"].tolist().index("unknown_waits")
    details = segment_details(
        segments, path.attributed_time, [at, at + 1], start_ns=0, support={}, texts=texts
    )
    by_number = list(texts)
    wait, ran = (
        dict(zip(details["fields"], [by_number[n] for n in numbers], strict=True))
        for _, _, _, _, *numbers in details["rows"].values()
    )

    assert segments["dur_ns"][at] == 51_000
    assert wait["evidence"] == "none: no record says what this time was spent on"
    assert ran["waited for"] == "unknown: the 51.0 us before are unknown waits"
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
