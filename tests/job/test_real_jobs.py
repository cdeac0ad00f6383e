"""What is known of real jobs: who was late, by how much, and why."""

from __future__ import annotations

import pytest

from htagraph.errors import IncompleteTraceWarning
from htagraph.job.loading import load_job
from htagraph.reports.job_summary import JobSummary
from tests.real_traces import case, cases, located


@pytest.mark.public("torchrec/sleep_on_rank2")
def test_a_sleeping_rank_is_named_and_so_is_its_sleep() -> None:
    """torchrec/sleep_on_rank2: rank 2 sleeps a second in each of three steps."""
    job = load_job(located("torchrec/sleep_on_rank2"))
    stragglers = job.stragglers().set_index("rank")
    late = stragglers.loc[2]
    assert stragglers.index[0] == 2
    assert (late["n_last"], late["n_collectives"], late["n_cause"], late["is_recurring"]) == (
        9,
        12,
        3,
        True,
    )
    assert (late["cause_bound"], late["cause_name"]) == ("untraced_code", "# running sparse arch")
    # The three that carry the second.
    carried = job.collectives().query("wait_ns > 900_000_000")
    assert carried.groupby("match")["last_rank"].unique().map(list).tolist() == [[2]] * 3


@pytest.mark.public("torchrec/sleep_on_rank2")
def test_the_others_wait_and_do_not_transfer() -> None:
    """Ranks 0, 1 and 3 spend 3.07 s in NCCL, of which 3.03 s are waiting; rank 2 spends 37 ms."""
    stragglers = (
        load_job(located("torchrec/sleep_on_rank2")).stragglers().set_index("rank").sort_index()
    )
    waited_ms, transferred_ms = (
        stragglers["own_wait_ns"] // 1_000_000,
        stragglers["transfer_ns"] // 1_000_000,
    )
    assert waited_ms.tolist() == [3_032, 3_032, 0, 3_031]
    assert transferred_ms.tolist() == [36, 36, 36, 36]


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("name", "rank", "slept", "share"),
    [
        case("torchrec/sleep_on_rank2", 2, "# running sparse arch", 0.97),
        case("captures/jobs/async_2", 1, "ProfilerStep", 0.84),
        case("captures/jobs/ddp_sleep_2", 1, "ProfilerStep", 0.98),
        case("captures/jobs/ddp_sleep_4", 3, "ProfilerStep", 0.80),
        case("captures/jobs/fsdp2_2", 1, "ProfilerStep", 0.88),
        case("captures/jobs/pipeline_2", 0, "ProfilerStep", 0.96),
        case("captures/jobs/zoo_2", 1, "ProfilerStep", 0.91),
    ],
)
def test_a_sleep_is_charged_with_the_waits_of_all(
    name: str, rank: int, slept: str, share: float
) -> None:
    """One rank sleeps 30 ms to 1 s in each step: most of what all ranks wait is due to that."""
    job = load_job(located(name))
    costs = job.delay_costs()

    assert (costs["rank"].iloc[0], costs["name"].iloc[0]) == (rank, slept)
    assert costs["share"].iloc[0] > share
    assert costs["delay_ns"].sum() == job.stragglers()["own_wait_ns"].sum()


