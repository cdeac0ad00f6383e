"""Timelines of workers: what each repair saves is what the repaired job takes less."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import htagraph as hg
from htagraph.cli.main import main
from htagraph.errors import QueryError, TraceFormatError
from htagraph.job.workers import Workers
from tests.job.worker_timelines import Job, file_of, usual

ST = Path(os.environ.get("HTAGRAPH_TRACES", "")) / ".." / "straggler" / "timeline-ST.json.gz"


def heavy_last(direction: str, stage: int, dp: int, mb: int, step: int) -> float:
    """The last of four stages takes twice as long."""
    return usual(direction, stage, dp, mb, step) * (2 if stage == 3 else 1)


def one_slow(direction: str, stage: int, dp: int, mb: int, step: int) -> float:
    """One worker takes half as long again."""
    return usual(direction, stage, dp, mb, step) * (1.5 if (dp, stage) == (0, 1) else 1)


def two_slow(direction: str, stage: int, dp: int, mb: int, step: int) -> float:
    """One worker takes half as long again, a worker of the other replica less than that."""
    more = {(0, 1): 1.5, (1, 2): 1.3}.get((dp, stage), 1)
    return usual(direction, stage, dp, mb, step) * more


def slow_replica(direction: str, stage: int, dp: int, mb: int, step: int) -> float:
    """All workers of one replica take a quarter longer."""
    return usual(direction, stage, dp, mb, step) * (1.25 if dp == 1 else 1)


def uneven(direction: str, stage: int, dp: int, mb: int, step: int) -> float:
    """Micro-batches of other lengths, as many long as short ones in a step."""
    order = np.random.default_rng([dp, step]).permutation(6)
    return usual(direction, stage, dp, mb, step) * (1 + 0.15 * (order[mb] - 2.5))


def workers_of(job: Job) -> Workers:
    return hg.load_workers(file_of(job)[0])


def length_of(job: Job) -> float:
    return file_of(job)[1]


def test_the_replay_takes_what_the_job_took() -> None:
    """Whatever takes time."""
    for cost, chunks in ((usual, 1), (heavy_last, 1), (one_slow, 1), (uneven, 1), (uneven, 2)):
        content, mean = file_of(Job(cost=cost, replicas=3, chunks=chunks))

        assert hg.load_workers(content).step_ns == pytest.approx(mean * 1e6, rel=1e-6)


@pytest.mark.parametrize(
    ("cost", "change", "place"),
    [
        (heavy_last, "stage", {"stage": 3}),
        (one_slow, "worker", {"stage": 1, "dp": 0, "pp": 1}),
        (slow_replica, "replica", {"dp": 1}),
        (uneven, "micro-batch", {}),
    ],
)
def test_a_planted_cause_is_the_only_one(cost, change, place) -> None:
    """A slow worker is no heavy stage, and a heavy stage no uneven micro-batch."""
    causes = workers_of(Job(cost=cost, replicas=3)).causes()

    assert causes["change"].tolist() == [change]
    assert {name: causes[name][0] for name in place} == place


@pytest.mark.parametrize(("cost", "change"), [(one_slow, "worker"), (slow_replica, "replica")])
def test_the_saving_of_a_slow_worker_is_what_the_job_without_it_takes_less(cost, change) -> None:
    """Also of two replicas: one is compared with the other, not with the mean of both."""
    for replicas in (2, 3):
        found = workers_of(Job(cost=cost, replicas=replicas)).causes()
        truth = length_of(Job(cost=cost)) - length_of(Job())

        assert found["change"][0] == change
        assert found["saves_ns"][0] == pytest.approx(truth * 1e6, rel=0.01)


def test_a_second_slow_worker_saves_nothing_alone() -> None:
    """The replica of the slowest one still takes as long."""
    savings = workers_of(Job(cost=two_slow)).savings()
    workers = savings[savings["change"] == "worker"]

    assert workers["dp"].tolist() == [0, 1]
    assert workers["alone_ns"].iloc[0] > 0
    assert workers["alone_ns"].iloc[1] == 0


def test_a_slow_replica_of_two_stages_is_no_slow_worker() -> None:
    """Each of its two workers has half of what it loses."""
    causes = workers_of(Job(cost=slow_replica, stages=2, replicas=3)).causes()

    assert causes["change"].tolist() == ["replica"]


def test_what_saves_less_than_3_percent_is_no_cause() -> None:
    """A worker that is 6% slower, in steps that are twice as long for another reason."""

    def slower(direction: str, stage: int, dp: int, mb: int, step: int) -> float:
        return usual(direction, stage, dp, mb, step) * (1 + 0.06 * ((dp, stage) == (0, 0)))

    for optimizer, causes in ((0, ["worker"]), (2_000, [])):
        job = Job(cost=slower, stages=2, batches=30, replicas=3, optimizer=optimizer)

        assert workers_of(job).causes()["change"].tolist() == causes


def test_the_saving_of_equal_stages_keeps_the_work() -> None:
    """Four stages of a mean of 1.25 times the usual."""
    found = workers_of(Job(cost=heavy_last)).causes()
    truth = length_of(Job(cost=heavy_last)) - length_of(
        Job(cost=lambda *where: 1.25 * usual(*where))
    )

    assert found["saves_ns"][0] == pytest.approx(truth * 1e6, rel=0.01)
    assert found["ratio"][0] == pytest.approx(2)


def test_a_heavy_stage_of_an_interleaved_pipeline_is_named() -> None:
    """Two workers hold stages 0 and 2, and 1 and 3."""
    (cause,) = workers_of(Job(cost=heavy_last, chunks=2, replicas=3)).causes().to_dict("records")

    assert (cause["change"], cause["stage"], cause["pp"]) == ("stage", 3, 1)


def test_the_saving_of_even_batches_keeps_the_work() -> None:
    found = workers_of(Job(cost=uneven)).causes()

    truth = length_of(Job(cost=uneven)) - length_of(Job())
    assert found["saves_ns"][0] == pytest.approx(truth * 1e6, rel=0.01)


def test_a_slow_worker_explains_what_the_job_loses() -> None:
    """As recorded in an ideal run it slows that down; ideal in the recorded run, little is lost."""
    workers = workers_of(Job(cost=one_slow, replicas=3))
    by = {key: workers.slowdowns(by=key) for key in ("stage", "replica", "kind", "worker")}

    assert {key: frame["group"][0] for key, frame in by.items()} == {
        "stage": "1",
        "replica": "0",
        "kind": "backward-compute",
        "worker": "0-1-0",
    }
    assert by["worker"]["share"][0] > 0.9
    assert by["worker"]["slowdown"][1] <= 1
    with pytest.raises(QueryError, match="unknown groups 'rank'"):
        workers.slowdowns(by="rank")


def test_equal_workers_have_no_cause() -> None:
    """Nor those that vary by some percent: less than 3% of a step is no cause."""

    def noisy(*where: object) -> float:
        return usual(*where) * (1 + 0.02 * np.random.default_rng([*where[1:]]).standard_normal())

    for cost in (usual, noisy):
        workers = workers_of(Job(cost=cost, replicas=3))

        assert workers.causes().empty
        assert workers.verdict().startswith("No worker, stage, micro-batch or transfer costs 3%")


def test_a_worker_is_slow_from_a_twentieth_on() -> None:
    """With so few micro-batches, a worker 6% slower costs 4% of a step, and one 4% slower 3%."""

    def slower(by: float) -> Job:
        def cost(direction: str, stage: int, dp: int, mb: int, step: int) -> float:
            factor = 1 + by * ((dp, stage) == (0, 0))
            return usual(direction, stage, dp, mb, step) * factor

        return Job(cost=cost, stages=2, batches=30, replicas=3, gather=0, reduce=0, optimizer=0)

    assert workers_of(slower(0.06)).causes()["change"].tolist() == ["worker"]
    assert workers_of(slower(0.04)).causes().empty


def test_the_ideal_is_a_slowdown_of_one() -> None:
    assert workers_of(Job()).slowdown == pytest.approx(1)
    assert workers_of(Job(cost=heavy_last)).slowdown > 1.3


def test_stages_add_up_to_the_step() -> None:
    """Stage 0 of four: six forwards and backwards, no warm-up, no drain."""
    job = Job()
    stages = workers_of(job).stages()
    parts = stages.drop(columns=["pp", "dur_ns"]).sum(axis=1)

    assert parts.tolist() == pytest.approx(stages["dur_ns"].tolist())
    first = stages.iloc[0] / 1e6
    assert first[["gather_ns", "warm_up_ns", "forward_ns", "backward_ns"]].tolist() == [
        *(5, 0, 120, 240)
    ]
    assert (first["drain_ns"], first["after_ns"]) == (0, 8 + 1 + 10)
    assert stages["warm_up_ns"].tolist() == pytest.approx([0, 21e6, 42e6, 63e6])


def test_a_step_that_lacks_a_slice_is_left_out() -> None:
    """Whichever it is: a compute, a send, a collective of one member."""
    job = Job()
    job.run()
    content = json.loads(gzip.decompress(file_of(Job())[0]))
    names = [event for event in content if event["ph"] == "M"]
    for name in ("forward-compute", "backward-send", "grads-reduce-scatter"):
        lost = next(one for one in job.events if one["name"] == name and one["pid"] == 1)
        kept = [one for one in job.events if one is not lost]
        workers = hg.load_workers(json.dumps([*kept, *names]).encode())

        assert workers.n_left_out == 1
        assert workers.step_ns == pytest.approx(length_of(Job()) * 1e6)
        assert "Left out: 1 step that lack slices." in workers.verdict()


def test_steps_can_be_chosen() -> None:
    """By their numbers in the file; the steps of one job differ."""

    def growing(*where: object) -> float:
        return usual(*where) * (where[-1] - 9)

    content, _ = file_of(Job(cost=growing))
    chosen = hg.load_workers(content, steps=[11])

    twice = Job(cost=lambda *where: 2 * usual(*where))
    assert chosen.step_ns == pytest.approx(length_of(twice) * 1e6)
    with pytest.raises(TraceFormatError, match="no such step"):
        hg.load_workers(content, steps=[99])


def test_a_pause_of_one_worker_takes_its_time() -> None:
    """A garbage collection between two micro-batches, in its thread for compute."""
    content, mean = file_of(Job(stages=1, batches=3, steps=1))
    content = json.loads(gzip.decompress(content))
    begun = next(one for one in content if one["name"] == "forward-compute")
    pause = {**begun, "name": "gc", "dur": 500, "ts": begun["ts"] + 20_000}

    with_pause = hg.load_workers(json.dumps([*content, pause]).encode())
    assert with_pause.step_ns == pytest.approx(mean * 1e6 + 500e3)


def test_a_timeline_of_workers_is_no_trace_of_one_rank(tmp_path: Path) -> None:
    """Gaps of a worker are waits, and no code of the program."""
    file = tmp_path / "timeline.json.gz"
    file.write_bytes(file_of(Job())[0])
    with pytest.raises(TraceFormatError, match="a timeline of all workers of a job") as caught:
        hg.load(file)
    assert f"htagraph report {file}" in str(caught.value.hint)

    with pytest.raises(TraceFormatError, match="no timeline of workers"):
        hg.load_workers(hg.demo_trace("none"))


def test_the_report_says_what_the_job_loses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its first sentence is the cause; --json has the tables."""
    file = tmp_path / "timeline.json.gz"
    file.write_bytes(file_of(Job(cost=heavy_last))[0])
    with pytest.raises(SystemExit):
        main(["report", str(file), "--quiet", "--json", str(tmp_path / "report.json")])
    said = capsys.readouterr().out.splitlines()

    assert said[1] == "8 workers (2 data-parallel x 4 pipeline x 1 tensor-parallel) · 3 steps"
    assert said[3].startswith("Stage 3, the last stage, takes 2.00 times as long as the others")
    document = json.loads((tmp_path / "report.json").read_text())
    assert [row["pp"] for row in document["stages"]] == [0, 1, 2, 3]

    with pytest.raises(SystemExit):
        main(["report", str(file), "--window", "11"])
    assert "--window, --rank, --out and --open are for traces" in capsys.readouterr().err


