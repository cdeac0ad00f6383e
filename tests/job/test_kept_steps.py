"""Jobs with too many collectives are of their last steps: the same answers, of these."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from htagraph.errors import IncompleteTraceWarning, QueryError
from htagraph.job.job import Job
from htagraph.job.kept_steps import KeptSteps, LastSteps
from htagraph.job.loading import _of_common_steps, load_job
from htagraph.job.timeline import Timeline
from htagraph.lookup.find_window import WHOLE
from htagraph.reports.job_summary import JobSummary
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

STEPS, KEPT = 5, 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the traces of three ranks, of which rank 1 is late in each of five steps."""
    path = tmp_path_factory.mktemp("job")
    job = training_job(
        ranks=3, steps=STEPS, layers=2, straggler=1, delay_ns=9_000_000, max_offset_ns=1_000_000
    )
    simulate_job(job).write(path)
    return path


@pytest.fixture(scope="module")
def whole(folder: Path) -> Job:
    return load_job(folder)


@pytest.fixture(scope="module")
def kept(folder: Path, whole: Job) -> Job:
    """The job, where only as many collectives are allowed as two of its steps have."""
    n_all = sum(len(one.collectives) for one in whole.summaries.values())
    with pytest.warns(IncompleteTraceWarning, match="collectives, too many for one process: the"):
        return load_job(folder, most_collectives=n_all * KEPT // STEPS)


def on_clocks_of(job: Job, other: Job) -> Job:
    """A job on the clocks of another one: fewer collectives say less of them."""
    return replace(job, timeline=Timeline(job.graphs, other.timeline.fitted))


def test_it_is_said_which_steps_are_kept(kept: Job, whole: Job) -> None:
    """With how many collectives of how many, in the report and in `quality`."""
    n_all = sum(len(one.collectives) for one in whole.summaries.values())
    [said] = [one for one in JobSummary(kept).caveats if "too many" in one]
    checks = kept.quality().query("check == 'collectives kept'")

    assert said.startswith(f"The ranks have {n_all} collectives, too many for one process: ")
    assert "the job is of ProfilerStep#3 and later, 2 of 5 steps" in said
    assert checks["rank"].tolist() == [0, 1, 2]
    assert set(checks["share"]) == {KEPT / STEPS}
    assert set(checks["verdict"]) == {"weak"}
    assert "collectives kept" not in set(whole.quality()["check"])


def test_the_notice_states_the_memory() -> None:
    """1.1 kB for each collective that is kept."""
    assert "(about 2.2 GB)" in str(KeptSteps(LastSteps("step"), 1, 2, 2_000_000, 5_000_000))


def test_what_is_kept_answers_as_the_whole_job_does(kept: Job, whole: Job) -> None:
    """In the window of these steps: the path across ranks, and who waited for whom."""
    same = on_clocks_of(kept.window(WHOLE), whole)
    there = replace(whole, asked_window=kept.graphs.window)
    waits = [job.collectives().query("wait_ns > 0") for job in (same, there)]
    begun_ns = int(waits[0]["start_ns"].min())
    waits[1] = waits[1][waits[1]["start_ns"] >= begun_ns]
    columns = ["rank", "event", "start_ns", "wait_ns", "last_rank", "is_certain"]
    first, second = (one[columns].sort_values(columns, ignore_index=True) for one in waits)

    assert len(first) > 0
    pd.testing.assert_frame_equal(first, second)
    pd.testing.assert_frame_equal(same.critical_path().segments, there.critical_path().segments)


def test_waits_are_those_of_its_steps(kept: Job) -> None:
    """The late rank is named, and all that was waited is charged."""
    assert kept.stragglers()["rank"].iloc[0] == 1
    assert kept.critical_path().window_name == "2 steps of the job"
    assert int(kept.delay_costs()["delay_ns"].sum()) == int(kept.stragglers()["own_wait_ns"].sum())


def test_windows_are_those_of_what_is_kept(kept: Job, whole: Job) -> None:
    """All of the job is what is kept; a step among it is itself; a step before is an error."""
    everything = kept.window(WHOLE).critical_path()
    assert everything.window_name == "ProfilerStep#3 and later of the job"
    step = [on_clocks_of(kept, whole), whole]
    found = [job.window("ProfilerStep#4").critical_path().segments for job in step]
    pd.testing.assert_frame_equal(*found)
    with pytest.raises(
        QueryError, match=r"ProfilerStep#1 begins before ProfilerStep#3, from which on"
    ):
        kept.window("ProfilerStep#1").critical_path()


def test_ranks_that_bring_different_steps_are_kept_in_common(whole: Job) -> None:
    """Those with more collectives bring fewer steps."""
    ranks = whole.summaries
    found = {0: ranks[0].since(1), 1: ranks[1].since(3), 2: ranks[2]}
    common, kept = _of_common_steps(found)

    assert kept is not None
    assert kept.window == LastSteps("ProfilerStep#3", -1)
    assert [one.steps for one in common.values()] == [("ProfilerStep#3", "ProfilerStep#4")] * 3
    first = [one.collectives["seq"].to_numpy(np.int64) for one in common.values()]
    assert all(np.array_equal(seq, first[0]) for seq in first)
    assert _of_common_steps(dict(ranks)) == (dict(ranks), None)
