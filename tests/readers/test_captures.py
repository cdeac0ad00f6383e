"""Captures in a folder of torch.profiler, separated by process, host, time and steps."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import htagraph as hg
from htagraph.errors import (
    CaptureNotChosenError,
    IncompleteTraceWarning,
    QueryError,
    TraceFormatError,
)
from htagraph.model.frames import CAPTURES
from tests.real_traces import case, located
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

_SECOND = 1_000_000_000


def record(
    folder: Path,
    *,
    ranks: int = 4,
    after_s: float = 0,
    host: str = "node",
    pids_from: int = 4_200,
    without: tuple[int, ...] = (),
    steps: int = 2,
) -> list[Path]:
    """Write a capture as `tensorboard_trace_handler` does: ``host_pid.time.pt.trace.json.gz``."""
    job = training_job(ranks=ranks, steps=steps, layers=1)
    start_ns = job.ranks[0].start_ns + int(after_s * _SECOND)
    moved = replace(job, ranks=tuple(replace(one, start_ns=start_ns) for one in job.ranks))
    files = []
    for rank in simulate_job(moved).ranks:
        if rank.rank in without:
            continue
        end_ns = max(row.end_ns for row in rank.rows)
        written_ns = end_ns + 1_000_000 * (1 + rank.rank)
        name = f"{host}_{pids_from + rank.rank}.{written_ns}.pt.trace.json.gz"
        files.append(rank.write(folder / name))
    return files


def found(folder: Path) -> dict[int, list[int]]:
    """Ranks by capture."""
    captures = hg.discover(folder)
    return {
        number: captures.loc[captures["capture"] == number, "rank"].tolist()
        for number in sorted(set(captures["capture"]) - {0})
    }


def loaded(folder: Path, **options: object) -> hg.Job:
    """The job in a folder, whatever it warns of."""
    with pytest.warns(IncompleteTraceWarning, match="captures"):
        return hg.load_job(folder, **options)


def test_two_cycles_of_four_ranks_are_two_captures_and_the_latest_is_taken(tmp_path):
    """One file per rank and cycle in one folder: never eight ranks, never two of rank 0."""
    record(tmp_path)
    second = record(tmp_path, after_s=5)

    job = loaded(tmp_path)

    assert found(tmp_path) == {1: [0, 1, 2, 3], 2: [0, 1, 2, 3]}
    assert sorted(one.path for one in job.summaries.values()) == sorted(second)
    assert "2 captures; the latest complete one is used: capture 2 (4 ranks" in job.capture_note
    assert job.capture_note == hg.JobSummary(job).caveats[0]


def test_with_a_rank_missing_captures_are_not_mixed(tmp_path):
    """Rank 2 of the second cycle is lost: the first is complete, and all of it is taken."""
    first = record(tmp_path)
    record(tmp_path, after_s=5, without=(2,))

    assert found(tmp_path) == {1: [0, 1, 2, 3], 2: [0, 1, 3]}
    assert sorted(one.path for one in loaded(tmp_path).summaries.values()) == sorted(first)


def test_a_rank_of_the_next_cycle_does_not_fill_a_gap(tmp_path):
    """Rank 2 of the first cycle is lost: that of the second is 5 s later, not its partner."""
    record(tmp_path, without=(2,))
    second = record(tmp_path, after_s=5)

    assert found(tmp_path) == {1: [0, 1, 3], 2: [0, 1, 2, 3]}
    assert sorted(one.path for one in loaded(tmp_path).summaries.values()) == sorted(second)


def test_no_capture_complete_takes_the_fullest(tmp_path):
    """Each cycle lost a rank, the second one two."""
    record(tmp_path, without=(0,))
    record(tmp_path, after_s=5, without=(1, 2))

    job = loaded(tmp_path)

    assert (job.ranks, job.missing_ranks) == ((1, 2, 3), (0,))
    assert "the fullest one is used: capture 1" in job.capture_note


def test_a_rank_of_another_capture_alone_is_no_part_of_a_job(tmp_path):
    """Three ranks, and the fourth of 174 s later: its path would be all of the job's."""
    record(tmp_path, without=(3,))
    record(tmp_path, after_s=174, without=(0, 1, 2))

    assert found(tmp_path) == {1: [0, 1, 2], 2: [3]}


