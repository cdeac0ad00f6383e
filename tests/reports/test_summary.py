"""The summary and its forms: steps, JSON, Markdown."""

from __future__ import annotations

import gzip
import json

import pandas as pd
import pytest

import htagraph as hg
from htagraph.model.frames import STEP_SHARES
from htagraph.model.units import human_duration
from htagraph.reports.json_document import SCHEMA, VERSION, json_document
from htagraph.reports.markdown import markdown_summary, markdown_table
from htagraph.reports.summary import Summary, step_shares
from htagraph.synth import timeline
from htagraph.writers.cells import human_frame
from tests.findings.test_findings import full_device
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

STEPS = """
    us       |0         10        20        30        40
    cpu 1    |{ProfilerStep#1    }  {ProfilerStep#2    }
    cpu 1    |  [aten::mm     ]        [aten::add     ]
"""


def summary_of(drawing: str) -> Summary:
    trace = hg.Trace.from_events(timeline(drawing))
    return Summary(trace, trace.compile())


@pytest.fixture(scope="module")
def stalled(tmp_path_factory) -> Summary:
    """Simulate a training run whose data loader stalls, and read it from its file."""
    file = simulate(training_rank(fault="dataloader")).write(
        tmp_path_factory.mktemp("run") / "rank0.pt.trace.json.gz"
    )
    trace = hg.load(file)
    return Summary(trace, trace.compile())


def test_steps_add_up_to_the_window():
    """A step begins when the one before is done: the 2 us between both are of the second."""
    found = step_shares(summary_of(STEPS).path)

    assert list(zip(found["step"], found["dur_ns"], found["bound"], strict=True)) == [
        ("ProfilerStep#1", 20_000, "host"),
        ("ProfilerStep#2", 22_000, "host"),
    ]


def test_a_trace_without_steps_has_no_step_table():
    """The answer has its schema, and no rows."""
    found = step_shares(summary_of("cpu 1 |[aten::mm]").path)

    assert (list(found.columns), len(found)) == (list(STEP_SHARES.columns), 0)


def test_a_window_that_touches_no_step_has_no_step_table():
    """One row, all outside of steps, would say what the path by bound says."""
    events = timeline("cpu 1 |[aten::relu     ]{ProfilerStep#1    }{ProfilerStep#2    }")
    graph = hg.Trace.from_events(events).compile()

    assert len(step_shares(graph.window((0, 10_000)).critical_path())) == 0


def test_the_name_of_a_trace_is_its_file_without_the_usual_endings(stalled):
    """``rank0.pt.trace.json.gz`` is rank0."""
    assert stalled.name == "rank0"


def test_facts_name_rank_and_size(stalled):
    """One line says what one looks at."""
    assert stalled.facts == "simulated rank 0 of 8 · 516 events · 117 kernels · 3 steps · 24.0 ms"


def test_json_document_survives_a_round_trip(stalled):
    """Only plain values: what `json.loads` gives back is the document."""
    document = json_document(stalled)

    assert json.loads(json.dumps(document)) == document
    assert (document["schema"], document["version"]) == (SCHEMA, VERSION)


def test_json_document_has_the_keys_that_it_documents(stalled):
    """Scripts rely on them; a change of names is a change of version."""
    document = json_document(stalled)

    assert list(document) == [
        "schema",
        "version",
        "trace",
        "window",
        "caveats",
        "replays",
        "verdict",
        "critical_path",
        "steps",
        "utilization",
        "utilization_losses",
        "quality",
        "repairs",
        "skipped",
        "files",
        "profile",
    ]
    assert list(document["verdict"]) == [
        "headline",
        "state",
        "window_ns",
        "n_steps",
        "items",
        "apart",
        "also",
        "damage",
        "notes",
    ]
    assert list(document["verdict"]["items"][0]) == [
        "causes",
        "title",
        "cost_ns",
        "alone_ns",
        "path_ns",
        "is_card",
        "ranks",
        "detail",
        "longest_start_ns",
        "longest_ns",
        "fix",
        "evidence",
    ]


