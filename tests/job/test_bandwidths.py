"""Bandwidth of collectives: sizes, transfers, and what limits them."""

from __future__ import annotations

import tempfile
import warnings

import pytest

import htagraph as hg
from htagraph.job.bandwidths import slowest_in_words
from htagraph.job.job import Job
from htagraph.job.loading import load_job
from tests.job.simulated import WORLD, loaded, three
from tests.real_traces import case, located
from tests.synth.program import Action, Collective, Launch, Op, Spend, Synchronize

LATENCY_NS, BYTES_PER_NS = 20_000, 100
"""The network of all drawn jobs: 20 us, and 100 GB/s."""
SIZES = (4_000, 400_000, 4_000_000, 40_000_000)
"""Sizes that tell both: 20.04 us to 420 us."""


def transfer_ns(n_bytes: int, times: float = 1.0) -> int:
    """Time of a transfer, or of a slow one."""
    return int((LATENCY_NS + n_bytes // BYTES_PER_NS) * times)


def job_of(*sizes, slow=None, late_ns=None, group=WORLD, lost=()) -> Job:
    """Three ranks that all-reduce sizes of fp32; by position, some are slow, or rank 2 is late."""
    ranks = []
    for rank in range(3):
        body: list[Action] = []
        for place, n_bytes in enumerate(sizes):
            late = (late_ns or {}).get(place, 0) if rank == 2 else 0
            took = transfer_ns(n_bytes, (slow or {}).get(place, 1.0))
            work = Collective("ncclKernel", took, group, "allreduce", n_elements=n_bytes // 4)
            body += [
                Op("aten::own", (Spend(1_000 + late),)),
                Op("record_param_comms", (Spend(1_000), Launch(work, 20, cost_ns=4_000))),
                Synchronize(),
            ]
        ranks.append(tuple(body))
    simulated = three(*ranks)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rank, path in enumerate(sorted(simulated.write(folder))):
            if rank in lost:
                path.unlink()
        return load_job(folder)


def limits(job: Job) -> list[str]:
    """What limits each collective, in order."""
    return job.bandwidths(by="collective").sort_values("match")["limit"].tolist()


def test_busbw_of_an_all_reduce():
    """3 ranks: each link carries 2 * 2/3 of the size, which takes 60 us."""
    found = job_of(4_000_000).bandwidths().iloc[0]

    assert found["algbw_gb_per_s"] == pytest.approx(4_000_000 / 60_000)
    assert found["busbw_gb_per_s"] == pytest.approx(4_000_000 / 60_000 * 4 / 3)
    assert (found["n_ranks"], found["n_matched"]) == (3, 3)


def test_waiting_is_no_transfer():
    """Two of three ranks wait 300 us for rank 2: 200 us on average, for a transfer of 60."""
    found = job_of(4_000_000, late_ns={0: 300_000}).bandwidths().iloc[0]

    assert (found["transfer_ns"], found["wait_ns"]) == (60_000, 200_000)
    assert (found["limit"], found["last_rank"]) == ("late rank", 2)


def test_the_fit_is_the_network():
    """20 us and 100 GB/s; those of up to 2 MB take longer to start than to move."""
    found = job_of(*SIZES).bandwidths().set_index("n_bytes").loc[list(SIZES)]

    assert found["latency_ns"].tolist() == pytest.approx([20_000] * 4, rel=1e-6)
    assert found["fitted_gb_per_s"].tolist() == pytest.approx([100] * 4, rel=1e-6)
    assert found["limit"].tolist() == ["latency", "latency", "bandwidth", "bandwidth"]


def test_each_collective_says_what_bounds_it():
    """Of one size, one is late, one slow, and one as fast as its network."""
    job = job_of(*SIZES, 4_000_000, 4_000_000, slow={4: 3.0}, late_ns={5: 500_000})

    assert limits(job) == [
        *("latency", "latency", "bandwidth", "bandwidth", "congestion", "late rank")
    ]
    assert job.bandwidths().set_index("n_bytes").loc[4_000_000, "limit"] == "bandwidth"


@pytest.mark.parametrize(("slower", "limit"), [(1.4, "bandwidth"), (1.6, "congestion")])
def test_half_as_slow_again_is_congestion(slower, limit):
    assert limits(job_of(*SIZES, 4_000_000, slow={4: slower}))[-1] == limit


def test_what_differs_as_much_from_its_fit_as_others_is_not_congested():
    """Sizes take 0.6 to 1.8 times what a line would: 2.4 times is nothing unusual."""
    uneven = {place: (0.6, 1.8)[place % 2] for place in range(8)}
    sizes = [10_000_000 * (1 + place) for place in range(8)]
    even = job_of(*sizes, sizes[0], slow={8: 2.4})

    assert limits(even)[-1] == "congestion"
    assert "congestion" not in limits(job_of(*sizes, sizes[0], slow={**uneven, 8: 1.2}))


def test_two_sizes_are_no_fit():
    found = job_of(4_000, 40_000_000).bandwidths()

    assert found["latency_ns"].isna().all()
    assert found["limit"].tolist() == ["unknown", "unknown"]


def test_an_unrecorded_rank_may_be_the_one_that_is_late():
    """Rank 2 of three is not in the folder: what looks slow may be a wait for it."""
    found = job_of(*SIZES, late_ns={2: 500_000}, lost=(2,)).bandwidths()

    assert found["limit"].tolist() == ["unknown"] * 4
    assert set(zip(found["n_ranks"], found["n_matched"], strict=True)) == {(3, 2)}


def test_without_sizes_there_are_durations_only():
    """The operator is recorded, its elements are not."""
    work = Collective("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10_000, WORLD, "allreduce")
    body = (Op("aten::own", (Launch(work, 20, cost_ns=4_000),)),)
    found = loaded(three(body, body, body, metadata="none")).bandwidths()

    assert found["n_bytes"].tolist() == [-1]
    assert found["transfer_ns"].tolist() == [10_000]
    assert found["busbw_gb_per_s"].isna().all()
    assert found["limit"].tolist() == ["unknown"]


def test_one_rank_has_a_lower_bound():
    """Rank 0 waits 300 us for a transfer of 60: by itself it shows 360."""
    found = job_of(4_000_000, late_ns={0: 300_000})[0].collectives().iloc[0]

    assert (found["n_bytes"], found["n_ranks"]) == (4_000_000, 3)
    assert found["least_algbw_gb_per_s"] == pytest.approx(4_000_000 / 360_000)
    assert found["least_busbw_gb_per_s"] == pytest.approx(4_000_000 / 360_000 * 4 / 3)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (
            {"slow": {4: 1.2}},
            "40.0 MB runs at 115 GB/s busbw, bound by bandwidth: 91% of what its sizes reach",
        ),
        (
            {"late_ns": dict.fromkeys(range(5), 2_000_000)},
            "but they wait 76% of its time, most of it for rank 2",
        ),
        (
            {"slow": dict.fromkeys((3, 4), 4.0)},
            "40.0 MB runs at 31.7 GB/s busbw, congested: 34% of what its sizes reach",
        ),
    ],
)
def test_the_finding_says_what_bounds_the_longest(job, said):
    found = slowest_in_words(job_of(*SIZES, 40_000_000, **job).bandwidths())

    assert said in found


def test_twice_the_bandwidth_leaves_the_fitted_latency():
    """Of 420 us, 20 are latency: 200 are saved, whatever is assumed elsewhere."""
    job = job_of(*SIZES)
    saves = hg.what_if(job, hg.bandwidth(2)).saves_ns
    moved_ns = sum(n_bytes // BYTES_PER_NS for n_bytes in SIZES)

    assert saves is not None
    assert (saves.expected_ns, saves.low_ns, saves.high_ns) == pytest.approx(
        (moved_ns // 2,) * 3, abs=10
    )


@pytest.mark.parametrize(
    ("name", "busbw"),
    [
        case("dlrm", {24_576: 2.150, 192: 0.021, 1_536: 0.192, 13_568: 1.696}),
        case("megatron-tp2", {24_576: 1.0995}),
    ],
)
def test_expected_bandwidths(name, busbw):
    """Computed apart from the package, from the raw JSON."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = hg.load_job(located(name)).bandwidths()
    measured = found[found["n_bytes"].isin(list(busbw))].set_index("n_bytes")["busbw_gb_per_s"]

    assert measured.to_dict() == pytest.approx(busbw, rel=0.03)


@pytest.mark.public("tracelens/resnet_act_checkpoint.json.gz")
def test_expected_lower_bounds_of_one_rank():
    """Computed apart from the package, from the raw JSON: algbw and busbw of a rank of eight."""
    found = hg.load(located("tracelens/resnet_act_checkpoint.json.gz")).compile().collectives()
    least = found[["n_bytes", "least_algbw_gb_per_s", "least_busbw_gb_per_s"]].head(5)

    assert least.round(3).to_numpy().tolist() == [
        [19_200, 1.341, 1.341],
        [160, 0.025, 0.025],
        [5_746_640, 0.831, 1.455],
        [17_632_384, 1.974, 3.454],
        [19_200, 1.312, 1.312],
    ]
