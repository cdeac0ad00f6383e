"""What a change is predicted to save, how to record it, and where it is in the code."""

from __future__ import annotations

import json

import pytest

import htagraph as hg
from htagraph.errors import QueryError
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.plan import Plan, Recorded, Settings, plan_text
from htagraph.reports.summary import Summary
from tests.real_traces import CAPTURES


@pytest.fixture(scope="module")
def run() -> Recorded:
    """A real run on a CPU, of which each step waits 40 ms for its batch."""
    trace = hg.load(CAPTURES / "single/loader0.pt.trace.json.gz")
    return Recorded(Summary(trace, trace.compile()))


def test_a_change_is_planned_with_what_another_recording_may_differ_by(run):
    """As options of `htagraph what-if`; `--workers` is what loaders call it."""
    plan = Plan.of(run, "--workers 2")

    assert (plan.options, plan.fix) == ("--prefetch 2", "")
    assert plan.verdict().startswith("Predicted: prefetch(workers=2) saves ")
    assert plan.expected.low < plan.expected.saves - 0.05
    assert plan.expected.high > plan.expected.saves + 0.05


def test_what_the_change_makes_shorter_is_no_clock(run):
    """The loader with all that it calls; the products of the model stay as long."""
    touched = Plan.of(run, "--prefetch 2").expected.touched

    assert any(name.startswith("enumerate(DataLoader)") for name in touched)
    assert "aten::mm" not in touched


def test_a_fix_that_cannot_be_replayed_saves_what_its_cause_costs_at_most(run):
    """Of three batches, four workers would load all at once."""
    plan = Plan.of(run)

    assert plan.options == "--without data-loading"
    assert plan.fix.startswith("Load batches in workers: DataLoader(num_workers=4")
    assert Plan.of(run, fix=2).options == "--without cpu-operators"
    assert "at most, if its fix removes all of the cause" in plan.verdict()


@pytest.mark.parametrize("change", ["--scale 'aten::mm=1'", "--scale 'aten::mm=0.99'"])
def test_less_than_one_percent_is_not_tried(run, change):
    """It is noise on any machine."""
    with pytest.raises(QueryError, match="nothing to confirm"):
        Plan.of(run, change)


def test_the_plan_has_all_that_it_is_judged_by(run):
    """As JSON, which a comparison takes as a baseline."""
    document = json.loads(plan_text(Plan.of(run).document(seed=7, command=["python", "a.py"])))

    assert {"skip": 3, "steps": 3, "sample_ms": 0.0, "flags": []}.items() <= document[
        "settings"
    ].items()
    assert (document["seed"], document["device"], document["command"]) == (
        7,
        "CPU",
        ["python", "a.py"],
    )
    assert document["prediction"]["schema"] == "htagraph.what_if"
    assert document["profile"]["n_steps"] == 3


def test_recordings_with_other_settings_are_not_compared():
    """Of what both say."""
    one = Settings(5, 8, 1.0, ("with_stack",), "2.12.0", 2)
    other = Settings(0, 1, 0.0, (), "2.13.0", None)

    assert one.unlike(one) == []
    assert one.unlike(other) == [
        "begins at step 5 before, begins at step 0 after",
        "with samples every 1.0 ms before, with samples every 0.0 ms after",
        "with with_stack of the profiler before, with no option of the profiler after",
        "with PyTorch 2.12.0 before, with PyTorch 2.13.0 after",
    ]


def test_a_place_is_a_file_and_a_line():
    """Of a finding whose stacks were read, or of a frame that is named."""
    trace = hg.load(CAPTURES / "single" / "json_stack.pt.trace.json.gz", stacks=True)
    recorded = Recorded(Summary(trace, trace.compile()))
    frame = trace.compile().functions()["frame"].iloc[0]
    found = [*Plan.of(recorded).places, *Plan.of(recorded, f"--remove '{frame}'").places]

    assert all(one["file"].endswith(".py") and int(one["line"]) for one in found)
    assert len(found) > 1


def test_a_job_is_planned_as_a_whole():
    """One rank is late by 50 ms in each step."""
    job = hg.load_job(CAPTURES / "jobs" / "ddp_sleep_4")
    plan = Plan.of(Recorded(JobSummary(job, "job")), "--equalise")

    assert plan.expected.saves > 0.6
    settings = plan.recorded.settings
    assert (settings.skip, settings.steps, settings.flags) == (3, 3, ("record_shapes",))
