"""What-if for jobs: all ranks re-timed together, whoever is the last one then."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import htagraph as hg
from htagraph.errors import QueryError, TraceLimitError
from htagraph.job import rehearsal
from htagraph.job.job import Job
from tests.examples import one_in
from tests.job.simulated import FEW, loaded, meet, three
from tests.job.test_host_collectives import MAIN, WORKER, late_on_rank_1, step, written
from tests.real_traces import CAPTURES, case, cases, located
from tests.synth.program import Collective, JobProgram, Op, Spend, Synchronize
from tests.synth.simulator import simulate_job
from tests.synth.strategies import expert_jobs, jobs
from tests.synth.training import training_job

pytestmark = pytest.mark.filterwarnings(
    "ignore:Generating overly large repr", "ignore::htagraph.errors.HTAGraphWarning"
)

SOME = settings(FEW, max_examples=one_in(8).max_examples)
TRAINING: dict[str, Any] = {
    "steps": 2,
    "layers": 3,
    "max_offset_ns": 20_000_000,
    "max_drift_ppb": 5_000,
}


def late_on_rank_one(*, by_ns: int = 30_000, own_ns: int = 0) -> Job:
    """Three ranks meet at 36 us, as rank 1 does something before; rank 2 does less."""
    late = (Op("aten::late", (Spend(by_ns),)), meet(), Synchronize())
    less = (Op("aten::less", (Spend(10_000),)), meet(), Synchronize())
    first = (Op("aten::own", (Spend(own_ns),)),) if own_ns else ()
    return loaded(three((*first, meet(), Synchronize()), late, less))


def is_as_it_was(job: Job) -> bool:
    """Whether every reading gives back every time of every rank, and the window."""
    found = job.rehearsal
    for assumption in found.assumptions:
        run = found.run((), assumption)
        for rank, one in found.ranks.items():
            np.testing.assert_array_equal(run[rank].times_ns, one.replay.ts_ns)
        assert found.dur_ns(run) == found.window.dur_ns
    return found.window.dur_ns == job.critical_path().dur_ns


def shortened(action: Any, by: int) -> Any:
    """A program with collectives that transfer by a factor less."""
    if isinstance(action, Collective):
        return replace(action, dur_ns=action.dur_ns // by)
    if isinstance(action, tuple):
        return tuple(shortened(part, by) for part in action)
    if is_dataclass(action) and not isinstance(action, type):
        parts = {one.name: shortened(getattr(action, one.name), by) for one in fields(action)}
        return replace(action, **parts)
    return action


def test_where_the_late_rank_is_faster_the_next_one_is_last() -> None:
    """From 36 us, when rank 1 came, the others move to 16 us, when rank 2 does."""
    scenario = hg.what_if(late_on_rank_one(), hg.scale("aten::late", by=0))
    assert scenario.saves_ns[:3] == (20_000, 20_000, 20_000)
    assert (
        repr(scenario)
        == "JobScenario(scale('aten::late', by=0): 48.0 us -> 28.0 us, saves 20.0 us)"
    )
    assert scenario.critical_path().rank_segments["rank"].tolist()[0] == 2


def test_where_an_early_rank_is_slower_it_is_last() -> None:
    """Rank 2 takes 60 us in place of 10, and comes at 66 us: 30 us after rank 1."""
    scenario = hg.what_if(late_on_rank_one(), hg.scale("aten::less", by=6))
    assert scenario.saves_ns[:3] == (-30_000, -30_000, -30_000)


def test_what_the_path_does_not_wait_for_saves_nothing() -> None:
    """Rank 2 waits 20 us anyway."""
    assert hg.what_if(late_on_rank_one(), hg.scale("aten::less", by=0)).saves_ns.high_ns == 0


def test_each_rank_has_its_length() -> None:
    """Rank by rank: the others end with the late one."""
    ranks = hg.what_if(late_on_rank_one(), hg.scale("aten::late", by=0)).ranks
    assert ranks["before_ns"].tolist() == [48_000, 48_000, 48_000]
    assert ranks["dur_ns"].tolist() == [28_000, 28_000, 28_000]


def test_the_path_of_the_changed_run_tiles_its_window() -> None:
    """On rank 2, which is the last one now."""
    scenario = hg.what_if(late_on_rank_one(), hg.scale("aten::late", by=0))
    path = scenario.critical_path()
    assert path.dur_ns == scenario.dur_ns == int(path.segments["dur_ns"].sum())
    assert scenario.breakdown(by="bound")["dur_ns"].to_dict() == {
        "host": 11_000,
        "communication": 10_000,
        "launch": 5_000,
        "sync": 2_000,
    }


def test_the_changed_run_is_a_job() -> None:
    """Rank 1 comes first, so nobody waits for it any more."""
    job = hg.what_if(late_on_rank_one(), hg.scale("aten::late", by=0)).job
    waits = job.collectives().set_index("rank")["wait_ns"].to_dict()
    assert waits == {0: 10_000, 1: 10_000, 2: 0}


def test_collectives_that_are_not_there_keep_nobody_waiting() -> None:
    """Rank 1 takes 36 us by itself, without transfer."""
    scenario = hg.what_if(late_on_rank_one(), hg.remove("ncclDevKernel*"))
    assert scenario.ranks["dur_ns"].max() < 40_000


def test_equalised_ranks_come_with_the_median() -> None:
    """Rank 1 comes with rank 2, at 16 us."""
    assert hg.what_if(late_on_rank_one(), hg.equalise()).saves_ns[:3] == (20_000, 20_000, 20_000)


def test_a_change_of_one_rank_leaves_the_others() -> None:
    """Only rank 2 comes later than rank 0; by the clock of rank 1 nothing changes."""
    job = late_on_rank_one()
    assert hg.what_if(job, hg.equalise().on_rank(2)).saves_ns.high_ns == 0
    assert hg.what_if(job, hg.equalise().on_rank(1)).saves_ns.low_ns == 20_000
    assert str(hg.equalise().on_rank(1)) == "equalise().on_rank(1)"


def test_a_selection_changes_the_rank_that_it_is_of() -> None:
    """All ranks have an operator of this name."""
    job = late_on_rank_one()
    chosen = job[1].select(name="record_param_comms")
    assert hg.what_if(job, hg.scale(chosen, by=0)).saves_ns.low_ns > 0
    chosen = job[0].select(name="record_param_comms")
    assert hg.what_if(job, hg.scale(chosen, by=0)).saves_ns.high_ns == 0


def test_what_no_rank_has_is_an_error() -> None:
    """As on one rank."""
    job = late_on_rank_one()
    with pytest.raises(QueryError, match="no event"):
        _ = hg.what_if(job, hg.scale("aten::nowhere", by=0)).saves_ns
    with pytest.raises(QueryError, match="no rank 7"):
        _ = hg.what_if(job, hg.equalise().on_rank(7)).saves_ns


def test_one_rank_is_not_equalised() -> None:
    """It is never late."""
    with pytest.raises(QueryError, match="one rank alone is never late"):
        _ = hg.what_if(late_on_rank_one()[0], hg.equalise()).saves_ns


def test_every_opportunity_allows_for_the_clocks() -> None:
    """Small ones as well, of which only what is expected is replayed; up to half of a saving."""
    job = loaded(simulate_job(training_job(**TRAINING, ranks=2, straggler=1)))
    every, error_ns = job.opportunities(), job.rehearsal.clock_error_ns
    is_cause = every["kind"] == "cause"
    causes, found = every[is_cause], every[~is_cause]
    allowed = np.minimum(error_ns, found["saves_ns"].abs() // 2)

    assert error_ns > 0
    assert (found["saves_ns"] - found["low_ns"] >= allowed).all()
    assert (found["high_ns"] - found["saves_ns"] >= allowed).all()
    assert causes["high_ns"].tolist() == causes["saves_ns"].tolist()
    assert found["saves_share"].min() < 0.002


def test_the_error_of_a_job_is_three_spreads_of_its_clocks() -> None:
    """Of the rank whose collectives end furthest apart."""
    job = loaded(simulate_job(training_job(**TRAINING, ranks=3, jitter_ns=5_000)))

    assert job.clocks["spread_ns"].max() > 0
    assert job.rehearsal.clock_error_ns == 3 * job.clocks["spread_ns"].max()


def test_too_many_events_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any rank is opened."""
    monkeypatch.setattr(rehearsal, "_MOST_EVENTS", 10)
    with pytest.raises(TraceLimitError, match="up to 10 can be replayed"):
        _ = hg.what_if(late_on_rank_one(), hg.equalise()).saves_ns