def test_a_timeline_of_workers_is_no_rank_of_a_folder(tmp_path: Path) -> None:
    """It is listed as what it is."""
    (tmp_path / "timeline.json").write_bytes(gzip.decompress(file_of(Job())[0]))
    shutil.copy(hg.demo_trace("none"), tmp_path / "rank0.pt.trace.json.gz")
    found = hg.discover(tmp_path)

    assert found["capture"].tolist() == [1, 0]
    assert found["note"].tolist() == ["", "timeline of all workers of a job"]


def test_a_damaged_timeline_is_refused() -> None:
    content = gzip.decompress(file_of(Job())[0])
    for broken in (
        content[: len(content) // 2],
        content.replace(b'"dur"', b'"took"'),
        content.replace(b"PP rank", b"rank"),
    ):
        with pytest.raises(TraceFormatError):
            hg.load_workers(broken)


@pytest.mark.skipif(not ST.exists(), reason="needs ByteDance's ST")
def test_the_published_job_loses_what_is_published() -> None:
    """Slowdown 1.17870 (Lin et al., 2025), by a last stage that holds the loss."""
    workers = hg.load_workers(ST)
    stages, savings = workers.stages() / 1e9, workers.savings().set_index("change")

    assert (workers.step_ns, workers.ideal_step_ns) == pytest.approx((2.1727e9, 1.8433e9), rel=1e-4)
    assert workers.slowdown == pytest.approx(1.1787, rel=1e-4)
    assert workers.verdict().startswith("Stage 3, the last stage, takes 1.63 times as long")
    assert workers.causes()["change"].tolist() == ["stage"]
    compute = stages["forward_ns"] + stages["backward_ns"]
    for found, published in (
        (compute, [0.840, 0.841, 0.845, 1.373]),
        (stages["gather_ns"], [0.027, 0.024, 0.024, 0.026]),
        (stages["warm_up_ns"], [0, 0.069, 0.136, 0.201]),
        (stages["stall_ns"], [1.165, 0.953, 0.739, 0]),
        (stages["drain_ns"], [0, 0.143, 0.287, 0.431]),
    ):
        assert found.tolist() == pytest.approx(published, rel=0.01, abs=6e-4)
    alone = savings["alone_ns"] / 1e9
    assert alone[["stage", "transfer", "no transfer"]].tolist() == pytest.approx(
        [0.293, 0.027, 0.121], rel=0.01
    )
    assert alone[["workers", "micro-batch"]].tolist() == pytest.approx([0.001, 0], abs=6e-4)
