"""What a job has lost: records, collectives, whole ranks."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from htagraph.errors import ClockSkewWarning, IncompleteTraceWarning
from htagraph.job.damage import job_damage_in_words
from htagraph.job.job import Job
from htagraph.job.loading import load_job
from htagraph.run.compiled import load_graph
from tests.job.simulated import MACHINE, WORLD, loaded, meet, three
from tests.synth.program import Group, JobProgram, Op, Program, Spend
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

pytestmark = pytest.mark.filterwarnings("ignore::htagraph.errors.IncompleteTraceWarning")

_N = 25
"""Collectives of the job whose ranks lack some: each is 4% of it."""


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the traces of four ranks of six steps."""
    path = tmp_path_factory.mktemp("steps")
    simulate_job(training_job(ranks=4, steps=6, layers=2)).write(path)
    return path


@pytest.fixture(scope="module")
def even(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the traces of three ranks that meet again and again, without steps."""
    path = tmp_path_factory.mktemp("even")
    body = (Op("aten::mm", (Spend(20_000),)), meet()) * _N
    three(body, body, body).write(path)
    return path


def copied(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "job"))


def file_of(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}.pt.trace.json.gz"


def cut(folder: Path, rank: int, share: float) -> None:
    """Cut the text of a rank's file."""
    file = file_of(folder, rank)
    text = gzip.decompress(file.read_bytes())
    file.write_bytes(gzip.compress(text[: int(len(text) * share)]))


def keep(folder: Path, rank: int, wanted: Callable[[dict[str, Any], float], bool]) -> None:
    """Keep those events of a rank that are wanted, given the share of the trace before each."""
    file = file_of(folder, rank)
    document = json.loads(gzip.decompress(file.read_bytes()))
    times = [float(one["ts"]) for one in document["traceEvents"] if one["ph"] == "X"]
    first, last = min(times), max(times)
    document["traceEvents"] = [
        one
        for one in document["traceEvents"]
        if one["ph"] != "X" or wanted(one, (float(one["ts"]) - first) / (last - first))
    ]
    file.write_bytes(gzip.compress(json.dumps(document).encode()))


def rows(job: Job) -> list[tuple[int, str]]:
    found = job.damage()
    return list(zip(found["rank"].tolist(), found["kind"].tolist(), strict=True))


def test_a_whole_job_has_no_damage(steps):
    """Nothing is said, and nothing is warned of."""
    job = load_job(steps)

    assert (rows(job), job.verdict().damage) == ([], ())


def test_a_rank_whose_file_is_cut_off_is_said_to_end_early(steps, tmp_path):
    """In one sentence, with the place. Of a step before that, events may be lost all the same."""
    folder = copied(steps, tmp_path)
    cut(folder, 1, 0.3)
    with pytest.warns(IncompleteTraceWarning, match=r"^Rank 1: the file is cut off \(truncated\)"):
        job = load_job(folder)

    assert rows(job) == [(1, "cut rank")]
    (said,) = job.verdict().damage
    assert said == (
        "Rank 1: recorded only up to 43% of the job, as its file is cut off; what the others did "
        "afterwards is judged without it, and predictions leave it out."
    )
    assert rows(job.window("first")) == [(1, "cut file")]


def test_a_cut_file_is_compared_with_those_of_other_ranks(steps, tmp_path):
    """If the rank does not end early: a profiler does not write events in the order of time."""
    folder = copied(steps, tmp_path)
    cut(folder, 1, 0.7)
    job = load_job(folder)
    n_events = [job.summaries[rank].n_events for rank in range(4)]

    assert rows(job) == [(1, "cut file")]
    said = f"It has {n_events[1]} events, the median of other ranks is {n_events[2]}."
    assert n_events[1] < n_events[2]
    assert job.damage()["consequence"][0].endswith(said)


@pytest.mark.parametrize(("lacks", "is_cut"), [(2, False), (4, True)])
def test_a_rank_that_ends_a_little_early_is_whole(even, tmp_path, lacks, is_cut):
    """Profilers do not stop at one time: 8% is nothing, 16% is."""
    folder = copied(even, tmp_path)
    keep(folder, 2, lambda _, at: at < (_N - lacks) / _N)
    job = load_job(folder)

    assert rows(job) == [(2, "cut rank")] * is_cut
    if is_cut:
        assert job.damage()[["n", "n_all"]].to_numpy().tolist() == [[4, _N]]
        assert job.damage()["consequence"][0].startswith("recorded only up to 8")


@pytest.mark.parametrize(("lacks", "is_cut"), [(2, False), (4, True)])
def test_a_rank_that_begins_a_little_late_is_whole(even, tmp_path, lacks, is_cut):
    """Nor do they start at one time."""
    folder = copied(even, tmp_path)
    keep(folder, 2, lambda _, at: at >= lacks / _N)
    job = load_job(folder)

    assert rows(job) == [(2, "cut rank")] * is_cut
    if is_cut:
        assert "only from 16% of the job on" in job.damage()["consequence"][0]


def test_a_rank_may_finish_early():
    """The others go on alone, in a group of their own."""
    pair = Group("1", (0, 1))
    body = (Op("aten::mm", (Spend(20_000),)), meet()) * 5
    alone = (*body, *(Op("aten::mm", (Spend(20_000),)), meet(group=pair)) * 20)
    ranks = tuple(
        Program(
            alone if rank < 2 else body,
            MACHINE,
            rank,
            3,
            start_ns=0,
            base_time_ns=0,
            groups=(WORLD, pair),
            metadata="seq",
        )
        for rank in range(3)
    )
    job = loaded(simulate_job(JobProgram(ranks, ())))

    assert job.collectives()["match"].nunique() == 25
    assert rows(job) == []


def test_steps_that_not_all_ranks_recorded_are_named(steps, tmp_path):
    """Rank 1 lacks the first two marks, and nothing else."""
    folder = copied(steps, tmp_path)
    keep(folder, 1, lambda one, _: one["name"] not in ("ProfilerStep#0", "ProfilerStep#1"))
    found = load_job(folder).damage()

    assert found[["rank", "kind", "n", "n_all"]].to_numpy().tolist() == [[-1, "other steps", 2, 6]]
    assert "rank 1: ProfilerStep#2 to ProfilerStep#5" in found["consequence"][0]


def test_a_rank_that_was_not_loaded_is_missing(steps, tmp_path):
    """By choice, as far as one can tell: a check accepts it."""
    folder = copied(steps, tmp_path)
    file_of(folder, 3).unlink()
    job = load_job(folder)

    assert rows(job) == [(-1, "missing ranks")]
    assert [one.damage.is_accepted for one in job.rank_damage] == [True]
    assert job.verdict().damage[0].startswith("Traces missing: 1 of 4 ranks (3); waiting for")


def test_a_file_that_cannot_be_used_is_named_with_the_reason(steps, tmp_path):
    """Its rank is not reported as missing besides."""
    folder = copied(steps, tmp_path)
    file_of(folder, 3).write_bytes(b"no trace")
    job = load_job(folder, on_error="skip")

    assert rows(job) == [(-1, "failed file")]
    said = job.verdict().damage[0]
    assert said.startswith("1 of 4 files could not be used (rank3.pt.trace.json.gz: ")
    assert [one.damage.is_accepted for one in job.rank_damage] == [False]


def test_ranks_with_the_same_damage_share_a_sentence(steps, tmp_path):
    """Three ranks have events without a time: two of them one, and one two."""
    folder = copied(steps, tmp_path)
    for rank, n in ((0, 1), (1, 2), (2, 1)):
        file = file_of(folder, rank)
        text = gzip.decompress(file.read_bytes()).decode()
        lost = '{"ph": "X", "name": "lost", "pid": 1, "tid": 1, "dur": 1},' * n
        text = text.replace('"traceEvents": [', f'"traceEvents": [{lost}', 1)
        file.write_bytes(gzip.compress(text.encode()))
    job = load_job(folder)
    (said,) = job_damage_in_words(job.rank_damage)

    assert rows(job) == [(rank, "lost events") for rank in (0, 1, 2)]
    assert said.startswith("Rank 1: 2 of ")
    assert said.endswith("Likewise ranks 0, 2.")


def test_a_rank_with_too_little_left_is_left_out(steps, tmp_path):
    """No collective of it is left to align its clock by: that is said of the cut file."""
    folder = copied(steps, tmp_path)
    keep(folder, 1, lambda one, _: one.get("cat") not in ("kernel", "cuda_runtime"))
    cut(folder, 1, 0.95)
    file = file_of(folder, 1)
    text = gzip.decompress(file.read_bytes()).decode()
    document = text.replace('"baseTimeNanoseconds": 1', '"baseTimeNanoseconds": 2')
    file.write_bytes(gzip.compress(document.encode()))
    job = load_job(sorted(folder.iterdir()))
    with pytest.warns(ClockSkewWarning):
        found = rows(job)

    assert found == [(1, "cut rank")]
    assert "no clock aligns the rest with the others" in job.damage()["consequence"][0]


def test_a_rank_without_device_work_is_not_replayed(steps, tmp_path):
    """As if it had not been there: who is late, and what that costs, is said by the others."""
    late = training_job(
        ranks=4, steps=6, layers=2, straggler=2, delay="data_loading", delay_ns=30_000_000
    )
    simulate_job(late).write(tmp_path)
    keep(tmp_path, 0, lambda event, _: event["cat"] in {"cpu_op", "user_annotation"})
    job = load_job(tmp_path)
    first = job.verdict().findings[0]
    file_of(tmp_path, 0).unlink()
    alone = load_job(tmp_path).verdict().findings[0]

    assert list(job.rehearsal.ranks) == [1, 2, 3]
    assert (first.title, first.cost_ns) == ("Rank 2 is late", alone.cost_ns)


def test_a_file_that_ends_before_the_device_begins_has_no_verdict(tmp_path):
    """It was recorded with the device, which a profiler writes last: the host is not the cause."""
    simulate_job(training_job(ranks=1, steps=3, layers=2)).write(tmp_path)
    keep(tmp_path, 0, lambda event, _: event["cat"] in {"cpu_op", "user_annotation"})
    text = gzip.decompress(file_of(tmp_path, 0).read_bytes())
    file_of(tmp_path, 0).write_bytes(gzip.compress(text[: text.rindex(b"}, {")]))
    verdict = load_graph(file_of(tmp_path, 0)).verdict()

    assert verdict.findings == ()
    assert verdict.withheld.startswith("the file is cut off and ends before the device begins")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the traces of two ranks of eight steps."""
    path = tmp_path_factory.mktemp("whole")
    simulate_job(training_job(ranks=2, steps=8, layers=3)).write(path)
    return path


def damaged(whole: Path, tmp_path: Path, *, ranks: Collection[int], first: float, n: int) -> Path:
    """The job, of which some ranks lack some kernels in a row from a share of them on."""
    folder = Path(shutil.copytree(whole, tmp_path / "job"))
    for rank in ranks:
        file = folder / f"rank{rank}.pt.trace.json.gz"
        trace = json.loads(gzip.decompress(file.read_bytes()))
        kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
        kernels.sort(key=lambda event: float(event["ts"]))
        begin = int(first * len(kernels))
        lost = {id(event) for event in kernels[begin : begin + n]}
        trace["traceEvents"] = [one for one in trace["traceEvents"] if id(one) not in lost]
        file.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return folder


def test_a_path_through_lost_device_work_is_not_judged(whole: Path, tmp_path: Path) -> None:
    """Both ranks lost a hundred kernels in a row."""
    verdict = load_job(damaged(whole, tmp_path, ranks=(0, 1), first=0.3, n=100)).verdict()

    assert verdict.withheld.startswith("device work or launches of")
    assert "Load the job without rank" in verdict.withheld
    assert "have no device work" in verdict.damage[0]


def test_a_little_lost_work_is_only_told(whole: Path, tmp_path: Path) -> None:
    """Twelve kernels of one rank."""
    verdict = load_job(damaged(whole, tmp_path, ranks=(1,), first=0.4, n=12)).verdict()

    assert verdict.findings
    assert verdict.damage[0].startswith("Rank 1: ")
    assert "have no device work" in verdict.damage[0]
