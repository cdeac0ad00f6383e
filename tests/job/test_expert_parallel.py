"""Expert parallel jobs: dispatches and combines of DeepEP, of which only kernels are recorded."""

from __future__ import annotations

import gzip
import json
import warnings
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from htagraph.errors import IncompleteTraceWarning
from htagraph.job.job import Job
from htagraph.job.loading import load_job
from htagraph.reports.job_summary import JobSummary
from tests.job.simulated import FEW, MACHINE, WORLD, loaded, meet, three, tiles
from tests.job.test_clocks import with_truth
from tests.job.test_path import as_edges, merged, on_true_clocks
from tests.synth.program import (
    Action,
    Annotation,
    Clock,
    Collective,
    Group,
    JobProgram,
    Launch,
    Op,
    Program,
    Spend,
    Synchronize,
    Work,
)
from tests.synth.simulated import SimulatedJob
from tests.synth.simulator import simulate_job
from tests.synth.strategies import exchange, expert_jobs, warm_up

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")


def waits(job: Job, operation: str) -> list[tuple[int, int, int]]:
    """Wait, transfer and last rank of each member of the collectives of one operation."""
    found = job.collectives().query("operation == @operation")
    columns = ("wait_ns", "transfer_ns", "last_rank")
    return [(int(a), int(b), int(c)) for a, b, c in found[list(columns)].to_numpy()]


def send(operation: str, *dur_ns: int) -> tuple[Action, ...]:
    """An operator that dispatches or combines."""
    return (Op("low_latency", exchange(operation, WORLD, *dur_ns)),)


def test_a_dispatch_waits_for_the_last_and_ends_on_its_own() -> None:
    """Rank 1 comes 30 us late; ranks then take 5, 10 and 20 us, which no common end explains."""
    late_ns, own_ns = (0, 30_000, 0), (5_000, 10_000, 20_000)
    simulated = three(
        *((Spend(late), *send("dispatch", own)) for late, own in zip(late_ns, own_ns, strict=True))
    )
    job = loaded(simulated)
    path = on_true_clocks(job, simulated)
    assert waits(replace(job, timeline=path.timeline), "dispatch") == [
        (30_000, 5_000, 1),
        (0, 10_000, 1),
        (30_000, 20_000, 1),
    ]
    assert path.rank_segments["rank"].tolist() == [1, 2]


def test_what_is_matched_by_the_order_of_kernels_says_so() -> None:
    """Nothing but names is recorded."""
    job = loaded(three(*[(*send("dispatch", 9_000), *send("combine", 9_000))] * 3))
    assert job[0].collectives()["found_by"].tolist() == ["library kernel"] * 2
    assert job.collectives()["matched_by"].tolist() == ["inferred order"] * 6
    assert job.collectives()["group"].unique().tolist() == [
        "expert parallel (combine, dispatch) [0, 1, 2]"
    ]


def test_a_half_that_receives_waits_until_all_have_begun_to_send() -> None:
    """Rank 1 begins to send 90 us late; the others have computed for 60 us in between."""

    def body(late_ns: int) -> tuple[Action, ...]:
        return tuple(
            Op("low_latency", (Spend(late_ns), *exchange(name, WORLD, 3_000, 9_000, between_ns=ns)))
            for name, ns in (("dispatch", 60_000), ("combine", 1_000))
        )

    simulated = three(body(0), body(90_000), body(0))
    job = loaded(simulated)
    known = replace(job, timeline=on_true_clocks(job, simulated).timeline)
    true = simulated.collectives.query("operation == 'dispatch'")
    assert job[0].collectives()["is_rendezvous"].tolist() == [False, True] * 2
    assert [wait for wait, _, _ in waits(known, "dispatch")] == true["wait_ns"].tolist()
    assert true["wait_ns"].tolist()[1] == 0 < true["wait_ns"].tolist()[0]


def halves(*operations: str) -> SimulatedJob:
    """A job of three ranks that run these operations, each in two halves."""
    body = tuple(Op("low_latency", exchange(name, WORLD, 3_000, 9_000)) for name in operations)
    return three(body, body, body)


def test_a_capture_may_begin_between_two_halves() -> None:
    """No rank has recorded its first send: what receives is then no collective."""
    simulated = halves("dispatch", "combine", "dispatch", "combine")
    for rank in range(3):
        without(simulated, rank, nth=0)
    job = loaded(simulated)
    assert job[0].collectives()["arrival"].tolist() == [0, 1, 1, 3, 3, 5, 5]
    assert job.collectives().groupby("match").size().tolist() == [3] * 3