def test_a_step_is_changed_by_what_happens_in_it() -> None:
    """On the straggler, the host takes 2 ms more in each of two steps; its clock drifts."""
    job = loaded(simulate_job(training_job(**TRAINING, straggler=1, delay="op")))
    slow = hg.scale("aten::unique_consecutive", by=0)
    ranks = hg.what_if(job.window("ProfilerStep#0"), slow).ranks
    saved_ns = ranks["before_ns"] - ranks["dur_ns"]
    assert saved_ns.tolist() == pytest.approx([0, 2_000_000, 0, 0], abs=10)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "layout", [{"ranks": 4}, {"ranks": 4, "tensor": 2}, {"ranks": 8, "tensor": 2, "pipeline": 2}]
)
def test_without_its_slow_operator_a_straggler_is_as_simulated_without(
    layout: dict[str, Any],
) -> None:
    """Predicted within a thousandth of the run that was simulated without the delay."""
    slow = loaded(simulate_job(training_job(**TRAINING, **layout, straggler=1, delay="op")))
    plain = loaded(simulate_job(training_job(**TRAINING, **layout)))
    scenario = hg.what_if(slow, hg.scale("aten::unique_consecutive", by=0))
    assert scenario.dur_ns == pytest.approx(plain.critical_path().dur_ns, rel=0.001)
    assert scenario.saves_ns.low_ns > 1_000_000