def test_names_as_people_give_them_are_grouped_by_what_the_files_say(tmp_path):
    """Neither time nor process in a name, compressed: the files are read to their ends."""
    for cycle in (1, 2):
        for number, file in enumerate(record(tmp_path / "now", after_s=5 * cycle)):
            shutil.move(file, tmp_path / f"rank{number}_cycle{cycle}.json.gz")

    captures = hg.discover(tmp_path).set_index("path")["capture"]

    assert {Path(path).name[6:12]: number for path, number in captures.items()} == {
        "cycle1": 1,
        "cycle2": 2,
    }


def test_names_tell_cycles_apart_where_contents_have_one_time(tmp_path):
    """A base time is lost, so that both cycles begin at one time in their files."""
    for file in record(tmp_path):
        host, written_ns, *ending = file.name.split(".")
        later = ".".join([host, str(int(written_ns) + 60 * _SECOND), *ending])
        shutil.copy(file, tmp_path / later)

    assert found(tmp_path) == {1: [0, 1, 2, 3], 2: [0, 1, 2, 3]}


@pytest.mark.parametrize(
    "other",
    [
        {"host": "other", "pids_from": 900},
        {"pids_from": 900},
        {"ranks": 2, "host": "other"},
        {"after_s": 3_600, "pids_from": 900},
    ],
    ids=["hosts", "processes", "sizes", "times"],
)
def test_two_jobs_in_one_folder_are_not_mixed(tmp_path, other):
    """By host, by process ids that are numbered in one go, by size, or by time."""
    first = {file.name for file in record(tmp_path)}
    second = {file.name for file in record(tmp_path, **other)}

    captures = hg.discover(tmp_path)
    files = captures.groupby("capture")["path"].agg(lambda paths: {Path(one).name for one in paths})

    assert sorted(files, key=sorted) == sorted([first, second], key=sorted)
    assert captures["is_complete"].all()


def test_two_jobs_at_one_time_that_nothing_tells_apart_are_refused(tmp_path):
    """Which rank 1 belongs to which rank 0 would be a guess; the error lists the captures."""
    record(tmp_path, without=(3,))
    record(tmp_path, pids_from=900, without=(0,))

    with pytest.raises(CaptureNotChosenError, match="nothing tells which rank") as refused:
        hg.load_job(tmp_path)

    assert "3 of 4" in refused.value.listing
    assert (hg.discover(tmp_path)["note"] == "may be of another capture").all()


def test_jobs_in_folders_of_their_own_are_told_apart_and_not_chosen_from(tmp_path):
    """`before` and `after` hold equal ranks of equal times: neither is taken in silence."""
    record(tmp_path / "before", without=(1,))
    record(tmp_path / "after")

    with pytest.raises(CaptureNotChosenError, match="holds several jobs") as refused:
        hg.load_job(tmp_path)

    assert refused.value.listing.splitlines()[0].split()[:3] == ["capture", "ranks", "steps"]
    assert sorted(found(tmp_path).values()) == [[0, 1, 2, 3], [0, 2, 3]]
    assert len(hg.load_job(tmp_path / "after")) == 4


def test_ranks_in_folders_of_their_own_are_one_job(tmp_path):
    """As Megatron writes them."""
    for number, file in enumerate(record(tmp_path / "flat")):
        (tmp_path / "ranks" / str(number)).mkdir(parents=True)
        shutil.move(file, tmp_path / "ranks" / str(number) / file.name)

    assert len(hg.load_job(tmp_path / "ranks")) == 4


def test_cycles_in_folders_of_their_own_are_one_job(tmp_path):
    """As torchtitan writes them: one folder per cycle, by the same processes."""
    record(tmp_path / "iteration_10")
    second = record(tmp_path / "iteration_20", after_s=5)

    assert sorted(one.path for one in loaded(tmp_path).summaries.values()) == sorted(second)


def test_a_capture_is_chosen_by_its_number(tmp_path):
    """In the order of time; no note is needed then, and another number is an error."""
    first = record(tmp_path)
    record(tmp_path, after_s=5)

    job = hg.load_job(tmp_path, capture=1)

    assert sorted(one.path for one in job.summaries.values()) == sorted(first)
    assert job.capture_note == ""
    with pytest.raises(QueryError, match=r"no capture 3 .* there are 2: 1 to 2"):
        hg.load_job(tmp_path, capture=3)


