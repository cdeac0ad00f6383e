"""Loading the ranks of a job: which there are, which cannot be used, and who does the work."""

from __future__ import annotations

import gzip
import json
import logging
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pandas as pd
import pytest

from htagraph.errors import (
    IncompleteTraceWarning,
    MissingEventsError,
    QueryError,
    RankFailedError,
    RankNotFoundError,
    TraceFormatError,
)
from htagraph.job import executors
from htagraph.job.job import JOB_QUESTIONS, Job
from htagraph.job.loading import load_job
from htagraph.model.progress import Progress
from htagraph.queries.questions import QUESTIONS
from htagraph.run.graph import TraceGraph
from tests.real_traces import CAPTURES
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the traces of four ranks, of which rank 2 is late."""
    path = tmp_path_factory.mktemp("job")
    simulate_job(
        training_job(ranks=4, steps=2, layers=2, straggler=2, max_offset_ns=1_000_000)
    ).write(path)
    return path


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """A copy of the folder, to be damaged."""
    return Path(shutil.copytree(folder, tmp_path / "job"))


@pytest.fixture
def processes() -> Iterator[Executor]:
    """Two processes."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


def n_events(graph: TraceGraph) -> int:
    """The number of events of a rank."""
    return len(graph.dag.events)


def named(name: str, graph: TraceGraph) -> tuple[str, int]:
    return name, graph.rank


def kill_rank_2(graph: TraceGraph) -> int:
    """End this process as the kernel does when memory runs out, if it works on rank 2."""
    if graph.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return graph.rank


def fail_on_rank_1(graph: TraceGraph) -> int:
    """Fail on rank 1."""
    if graph.rank == 1:
        raise ValueError("one is odd")
    return graph.rank


def miss_something(graph: TraceGraph) -> int:
    """Fail with an error that is made with more than a message."""
    raise MissingEventsError("no counters.", missing="counters", rank=graph.rank)


def answers(job: Job) -> list[pd.DataFrame]:
    """All answers of a job across ranks."""
    path = job.critical_path()
    return [
        job.clocks,
        job.collectives(),
        job.stragglers(),
        path.segments,
        path.rank_segments,
        job.temporal_breakdown(),
    ]


def assert_equal(job: Job, other: Job) -> None:
    for first, second in zip(answers(job), answers(other), strict=True):
        pd.testing.assert_frame_equal(first, second)


def test_a_job_says_what_it_is(folder: Path) -> None:
    """In one line."""
    job = load_job(folder)
    assert repr(job).startswith("Job(4 ranks, ")
    assert (job.ranks, len(job), list(job), job.missing_ranks) == (
        (0, 1, 2, 3),
        4,
        [0, 1, 2, 3],
        (),
    )
    assert job.failures.empty


def test_a_notebook_lists_32_ranks(folder: Path) -> None:
    """Of 80; the others are counted."""
    job = load_job(folder)
    many = {rank: replace(job.summaries[rank % 4], rank=rank) for rank in range(80)}
    graphs = replace(job.graphs, summaries=many)
    html = replace(job, timeline=replace(job.timeline, graphs=graphs))._repr_html_()

    assert html.count(">rank ") == 32
    assert "… 48 more" in html


def test_a_job_can_be_a_folder_a_glob_or_a_list(folder: Path) -> None:
    """All three find the same ranks."""
    found = [
        load_job(where).ranks
        for where in (folder, str(folder / "rank*.json.gz"), sorted(folder.iterdir()))
    ]
    assert found == [(0, 1, 2, 3)] * 3


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    """And so is a glob that matches nothing."""
    for where in (tmp_path, tmp_path / "*.json"):
        with pytest.raises(TraceFormatError, match="no traces found"):
            load_job(where)


def test_the_collectives_of_a_job_are_those_matched_across_ranks(folder: Path) -> None:
    """Asked by name, as by method."""
    job = load_job(folder)

    pd.testing.assert_frame_equal(job.ask("collectives"), job.collectives())


@pytest.mark.some(1)
@pytest.mark.parametrize("question", sorted(set(QUESTIONS) - set(JOB_QUESTIONS)))
def test_a_question_to_a_job_is_the_question_to_each_rank(folder: Path, question: str) -> None:
    """With one more column: rank."""
    job = load_job(folder)
    frame = job.ask(question)
    assert frame.columns[0] == "rank"
    for rank in job:
        own = frame[frame["rank"] == rank].drop(columns="rank").reset_index(drop=True)
        alone = job[rank].ask(question).reset_index(drop=True)
        pd.testing.assert_frame_equal(own.astype(object), alone.astype(object), check_dtype=False)


def test_a_rank_that_is_not_there_is_an_error(folder: Path) -> None:
    """The hint lists those that are."""
    with pytest.raises(RankNotFoundError, match=r"no rank 7 in this job.*available: 0, 1, 2, 3"):
        load_job(folder)[7]


