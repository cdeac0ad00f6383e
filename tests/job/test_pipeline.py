"""Pipelines of jobs: order, actions, causes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from htagraph import load, load_job
from htagraph.errors import IncompleteTraceWarning
from htagraph.job.pipeline import Pipeline, PipelineCauses
from htagraph.job.pipeline_actions import RankActions, rank_actions
from tests.job.drawn_pipelines import Order, drawn, gpipe, one_forward_one_backward


def usual(stage: int, phase: str, number: int) -> float:
    """A forward of 10 ms, a backward of 20 ms."""
    del stage, number
    return 10.0 if phase == "F" else 20.0


def test_the_parts_of_a_step_add_up() -> None:
    """Stage 1 of two with two micro-batches: it begins 10 ms later, and ends 20 ms earlier."""
    table = drawn(2, 2, usual).table()
    row = table.query("rank == 1 and step == 0").iloc[0]
    parts = ("forward", "backward", "weight", "transfer", "between", "warm_up", "stall", "drain")
    assert [row[f"{part}_ns"] / 1e6 for part in parts] == [20, 40, 0, 0, 0, 10, 0, 20]
    assert (row["after_ns"], row["dur_ns"]) == (2_000_000, 92_000_000)
    first = table.query("rank == 0 and step == 0").iloc[0]
    assert (first["stall_ns"], first["warm_up_ns"], first["drain_ns"]) == (30_000_000, 0, 0)


def test_a_transfer_is_not_a_stall() -> None:
    """Two gradients arrive 3 ms after they are computed."""
    row = drawn(2, 2, usual, transfer_ms=3).table().query("rank == 0 and step == 0").iloc[0]
    assert row["transfer_ns"] == 6_000_000


@pytest.mark.parametrize("order", [gpipe, one_forward_one_backward])
@pytest.mark.parametrize(("n_stages", "n_batches"), [(2, 2), (4, 8), (3, 12)])
def test_the_ideal_bubble_is_that_of_the_schedule(
    order: Order, n_stages: int, n_batches: int
) -> None:
    """However uneven stages are, and however slow transfers."""
    uneven = drawn(
        n_stages, n_batches, lambda s, p, n: usual(s, p, n) + 3 * s, order=order, transfer_ms=2
    )
    expected = (n_stages - 1) / (n_batches + n_stages - 1)
    assert uneven.ideal_bubble == pytest.approx(expected, abs=1e-6)


def test_a_replay_without_changes_is_the_record() -> None:
    """Every action ends when it ended."""
    pipeline = drawn(4, 8, lambda s, p, n: usual(s, p, n) + (s * 7 + n * 3) % 5, transfer_ms=1)
    ends = pipeline.actions["end_ns"].to_numpy()[pipeline.schedule.order]
    assert np.array_equal(pipeline.schedule.ends(), ends)


def test_a_window_keeps_the_steps_of_which_it_has_most() -> None:
    """Step 1 of two."""
    pipeline = drawn(2, 2, usual)
    second = pipeline.steps[pipeline.steps["step"] == 1]
    bounds = {
        rank: (start, end)
        for rank, start, end in zip(
            second["rank"], second["start_ns"], second["end_ns"], strict=True
        )
    }
    kept = pipeline.within(bounds)
    assert kept is not None
    assert kept.table()["step"].unique().tolist() == [1]


def test_a_step_is_contradicted_if_an_action_begins_before_its_input_ended() -> None:
    """By more than clocks of one host differ: in step 1, stage 1 begins 5 ms too early."""
    pipeline = drawn(2, 2, usual)
    acts = pipeline.actions
    early = (acts["step"] == 1) & (acts["stage"] == 1) & (acts["phase"] == "F")
    moved = acts.assign(begin_ns=acts["begin_ns"] - 5_000_000 * early)
    assert pipeline.contradicted.tolist() == []
    assert replace(pipeline, actions=moved).contradicted.tolist() == [1]


def test_a_step_is_contradicted_if_an_action_ends_before_its_input() -> None:
    """In step 1, stage 1 is done with its first forward before stage 0 begins it."""
    pipeline = drawn(2, 2, usual)
    acts = pipeline.actions
    first = (acts["step"] == 1) & (acts["phase"] == "F") & (acts["micro_batch"] == 0)
    late = first & (acts["stage"] == 0)
    moved = acts.assign(end_ns=acts["end_ns"] + 500_000_000 * late)

    assert replace(pipeline, actions=moved).contradicted.tolist() == [1]


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


def base(stage: int, phase: str, number: int) -> float:
    """A forward of 10 ms, a backward of 20 ms."""
    del stage, number
    return 10.0 if phase == "F" else 20.0


def causes(pipeline: Pipeline) -> pd.DataFrame:
    """What is called a cause."""
    found = PipelineCauses(pipeline).table
    return found[found["is_cause"]].reset_index(drop=True)


def saved_ms(slow: Pipeline, without: Pipeline) -> float:
    """By how much a step is longer."""
    return float(slow.step_ns.mean() - without.step_ns.mean()) / 1e6


def test_equal_stages_have_no_cause() -> None:
    """Up to 2% apart: stages, micro-batches and actions."""
    even = drawn(4, 8, lambda s, p, n: base(s, p, n) * (1 + (s * 5 + n * 3) % 5 / 200))
    assert causes(even).empty


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_a_slow_stage_saves_what_it_costs(stage: int) -> None:
    """It takes twice as long; with the others' time the run is that of equal stages."""
    slow = drawn(4, 8, lambda s, p, n: base(s, p, n) * (2 if s == stage else 1), transfer_ms=1)
    found = causes(slow)
    assert found[["change", "stage", "rank"]].to_numpy().tolist() == [["stage", stage, stage]]
    assert found["ratio"][0] == pytest.approx(2)
    without = drawn(4, 8, base, transfer_ms=1)
    assert found["saves_ns"][0] / 1e6 == pytest.approx(saved_ms(slow, without), rel=0.05)


