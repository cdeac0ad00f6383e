"""Files that a handler writes, when it reports, and what happens when something fails."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import htagraph as hg
from htagraph.capture.handler import TraceHandler, ended_cycle
from htagraph.capture.profile import _Block
from htagraph.capture.trace_file import TraceName, missing_ranks, names_in
from htagraph.readers.storage import rank_in_name
from tests.capture.profiler import Action, Profiler, schedule, settled

ONE_CYCLE = schedule(wait=1, active=2, repeat=1)
TWO_CYCLES = schedule(wait=1, active=2, repeat=2)


@pytest.fixture
def ready(monkeypatch):
    """Make the handler of a rank."""

    def of(folder: Path, rank: int, world_size: int, **options: object) -> TraceHandler:
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(world_size))
        return hg.handler(folder, **options)

    return of


def trained(folder: Path, *, plan=TWO_CYCLES, n_steps: int = 7, report: bool = False) -> None:
    """Train some steps with a handler that writes into a folder."""
    Profiler(hg.handler(folder, report=report), schedule=plan).run(n_steps)
    settled()


@contextmanager
def full_disk(largest: int) -> Iterator[None]:
    """No file may be larger: of this process, and of those that it starts."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def train_job(handlers: list[TraceHandler]) -> None:
    """Train two cycles, the ranks side by side."""
    began_ns = time.time_ns()
    ranks = [
        Profiler(handler, rank, TWO_CYCLES, began_ns=began_ns)
        for rank, handler in enumerate(handlers)
    ]
    for _ in range(7):
        for rank in ranks:
            rank.step()
    for rank in ranks:
        rank.stop()
    settled()


def names(folder: Path) -> list[str]:
    """All names in a folder, hidden ones too, without the times."""
    return sorted(path.name.split(".")[0] or path.name for path in folder.iterdir())


def test_ranks_of_a_cycle_are_a_capture_cycles_and_runs_are_others(tmp_path, ready):
    """Two ranks, two cycles, two runs into one folder: four captures of two ranks."""
    for _ in range(2):
        train_job([ready(tmp_path, rank, 2, report=False) for rank in range(2)])

    found = hg.discover(tmp_path)

    assert names(tmp_path) == 2 * ["rank0-step1"] + 2 * ["rank0-step4"] + 2 * [
        "rank1-step1"
    ] + 2 * ["rank1-step4"]
    assert found.groupby("capture")["rank"].apply(list).tolist() == 4 * [[0, 1]]
    assert found["is_complete"].all()


@given(st.integers(0, 10**9 - 1), st.none() | st.integers(0, 10**9), st.integers(0, 10**19 - 1))
def test_a_name_says_its_rank_its_step_and_its_time(rank, step, written_ns):
    """To the handler, compressed or not, and to the readers."""
    name = TraceName(rank, step, written_ns)

    assert TraceName.of(str(name)) == TraceName.of(f"{name}.gz") == name
    assert rank_in_name(Path(str(name))) == rank


@pytest.mark.parametrize("name", ["rank0.json", "node_17.1795291158414602831.pt.trace.json"])
def test_files_of_others_are_none_of_its_files(name):
    """Such as those of `tensorboard_trace_handler`."""
    assert TraceName.of(name) is None


@pytest.mark.parametrize(("wait", "is_last"), [(7_000, False), (14_000, True)])
def test_a_cycle_is_the_last_if_no_other_begins_within_10000_steps(wait, is_last):
    """The schedule is asked no further."""
    ended = []
    profiler = Profiler(lambda one: ended.append(ended_cycle(one, -1)))
    profiler.schedule = schedule(wait=wait, active=1, repeat=2)
    profiler.run(wait + 2)

    assert ended == [(wait, is_last, 1)]


def test_without_a_schedule_there_is_no_step_in_the_name(tmp_path):
    """The profiler records from start to stop."""
    Profiler(hg.handler(tmp_path, report=False), record_steps=False).run(3)
    settled()

    assert names(tmp_path) == ["rank0"]


def test_what_was_cut_off_before_its_first_step_ended_is_no_trace(tmp_path, capsys):
    """An endless schedule, stopped right when the third cycle begins: that one is empty."""
    trained(tmp_path, plan=schedule(wait=1, active=2), n_steps=7)

    assert names(tmp_path) == ["rank0-step1", "rank0-step4"]
    assert "htagraph: step 7 was cut off: it has no trace." in capsys.readouterr().err


def test_a_handler_that_is_used_again_knows_the_steps_of_the_new_profiler(tmp_path):
    """It begins at step 0 again."""
    ready = hg.handler(tmp_path, report=False)
    for _ in range(2):
        Profiler(ready, schedule=schedule(wait=2, active=1, repeat=1)).run(4)
    settled()

    assert names(tmp_path) == ["rank0-step2", "rank0-step2"]