def test_json_bounds_and_findings_add_up_to_the_window(stalled):
    """Integer nanoseconds, so the sums are exact."""
    document = json_document(stalled)
    window_ns = document["window"]["dur_ns"]

    assert sum(group["dur_ns"] for group in document["critical_path"]["by_bound"]) == window_ns
    assert sum(item["path_ns"] for item in document["verdict"]["items"]) == window_ns
    assert sum(step["dur_ns"] for step in document["steps"]) == window_ns


def test_markdown_says_what_bounds_the_run(stalled):
    """The verdict comes first."""
    lines = markdown_summary(stalled).splitlines()

    assert lines[0] == "# rank0"
    assert lines[4].startswith("**Data loading costs 72% of this run: ")
    assert lines[6].rstrip() == "1. **Data loading**: costs 72%"


def test_markdown_withholds_the_verdict_of_an_empty_trace():
    """No finding is made up."""
    assert (
        "Not enough recorded to say what limits this run: nothing was recorded"
        in markdown_summary(summary_of(""))
    )


def test_cells_cannot_break_a_markdown_table():
    """Kernel names hold bars and newlines."""
    table = markdown_table(pd.DataFrame({"name": ["a|b\nc"]}))

    assert table.splitlines()[2] == r"| a\|b c |"


def test_people_read_units_and_short_names():
    """Nanoseconds get a unit, starts count from the first, kernels lose their templates."""
    frame = pd.DataFrame(
        {
            "start_ns": [5_000, 7_500],
            "dur_ns": [2_500, 10],
            "name": ["void at::native::add<4>(int)", "aten::mm"],
        }
    )

    assert human_frame(frame).to_dict("list") == {
        "start": ["+0 ns", "+2.50 us"],
        "dur": ["2.50 us", "10 ns"],
        "name": ["add", "aten::mm"],
    }


def test_damage_is_told_first_and_harmless_repairs_last():
    """A raw quote changes nothing; an event without a time is lost. Each is said once."""
    event = '{"ph": "X", "cat": "cpu_op", "name": "a "b"", "pid": 1, "tid": 1, "ts": 5, "dur": 2}'
    lost = '{"ph": "X", "cat": "cpu_op", "name": "lost", "pid": 1, "tid": 1, "dur": 2}'
    trace = hg.load(f'{{"traceEvents": [{event}, {lost}]}}'.encode())
    summary = Summary(trace, trace.compile())
    said = "1 of 2 events could not be read (no timestamp): devices and threads look idle in their "
    page = markdown_summary(summary).replace("\\", "")

    assert json_document(summary)["verdict"]["damage"] == [f"{said}place."]
    assert page.index(said) < page.index("**Small operators cost") < page.index("1. **")
    assert page.count("no timestamp") == 1
    assert "raw quote" in page[page.index("## Repairs of the file") :]


@pytest.mark.parametrize(
    ("rest_us", "said"), [(2_200, ""), (2_000, "26.1% of the path is inferred")]
)
def test_a_path_of_which_a_quarter_is_inferred_says_so(rest_us: int, said: str) -> None:
    """Work waits for a kernel that fills the device; with more host time after it, for 24%."""
    trace = full_device(rest_us * 1_000)
    notes = Summary(trace, trace.compile()).notes

    assert [note.partition(":")[0] for note in notes] == ([said] if said else [])


@pytest.mark.parametrize(("by", "is_said"), [(1.24, False), (1.26, True)])
def test_a_recording_that_slows_its_run_by_a_quarter_says_so(stalled, tmp_path, by, is_said):
    """Steps of 7.92 ms, and later ones that were only timed; a saved graph knows it, too."""
    document = json.loads(gzip.decompress(stalled.trace.path.read_bytes()))
    step_ns = round(stalled.path.step_ns / by)
    file = tmp_path / "rank0.json"
    file.write_text(json.dumps({"unrecorded": {"steps": 4, "step_ns": step_ns}, **document}))
    trace = hg.load(file)
    caveats = Summary(trace, trace.compile()).caveats
    said = f"Recorded, a step takes 7.92 ms; 4 later ones, not recorded, {human_duration(step_ns)}"

    assert any(one.startswith(f"{said}. If nothing") for one in caveats) is is_said
    assert trace.compile().save(tmp_path / "graph.npz")
    kept = hg.TraceGraph.open(tmp_path / "graph.npz")
    assert kept.origin.metadata["unrecorded"]["step_ns"] == step_ns
