"""Workers that are slow, die or run out of memory: what it costs a job, and what is said of it."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd
import pytest

from htagraph.errors import IncompleteTraceWarning, RankFailedError
from htagraph.job import executors
from htagraph.job.executors import IsolatedProcesses, Workers, failure_in_words
from htagraph.job.loading import load_job
from htagraph.model.progress import Progress, listening
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.page.sections import job_page_work, job_sections, rank_answers
from htagraph.run.graph import TraceGraph
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

pytestmark = pytest.mark.slow


class Counting(ThreadPoolExecutor):
    """Threads that count what they are given, and may do something before."""

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        super().__init__(2)
        self.given: Counter[str] = Counter()
        self._before = before

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Count it."""
        self._before()
        self.given[fn.__name__] += 1
        return super().submit(fn, *args, **kwargs)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the traces of four ranks, of which rank 2 is late."""
    path = tmp_path_factory.mktemp("job")
    simulate_job(training_job(ranks=4, steps=2, layers=1, straggler=2)).write(path)
    return path


@pytest.fixture(scope="module")
def dask() -> Iterator[Executor]:
    """Dask in this process, where a store in memory is seen."""
    distributed = pytest.importorskip("distributed", reason="needs distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(processes=False, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor()


WAITED_FOR = Event()


def wait_if_first(number: int) -> bool:
    """Wait for the others, as a worker that is slow."""
    return number > 0 or WAITED_FOR.wait(20)


def die_once(number: int, mark: Path) -> int:
    """End this process as the kernel does when memory runs out, but not the second time."""
    if number == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def need_too_much(graph: TraceGraph) -> int:
    """Ask for more memory than there is, on rank 1."""
    return graph.rank if graph.rank != 1 else int(np.empty(1 << 50).sum())


def test_a_report_visits_each_rank_once(folder: Path) -> None:
    """For its findings, its tables and its page, once it was prepared; no other opens its graph."""
    opened: list[str] = []

    def note(event: str, args: tuple[object, ...]) -> None:
        if event == "open" and str(args[0]).endswith(".npz") and noting:
            opened.append(str(args[0]))

    with Counting() as pool:
        job, noting = load_job(folder, executor=pool), True
        sys.addaudithook(note)
        summary = JobSummary(job, also=job_page_work(len(job)))
        assert summary.verdict.findings
        assert list(job_sections(summary, rank_answers(summary)))
        noting = False
    again = str(job.summaries[summary.main_rank].graph.path)
    assert sorted(opened) == sorted(
        [again, *(str(one.graph.path) for one in job.summaries.values())]
    )
    assert pool.given == {"prepare_rank": 4, "_visit": 5}


def test_the_progress_line_names_a_slow_rank() -> None:
    """The others do the rest meanwhile."""
    heard: list[Progress] = []
    WAITED_FOR.clear()

    def hear(progress: Progress) -> None:
        heard.append(progress)
        if progress.awaited == "rank 0":
            WAITED_FOR.set()

    with (
        pytest.MonkeyPatch.context() as patch,
        ThreadPoolExecutor(2) as pool,
        listening(hear),
    ):
        patch.setattr(executors, "_PATIENCE_S", 0.05)
        tasks = {number: (wait_if_first, (number,)) for number in range(20)}
        found = Workers(pool).run(tasks, named="rank {}".format)

    assert found == dict.fromkeys(range(20), True)
    assert list(found) == list(range(20))
    assert Progress("", "rank", 19, 20, "rank 0") in heard
    assert heard[-1] == Progress("", "rank", 20, 20)


@pytest.mark.parametrize(
    ("n_ranks", "megabytes", "is_small"),
    [(2, 59, True), (2, 61, False), (31, 0, True), (32, 0, False)],
)
def test_small_jobs_run_in_this_process(
    monkeypatch: pytest.MonkeyPatch, n_ranks: int, megabytes: int, is_small: bool
) -> None:
    """Below 64 MB of files, a rank counting as 2 MB: to start processes takes longer."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    workers = Workers(n_tasks=n_ranks, n_bytes=megabytes << 20)
    found = workers.run(dict.fromkeys(range(2), (os.getpid, ())))

    assert (set(found.values()) == {os.getpid()}) is is_small


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_one_pool_serves_all_and_who_dies_is_tried_again_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have had too little memory beside the others, and answers now."""
    monkeypatch.setattr(executors, "SMALL_BYTES", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    workers = Workers(n_tasks=4)
    found = workers.run({number: (die_once, (number, tmp_path / "mark")) for number in range(4)})
    pids = set(found.values())

    assert all(isinstance(pid, int) for pid in pids)
    again = workers.run({number: (die_once, (number, tmp_path / "mark")) for number in range(4)})
    assert len(pids | set(again.values())) <= 3


def test_a_worker_without_memory_costs_one_rank(folder: Path) -> None:
    """And says so; the libraries' own words differ."""
    job = load_job(folder, on_error="skip")
    with pytest.warns(
        IncompleteTraceWarning, match="rank 1 is left out: its worker ran out of mem"
    ):
        found = job.map(need_too_much)
    assert found == {0: 0, 2: 2, 3: 3}
    assert found.failed[1].endswith("give it more, or run fewer workers on one machine.")