def test_kernels_that_may_be_either_half_match_nothing_and_say_so() -> None:
    """Four dispatches in a row: two of both halves, or four of one kernel each."""
    job = loaded(halves("dispatch", "dispatch", "combine"))
    with pytest.warns(IncompleteTraceWarning, match="whether they send, receive or do both"):
        assert len(job.collectives()) == 0


def layers(n: int, *, notify: bool = False) -> tuple[Action, ...]:
    """Dispatch and combine, layer after layer."""
    barrier = Launch(
        Collective("void deep_ep::internode::notify_dispatch<2>", 3_000, WORLD, "notify"), 20
    )
    return tuple(
        action
        for _ in range(n)
        for action in (
            *((barrier,) if notify else ()),
            *send("dispatch", 9_000),
            Spend(20_000),
            *send("combine", 9_000),
        )
    )


def without(simulated: SimulatedJob, rank: int, nth: int) -> SimulatedJob:
    """The job without some kernel of a rank, and its launch."""
    rows = simulated.ranks[rank].recorder.rows
    gone = [row for row in rows if "deep_ep" in row.name][nth]
    rows[:] = [row for row in rows if row.correlation != gone.correlation]
    return simulated


def test_counts_that_differ_match_nothing_and_say_so() -> None:
    """Rank 2 lacks a combine: layers repeat, and it may as well have begun a layer later."""
    job = loaded(without(three(*[layers(4)] * 3), rank=2, nth=-1))
    why = "ranks ran 7 to 8 of them, and their order fits at several places"
    with pytest.warns(IncompleteTraceWarning, match=why):
        assert len(job.collectives()) == 0
    assert job.clocks["n_collectives"].tolist() == [0, 0, 0]
    assert any(why in said for said in JobSummary(job).damage)


def test_a_kernel_that_is_missing_in_the_middle_matches_nothing_and_says_so() -> None:
    """The order of rank 0 is none that the others ran."""
    job = loaded(without(three(*[layers(4, notify=True)] * 3), rank=0, nth=3))
    with pytest.warns(IncompleteTraceWarning, match="in different orders"):
        assert len(job.collectives()) == 0


def test_what_fits_at_one_place_only_is_matched_there() -> None:
    """A barrier before the first layer only: rank 1 lacks the last combine, which ends in time."""
    barrier = layers(1, notify=True)
    job = loaded(without(three(*[(*barrier, *layers(2))] * 3), rank=1, nth=-1))
    found = job.collectives()
    assert found["matched_by"].unique().tolist() == ["inferred run"]
    assert found.groupby("match").size().tolist() == [3] * 6 + [2]
    assert not found["is_partial"].any()


def test_order_that_no_clock_allows_matches_nothing_and_says_so() -> None:
    """Kernels that do not wait: rank 1 dispatches early and combines late, by 50 ms each."""

    def body(*gaps_ns: int) -> tuple[Action, ...]:
        name = "void deep_ep::internode_ll::{}<true, false, 7168>(void*)"
        kernels = (Launch(Work(name.format(op), 9_000), 20) for op in ("dispatch", "combine"))
        return tuple(
            action for ns, kernel in zip(gaps_ns, kernels, strict=True)
            for action in (Spend(ns), kernel)
        )  # fmt: skip

    job = loaded(three(body(60_000_000, 10_000), body(10_000_000, 90_000_000), body(0, 0)))
    with pytest.warns(IncompleteTraceWarning, match="no clock allows that they are the same"):
        assert len(job.collectives()) == 0


def test_order_that_the_clocks_of_other_collectives_forbid_is_not_matched() -> None:
    """All-reduces say that clocks agree; rank 1 recorded another 2 layers than the others."""
    body = (meet(), *layers(4), Spend(100_000), meet())
    simulated = three(body, body, body)
    for rank, gone in ((0, slice(0, 4)), (1, slice(4, 8)), (2, slice(0, 4))):
        rows = simulated.ranks[rank].recorder.rows
        ids = {row.correlation for row in [r for r in rows if "deep_ep" in r.name][gone]}
        rows[:] = [row for row in rows if row.correlation not in ids]
    job = loaded(simulated)
    with pytest.warns(IncompleteTraceWarning, match="no clock allows"):
        found = job.collectives()
    assert found["operation"].unique().tolist() == ["all_reduce"]


