"""Layouts: the place of each rank in data, tensor, pipeline and expert parallel groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from htagraph.errors import QueryError
from htagraph.job.job import Job
from htagraph.job.loading import load_job

Groups = Sequence[tuple[str, Callable[[int], Sequence[int]]]]
"""Descriptions of groups, and their ranks by a member."""

AXES = ["replica", "shard", "stage", "expert", "context"]
CAME_US = 1_000


def op(name: str, start: int, end: int, thread: int = 1) -> dict[str, Any]:
    """An event as PyTorch writes it."""
    kind = "cpu_op" if "::" in name else "user_annotation"
    times = {"ts": start, "dur": end - start, "pid": 1, "tid": thread}
    return {"ph": "X", "cat": kind, "name": name, **times}


def written(
    folder: Path,
    n_ranks: int,
    groups: Groups,
    events: Callable[[int], list[dict[str, Any]]] = lambda _: [op("aten::mm", 0, 9)],
) -> Job:
    """A job whose header has these groups; every rank runs the same events."""
    for rank in range(n_ranks):
        config = [
            {"pg_name": str(name), "pg_desc": described, "ranks": list(members(rank))}
            for name, (described, members) in enumerate(groups)
        ]
        info = {"rank": rank, "world_size": n_ranks, "pg_config": config}
        own = [{**one, "pid": 1 + rank} for one in events(rank)]
        trace = {"distributedInfo": info, "host_name": "node-0", "traceEvents": own}
        (folder / f"rank{rank}.json").write_text(json.dumps(trace))
    return load_job(folder)


def places(job: Job, axis: str) -> list[int]:
    """The coordinates of all ranks along an axis."""
    return [int(place) for place in job.layout()[axis]]


def pairs(rank: int) -> list[int]:
    """Ranks 0 and 1, ranks 2 and 3, and so on."""
    return [rank - rank % 2, rank - rank % 2 + 1]


def test_a_device_mesh_names_its_groups(tmp_path: Path) -> None:
    """Pipeline, then data, then tensor parallel, the last the fastest."""
    groups: Groups = [
        ("default_pg", lambda _: range(8)),
        ("mesh_pp", lambda rank: [rank % 4, rank % 4 + 4]),
        ("mesh_dp_shard", lambda rank: [rank // 4 * 4 + rank % 2, rank // 4 * 4 + rank % 2 + 2]),
        ("mesh_tp", pairs),
    ]
    job = written(tmp_path, 8, groups)
    assert places(job, "stage") == [0, 0, 0, 0, 1, 1, 1, 1]
    assert places(job, "replica") == [0, 0, 1, 1, 0, 0, 1, 1]
    assert places(job, "shard") == [0, 1, 0, 1, 0, 1, 0, 1]
    assert places(job, "expert") == [-1] * 8
    told = "replica: mesh_dp_shard; shard: mesh_tp; stage: mesh_pp"
    assert job.layout()["source"].unique().tolist() == [told]
    found = job.process_groups().set_index("description")
    assert found.loc["mesh_pp", "stride"].unique().tolist() == [4]
    assert (found["axis"] != "").sum() == 12


def test_megatron_describes_its_groups(tmp_path: Path) -> None:
    """What is of two kinds at once, such as all ranks of a model, is of none."""
    groups: Groups = [
        ("TENSOR_MODEL_PARALLEL_GROUP", pairs),
        ("DATA_PARALLEL_GROUP", lambda rank: [rank % 2, rank % 2 + 2]),
        ("EXPERT_MODEL_PARALLEL_GROUP", lambda rank: [rank % 2, rank % 2 + 2]),
        ("MODEL_PARALLEL_GROUP", pairs),
        ("EXPERT_DATA_PARALLEL_GROUP", pairs),
    ]
    job = written(tmp_path, 4, groups)
    assert job.layout()[AXES].to_numpy().tolist() == [
        [0, 0, -1, 0, -1],
        [0, 1, -1, 0, -1],
        [1, 0, -1, 1, -1],
        [1, 1, -1, 1, -1],
    ]


def test_copies_of_ranks_that_share_parameters_are_all_replicas(tmp_path: Path) -> None:
    """Two copies of two ranks: four places."""
    groups: Groups = [
        ("mesh_dp_shard", pairs),
        ("mesh_dp_replicate", lambda rank: [rank % 2, rank % 2 + 2]),
    ]
    assert places(written(tmp_path, 4, groups), "replica") == [0, 1, 2, 3]


def test_what_nothing_tells_is_unknown_unless_it_is_given(tmp_path: Path) -> None:
    """A group without description and collectives."""
    job = written(tmp_path, 2, [("undefined", lambda _: range(2))])
    assert job.layout()[AXES].to_numpy().tolist() == [[-1] * 5] * 2
    assert job.layout(given="0=shard")["shard"].tolist() == [0, 1]
    assert job.process_groups(given="0=shard")["source"].tolist() == ["given"]
    with pytest.raises(QueryError, match="'0=tp' names no axis"):
        job.layout(given="0=tp")


@pytest.mark.parametrize(
    ("around", "axis"),
    [
        ("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "replica"),
        ("FSDP::all_gather", "replica"),
        ("_ReduceFromModelParallelRegion", "shard"),
        ("ProfilerStep#1", ""),
    ],
)
def test_operators_around_collectives_tell_what_a_group_is(
    tmp_path: Path, around: str, axis: str
) -> None:
    """Gradients that are accumulated are averaged over replicas; Megatron has layers of its own."""

    def events(rank: int) -> list[dict[str, Any]]:
        call = op("c10d::allreduce_", 10 + rank, 20)
        run = op("gloo:all_reduce", 12 + rank, 30, thread=2)
        return [op(around, 5, 25), call, run, op("aten::mm", 40, 50)]

    job = written(tmp_path, 2, [("undefined", lambda _: range(2))], events)
    assert job.process_groups()["axis"].tolist() == [axis]


def test_a_group_that_only_sends_and_receives_is_a_pipeline(tmp_path: Path) -> None:
    """Its ranks are stages."""

    def events(rank: int) -> list[dict[str, Any]]:
        verb = "recv" if rank else "send"
        return [op(f"c10d::{verb}{'_' * rank}", 10, 20), op(f"gloo:{verb}", 12, 19)]

    job = written(tmp_path, 2, [("default_pg", lambda _: range(2))], events)
    assert places(job, "stage") == [0, 1]


def test_stragglers_by_part_are_sums_of_their_ranks(tmp_path: Path) -> None:
    """Rank 3 comes a millisecond after the others, which share its host."""

    def events(rank: int) -> list[dict[str, Any]]:
        came = [100, 100, 100, 100 + CAME_US][rank]
        call = op("c10d::allreduce_", came, came + 9)
        run = op("gloo:all_reduce", came + 2, 1_200, thread=2)
        return [op("aten::mm", 0, came), call, run, op("aten::add_", 1_210, 1_250)]

    job = written(tmp_path, 4, [("mesh_dp", lambda _: range(4))], events)
    by_rank, by_host = job.stragglers(), job.stragglers(by="host")
    assert by_rank["part"].tolist() == [""] * 4
    assert by_host[["part", "rank", "n_last"]].to_numpy().tolist() == [["node-0", 3, 1]]
    assert by_host["own_wait_ns"].tolist() == [3_000_000]
    assert job.stragglers(by="replica")["part"].tolist()[0] == "3"
    assert job.stragglers(by="stage").empty
    with pytest.raises(QueryError, match="no part of a job is called 'node'"):
        job.stragglers(by="node")  # type: ignore[arg-type]
