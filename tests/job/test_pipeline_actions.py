"""What a rank did for a pipeline, and where its thread was blocked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from htagraph import load, load_job
from htagraph.errors import IncompleteTraceWarning
from htagraph.job.pipeline_actions import RankActions, rank_actions

Drawn = tuple[str, int, int]
"""Name, start and end in us: operators have ``::``, others are ranges."""

STEP = ("ProfilerStep#0", 0, 2_000)


def written(path: Path, events: list[Drawn], **head: object) -> Path:
    """A file as PyTorch writes it; the peer of a send or receive follows its name."""
    rows = []
    for named, start, end in events:
        name, _, peer = named.partition(" to ")
        args = {"Concrete Inputs": ["", "", peer, "0"]} if peer else {}
        kind = "cpu_op" if "::" in name else "user_annotation"
        row = {"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 1, "args": args}
        rows.append(row | {"ts": start, "dur": end - start})
    path.write_text(json.dumps({"traceEvents": rows, **head}))
    return path


def did(folder: Path, events: list[Drawn]) -> RankActions:
    """The actions of a rank."""
    found = rank_actions(load(written(folder / "rank0.json", events)).compile())
    assert found is not None
    return found


def test_an_action_begins_when_its_input_is_there(tmp_path: Path) -> None:
    """Not where its annotation begins; and it waits from there, not from where it posted."""
    found = did(
        tmp_path,
        [
            STEP,
            ("c10d::recv_", 10, 20),
            ("gloo:recv", 15, 310),
            ("PP:1F0", 100, 500),
            ("aten::mm", 315, 490),
        ],
    )
    row = found.actions.iloc[0]
    assert (row["stage"], row["phase"], row["micro_batch"]) == (1, 0, 0)
    assert (row["begin_ns"], row["end_ns"], row["waited_ns"]) == (310_000, 500_000, 210_000)
    assert row["python_ns"] == 15_000
    assert found.waits.tolist() == [[100_000, 310_000]]


@pytest.mark.parametrize(
    ("call_us", "waits"),
    [(40, [[140_000, 310_000]]), (60, [[100_000, 310_000], [530_000, 590_000]])],
)
def test_a_call_that_need_not_wait_is_no_wait(
    tmp_path: Path, call_us: int, waits: list[list[int]]
) -> None:
    """The second wait is short: up to 50 us, that is what a call takes, and so did the first."""
    found = did(
        tmp_path,
        [
            STEP,
            ("c10d::recv_", 10, 20),
            ("gloo:recv", 15, 310),
            ("PP:1F0", 100, 500),
            ("aten::mm", 315, 490),
            ("PP:1RECV_F1", 505, 525),
            ("c10d::recv_", 510, 520),
            ("gloo:recv", 515, 530 + call_us),
            ("PP:1F1", 530, 900),
            ("aten::mm", 600, 890),
        ],
    )
    assert found.waits.tolist() == waits


def test_several_receives_of_one_wait_are_one_wait(tmp_path: Path) -> None:
    """A batch of two: the thread is blocked until the last one."""
    found = did(
        tmp_path,
        [
            STEP,
            ("c10d::send", 10, 20),
            ("gloo:send", 15, 305),
            ("c10d::recv_", 22, 30),
            ("gloo:recv", 25, 310),
            ("PP:1F0", 100, 500),
            ("aten::mm", 315, 490),
        ],
    )
    assert found.waits.tolist() == [[100_000, 310_000]]


def test_messages_are_of_the_actions_that_annotations_name(tmp_path: Path) -> None:
    """Whatever ran next: the receive of micro-batch 3 is posted before micro-batch 0 runs."""
    found = did(
        tmp_path,
        [
            STEP,
            ("PP:2RECV_F3", 5, 40),
            ("c10d::recv_", 10, 20),
            ("gloo:recv", 15, 700),
            ("PP:2F0", 50, 300),
            ("aten::mm", 60, 290),
            ("PP:2F3", 400, 900),
            ("aten::mm", 710, 890),
        ],
    )
    keys = ["sends", "stage", "phase", "micro_batch"]
    assert found.messages[keys].to_numpy().tolist() == [[False, 2, 0, 3]]


def test_a_rank_that_passes_nothing_on_is_no_pipeline(tmp_path: Path) -> None:
    """Annotations alone are not enough: nothing says where it waits."""
    events = [STEP, ("PP:1F0", 100, 500), ("aten::mm", 315, 490)]
    assert rank_actions(load(written(tmp_path / "rank0.json", events)).compile()) is None


def job_of_three(folder: Path, named: str) -> Path:
    """Rank 0 sends to rank 2, rank 1 has no part in it."""
    sender = [("aten::mm", 0, 400), (f"c10d::send{named}", 410, 450), ("gloo:send", 420, 445)]
    receiver = [(f"c10d::recv_{named and ' to 0'}", 10, 40), ("gloo:recv", 20, 460)]
    for rank, events in enumerate([sender, [("aten::mm", 0, 400)], receiver]):
        groups = [{"pg_name": "0", "ranks": [0, 1, 2]}]
        info = {"rank": rank, "world_size": 3, "backend": "gloo", "pg_config": groups}
        written(folder / f"rank{rank}.json", events, distributedInfo=info, host_name="a")
    return folder


def test_recorded_peers_match_a_send_with_its_receive(tmp_path: Path) -> None:
    """With shapes, the third input of the operator is the peer: rank 2 waits from 20 to 410 us."""
    found = load_job(job_of_three(tmp_path, " to 2")).collectives()
    assert found[["rank", "operation", "wait_ns"]].to_numpy().tolist() == [
        [0, "send", 0],
        [2, "recv", 390_000],
    ]


def test_sends_without_peers_are_not_matched_and_that_is_told(tmp_path: Path) -> None:
    """Rank 1 could be either's peer."""
    job = load_job(job_of_three(tmp_path, ""))
    with pytest.warns(IncompleteTraceWarning, match="2 of 2 sends and receives are not matched"):
        assert job.collectives().empty