def test_a_file_that_vanishes_after_it_was_found_costs_one_rank(tmp_path: Path) -> None:
    """The others answer; the path is theirs."""
    simulate_job(training_job(ranks=3, steps=1, layers=1)).write(tmp_path)
    gone = tmp_path / "rank1.pt.trace.json.gz"
    with Counting(before=lambda: gone.unlink(missing_ok=True)) as pool:
        with pytest.warns(IncompleteTraceWarning, match="1 file of 3 could not be used"):
            job = load_job(tmp_path, executor=pool, on_error="skip")
        assert set(job.critical_path().segments["rank"]) <= {0, 2}

    assert (job.ranks, job.missing_ranks) == ((0, 2), (1,))
    assert job.failures["error"][0].startswith(f"{gone}: no such file or folder. Hint: ")


def test_a_rank_on_the_path_that_cannot_be_visited_is_left_out(tmp_path: Path) -> None:
    """A report answers of the others, and names it; other jobs raise."""
    simulate_job(training_job(ranks=4, steps=2, layers=1, straggler=2)).write(tmp_path)
    job, strict = load_job(tmp_path, on_error="skip"), load_job(tmp_path)
    for one in (job, strict):
        one.summaries[2].graph.path.unlink()
    job.summaries[2].path.unlink()
    with pytest.warns(IncompleteTraceWarning, match="rank 2 is left out: .*no such file"):
        summary = JobSummary.of_answering(job, "job")

    assert set(summary.path.segments["rank"]) <= {0, 1, 3}
    assert summary.job.missing_ranks == (2,)
    assert [Path(path).name for path in summary.failures["path"]] == ["rank2.pt.trace.json.gz"]
    with pytest.raises(RankFailedError, match="rank 2: "):
        _ = JobSummary.of_answering(strict, "job").path


def test_a_kept_graph_that_is_damaged_is_made_again_at_the_next_visit(folder: Path) -> None:
    """Whatever happened to the file, the trace is there."""
    job = load_job(folder)
    first = [job.graphs.open(rank).dur_ns for rank in job.ranks]
    job.summaries[2].graph.path.write_bytes(b"")

    assert [job.graphs.open(rank).dur_ns for rank in job.ranks] == first


def test_processes_start_when_there_is_work_for_them() -> None:
    """``--workers 1000000`` had no files left to open."""
    with IsolatedProcesses(1_000_000) as pool:
        found = Workers(pool).run({k: (abs, (-k,)) for k in range(2)})

    assert found == {0: 0, 1: 1}


@pytest.mark.dask
def test_a_job_in_a_store_is_worked_on_by_dask(folder: Path, dask: Executor) -> None:
    """Its path, late ranks and quality are those of the files on disk."""
    fsspec = pytest.importorskip("fsspec", reason="needs fsspec")
    root = f"/{uuid4()}/job"
    fsspec.filesystem("memory").put(str(folder), root, recursive=True)
    here, there = load_job(folder), load_job(f"memory:/{root}", executor=dask)

    pd.testing.assert_frame_equal(there.critical_path().segments, here.critical_path().segments)
    pd.testing.assert_frame_equal(there.stragglers(), here.stragglers())
    pd.testing.assert_frame_equal(there.quality(), here.quality())


@pytest.mark.dask
def test_dask_hands_out_small_pieces(dask: Executor) -> None:
    """A worker that does not end keeps few tasks from the others."""
    WAITED_FOR.clear()

    def hear(progress: Progress) -> None:
        if progress.done >= 30:
            WAITED_FOR.set()

    tasks = {number: (wait_if_first, (number,)) for number in range(40)}
    with listening(hear):
        found = Workers(dask).run(tasks)
    assert found == dict.fromkeys(range(40), True)


@pytest.mark.dask
def test_what_dask_says_of_a_killed_worker_is_one_line() -> None:
    """Its own words are a paragraph."""
    scheduler = pytest.importorskip("distributed.scheduler", reason="needs distributed")
    raised = scheduler.KilledWorker("prepare_rank", None, 3)
    assert failure_in_words(raised) == "every worker that tried it died: killed, or out of memory."
