"""Parts of a page: values told once, answers without rows, how a file is named."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from threading import Event
from typing import NamedTuple, get_args

import pandas as pd
import pytest

import htagraph as hg
from htagraph import synth
from htagraph.agents.server import Desk
from htagraph.agents.target import Root
from htagraph.cli.main import main
from htagraph.comparison.run_diff import RunDiff
from htagraph.errors import IncompleteTraceWarning
from htagraph.findings.path import CriticalPath
from htagraph.findings.verdict import FunctionCost, Verdict, percent
from htagraph.job.job import JOB_QUESTIONS
from htagraph.model.frames import FLAME
from htagraph.model.units import human_duration
from htagraph.queries.questions import QUESTIONS
from htagraph.reports.answers import EMPTY_ANSWERS, not_recorded
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.json_document import json_document
from htagraph.reports.markdown import markdown_summary
from htagraph.reports.page.diff_page import write_diff_page
from htagraph.reports.page.document import first_screen, tiles
from htagraph.reports.page.panels import Commands, flame_boxes, learnt, new_texts, segment_details
from htagraph.reports.report import shown_in_perfetto
from htagraph.reports.summary import Summary
from htagraph.run.trace import Trace
from tests.comparison.profiles import profile
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import Fault, training_job, training_rank

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


def test_boxes_of_a_flame_graph_are_below_their_callers() -> None:
    """The widest first, in the color of most of their time; a cost below the time is hidden."""
    stacks, bounds = ["f;aten::mm", "f;gemm", "g"], ["host", "compute", "host"]
    flame = FLAME.frame({"stack": stacks, "bound": bounds, "dur_ns": [600, 300, 99]})

    boxes = flame_boxes(flame, [FunctionCost("f", path_ns=900, cost_ns=675, said="")])

    assert boxes == [
        (-1, "f", 900, "host", 0.25),
        (0, "aten::mm", 600, "host", 0),
        (0, "gemm", 300, "compute", 0),
        (-1, "g", 99, "host", 0),
    ]


def test_boxes_too_narrow_to_be_seen_are_left_out() -> None:
    """Below a twentieth of a percent."""
    times_ns = [99_900, 51, 49]
    flame = FLAME.frame({"stack": ["f", "g", "h"], "bound": ["host"] * 3, "dur_ns": times_ns})

    assert [name for _, name, *_ in flame_boxes(flame, [])] == ["f", "g"]


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
    """The kernel starts 51 us after its launch was done, and nothing says why."""
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


_CARD = re.compile(r"^\d\. \*\*(.+?)\*\*: (?:together )?costs? ([\d.]+)%", re.MULTILINE)


def figures(summary: Summary) -> dict[str, set[str]]:
    """Every value of every figure that is on the page, in Markdown or in JSON, by its name."""
    graph, dur_ns = summary.graph, summary.path.dur_ns
    document = json_document(summary)
    found: dict[str, set[str]] = defaultdict(set)
    for one in tiles(summary.verdict, graph.temporal_breakdown()):
        found[one.name].add(one.text)
    (device,) = graph.temporal_breakdown().to_dict("records")
    (overlapped,) = graph.overlap().to_dict("records")
    found["GPU busy"].add(f"{(dur_ns - device['idle_ns']) / dur_ns:.0%}")
    for ns in (device["communication_ns"], overlapped["exposed_ns"]):
        found["exposed communication"].add(percent(ns, dur_ns))
    n_steps = document["verdict"]["n_steps"]
    if n_steps:
        step_ns = document["verdict"]["window_ns"] / n_steps
        found["step time"] |= {human_duration(step_ns), summary.verdict.lasts(dur_ns)}
    for item in document["verdict"]["items"]:
        if item["is_card"]:
            found[item["title"]].add(f"{item['cost_ns'] / dur_ns:.0%}")
    for title, share in _CARD.findall(markdown_summary(summary)):
        found[title].add(f"{share}%")
    for card in summary.verdict.cards:
        found[card.title].add(card.said.rpartition(" ")[2])
    return found


@pytest.mark.some(1)
@pytest.mark.parametrize("fault", get_args(Fault))
def test_a_figure_has_one_value_on_all_screens(fault: Fault) -> None:
    trace = hg.Trace.from_events(simulate(training_rank(fault=fault)).events)
    found = figures(Summary.of(trace, trace.compile()))

    assert {name: values for name, values in found.items() if len(values) > 1} == {}
    assert len(found) > 3


def test_communication_on_the_path_is_not_called_exposed() -> None:
    """Exposed is what no compute hides on the device; the path may run through hidden time."""
    trace = hg.Trace.from_events(simulate(training_rank(fault="exposed_allreduce")).events)
    summary = Summary.of(trace, trace.compile())

    assert "xposed" not in repr(summary.verdict)


def test_each_question_says_what_an_empty_answer_means() -> None:
    assert set(EMPTY_ANSWERS) == {*QUESTIONS, *JOB_QUESTIONS}


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_with_rows_needs_no_explanation(question) -> None:
    graph = hg.load(hg.demo_trace("none")).compile()
    answer = graph.ask(question)

    assert not_recorded(question, answer) == ("" if len(answer) else EMPTY_ANSWERS[question])


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("module", "with_modules=True"),
        ("shape", "record_shapes=True"),
        ("annotation", "record_function"),
        ("step", "profiler.step()"),
        ("name", ""),
        ("stream", ""),
    ],
)
def test_groups_without_names_say_what_names_them(by, said) -> None:
    """A kernel and its launch, and nothing else."""
    drawn = """
    cpu 1    | [aten::mm [cudaLaunchKernel >1] ]
    stream 7 |                                   [gemm <1    ]
    """
    answer = Trace.from_events(synth.timeline(drawn)).compile().kernel_breakdown(by=by)
    lacks = not_recorded("kernel_breakdown", answer, by)

    assert len(answer) == 1
    assert (said in lacks) if said else lacks == ""


def test_the_command_line_says_how_to_record_it(capsys) -> None:
    """Next to the table, on the error stream; in every format."""
    with pytest.raises(SystemExit):
        main(["ask", "memory_timeline", str(hg.demo_trace("none")), "-q"])
    quiet = capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["ask", "memory_timeline", str(hg.demo_trace("none")), "-f", "csv"])
    told = capsys.readouterr()

    assert quiet.err == ""
    assert "profile_memory=True" in told.err
    assert told.out.count("\n") == 1


def test_a_condition_that_nothing_fits_is_told_from_nothing_recorded(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["ask", "step_times", str(hg.demo_trace("none")), "--where", "dur_ns < 0"])

    assert "None of 3 rows fits --where.\n" in capsys.readouterr().err


def test_an_agent_is_told_the_same() -> None:
    trace = hg.demo_trace("none")
    arguments = {"path": trace.name, "question": "memory_timeline"}
    text, is_error = Desk(Root.of(trace.parent)).answer("ask", arguments, lambda _: None, Event())

    assert not is_error
    assert json.loads(text)["notes"][0] == EMPTY_ANSWERS["memory_timeline"]


_FILE = Path("critical.pftrace")


@pytest.fixture(scope="module")
def path() -> CriticalPath:
    program = training_rank(steps=16, layers=2, fault="sync_in_loop")
    return hg.Trace.from_events(simulate(program).events).compile().critical_path()


def test_a_trace_of_a_million_events_is_shown_as_a_whole(path):
    assert shown_in_perfetto(path, _FILE) is path


def test_of_a_larger_one_steps_are_shown_with_their_own_path_and_it_is_said(path, tmp_path):
    with pytest.warns(IncompleteTraceWarning, match="5 of 15 similar steps.*--whole"):
        shown = shown_in_perfetto(path, _FILE, most_events=len(path.dag.events) - 1)
    assert path.start_ns < shown.start_ns < shown.end_ns < path.end_ns
    assert shown.segments["dur_ns"].sum() == shown.dur_ns
    found = hg.load(shown.to_perfetto(tmp_path / _FILE.name))
    assert len(found.recording.events) == len(shown.dag.events) < len(path.dag.events)


MS = 1_000_000


class Bar(NamedTuple):
    """A bar of the waterfall; its ends are shares of the track."""

    name: str
    kind: str
    begin: float
    end: float
    value: str


_ROW = re.compile(
    r'<b>([^<]+)</b><div class="track"><u style="left:([-\d.]+)%"></u><i class="([^"]*)" '
    r'style="left:([\d.]+)%;width:([\d.]+)%[^>]*></i></div><span>([^<]+)</span>'
)


def bars_of(found: RunDiff, folder: Path) -> list[Bar]:
    """Bars of the waterfall, with ends as shares of the track right of the line of no change."""
    text = write_diff_page(folder / "diff.html", found).read_text("utf-8")
    made = []
    for name, zero, kind, left, width, value in _ROW.findall(text):
        low, high = float(left) - float(zero), float(left) + float(width) - float(zero)
        made.append(Bar(name, kind, *((high, low) if "fall" in kind else (low, high)), value))
    return made


def test_each_bar_begins_where_the_one_above_ends(tmp_path: Path) -> None:
    """30 ms more, then 20 ms less; 10 ms in all, from the line of no change. Falls are hatched."""
    before = profile({"compute": [30 * MS] * 5, "host": [50 * MS] * 5})
    after = profile({"compute": [60 * MS] * 5, "host": [30 * MS] * 5})

    assert bars_of(RunDiff(before, after), tmp_path) == [
        Bar("GPU compute", "", 0, 100, "▲ +30.0 ms"),
        Bar("CPU operators", "fall", 100, 33.333, "▼ -20.0 ms"),
        Bar("in all", "whole", 0, 33.333, "▲ +10.0 ms"),
    ]


def test_a_change_that_ends_below_none_is_left_of_the_line(tmp_path: Path) -> None:
    """20 ms less, then 10 ms more."""
    before = profile({"compute": [30 * MS] * 5, "host": [50 * MS] * 5})
    after = profile({"compute": [40 * MS] * 5, "host": [30 * MS] * 5})

    assert bars_of(RunDiff(before, after), tmp_path) == [
        Bar("CPU operators", "fall", 0, -100, "▼ -20.0 ms"),
        Bar("GPU compute", "", -100, -50, "▲ +10.0 ms"),
        Bar("in all", "fall whole", 0, -50, "▼ -10.0 ms"),
    ]


def test_the_verdict_is_the_first_line_below_the_names(tmp_path: Path) -> None:
    """Before what is compared, the bars, and what is folded."""
    run = profile({"compute": [30 * MS] * 5})
    text = write_diff_page(tmp_path / "diff.html", RunDiff(run, run)).read_text("utf-8")
    places = ("<h1>", 'class="lead"', 'class="facts"', 'class="bars"', 'class="section"')
    at = [text.index(place) for place in places]

    assert at == sorted(at)
