"""Pairs of programs differ by their change, and by nothing else."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase

import pytest

from htagraph.model.kinds import EventKind
from tests.synth.program import Program
from tests.synth.repairs import KINDS, Repair, repair
from tests.synth.rows import Row
from tests.synth.shaped import GEMM
from tests.synth.simulated import SimulatedRank
from tests.synth.simulator import simulate, simulate_job

LESS = (
    "loader faster", "loader removed", "prefetch", "item removed", "sync removed", "kernel faster",
    "operator removed", "host faster", "copy asynchronous", "bandwidth", "straggler cured",
    "straggler's operator faster", "bandwidth of a job",
)  # fmt: skip
"""Kinds after which somebody has less to do, or to wait for."""
WORK = (EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET)


def recorded(rank: SimulatedRank) -> list[Row]:
    """The events of a rank, without the projections of host ranges onto streams."""
    return [row for row in rank.rows if row.kind != EventKind.DEVICE_ANNOTATION]


def rows(program: Program) -> list[Row]:
    """The recorded events of a program."""
    return recorded(simulate(program))


def of_pair(pair: Repair) -> list[tuple[list[Row], list[Row]]]:
    """Events before and after, of each rank."""
    if isinstance(pair.before, Program):
        return [(rows(pair.before), rows(pair.after))]
    jobs = [simulate_job(job).ranks for job in (pair.before, pair.after)]
    return [(recorded(before), recorded(after)) for before, after in zip(*jobs, strict=True)]


def work(found: list[Row]) -> Counter[tuple[str, int]]:
    """How often device work of each name took how long."""
    return Counter((row.name, row.dur_ns) for row in found if row.kind in WORK)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("kind", "gone"),
    [
        ("loader removed", {"enumerate(DataLoader)*"}),
        ("sync removed", {"cudaDeviceSynchronize", "Context Sync"}),
        (
            "operator removed",
            {"aten::native_layer_norm", "vectorized_layer_norm_kernel", "cudaLaunchKernel"},
        ),
        (
            "item removed",
            {"aten::item", "aten::_local_scalar_dense", "Memcpy DtoH*", "cudaMemcpyAsync"}
            | {"cudaStreamSynchronize", "Stream Sync"},
        ),
    ],
)
def test_what_is_removed_is_gone_and_all_else_is_there(
    kind: str, gone: set[str], seed: int
) -> None:
    """What is gone are events of that name and what is under them."""
    pair = repair(kind, seed)
    before, after = (Counter(row.name for row in rows(one)) for one in (pair.before, pair.after))

    assert not after - before
    assert not any(fnmatchcase(name, pair.change.arguments[0]) for name in after)
    assert all(
        any(fnmatchcase(name, pattern) for pattern in gone) or name.startswith("autograd::engine")
        for name in before - after
    )


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("fused", "bandwidth")])
def test_device_work_outside_of_the_change_takes_as_long(kind: str, seed: int) -> None:
    """No duration is drawn anew."""
    pair = repair(kind, seed)
    chosen = pair.change.arguments[0] if pair.change.arguments else ""
    for before, after in of_pair(pair):
        less, more = work(before) - work(after), work(after) - work(before)
        changed = {name for name, _ in less | more}
        if pair.change.verb == "equalise":
            assert all(name == GEMM or "nccl" in name for name in changed)
        elif pair.change.verb == "remove":
            assert not more
        elif pair.change.verb == "scale":
            assert all(name == chosen or "nccl" in name for name in changed)
        elif pair.shape != "job":
            assert not changed


@pytest.mark.some(4)
@pytest.mark.parametrize("kind", LESS)
def test_who_has_less_to_do_is_done_no_later(kind: str) -> None:
    """A saving is not negative."""
    assert repair(kind, 0).saving_ns >= 0


def test_a_batch_that_is_prefetched_is_waited_for_as_long_as_it_is_not_there() -> None:
    """It is loaded from when the one before was handed out."""
    pair = repair("prefetch", 2)
    loaded, waited = (
        [row for row in rows(one) if row.name.startswith("enumerate")]
        for one in (pair.before, pair.after)
    )
    ready = [
        earlier.end_ns + load.dur_ns for earlier, load in zip(waited, loaded[1:], strict=False)
    ]

    assert waited[0].dur_ns == loaded[0].dur_ns
    assert [row.end_ns for row in waited[1:]] == [
        max(ready_ns, row.ts_ns) for ready_ns, row in zip(ready, waited[1:], strict=True)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_a_fused_kernel_takes_what_its_parts_took(seed: int) -> None:
    """One launch is left of each run."""
    pair = repair("fused", seed)
    first, *others = pair.change.arguments
    before, after = work(rows(pair.before)), work(rows(pair.after))
    total = sum(ns * n for (_, ns), n in before.items())

    assert sum(ns * n for (_, ns), n in after.items()) == total
    assert first in {name for name, _ in after}
    assert not set(others) & {name for name, _ in after}


@pytest.mark.parametrize("seed", range(3))
def test_a_step_that_replays_a_graph_launches_once(seed: int) -> None:
    """It runs the same work, which takes as long."""
    pair = repair("graphed", seed)
    assert isinstance(pair.after, Program)
    steps = [row for row in rows(pair.after) if row.name.startswith("ProfilerStep#")]
    replays = [row for row in rows(pair.after) if row.name == "cudaGraphLaunch"]

    assert work(rows(pair.before)) == work(rows(pair.after))
    assert len(replays) == len(steps)
