"""Jobs as one graph: windows and replays."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import htagraph as hg
from htagraph.errors import IncompleteTraceWarning, QueryError
from htagraph.job.job import Job
from htagraph.job.loading import _of_common_steps, load_job
from htagraph.job.rehearsal import MergedReplay
from htagraph.job.timeline import Timeline
from htagraph.job.windows import KeptSteps, LastSteps
from htagraph.lookup.find_window import WHOLE
from htagraph.replay.assumptions import Assumption, Reading
from htagraph.replay.draft import Draft
from htagraph.replay.replay import Members, replay_of
from htagraph.reports.job_summary import JobSummary
from tests.drawn import drawn_dag
from tests.job.simulated import MACHINE, WORLD, loaded, meet
from tests.synth.program import JobProgram, Op, Program, Spend, Synchronize
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job


def test_collectives_that_each_wait_for_the_other_keep_nobody_waiting() -> None:
    """At 20 us each rank ends what needs the start of what the other one begins then."""
    dag = drawn_dag("""
        us       |0         10        20        30
        cpu 1    |[launch >a] [launch >b]
        stream 7 |          [first <a][second <b]
    """)
    first, second = np.flatnonzero(dag.events.is_device).tolist()
    replay, met_ns = replay_of(dag), int(dag.events.ts_ns[second])
    assert dag.events.end_ns[first] == met_ns

    def members(rank: int) -> Members:
        nothing = np.zeros(2, dtype=np.int64)
        return Members(
            rank=rank,
            match=np.array([rank, 1 - rank]),
            event=np.array([first, second]),
            came=np.array([first, second]),
            waits=np.array([True, False]),
            is_awaited=np.array([False, True]),
            arrived_ns=np.array([dag.events.ts_ns[first], met_ns]),
            met_ns=np.array([met_ns, met_ns]),
            since_ns=nothing,
            late_ns=nothing,
            least_since_ns=nothing,
            least_late_ns=nothing,
            latency_ns=np.full(2, np.nan),
            latency_error=np.full(2, np.nan),
        )

    merged = MergedReplay.of({0: replay, 1: replay}, {0: members(0), 1: members(1)})
    assert [bool(own.waits.any()) for own in merged.members.values()] == [False, False]
    reading = Reading(Assumption.AS_BOUND, replay)
    drafts = {rank: Draft(dag, reading, own) for rank, own in merged.members.items()}
    times = merged.times_ns(drafts)
    assert times[0].tolist() == times[1].tolist() == replay.ts_ns.tolist()


_HOST = {"cpu_op", "user_annotation", "cuda_runtime", "ac2g"}


@pytest.fixture(scope="module")
def late_captures(tmp_path_factory: pytest.TempPathFactory) -> hg.Job:
    """Two ranks whose hosts run ahead; hosts are recorded from the second step on."""
    folder = tmp_path_factory.mktemp("late")
    simulate_job(training_job(ranks=2, steps=3, layers=4, fault="full_queue")).write(folder)
    for file in folder.glob("*.json*"):
        is_packed = file.suffix == ".gz"
        data = file.read_bytes()
        trace = json.loads(gzip.decompress(data) if is_packed else data)
        steps = [one["ts"] for one in trace["traceEvents"] if one["name"] == "ProfilerStep#1"]
        begins = min(steps)
        trace["traceEvents"] = [
            event
            for event in trace["traceEvents"]
            if event.get("cat") not in _HOST or event["ts"] >= begins
        ]
        text = json.dumps(trace).encode()
        file.write_bytes(gzip.compress(text) if is_packed else text)
    return hg.load_job(folder)


def test_an_opening_of_a_job_is_left_out_and_said(late_captures: hg.Job) -> None:
    """On each rank up to the end of its own; what is left are whole steps."""
    whole, rest = late_captures.window("trace"), late_captures
    segments = whole.critical_path().breakdown(by="bound")
    opening_ns = segments.loc["work_from_before_the_profile", "dur_ns"]

    assert opening_ns > 0.2 * whole.critical_path().dur_ns
    assert rest.critical_path().dur_ns < whole.critical_path().dur_ns - 0.8 * opening_ns
    assert rest.left_out[0].endswith(" of work from before the profile")
    assert JobSummary(rest).caveats[0].startswith("Left out: ")
    assert not any("Left out" in said for said in JobSummary(whole).caveats)


def job_of(folder: Path, steps: int, **options: Any) -> hg.Job:
    simulate_job(training_job(ranks=2, steps=steps, layers=1, **options)).write(folder)
    return hg.load_job(folder)


@pytest.mark.parametrize(("steps", "n_steps"), [(3, 3), (5, 4)])
def test_a_job_is_judged_by_the_steps_of_all_ranks(
    tmp_path: Path, steps: int, n_steps: int
) -> None:
    """The first is left out if three others are alike; the path is of the same window."""
    job = job_of(tmp_path, steps)
    path = job.critical_path()

    assert (job.n_steps, path.n_steps, str(job.rank_window)) == (
        n_steps,
        n_steps,
        f"{n_steps} steps",
    )
    assert path.window_name == f"{n_steps} steps of the job"
    assert path.step_ns == path.dur_ns / n_steps == hg.run_profile(job).typical_step_ns
    assert ("step 0, the first of the trace" in job.left_out) is (steps > n_steps)
    assert {job[rank].interval.name for rank in job} == {path.name}


def test_all_of_a_job_or_one_step_can_be_asked_for(tmp_path: Path) -> None:
    """The whole is no step time."""
    job = job_of(tmp_path, 3)
    whole, step = job.window("trace"), job.window("1")

    assert (whole.rank_window, whole.n_steps, whole.left_out) == (None, 0, ())
    assert whole.critical_path().window_name == "the job"
    assert (step.n_steps, step.critical_path().step_ns) == (1, step.critical_path().dur_ns)


@pytest.mark.filterwarnings("ignore:The ranks recorded different steps")
def test_ranks_that_share_no_two_steps_are_judged_as_a_whole(tmp_path: Path) -> None:
    """One rank lacks the markers of its steps."""
    _ = job_of(tmp_path, 3)
    file = min(tmp_path.glob("*.json*"))
    text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    text = text.replace(b"ProfilerStep#", b"loop ")
    file.write_bytes(gzip.compress(text) if file.suffix == ".gz" else text)
    job = hg.load_job(tmp_path)

    assert (job.rank_window, job.n_steps, job.left_out) == (None, 0, ())


def test_a_rank_that_recorded_long_before_the_others_is_said_to() -> None:
    """Rank 0 begins 30 ms before ranks 1 and 2: the job is what all recorded, 8 of 38 ms."""
    body = (Op("aten::mm", (Spend(5_000_000),)), meet(), Spend(3_000_000), meet(), Synchronize())
    early = (Op("aten::early", (Spend(30_000_000),)), *body)
    ranks = tuple(
        Program(early, MACHINE, 0, 3, start_ns=0, base_time_ns=0, groups=(WORLD,))
        if rank == 0
        else Program(body, MACHINE, rank, 3, start_ns=30_000_000, base_time_ns=0, groups=(WORLD,))
        for rank in range(3)
    )
    job = loaded(simulate_job(JobProgram(ranks)))

    assert repr(job) == "Job(3 ranks, 31 events, recorded 38.0 ms)"
    assert job.begins == (
        "Ranks began to record up to 30.0 ms apart: the job is from when the last one began."
    )
    assert (job.critical_path().dur_ns, job.window("trace").begins) == (8_023_000, job.begins)


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