def test_a_stage_is_slow_from_a_tenth_on() -> None:
    """Below that, stages are equal; 9% more would save 7% of the step."""
    for extra, n in ((0.09, 0), (0.11, 1)):
        slow = drawn(4, 8, lambda s, p, n, x=extra: base(s, p, n) * (1 + x * (s == 1)))
        assert len(causes(slow)) == n


def test_of_two_stages_the_faster_is_the_measure() -> None:
    """Their median would be their mean, which nothing is faster than."""
    slow = drawn(2, 8, lambda s, p, n: base(s, p, n) * (1 + s))
    found = causes(slow)
    assert found["stage"].tolist() == [1]
    assert found["saves_ns"][0] / 1e6 == pytest.approx(saved_ms(slow, drawn(2, 8, base)), rel=0.01)


def test_moved_layers_save_less_than_a_fast_stage() -> None:
    """The work of the slow stage has to be done: each of four takes a quarter more."""
    slow = drawn(4, 8, lambda s, p, n: base(s, p, n) * (2 if s == 2 else 1))
    even = drawn(4, 8, lambda s, p, n: base(s, p, n) * 1.25)
    assert causes(slow)["spread_ns"][0] / 1e6 == pytest.approx(saved_ms(slow, even), rel=0.01)


def test_an_uneven_micro_batch_is_no_slow_stage() -> None:
    """Micro-batch 3 takes three times as long on every stage."""
    slow = drawn(4, 8, lambda s, p, n: base(s, p, n) * (3 if n == 3 else 1), order=gpipe)
    found = causes(slow)
    assert found[["change", "micro_batch"]].to_numpy().tolist() == [["micro-batch", 3]]
    without = drawn(4, 8, base, order=gpipe)
    assert found["saves_ns"][0] / 1e6 == pytest.approx(saved_ms(slow, without), rel=0.01)


def test_noise_on_uneven_micro_batches_is_no_slow_stage() -> None:
    """Stages are compared micro-batch by micro-batch: one of four takes 40% longer on stage 3."""

    def dur(stage: int, phase: str, number: int) -> float:
        size = 3 if number == 2 else 1
        return base(stage, phase, number) * size * (1.4 if (stage, number) == (3, 3) else 1)

    assert "stage" not in causes(drawn(4, 4, dur))["change"].tolist()