def on_one_host(simulated: SimulatedJob, folder: Path) -> Job:
    """The job as files that all name one host."""
    for file in simulated.write(folder):
        document = json.loads(gzip.decompress(file.read_bytes()))
        document["host_name"] = "node-1"
        file.write_bytes(gzip.compress(json.dumps(document).encode()))
    return load_job(folder)


def test_order_that_sets_devices_of_one_host_apart_is_not_matched(tmp_path: Path) -> None:
    """Rank 1 was recorded from the second layer on, and for a layer longer than the others."""
    body = tuple(action for _ in range(6) for action in (*layers(1), Spend(1_000_000)))
    simulated = three(body, body, body)
    for rank, nth in ((0, -1), (0, -1), (1, 0), (1, 0), (2, -1), (2, -1)):
        without(simulated, rank, nth)
    job = on_one_host(simulated, tmp_path)
    why = r"devices of one host would be 1\.0\d* ms apart, so some began later"
    with pytest.warns(IncompleteTraceWarning, match=why):
        assert len(job.collectives()) == 0


def test_ranks_of_several_groups_are_not_matched_unless_the_header_knows_the_groups() -> None:
    """The names say that two ranks reduce; four ran it."""
    name = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)"
    world = Group("0", (0, 1, 2, 3))
    pairs = (Group("1", (0, 1)), Group("2", (2, 3)))

    def program(rank: int, *groups: Group) -> Program:
        reduce = Collective(name, 9_000, pairs[rank // 2], "notify")
        body = (Spend(1_000 + 7_000 * rank), Op("vllm::all_reduce", (Launch(reduce),)))
        return Program(body, MACHINE, rank, 4, groups=groups)

    unknown = loaded(simulate_job(JobProgram(tuple(program(rank) for rank in world.ranks))))
    with pytest.warns(IncompleteTraceWarning, match="in groups that are not recorded"):
        assert len(unknown.collectives()) == 0
    known = loaded(
        simulate_job(
            JobProgram(tuple(program(rank, world, pairs[rank // 2]) for rank in world.ranks))
        )
    )
    found = known.collectives()
    assert found.groupby("match")["rank"].agg(list).tolist() == [[0, 1], [2, 3]]
    assert found["operation"].unique().tolist() == ["all_reduce"]


@FEW
@given(program=expert_jobs())
def test_the_path_equals_the_truth_of_any_expert_parallel_job(program: JobProgram) -> None:
    """Law: tile by tile, wherever the truth is one, on known clocks; one kernel or two halves."""
    simulated = simulate_job(program)
    assume(simulated.n_ties == 0)
    path = on_true_clocks(loaded(simulated), simulated)
    assert tiles(path.segments, path.start_ns) == tiles(simulated.truth, path.start_ns)


@FEW
@given(program=expert_jobs(max_ranks=6, max_drift_ppb=5_000))
def test_the_path_by_rank_segments_equals_the_path_of_one_graph(program: JobProgram) -> None:
    """Law: edge by edge, on estimated clocks that are off by up to 20 ms and drift by 5 ppm."""
    simulated = simulate_job(program)
    assume(simulated.n_ties == 0)
    job = loaded(simulated)
    assert as_edges(job.critical_path()) == merged(job)[["rank", "edge"]].to_numpy().tolist()


@FEW
@given(program=expert_jobs(max_ranks=6, max_layers=8))
def test_the_width_of_clocks_contains_the_true_offset(program: JobProgram) -> None:
    """Law: what starts and ends allow is right, however long each rank takes for itself."""
    simulated = simulate_job(program)
    job = loaded(simulated)
    fits = job.timeline.fitted
    wrong_ns = [-c.offset_ns - fits.clock(rank).offset_ns for rank, c in enumerate(program.clocks)]
    reference = next(rank for rank, parent in fits.parents.items() if parent < 0)
    for rank in fits.fits:
        true_ns = wrong_ns[rank] - wrong_ns[reference]
        low_ns, high_ns = fits.bounds[rank]
        drift_ns = abs(fits.clock(rank).drift_ppb) // 1_000
        assert low_ns - drift_ns <= true_ns <= high_ns + drift_ns
        assert fits.fits[rank].width_ns >= 0


@FEW
@given(program=expert_jobs(max_ranks=6, max_layers=6))
def test_who_is_blamed_was_last(program: JobProgram) -> None:
    """Law: waits beyond the width of clocks; no wait is shorter than reported less its error."""
    simulated = simulate_job(program)
    found = with_truth(loaded(simulated), simulated)
    blamed, waited = found[found["is_certain"]], found[found["wait_ns"] > 0]
    assert blamed["last_rank"].tolist() == blamed["last_rank_true"].tolist()
    assert (waited["wait_ns_true"] >= waited["wait_ns"] - waited["error_ns"]).all()


@FEW
@given(
    program=expert_jobs(max_ranks=5, max_layers=6),
    victim=st.integers(0, 4),
    gone=st.lists(st.integers(0, 50), min_size=1, max_size=3),
)
@pytest.mark.filterwarnings("ignore::htagraph.errors.HTAGraphWarning")
def test_kernels_that_are_missing_match_rightly_or_not_at_all(
    program: JobProgram, victim: int, gone: list[int]
) -> None:
    """Law: whatever a rank lacks, members of one collective are of one; the job has a path."""
    simulated = simulate_job(program)
    places = simulated.collectives[["rank", "start_ns", "seq"]]
    offsets_ns = {rank: clock.offset_ns for rank, clock in enumerate(program.clocks)}
    true = places.assign(local_ns=places["start_ns"] + places["rank"].map(offsets_ns))
    rows = simulated.ranks[victim % len(simulated.ranks)].recorder.rows
    ids = [row.correlation for row in rows if "deep_ep" in row.name]
    lost = {ids[nth % len(ids)] for nth in gone}
    rows[:] = [row for row in rows if row.correlation not in lost]
    job = loaded(simulated)
    found = job.collectives()[["match", "rank", "collective"]]
    tables = pd.concat(
        [one.collectives.assign(rank=rank) for rank, one in job.summaries.items()]
    ).rename(columns={"start_ns": "local_ns"})
    met = found.merge(tables[["rank", "collective", "local_ns"]], on=["rank", "collective"])
    # The device clock of a rank may have been moved by microseconds: the nearest is meant.
    met, true = met.sort_values("local_ns"), true.sort_values("local_ns")
    seq = pd.merge_asof(met, true, on="local_ns", by="rank", direction="nearest")
    assume(not seq.duplicated(["rank", "seq"]).any())  # else which is meant is not known
    seqs = seq.groupby("match")["seq"]
    assert (seqs.min() == seqs.max()).all()
    assert job.critical_path().dur_ns > 0


def decode(rank: int, n_ranks: int, late_ns: int, *halves_ns: int) -> Program:
    """Some decode steps of an expert-parallel rank, late by a stretch of Python in each."""
    group = Group("0", tuple(range(n_ranks)))

    def layer(number: int) -> tuple[Action, ...]:
        own_ns = 31 * ((number * 7 + rank * 3) % 11)
        return (
            Op("attention", (Spend(2_003), Launch(Work("flash_fwd_kernel", 40_009 + own_ns)))),
            Op("low_latency_dispatch", exchange("dispatch", group, *halves_ns)),
            Op("experts", (Spend(2_011), Launch(Work("grouped_gemm", 60_013 + 3 * own_ns)))),
            Op("low_latency_combine", exchange("combine", group, *halves_ns)),
        )

    def step(number: int) -> Annotation:
        body = (Spend(late_ns), *(action for at in range(6) for action in layer(at)), Synchronize())
        return Annotation(f"ProfilerStep#{number}", body)

    body = (*warm_up(), *(step(number) for number in range(5)))
    return Program(body, rank=rank, world_size=n_ranks, device=rank)


@pytest.mark.some(1)
@pytest.mark.parametrize("halves_ns", [(12_000,), (5_000, 9_000)], ids=["whole", "halves"])
def test_a_late_rank_is_found_first_in_a_decode_job_with_skewed_clocks(
    halves_ns: tuple[int, ...],
) -> None:
    """Rank 2 of 4 prepares each step for 3 ms longer; clocks are off by 2 to 9 ms."""
    ranks = tuple(
        decode(rank, 4, 3_000_017 if rank == 2 else 20_011, *halves_ns) for rank in range(4)
    )
    clocks = (Clock(), Clock(9_000_000), Clock(-5_000_000), Clock(2_000_000))
    job = loaded(simulate_job(JobProgram(ranks, clocks)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        finding = JobSummary(job).verdict.findings[0]
    assert (finding.cause, finding.ranks[0][0]) == ("late rank", 2)
    top = job.stragglers().iloc[0]
    assert (top["rank"], top["cause_bound"], top["is_recurring"]) == (2, "untraced_code", True)
    assert top["n_certain"] >= 5
    assert job.clocks["width_ns"].max() < 100_000