def test_a_missing_rank_is_named(copy: Path) -> None:
    """The files say how many ranks there were."""
    (copy / "rank1.pt.trace.json.gz").unlink()
    job = load_job(copy)
    assert (job.ranks, job.missing_ranks) == ((0, 2, 3), (1,))
    assert repr(job).startswith("Job(3 ranks, 1 rank missing, ")
    assert job.stragglers()["rank"].iloc[0] == 2


def test_a_corrupt_rank_is_an_error_that_names_the_file(copy: Path) -> None:
    """And says how to go on without it."""
    (copy / "rank3.pt.trace.json.gz").write_bytes(b"no trace")
    with pytest.raises(
        RankFailedError, match=r"rank 3: .*rank3\.pt\.trace\.json\.gz.*on_error=\"skip\""
    ):
        load_job(copy)


def test_a_corrupt_rank_can_be_left_out(copy: Path) -> None:
    """The others answer, and the job says what is missing and why."""
    (copy / "rank3.pt.trace.json.gz").write_bytes(b"no trace")
    with pytest.warns(IncompleteTraceWarning, match="1 file of 4 could not be used"):
        job = load_job(copy, on_error="skip")
    assert (job.ranks, job.missing_ranks) == ((0, 1, 2), (3,))
    assert [Path(path).name for path in job.failures["path"]] == ["rank3.pt.trace.json.gz"]
    assert job.stragglers()["rank"].iloc[0] == 2
    assert job.critical_path().dur_ns > 0


def test_two_files_of_one_rank_are_an_error(copy: Path) -> None:
    """Nothing says which one belongs to the others; with skip, the first one is taken."""
    shutil.copy(copy / "rank1.pt.trace.json.gz", copy / "rank1_again.pt.trace.json.gz")
    with pytest.raises(QueryError, match=r"are both of rank 1"):
        load_job(copy)
    with pytest.warns(IncompleteTraceWarning, match="1 file of 5"):
        job = load_job(copy, on_error="skip")
    assert job.ranks == (0, 1, 2, 3)
    assert "are both of rank 1" in job.failures["error"][0]