@pytest.mark.public("torchrec/sleep_on_rank2")
def test_the_path_of_the_job_goes_through_the_sleep() -> None:
    """Three host gaps of 1.001 s, all on rank 2, in the path."""
    path = load_job(located("torchrec/sleep_on_rank2")).critical_path()
    gaps = path.segments.nlargest(3, "dur_ns")
    assert gaps["rank"].tolist() == [2, 2, 2]
    assert (gaps["dur_ns"] // 1_000_000).tolist() == [1_001, 1_001, 1_001]
    assert gaps["op"].unique().tolist() == ["# running sparse arch"]
    assert path.breakdown(by="rank")["share"].loc[2] > 0.99


@pytest.mark.public("torchrec/resnet18")
def test_rank_1_of_resnet18_is_always_last() -> None:
    """12 of 12 all-to-alls."""
    top = load_job(located("torchrec/resnet18")).stragglers().iloc[0]
    assert (top["rank"], top["n_last"], top["n_collectives"]) == (1, 12, 12)


@pytest.mark.public("megatron-tp2")
def test_rank_0_of_megatron_is_last_wherever_that_can_be_told() -> None:
    """12 of 13 all-reduces for certain; 1.8 us in the other one are within 20 us of clocks."""
    job = load_job(located("megatron-tp2"))
    top = job.stragglers().iloc[0]
    assert (top["rank"], top["n_last"], top["n_certain"], top["n_collectives"]) == (0, 12, 12, 13)
    undecided = (
        job.collectives().groupby("match").filter(lambda members: not members["is_certain"].any())
    )
    assert undecided["wait_ns"].tolist() == [1_761, 0]
    assert job.clocks["width_ns"].iloc[1] > 20_000


@pytest.mark.public("megatron-tp2")
def test_by_its_own_clock_rank_0_of_megatron_is_last_every_time() -> None:
    """13 of 13 by the times as recorded."""
    job = load_job(located("megatron-tp2"))
    starts = {rank: job[rank].collectives()["start_ns"] for rank in job}
    assert (starts[0] > starts[1]).tolist() == [True] * 13


@pytest.mark.public("dlrm")
def test_all_ranks_of_dlrm_are_matched() -> None:
    """8 ranks in 8 collectives, which end within microseconds of each other."""
    collectives = load_job(located("dlrm")).collectives()
    ends = collectives.groupby("match")["end_ns"]
    assert collectives.groupby("match").size().tolist() == [8] * 8
    assert (ends.max() - ends.min()).median() < 5_000
    assert (ends.max() - ends.min()).max() < 10_000


@pytest.mark.public("hta/trace_filter")
def test_ranks_that_do_not_belong_together_are_flagged() -> None:
    """hta/trace_filter: two of 128 ranks; half of their collectives fit, and nobody is blamed."""
    job = load_job(located("hta/trace_filter"))
    with pytest.warns(IncompleteTraceWarning, match="10 of 10 collectives of rank 1 are not"):
        collectives = job.collectives()
    assert len(collectives) == 0
    assert len(job.missing_ranks) == 126
    assert job.stragglers()["n_last"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("name", "first"),
    [
        case("torchrec/sleep_on_rank2", ("late rank", 2)),  # the sleep
        case("torchrec/resnet18", ("CPU work", 1)),  # Python
        case("dlrm", ("CPU work", 4)),  # 7% compute on all ranks
    ],
)
def test_what_bounds_a_real_job(name: str, first: tuple[str, int]) -> None:
    """Cause, and the rank with most of it."""
    summary = JobSummary(load_job(located(name)))
    finding = summary.verdict.findings[0]

    assert (finding.cause, finding.ranks[0][0]) == first


@pytest.mark.public("megatron-tp2")
def test_no_verdict_on_megatron_whose_late_rank_is_unexplained() -> None:
    """Rank 0 is last at 12 of 13, but a third of the path is waits that nothing explains."""
    verdict = JobSummary(load_job(located("megatron-tp2"))).verdict

    assert verdict.findings == ()
    assert verdict.withheld.startswith("34% of the critical path is unknown waits (limit 20%)")


@pytest.mark.parametrize("name", cases(["torchrec/sleep_on_rank2", "torchrec/resnet18", "dlrm"]))
def test_findings_never_add_up_to_more_than_the_window(name: str) -> None:
    """All findings and what nothing can be blamed for are the window, to the nanosecond."""
    summary = JobSummary(load_job(located(name)))
    verdict = summary.verdict
    found_ns = sum(finding.path_ns for finding in verdict.findings)

    assert found_ns + sum(time_ns for _, time_ns in verdict.apart) == summary.path.dur_ns
    assert all(finding.weight_ns <= summary.path.dur_ns for finding in verdict.findings)
