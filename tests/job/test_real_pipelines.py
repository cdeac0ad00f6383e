"""Real pipelines of PyTorch over gloo, with planted causes and times by the script's own clock."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from htagraph import load_job
from htagraph.job.job import Job
from htagraph.model.kinds import Cause
from tests.real_traces import CAPTURES

JOBS = {
    "pp2_1f1b_slow": ("stage", "stage", 1),
    "pp2_inter_equal": None,
    "pp4_1f1b_mb": ("micro-batch", "micro_batch", 3),
    "pp4_1f1b_slow": ("stage", "stage", 2),
    "pp4_gpipe_equal": None,
    "pp4_inter_slow_shapes": ("stage", "stage", 1),
    "pp4_zb_equal": None,
}
"""What is planted: change, column and number."""

every_job = pytest.mark.parametrize("name", JOBS)


@cache
def loaded(name: str) -> tuple[Job, dict[str, Any]]:
    """A job, and its truth."""
    folder = CAPTURES / "pipelines" / name
    return load_job(folder), json.loads((folder / "pipeline.truth.json").read_text())


@pytest.mark.some(1)
@every_job
def test_each_rank_did_what_it_did(name: str) -> None:
    """Phase, stage and order of every action; begin and end within 3 ms."""
    job, truth = loaded(name)
    assert job.stage_times is not None
    acts = job.stage_times.actions
    for one in truth["ranks"]:
        for number, step in enumerate(one["steps"]):
            own = acts.query(f"rank == {one['rank']} and step == {number} and phase != 'W'")
            did = [(phase, stage) for phase, stage, *_ in step["ops"]]
            phases = own["phase"].astype(str).replace("I", "B").tolist()
            assert list(zip(phases, own["stage"].tolist(), strict=True)) == did


@pytest.mark.some(1)
@every_job
def test_blocked_time_is_what_the_script_measured(name: str) -> None:
    """Within 5%, or half a millisecond in hundreds."""
    job, truth = loaded(name)
    table = job.pipeline().set_index(["rank", "step"])
    for one in truth["ranks"]:
        for number, step in enumerate(one["steps"]):
            found_ms = table.loc[(one["rank"], number), "blocked_ns"] / 1e6
            assert found_ms == pytest.approx(step["p2p_wait_ms"], rel=0.05, abs=0.5)


@pytest.mark.some(1)
@every_job
def test_the_planted_cause_is_the_first_finding_and_no_other(name: str) -> None:
    """Equal pipelines have none."""
    job, _ = loaded(name)
    found, planted = job.pipeline_savings().query("is_cause"), JOBS[name]
    if planted is None:
        assert found.empty
        assert Cause.PIPELINE not in {one.cause for one in job.verdict().findings}
        return
    change, column, number = planted
    assert found[["change", column]].to_numpy().tolist() == [[change, number]]
    first = job.verdict().findings[0]
    who = f"{change.capitalize()} {number} takes "
    assert (first.cause, first.title[: len(who)]) == (Cause.PIPELINE, who)


@pytest.mark.parametrize("name", [name for name, planted in JOBS.items() if planted])
def test_the_saving_is_what_the_planted_cause_cost(name: str) -> None:
    """Within 12%. The script timed other steps, without the profiler, which are 3% shorter."""
    job, truth = loaded(name)
    found = job.pipeline_savings().query("is_cause").iloc[0]
    assert found["saves_ns"] / 1e6 == pytest.approx(truth["true_saving_ms"], rel=0.12)


@pytest.mark.parametrize(
    ("schedule", "other", "rel"),
    [
        ("1f1b", "pp4_1f1b_slow", 0.05),
        ("1f1b", "pp4_1f1b_mb", 0.05),
        ("interleaved", "pp4_inter_slow_shapes", 0.1),
    ],
)
def test_a_step_of_another_schedule_is_what_it_took(schedule: str, other: str, rel: float) -> None:
    """GPipe with equal stages, against runs of other schedules without what was planted in them."""
    job, _ = loaded("pp4_gpipe_equal")
    _, truth = loaded(other)
    asked = job.pipeline_what_if().set_index("schedule").loc[schedule]
    assert asked["most_ns"] / 1e6 == pytest.approx(truth["step_ms_without"], rel=rel)


@pytest.mark.some(4)
@every_job
def test_the_recorded_schedule_is_known_and_takes_as_long_as_recorded(name: str) -> None:
    """To the nanosecond."""
    job, _ = loaded(name)
    row = job.pipeline_what_if().query("is_recorded").iloc[0]
    expected = {"1f1b": "1f1b", "gpip": "gpipe", "inte": "interleaved", "zb_e": "zero_bubble"}
    assert row["schedule"] == expected[name[4:8]]
    assert row["least_ns"] == row["most_ns"] == row["step_ns"]


@every_job
def test_bubbles_are_what_ranks_were_blocked(name: str) -> None:
    """Receives are posted early: rank 0 of two posts its own 100 ms before it needs them."""
    job, truth = loaded(name)
    bubbles = job.pipeline_bubbles().set_index("rank")["wait_ns"] / 1e6
    for one in truth["ranks"]:
        blocked_ms = sum(step["p2p_wait_ms"] for step in one["steps"])
        assert bubbles[one["rank"]] <= blocked_ms + 1


@every_job
def test_every_send_is_matched_with_its_receive(name: str) -> None:
    """Of each micro-batch, between all stages on different ranks, forward and backward."""
    job, truth = loaded(name)
    planted = truth["planted"]
    n_stages = len(truth["ranks"]) * planted.get("chunks", 1)
    found = job.collectives().query("operation in ['send', 'recv']")
    assert found["match"].nunique() == 2 * 2 * (n_stages - 1) * planted["mbs"]
    assert (found.groupby("match").size() == 2).all()


@pytest.mark.some(1)
@every_job
def test_no_stage_is_late(name: str) -> None:
    """A stage that waits for its input does not keep others waiting; nor the last to drain."""
    job, _ = loaded(name)
    assert job.stragglers()["caused_wait_ns"].tolist() == [0] * len(job)
    assert Cause.LATE_RANK not in {one.cause for one in job.verdict().findings}


@pytest.mark.filterwarnings("ignore::htagraph.errors.IncompleteTraceWarning")
def test_without_a_rank_its_neighbors_are_no_neighbors() -> None:
    """Nothing names the stages of plain 1F1B: without rank 1, rank 0 would seem to feed rank 2."""
    folder = CAPTURES / "pipelines" / "pp4_1f1b_slow"
    job = load_job([folder / f"rank{number}.pt.trace.json.gz" for number in (0, 2, 3)])
    assert job.pipeline().empty
    assert job.collectives().query("operation in ['send', 'recv']").empty