class Stateful:
    """A schedule that fails if it is called out of order."""

    def __init__(self):
        self.asked = -1

    def __call__(self, step: int) -> Action:
        """What is done in a step."""
        assert step - self.asked in (0, 1)
        self.asked = step
        return Action.RECORD_AND_SAVE if step == 2 else Action.NONE


def test_a_schedule_with_a_state_is_not_asked(tmp_path):
    """As that of Lightning."""
    trained(tmp_path, plan=Stateful(), n_steps=4)

    assert names(tmp_path) == ["rank0-step3"]


@pytest.mark.slow
def test_after_the_last_cycle_rank_0_reports_on_all_ranks(tmp_path, ready, capsys):
    """Of the last cycle, not of the first, and nothing but what limits it is printed."""
    train_job([ready(tmp_path, rank, 2, timeout_s=60) for rank in range(2)])
    said, noticed = capsys.readouterr()
    (folder,) = tmp_path.glob("report*")

    assert "2 ranks · " in said
    assert "Rank 1 is late: it costs " in said
    assert "The critical path by rank" not in said
    assert noticed == ""
    assert folder.name.startswith("report-step4.")
    assert f"The report: {folder}" in said
    assert {"summary.md", "job.pftrace"} <= {path.name for path in folder.iterdir()}


@pytest.mark.slow
def test_a_rank_that_does_not_come_is_named(tmp_path, ready, capsys):
    """The report is on the other; here it fails, too, and that is one line."""
    handler = ready(tmp_path, 0, 3, timeout_s=0.01)
    profiler = Profiler(handler, schedule=ONE_CYCLE)
    profiler.export_chrome_trace = lambda path: Path(path).write_text("{}")
    profiler.run(3)
    settled()
    noticed = capsys.readouterr().err.splitlines()

    assert noticed[0] == (
        "htagraph (rank 0): no trace from 2 ranks (1, 2) within 0.01 s; the report leaves them out."
    )
    assert noticed[1].startswith("htagraph (rank 0): there is no report: ")
    assert len(noticed) == 2


def test_only_what_comes_from_now_on_is_waited_for(tmp_path):
    """Rank 1 of an earlier run, and rank 0 of now; the second cycle of a step is another."""
    (tmp_path / f"{TraceName(1, 4, 1)}.gz").touch()
    missing = partial(missing_ranks, tmp_path, names_in(tmp_path), timeout_s=0)
    (tmp_path / f"{TraceName(0, 4, 2)}.gz").touch()

    assert missing(3, 4) == [1, 2]
    (tmp_path / str(TraceName(1, 4, 3))).touch()
    assert missing(3, 4) == [2]
    assert missing(2, 4, n=2) == [0, 1]
    assert missing(1, None) == [0]


def test_a_full_disk_is_one_line_and_no_end_of_training(tmp_path, capsys):
    """No file may be larger than 4 kB: neither the trace nor its compressed form fits."""
    with full_disk(4_096):
        trained(tmp_path, plan=ONE_CYCLE)

    assert names(tmp_path) == []
    assert capsys.readouterr().err.count("\n") == 1


def test_a_trace_that_is_cut_off_is_said_to_be(tmp_path, capsys):
    """Kineto closes a file that a full disk cut off, without an error."""

    class CutOff(Profiler):
        def export_chrome_trace(self, path: str) -> None:
            Path(path).write_text('{"traceEvents": [{"ph": "X", "External i')

    ready = hg.handler(tmp_path, report=False)
    file = ready.exported(CutOff(ready), 5)

    assert file is not None
    assert f"{file.name} is truncated; is the disk full?" in capsys.readouterr().err


@pytest.mark.slow
def test_a_disk_that_fills_during_the_report_does_not_lose_its_verdict(tmp_path, capsys):
    """The trace fits into 200 kB, the page does not."""
    with full_disk(200_000):
        trained(tmp_path, plan=ONE_CYCLE, report=True)
    said, noticed = capsys.readouterr()

    assert "Communication costs 56% of this run" in said
    assert "One of 2 ranks: its communication includes waiting for slower ranks" in said
    assert "The report:" not in said
    assert noticed.startswith("htagraph: the report is only printed: ")
    assert "report.html: cannot be written: File too large." in noticed
    assert noticed.count("\n") == 1


@pytest.mark.slow
def test_a_trace_that_cannot_be_compressed_is_reported_on_as_it_is(tmp_path, capsys):
    """Its name is taken by a folder, in place of a disk that is full by then."""
    ready = hg.handler(tmp_path)
    file = ready.exported(Profiler(ready), 5)
    (tmp_path / f"{file.name}.gz").mkdir()
    ready.finish(file, is_last=True)
    settled()
    said, noticed = capsys.readouterr()

    assert (tmp_path / str(file.name)).is_file()
    assert "Communication costs 56% of this run" in said
    assert "the trace stays uncompressed." in noticed


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, capsys):
    """A file is in its place."""
    (tmp_path / "runs").touch()
    trained(tmp_path / "runs")

    assert capsys.readouterr().err.count("\n") == 2  # of two cycles