def test_json_that_is_no_trace_is_skipped_and_named(tmp_path):
    """Folders hold execution traces, memory timelines and settings next to traces."""
    record(tmp_path)
    execution = '{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [{"id": 2, "name": "x"}]}'
    with gzip.open(tmp_path / "rank0_et.json.gz", "wt") as file:
        file.write(execution)
    (tmp_path / "memory.json").write_text("[[0, 1, 2], [[0, 0], [1, 2], [3, 4]]]")
    (tmp_path / "config.json").write_text('{"lr": 0.1, "steps": [1, 2]}')

    captures = hg.discover(tmp_path)
    notes = captures[captures["capture"] == 0]

    assert len(hg.load_job(tmp_path)) == 4
    assert {
        Path(path).name: note for path, note in zip(notes["path"], notes["note"], strict=True)
    } == {
        "config.json": "JSON without events",
        "memory.json": "memory timeline",
        "rank0_et.json.gz": "execution trace",
    }


def test_a_folder_without_any_trace_says_what_is_there(tmp_path):
    """JSON, but none with events."""
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text('{"lr": 0.1}')

    with pytest.raises(TraceFormatError, match=r"no traces found.*a\.json \(JSON without events\)"):
        hg.load_job(tmp_path)


def test_a_damaged_trace_is_not_skipped(tmp_path):
    """It belongs to the capture that lacks its rank, and loading it reports what is wrong."""
    files = record(tmp_path)
    files[3].write_bytes(b"")
    shutil.move(files[3], tmp_path / "rank3.json.gz")

    assert found(tmp_path) == {1: [0, 1, 2, 3]}
    with pytest.warns(IncompleteTraceWarning, match="1 file of 4 could not be used"):
        assert hg.load_job(tmp_path, on_error="skip").ranks == (0, 1, 2)


def test_a_table_of_captures_has_its_schema(tmp_path):
    """Rank, steps, time and size of each file."""
    record(tmp_path, without=(1, 2, 3))

    captures = hg.discover(tmp_path)
    row = captures.iloc[0]

    assert {key: str(dtype) for key, dtype in captures.dtypes.items()} == {
        key: column.dtype for key, column in CAPTURES.columns.items()
    }
    assert (row["rank"], row["world_size"], row["steps"], row["pid"]) == (0, 4, "0 to 1", 4_200)
    assert row["n_bytes"] == next(tmp_path.iterdir()).stat().st_size
    trace = hg.load(row["path"])
    assert row["start_ns"] == trace.events["ts_ns"].min()
    assert not row["is_complete"]


@pytest.mark.some(1)
@pytest.mark.parametrize("compressed", [True, False])
def test_a_large_file_is_not_read_to_its_end(tmp_path, compressed):
    """One capture of ranks that say who they are: the first bytes of each are enough."""
    header = (
        '{"schemaVersion": 1, "distributedInfo": {"rank": %d, "world_size": 2}, "traceEvents": ['
    )
    event = (
        '{"ph": "X", "cat": "cpu_op", "name": "aten::mm %d", "pid": 77%d, "tid": 1, '
        '"ts": %d, "dur": 1.5}'
    )
    sizes = []
    for rank in (0, 1):
        # Names that do not compress.
        events = (event % (hash((i, 3)), rank, 1_700_000_000_000_000 + i) for i in range(100_000))
        text = header % rank + ",".join(events) + "]}"
        path = tmp_path / (f"rank{rank}.json" + (".gz" if compressed else ""))
        path.write_bytes(gzip.compress(text.encode(), 1) if compressed else text.encode())
        sizes.append(path.stat().st_size)
    read: list[int] = []

    def note(event: str, args: tuple[object, ...]) -> None:
        if noting and event == "open" and str(args[0]).startswith(str(tmp_path)):
            read.append(1)

    noting = True
    sys.addaudithook(note)
    before = _bytes_read()
    captures = hg.discover(tmp_path)
    n_read = _bytes_read() - before
    noting = False

    assert captures["capture"].tolist() == [1, 1]
    assert len(read) == (2 if compressed else 4)
    assert min(sizes) > 1_000_000
    assert n_read < sum(sizes) / 2


def _bytes_read() -> int:
    """Bytes that this process has read from files."""
    path = Path("/proc/self/io")
    if not path.exists():
        pytest.skip("needs /proc")
    text = dict(line.split(": ") for line in path.read_text().splitlines())
    return int(text["rchar"])