def test_one_slow_replica_is_a_rank_and_not_a_stage() -> None:
    """Rank 5 is stage 1 of the second of two pipelines; the other stage 1 is as fast as all."""
    found = causes(drawn(4, 8, base, n_replicas=2, slow_rank=5))
    assert found[["change", "rank"]].to_numpy().tolist() == [["rank", 5]]


def test_a_stage_slow_in_every_replica_is_a_stage() -> None:
    """Ranks 2 and 6."""
    slow = drawn(4, 8, lambda s, p, n: base(s, p, n) * (2 if s == 2 else 1), n_replicas=2)
    found = causes(slow)
    assert found[["change", "stage", "rank"]].to_numpy().tolist() == [["stage", 2, -1]]


def test_an_action_that_is_slow_in_every_step_is_named() -> None:
    """The forward of micro-batch 1 on stage 1 takes 40 ms longer."""

    def dur(stage: int, phase: str, number: int) -> float:
        return base(stage, phase, number) + 40 * ((stage, phase, number) == (1, "F", 1))

    slow = drawn(4, 8, dur)
    found = causes(slow)
    named = found[["change", "rank", "micro_batch"]].to_numpy().tolist()
    assert named == [["action", 1, 1]]
    assert found["saves_ns"][0] / 1e6 == pytest.approx(saved_ms(slow, drawn(4, 8, base)), rel=0.01)


@pytest.mark.parametrize(("extra_ms", "n"), [(7, 0), (15, 1)])
def test_a_repair_that_saves_little_is_no_cause(extra_ms: int, n: int) -> None:
    """The last backward takes longer, in a step of 330 ms: 2% of it, or 4%."""
    few = drawn(4, 8, lambda s, p, m: base(s, p, m) + extra_ms * ((s, p, m) == (0, "B", 7)))
    assert len(causes(few)) == n


STALL_CAUSES = ("rank", "stage", "micro_batch", "action", "transfer", "between", "schedule")


def stalls(pipeline: Pipeline) -> pd.DataFrame:
    """What the stalls of each rank are due to, in ms a step; without parts that are nothing."""
    table = pipeline.table(PipelineCauses(pipeline).repaired)
    parts = [f"stall_{name}_ns" for name in STALL_CAUSES]
    found = table.groupby("rank")[parts].mean() / 1e6
    found.columns = pd.Index(STALL_CAUSES)
    return found.loc[:, (found > 0).any()]


@pytest.mark.parametrize(
    ("cause", "order"),
    [("stage", one_forward_one_backward), ("micro_batch", gpipe), ("action", gpipe)],
)
def test_a_stall_is_due_to_what_is_slow_as_far_as_it_goes_with_it(cause: str, order: Order) -> None:
    """The rest is the stall of equal stages, which the schedule makes."""

    def dur(stage: int, phase: str, number: int) -> float:
        slow = {
            "stage": 2 if stage == 2 else 1,
            "micro_batch": 3 if number == 3 else 1,
            "action": 4 if (stage, phase, number) == (1, "F", 1) else 1,
        }
        return base(stage, phase, number) * slow[cause]

    slow, equal = stalls(drawn(4, 8, dur, order=order)), stalls(drawn(4, 8, base, order=order))
    assert set(slow.columns) == {cause, "schedule"}
    assert slow["schedule"].to_list() == pytest.approx(
        [min(*both) for both in zip(equal["schedule"], slow.sum(axis=1), strict=True)]
    )


def test_a_stall_is_due_to_a_slow_rank_before_all_else() -> None:
    """Rank 5 of two pipelines: the stalls of the other one are those of its schedule."""
    found = stalls(drawn(4, 8, base, n_replicas=2, slow_rank=5))
    assert found["rank"].gt(0).tolist() == [False, False, False, False, True, False, True, True]


def test_transfers_make_others_stall() -> None:
    """Of 3 ms each: without them, every stall is as long as where they are free."""
    slow, free = (stalls(drawn(4, 8, base, transfer_ms=ms)) for ms in (3, 0))
    assert slow["schedule"].to_list() == pytest.approx(free["schedule"].to_list())
    assert slow["transfer"].max() > 3