@pytest.mark.some(1)
@pytest.mark.parametrize("delay", ["python", "kernel"])
def test_an_equalised_straggler_is_as_simulated_without(delay: Any) -> None:
    """Within 2% of the run without the delay, in which ranks also differ a little."""
    slow = loaded(simulate_job(training_job(**TRAINING, straggler=1, delay=delay)))
    plain = loaded(simulate_job(training_job(**TRAINING)))
    scenario = hg.what_if(slow, hg.equalise())
    assert scenario.dur_ns == pytest.approx(plain.critical_path().dur_ns, rel=0.02)


@pytest.mark.slow
def test_twice_the_bandwidth_is_as_simulated_with_half_the_transfers() -> None:
    """Up to half the latency that is taken to stay, 10 us, of each of two transfers."""
    program = training_job(**TRAINING, fault="exposed_allreduce")
    ranks = tuple(shortened(one, 2) for one in program.ranks)
    before, after = (
        loaded(simulate_job(made)) for made in (program, replace(program, ranks=ranks))
    )
    scenario = hg.what_if(before, hg.bandwidth(2))
    error_ns = scenario.dur_ns - after.critical_path().dur_ns
    assert min(saved_ns for _, saved_ns in scenario.saves_ns.readings) > 3_000_000
    assert 0 <= error_ns <= 2 * 5_000 + 1_000


@SOME
@given(program=jobs())
def test_without_changes_any_job_is_as_it_was(program: JobProgram) -> None:
    """Law: to the nanosecond, whatever the clocks, by every reading."""
    assert is_as_it_was(loaded(simulate_job(program)))


@SOME
@given(program=expert_jobs(max_drift_ppb=5_000))
def test_without_changes_any_job_of_experts_is_as_it_was(program: JobProgram) -> None:
    """Law: also where one kernel sends and another one receives."""
    assert is_as_it_was(loaded(simulate_job(program)))