@pytest.mark.slow
def test_the_search_for_captures_grows_with_the_files(tmp_path):
    """A thousand single traces are a thousand captures, refused with a table of the latest."""
    text = '{"schemaVersion": 1, "host_name": "h", "traceEvents": [%s]}'
    for number in range(1_000):
        event = {"ph": "X", "cat": "cpu_op", "name": "x", "pid": 1_000 + number, "tid": 1}
        event |= {"ts": 1_700_000_000_000_000 + number * 60_000_000, "dur": 1_000}
        (tmp_path / f"{number}.json").write_text(text % json.dumps(event))

    with pytest.raises(CaptureNotChosenError, match="traces of unrelated runs") as refused:
        hg.load_job(tmp_path)

    lines = refused.value.listing.splitlines()
    assert (len(lines), lines[1]) == (22, "… 980 earlier: --capture list has all")


def test_one_process_with_two_cycles_is_two_captures():
    """`repeat=2` on one process: not two ranks."""
    folder = located("captures/features/repeat2_tb")
    job = loaded(folder)

    assert hg.discover(folder)["steps"].tolist() == ["3 to 5", "9 to 11"]
    assert job.ranks == (0,)
    assert job.summaries[0].steps == ("ProfilerStep#9", "ProfilerStep#10", "ProfilerStep#11")


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["single", "features", "jobs"])
def test_unrelated_traces_are_refused_with_what_is_there(name):
    """Single runs, and jobs in folders of their own, are not the ranks of one job."""
    folder = located(f"captures/{name}")
    with pytest.raises(CaptureNotChosenError) as refused:
        hg.load_job(folder)

    n_captures = hg.discover(folder)["capture"].max()
    assert len(refused.value.listing.splitlines()) == n_captures + 1


@pytest.mark.parametrize(
    ("name", "n_ranks"),
    [
        case("captures/jobs/ddp_sleep_4", 4),
        case("dlrm", 8),
        case("megatron-tp2", 2),
        case("torchrec/resnet18", 2),
        case("torchrec/sleep_on_rank2", 4),
        case("hta/trace_filter", 2),
    ],
)
def test_the_ranks_of_a_real_job_are_one_capture(name, n_ranks):
    """Old and new PyTorch, one folder or one per rank, with and without hosts in names."""
    captures = hg.discover(located(name))

    assert captures["capture"].tolist() == [1] * n_ranks
    assert sorted(captures["rank"]) == list(range(n_ranks))


@pytest.mark.parametrize("number", ["9" * 5_000, '"²"', "-5", "99999999999999999999", '"--5"'])
@pytest.mark.parametrize("key", ["rank", "world_size", "ts", "dur", "pid", "baseTimeNanoseconds"])
def test_numbers_that_are_none_are_not_known(tmp_path, key, number):
    """Whoever loads the file repairs or refuses it; the table is made all the same."""
    text = (
        '{"distributedInfo": {"rank": 0, "world_size": 2}, "baseTimeNanoseconds": 17, '
        '"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "x", "pid": 77, "tid": 1, '
        '"ts": 1700000000000000, "dur": 5}]}'
    )
    was = next(part for part in text.replace("}", ",").split(", ") if f'"{key}": ' in part)
    was = was[was.index(f'"{key}"') :].rstrip(",")
    (tmp_path / "odd.json").write_text(text.replace(was, f'"{key}": {number}'), encoding="utf-8")
    (tmp_path / "vm_77.9999999999999999999.pt.trace.json").write_text(text)

    assert sorted(hg.discover(tmp_path)["capture"]) in ([1, 1], [1, 2])


@pytest.mark.parametrize("stray_us", [0, 12.5, 1e12])
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "last"])
def test_a_stray_time_next_to_real_ones_is_not_the_start_of_a_capture(
    tmp_path, stray_us, is_first
) -> None:
    """An event of 12.5 us after 1970 made a capture of 1,770,734,370 s out of one of 2 ms."""
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1000, "tid": 1}
    real = [{**event, "ts": 1_770_734_370_000_000 + 100 * at, "dur": 50} for at in range(20)]
    stray = [{**event, "ts": stray_us, "dur": 50}]
    events = [*stray, *real] if is_first else [*real, *stray]
    (tmp_path / "rank0.json").write_text(json.dumps({"traceEvents": events}))
    found = hg.discover(tmp_path)

    assert found["dur_ns"].tolist() == [1_950_000]
    assert found["start_ns"].tolist() == [1_770_734_370_000_000_000]
