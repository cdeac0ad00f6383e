"""Hardware counters."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.errors import QueryError
from htagraph.queries.cupti import cupti_counters
from tests.queries.counted import ALL, TWO_KERNELS, VALUES, args, counted


def test_the_nth_range_belongs_to_the_nth_launch():
    """Kernels run one by one while they are counted."""
    frame = cupti_counters(TWO_KERNELS, ALL, args=args)

    assert len(frame) == 2 * 3
    assert frame.drop_duplicates("event")[["name", "op", "top_op"]].to_numpy().tolist() == [
        ["gemm", "aten::mm", "aten::linear"],
        ["gemm", "aten::mm", "aten::linear"],
    ]
    assert frame.drop_duplicates("event")["launch"].is_unique


def test_without_as_many_launches_as_ranges_nothing_is_guessed():
    """One launch, two ranges: who knows which."""
    dag = counted("cpu 1 |[aten::mm [launch]]\nstream 7 |                      [gemm][gemm]")
    frame = cupti_counters(dag, ALL, args=args)

    assert set(frame["launch"]) == {-1}
    assert set(frame["op"]) == {""}


def test_args_must_be_given_for_every_range():
    """Half an answer would be a wrong one."""
    with pytest.raises(QueryError, match="1 of 2 events"):
        cupti_counters(TWO_KERNELS, ALL, args=lambda _: [VALUES])


def counted_rank(rank: int) -> str:
    """A trace of one launch and, within it, one range, which counts 64 bytes, or 128."""
    event = '{{"ph": "X", "pid": 1, "tid": {tid}, "ts": {ts}, "dur": 9, {rest}}}'
    launch = event.format(
        tid=1, ts=10, rest='"cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {}'
    )
    args = f'"args": {{"dram__bytes.sum": {64 * (rank + 1)}}}'
    counted = event.format(
        tid=7, ts=12 + rank, rest=f'"cat": "cuda_profiler_range", "name": "gemm", {args}'
    )
    about = f'"distributedInfo": {{"rank": {rank}, "world_size": 2}}'
    return f'{{{about}, "traceEvents": [{launch}, {counted}]}}'


def test_counters_of_all_ranks_of_a_job_are_read(tmp_path):
    """From the file of each; kept graphs are without them."""
    for rank in (0, 1):
        (tmp_path / f"rank-{rank}.json").write_text(counted_rank(rank))
    job = hg.load_job(tmp_path)
    found = job.cupti_counters()

    assert found[["rank", "name", "counter", "value"]].to_numpy().tolist() == [
        [0, "gemm", "dram__bytes.sum", 64.0],
        [1, "gemm", "dram__bytes.sum", 128.0],
    ]
    assert job.cupti_rates()["rank"].tolist() == [0, 1]