@SOME
@given(program=jobs())
def test_the_path_of_any_changed_job_tiles_its_window(program: JobProgram) -> None:
    """Law: it is as long as the window is predicted to be, and the prediction is within."""
    job = loaded(simulate_job(program))
    scenario = hg.what_if(job, hg.scale("aten::linear", by=3), hg.scale("*gemm*", by=0.5))
    assert scenario.critical_path().dur_ns == scenario.dur_ns
    assert scenario.saves_ns.expected_ns == job.critical_path().dur_ns - scenario.dur_ns


def test_collectives_on_the_host_wait_for_the_last_one_as_well(tmp_path: Path) -> None:
    """Rank 1 is late in each of three steps."""
    job = written(tmp_path, late_on_rank_1())
    assert is_as_it_was(job)
    assert hg.what_if(job, hg.equalise()).saves_ns.low_ns > 0


def test_without_its_call_a_collective_on_the_host_is_gone_too(tmp_path: Path) -> None:
    """A worker runs it for 490 us once the last rank calls, in each of three steps."""
    job = written(tmp_path, late_on_rank_1())
    assert hg.what_if(job, hg.remove("c10d::*")).saves_ns.expected_ns == 3 * 490_000


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "name",
    [
        *(f"captures/jobs/{name}" for name in ("async_2", "ddp_sleep_4", "fsdp2_2", "pipeline_2")),
        *cases(["dlrm", "torchrec/sleep_on_rank2", "torchrec/resnet18", "megatron-tp2"]),
    ],
)
def test_without_changes_a_real_job_is_as_it_was(name: str) -> None:
    """To the nanosecond, by every reading."""
    assert is_as_it_was(hg.load_job(located(name)))


def test_a_rank_is_late_since_it_left_the_last_collective(tmp_path: Path) -> None:
    """First rank 1 is late by 5 ms, and returns from its call when all is done; then rank 0 is."""
    job = written(
        tmp_path,
        [
            [*step(1_000, 6_500), *step(6_000, 13_100, 6_600)],
            [
                (MAIN, "aten::mm", 0, 6_000),
                (MAIN, "c10d::allreduce_", 6_000, 6_505),
                (WORKER, "gloo:all_reduce", 6_010, 6_500),
                (MAIN, "aten::add_", 6_510, 6_600),
                *step(1_000, 13_100, 6_600),
            ],
        ],
        groups=[(0, 1)],
        hosts=["a", "a"],
    )

    assert hg.what_if(job, hg.equalise()).saves_ns.expected_ns == 10_000_000


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("name", "rank", "planted_ms"),
    [
        case("torchrec/sleep_on_rank2", 2, 3_000),
        case("captures/jobs/allreduce_2", 1, 150.4),
        case("captures/jobs/allreduce_2_meta2_tb", 1, 150.6),
        case("captures/jobs/async_2", 1, 150.5),
        case("captures/jobs/ddp_sleep_2", 1, 150.4),
        case("captures/jobs/ddp_sleep_4", 3, 150.4),
        case("captures/jobs/fsdp2_2", 1, 150.4),
        case("captures/jobs/zoo_2", 1, 150.4),
    ],
)
def test_equalised_a_planted_sleep_is_gone(name: str, rank: int, planted_ms: float) -> None:
    """One rank sleeps in each of three steps, as its script measured; within a tenth."""
    scenario = hg.what_if(hg.load_job(located(name)), hg.equalise().on_rank(rank))

    assert scenario.saves_ns.expected_ns / 1e6 == pytest.approx(planted_ms, rel=0.1)


def test_equalised_a_planted_delay_is_gone() -> None:
    """Rank 1 slept 54.0, 54.1 and 49.6 ms longer; ranks of 2 cannot be told from the median."""
    job = hg.load_job(CAPTURES / "jobs" / "allreduce_2")
    assert hg.what_if(job, hg.equalise()).saves_ns.expected_ns == pytest.approx(157.7e6, rel=0.05)