def test_one_trace_under_two_ranks_is_an_error(copy: Path) -> None:
    """Each would wait for itself; with skip, it is one rank, and the other one is missing."""
    trace = json.loads(gzip.decompress((copy / "rank1.pt.trace.json.gz").read_bytes()))
    trace["distributedInfo"]["rank"] = 2
    (copy / "rank2.pt.trace.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode()))
    with pytest.raises(QueryError, match=r"\(rank 2\) is the same trace as .* \(rank 1\)"):
        load_job(copy)
    with pytest.warns(IncompleteTraceWarning, match="1 file of 4"):
        job = load_job(copy, on_error="skip")
    assert (job.ranks, job.missing_ranks) == ((0, 1, 3), (2,))
    assert "is the same trace as" in job.failures["error"][0]


def test_ranks_of_different_steps_are_said_to_be(copy: Path) -> None:
    """Rank 0 recorded one step more than the others."""
    simulate_job(training_job(ranks=1, steps=3, layers=2)).write(copy / "other")
    shutil.move(copy / "other" / "rank0.pt.trace.json.gz", copy / "rank0.pt.trace.json.gz")
    with pytest.warns(
        IncompleteTraceWarning,
        match=r"different steps \(rank 0: ProfilerStep#0 to ProfilerStep#2; rank 1",
    ):
        load_job(copy)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
@pytest.mark.parametrize("given", [True, False])
def test_a_worker_that_is_killed_takes_only_its_own_rank_along(
    folder: Path, processes: Executor, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    """A broken pool would lose every rank; what it lost is done again."""
    monkeypatch.setattr(executors, "SMALL_BYTES", 0)
    job = load_job(folder, on_error="skip", executor=processes if given else None)
    with pytest.warns(
        IncompleteTraceWarning, match="rank 2 is left out: the process that worked on it died"
    ):
        found = job.map(kill_rank_2)
    assert found == {0: 0, 1: 1, 3: 3}
    assert list(found.failed) == [2]
    assert job.failures.empty


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_worker_that_is_killed_is_an_error_that_names_the_rank(
    folder: Path, processes: Executor
) -> None:
    """Unless errors are skipped."""
    job = load_job(folder, executor=processes)
    with pytest.raises(RankFailedError, match="rank 2: the process that worked on it died"):
        job.map(kill_rank_2)


def test_a_function_that_fails_on_a_rank_names_the_rank(folder: Path) -> None:
    """Whatever it raises; the cause is chained."""
    with pytest.raises(RankFailedError, match="rank 1: one is odd") as caught:
        load_job(folder).map(fail_on_rank_1)
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.warns(IncompleteTraceWarning, match="rank 1 is left out: one is odd") as warned:
        assert load_job(folder, on_error="skip").map(fail_on_rank_1) == {0: 0, 2: 2, 3: 3}
    assert warned[0].filename == __file__


@pytest.mark.slow
def test_errors_of_other_processes_arrive_whole(folder: Path, processes: Executor) -> None:
    """What they say, and what they carry."""
    with pytest.raises(RankFailedError, match="rank 0: no counters") as caught:
        load_job(folder, executor=processes).map(miss_something)
    cause = caught.value.__cause__
    assert isinstance(cause, MissingEventsError)
    assert (cause.missing, cause.rank) == ("counters", 0)


def test_each_rank_may_have_work_of_its_own(folder: Path) -> None:
    """By the rank in the job, whatever its file says: only those that are named do any."""
    names = {1: partial(named, "one"), 3: partial(named, "three")}
    assert load_job(folder).map(names) == {1: ("one", 1), 3: ("three", 3)}


@pytest.mark.slow
def test_a_function_that_cannot_travel_is_said_to_be(folder: Path, processes: Executor) -> None:
    """A lambda has no name by which another process could find it."""
    job = load_job(folder, executor=processes)
    with pytest.raises(QueryError, match="cannot be pickled"):
        job.map(lambda graph: graph.rank)


@pytest.mark.slow
def test_processes_and_threads_give_equal_answers(folder: Path, processes: Executor) -> None:
    """As one after the other in this process."""
    serial = load_job(folder)
    assert_equal(serial, load_job(folder, executor=processes))
    with ThreadPoolExecutor(2) as threads:
        assert_equal(serial, load_job(folder, executor=threads))


@pytest.mark.slow
@pytest.mark.dask
def test_dask_gives_equal_answers(folder: Path) -> None:
    """Through the executor of its client, as on many machines."""
    distributed = pytest.importorskip("distributed", reason="needs distributed")
    options = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "dashboard_address": ":0",
        "silence_logs": logging.ERROR,
    }
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        job = load_job(folder, executor=client.get_executor())
        assert_equal(load_job(folder), job)
        assert job.map(n_events) == load_job(folder).map(n_events)


def test_progress_counts_ranks(folder: Path) -> None:
    heard: list[Progress] = []
    load_job(folder, progress=heard.append)

    assert heard == [
        Progress("Reading"),
        *(Progress("Reading", "rank", done, 4) for done in range(5)),
    ]


def test_a_job_can_be_asked_when_the_files_are_gone(copy: Path) -> None:
    """The compiled graphs are kept as long as the job is."""
    job = load_job(copy)
    shutil.rmtree(copy)
    assert job.critical_path().dur_ns > 0


def test_a_worker_that_does_not_see_the_folder_of_the_job_reads_a_trace_once(copy: Path) -> None:
    """As a Dask worker on another machine, which then keeps the compiled graph itself."""
    job = load_job(copy)
    shutil.rmtree(job.summaries[0].graph.folder)
    first = job.map(n_events)
    shutil.rmtree(copy)

    assert job.map(n_events) == first


def test_jobs_that_share_a_cache_keep_apart(folder: Path, tmp_path: Path) -> None:
    """Their graphs lie in one folder that the user gave, and stay there."""
    other = tmp_path / "other"
    simulate_job(training_job(ranks=2, steps=1, layers=1)).write(other)
    first = load_job(folder, cache=tmp_path / "cache")
    load_job(other, cache=tmp_path / "cache")
    assert first.map(n_events) == load_job(folder).map(n_events)
    assert len(list((tmp_path / "cache").iterdir())) == 6


def test_a_job_can_be_loaded_without_inference(folder: Path, tmp_path: Path) -> None:
    """No rank has an inferred edge, and a cache keeps both ways of compiling apart."""
    inferred = load_job(folder, cache=tmp_path / "cache")
    recorded = load_job(folder, cache=tmp_path / "cache", infer=False)

    assert set(inferred.inferences()["rank"]) == set(inferred.ranks)
    assert recorded.inferences().empty
    assert len(list((tmp_path / "cache").iterdir())) == 2 * len(inferred)


@pytest.mark.parametrize(
    ("stacks", "label"),
    [
        (None, "single.py:44 in parse_features"),
        (False, "Python not read (--stacks) after aten::layer_norm"),
    ],
)
def test_a_job_names_lines_of_python_unless_they_are_refused(stacks, label):
    """A small file: its stacks are read."""
    file = CAPTURES / "single" / "json_stack.pt.trace.json.gz"
    first = load_job([file], stacks=stacks).verdict().findings[0]

    assert (first.cause, first.evidence[0].label) == ("Python code", label)