@pytest.mark.parametrize(
    ("rank", "world_size", "known"), [("3", "4", (4, 3)), ("4", "4", (1, 0)), ("x", "4", (1, 0))]
)
def test_the_environment_tells_rank_and_world_size_if_it_makes_sense(
    tmp_path, monkeypatch, rank, world_size, known
):
    """As torchrun sets it."""
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world_size)
    place = hg.handler(tmp_path).place

    assert (place.world_size, place.rank) == known


@pytest.mark.parametrize(
    ("skip", "steps", "expected"),
    [
        (5, 2, "SAVE NONE NONE WARMUP WARMUP RECORD SAVE NONE"),
        (2, 1, "SAVE WARMUP SAVE NONE"),
        (1, 2, "SAVE RECORD SAVE NONE"),
        (0, 2, "RECORD SAVE NONE"),
    ],
)
def test_a_block_records_the_first_step_to_be_sure_and_then_those_asked_for(skip, steps, expected):
    """After a warm-up of two steps, if so many are skipped."""
    block = _Block(TraceHandler("runs", report=False), skip, steps)
    planned = [block.action(step) for step in range(len(expected.split()))]

    assert " ".join(planned).replace("RECORD_AND_SAVE", "SAVE") == expected


@pytest.mark.parametrize(
    ("skip_and_steps", "kept", "said"),
    [
        ((5, 0), "rank0-step0", "step() was never called, so the whole block is one step"),
        ((5, 4), "rank0-step0", "the block ended after 4 steps, within skip=5"),
        ((5, 5), "rank0-step0", "the block ended after 5 steps, within skip=5"),
        (
            (5, 6),
            "rank0-step5",
            "the block ended after 6 steps: the trace has 1 of the 2 steps to record",
        ),
        ((5, 7), "rank0-step5", ""),
        ((5, 9), "rank0-step5", ""),
        ((1, 1), "rank0-step0", "the block ended after 1 step, within skip=1"),
        ((1, 3), "rank0-step1", ""),
        ((0, 0), "rank0-step0", "step() was never called"),
        ((0, 1), "rank0-step0", "the block ended after 1 step: the trace has 1 of the 2"),
        ((0, 2), "rank0-step0", ""),
    ],
)
def test_one_trace_is_kept_and_said_to_be_another_than_asked(
    tmp_path, capsys, skip_and_steps, kept, said
):
    """The requested steps, else the first one, else the whole block."""
    skip, n_steps = skip_and_steps
    block = _Block(TraceHandler(tmp_path, report=False), skip, 2)
    profiler = Profiler(block, schedule=lambda step: Action[block.action(step)])
    profiler.run(n_steps)
    block.end(profiler.step_num)
    settled()
    noticed = capsys.readouterr().err

    assert [path.name.split(".")[0] or path.name for path in tmp_path.iterdir()] == [kept]
    assert noticed.startswith(f"htagraph: {said}") if said else not noticed


@pytest.mark.parametrize(("n_steps", "n_timed"), [(7, 0), (8, 1), (10, 2), (30, 4)])
def test_steps_are_timed_after_those_that_are_recorded(tmp_path, n_steps, n_timed):
    """If the block continues, four for each of two; the second half counts."""
    block = _Block(TraceHandler(tmp_path, report=False), 5, 2)
    profiler = Profiler(block, schedule=lambda step: Action[block.action(step)])
    profiler.run(n_steps)
    block.end(profiler.step_num)
    settled()
    (trace,) = map(hg.load, tmp_path.iterdir())

    assert trace.metadata.get("unrecorded", {}).get("steps", 0) == n_timed
    assert len(trace.events) > 50


@pytest.mark.parametrize("options", [{"schedule": None}, {"on_trace_ready": None}, {"steps": 0}])
def test_what_is_not_for_a_block_is_an_error(tmp_path, options):
    """Before anything is recorded."""
    with pytest.raises(hg.errors.QueryError), hg.profile(tmp_path, **options):
        raise AssertionError


def test_another_program_asks_where_to_record(tmp_path, monkeypatch, capsys):
    """`htagraph try` does, and reports itself; the script keeps its own folder and report."""
    monkeypatch.setenv("HTAGRAPH_TRY_FOLDER", str(tmp_path / "asked"))
    trained(tmp_path / "own", plan=ONE_CYCLE, report=True)

    assert not (tmp_path / "own").exists()
    assert [name.partition(".")[0] for name in names_in(tmp_path / "asked")] == ["rank0-step1"]
    assert "costs" not in capsys.readouterr().out


def test_an_asked_setting_that_is_no_number_is_an_error(tmp_path, monkeypatch):
    """Which names the variable."""
    monkeypatch.setenv("HTAGRAPH_TRY_SAMPLE_MS", "often")
    with pytest.raises(hg.errors.QueryError, match="HTAGRAPH_TRY_SAMPLE_MS=often is no float"):
        hg.handler(tmp_path)
