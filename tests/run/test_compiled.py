"""A cached trace and graph equal the ones they were made from, and are used only while valid."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import htagraph as hg
from htagraph.cli.main import main
from htagraph.errors import IncompleteTraceWarning
from htagraph.model.archive import pack, pack_recording, unpack_recording
from htagraph.model.events import EVENT_DTYPES
from htagraph.model.progress import Progress
from htagraph.reports.json_document import json_document
from htagraph.run.cache import Entry
from htagraph.run.compiled import Compiled, LoadOptions, compiled, kept_file, packed
from tests.real_traces import case, located
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank

pytestmark = pytest.mark.filterwarnings("error::htagraph.errors.IncompleteTraceWarning")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A simulated rank."""
    return simulate(training_rank(layers=2)).write(tmp_path / "rank-3.json")


def _n_reads(trace: Path, folder: Path, **options: object) -> int:
    """How often the file was read to answer: once, or not at all."""
    heard: list[Progress] = []
    hg.load_graph(trace, cache=folder, progress=heard.append, **options)
    return int(bool(heard))


def _assert_equal(one: Compiled, two: Compiled) -> None:
    ours, theirs = (pack(made.graph.dag, rank=made.graph.rank, origin=None) for made in (one, two))
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert replace(one.trace.recording, events=None) == replace(two.trace.recording, events=None)
    events = [made.trace.recording.events for made in (one, two)]
    assert all(np.array_equal(*(getattr(table, name) for table in events)) for name in EVENT_DTYPES)
    assert (one.trace.path, one.trace.metadata) == (two.trace.path, two.trace.metadata)
    assert one.trace.args([0, 5, 2]) == two.trace.args([0, 5, 2])


def test_what_is_opened_is_what_was_made(trace, tmp_path):
    """Graph, recording, the place of each event in its file."""
    made, again = (compiled(trace, (), LoadOptions(), folder=tmp_path / "kept") for _ in range(2))

    _assert_equal(made, again)
    documents = [json_document(hg.Summary(*one)) for one in (made, again)]
    assert json.dumps(documents[0]) == json.dumps(documents[1])


@pytest.mark.parametrize(
    "name",
    [
        case("captures/single/baseline.pt.trace.json.gz"),
        case("hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz"),
        case(
            "torchrec/resnet18/ip-172-31-16-248.us-east-2.compute.internal_85866"
            ".1698107929560561434.pt.trace.json"
        ),
    ],
)
def test_what_is_opened_of_a_real_trace_is_what_was_made(name, tmp_path):
    """Clocks are moved or not, and headers differ."""
    _assert_equal(*(compiled(located(name), (), LoadOptions(), folder=tmp_path) for _ in range(2)))


def test_times_that_were_moved_to_the_host_clock_are_moved_back():
    """The device clock is 50 us behind; the recording keeps the times of the file."""
    events = simulate(training_rank(layers=1)).events
    behind = np.where(events.is_device, -50_000, 0)
    trace = hg.Trace.from_events(replace(events, ts_ns=events.ts_ns + behind))
    dag = trace.compile().dag
    again = unpack_recording(pack_recording(trace.recording, dag), dag, 0)

    assert (dag.events.ts_ns != trace.recording.events.ts_ns).any()
    assert np.array_equal(again.events.ts_ns, trace.recording.events.ts_ns)


def test_a_trace_is_read_once_for_each_way_of_reading_it(trace, tmp_path):
    """Then it is opened."""
    ways = [{}, {"infer": False}, {"stacks": True}, {"beside": [trace.with_name("gone.csv")]}]
    with pytest.raises(hg.errors.HTAGraphError):
        _n_reads(trace, tmp_path / "kept", **ways.pop())

    assert [_n_reads(trace, tmp_path / "kept", **way) for way in ways] == [1, 1, 1]
    assert [_n_reads(trace, tmp_path / "kept", **way) for way in ways] == [0, 0, 0]


def test_a_file_that_changed_is_read_again_whatever_its_time_says(trace, tmp_path):
    """As long as before, and with the time of before: a copy that keeps times, say."""
    state = trace.stat()
    assert _n_reads(trace, tmp_path / "kept") == 1
    trace.write_bytes(trace.read_bytes().replace(b'"aten::', b'"ATEN::'))
    os.utime(trace, ns=(state.st_atime_ns, state.st_mtime_ns))

    assert trace.stat().st_size == state.st_size
    assert _n_reads(trace, tmp_path / "kept") == 1
    assert "ATEN::" in "".join(hg.load_graph(trace, cache=tmp_path / "kept").events["name"])


def _truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _unquoted(content: bytes) -> bytes:
    """The first header of an array, which numpy evaluates, is no expression."""
    return content.replace(b"{'descr'", b"{'''descr", 1)


def _with(**changed: object) -> Callable[[bytes], dict[str, object]]:
    return lambda _: changed


@pytest.mark.parametrize(
    "tamper",
    [
        _truncated,
        _unquoted,
        _with(**{"edges.tail": np.array([2**31 - 1], dtype=np.int32)}),
        _with(**{"recording.moved": np.array([10**9]), "recording.moved_ns": np.array([1])}),
        _with(**{"recording.moved_ns": np.array([0.5])}),
        _with(**{"args.offset": np.array([-1])}),
        _with(**{"recording.bytes": np.frombuffer(b'{"rank_source": 5}', np.uint8)}),
    ],
)
def test_what_was_damaged_or_tampered_with_is_made_again(trace, tmp_path, tamper):
    """Nothing in it is believed that does not hold of every graph."""
    made = compiled(trace, (), LoadOptions(), folder=tmp_path / "kept")
    kept = kept_file(trace, (), tmp_path / "kept", LoadOptions())
    changed = tamper(kept.path.read_bytes())
    if isinstance(changed, bytes):
        kept.path.write_bytes(changed)
    else:
        kept.write({**np.load(kept.path), **changed})

    assert _n_reads(trace, tmp_path / "kept") == 1
    _assert_equal(made, compiled(trace, (), LoadOptions(), folder=tmp_path / "kept"))
    assert _n_reads(trace, tmp_path / "kept") == 0


def _of_another_trace(trace: Path, folder: Path) -> tuple[Path, Path]:
    """The folder of a cache, in which a graph of another trace is sealed as the one of this."""
    kept = kept_file(trace, (), folder, LoadOptions())
    other = simulate(training_rank(steps=1, seed=5)).write(folder / "other.json")
    kept.write(packed(LoadOptions().made(other)))
    return folder, kept.path


def test_entries_that_changed_names_are_made_again(tmp_path):
    """An entry knows its trace: of two that were exchanged, none answers for the other."""
    folder = tmp_path / "kept"
    traces = [
        simulate(training_rank(steps=steps)).write(tmp_path / f"{steps}.json") for steps in (1, 2)
    ]
    lengths = [hg.load_graph(trace, cache=folder).dur_ns for trace in traces]
    one, other = (kept_file(trace, (), folder, LoadOptions()).path for trace in traces)
    one.rename(folder / "aside")
    other.rename(one)
    (folder / "aside").rename(other)

    assert lengths[0] != lengths[1]
    assert [hg.load_graph(trace, cache=folder).dur_ns for trace in traces] == lengths
    assert [_n_reads(trace, folder) for trace in traces] == [0, 0]


def test_arrays_of_another_entry_do_not_fit_its_seal(tmp_path):
    """Each part is whole, and from an entry of the same key."""
    entries = [Entry(tmp_path / name, "key") for name in ("one", "other")]
    for value, entry in enumerate(entries):
        entry.write({"a": np.array([value]), "b": np.array([value])})
    one, other = (entry.path.read_bytes() for entry in entries)
    half = one.index(b"b.npy")
    entries[0].path.write_bytes(one[:half] + other[half:])

    assert entries[0].read(dict) is None
    assert entries[1].read(dict) == {"a": [1], "b": [1]}


@pytest.mark.skipif(sys.platform == "win32", reason="links need a permission")
@pytest.mark.parametrize("target", ["mine.txt", "absent.txt"])
def test_a_link_under_the_name_of_an_entry_is_replaced_not_followed(trace, tmp_path, target):
    """Another user of the folder could have a file of ours overwritten, or written."""
    mine, folder = tmp_path / "mine.txt", tmp_path / "kept"
    mine.write_text("mine")
    kept = kept_file(trace, (), folder, LoadOptions()).path
    folder.mkdir()
    kept.symlink_to(tmp_path / target)

    assert [_n_reads(trace, folder) for _ in range(2)] == [1, 0]
    assert mine.read_text() == "mine"
    assert not (tmp_path / "absent.txt").exists()
    assert not kept.is_symlink()


@pytest.mark.skipif(sys.platform == "win32", reason="links need a permission")
def test_an_entry_behind_a_link_is_not_read(trace, tmp_path):
    """What it points to may be changed by whoever made the link."""
    folder = tmp_path / "kept"
    hg.load_graph(trace, cache=folder)
    kept = kept_file(trace, (), folder, LoadOptions()).path
    kept.rename(tmp_path / "elsewhere")
    kept.symlink_to(tmp_path / "elsewhere")

    assert [_n_reads(trace, folder) for _ in range(2)] == [1, 0]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_a_pipe_under_the_name_of_an_entry_is_replaced(trace, tmp_path):
    """Whoever opens it waits for the other end."""
    folder = tmp_path / "kept"
    folder.mkdir()
    os.mkfifo(kept_file(trace, (), folder, LoadOptions()).path)

    assert [_n_reads(trace, folder) for _ in range(2)] == [1, 0]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owners")
def test_an_entry_that_all_can_write_to_is_made_again(trace, tmp_path):
    """It is valid, and of another trace."""
    folder, kept = _of_another_trace(trace, tmp_path)
    trusted = hg.load_graph(trace, cache=folder).dur_ns
    kept.chmod(0o666)

    assert hg.load_graph(trace, cache=folder).dur_ns == hg.load_graph(trace).dur_ns != trusted
    assert stat.S_IMODE(kept.stat().st_mode) & stat.S_IWOTH == 0


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives away")
@pytest.mark.parametrize(("of_folder", "is_used"), [(0, False), (4242, True)])
def test_an_entry_of_another_user_is_used_only_if_the_folder_is_theirs(
    trace, tmp_path, of_folder, is_used
):
    """A name in a shared folder can be computed by all who know the trace."""
    folder, kept = _of_another_trace(trace, tmp_path)
    planted = hg.load_graph(trace, cache=folder).dur_ns
    os.chown(kept, 4242, -1)
    os.chown(folder, of_folder, -1)
    job = hg.load_job([trace], cache=folder)

    assert (job.graphs.open(0).dag.span.dur_ns == planted) == is_used
    assert (hg.load_graph(trace, cache=folder).dur_ns == planted) == is_used


@pytest.mark.skipif(not hasattr(os, "umask"), reason="files have no permissions")
def test_what_is_kept_is_used_whatever_the_umask(trace, tmp_path):
    """In containers it is often 0."""
    before = os.umask(0)
    try:
        assert [_n_reads(trace, tmp_path / "kept") for _ in range(2)] == [1, 0]
    finally:
        os.umask(before)


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file can be longer than 10 kB."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.filterwarnings("default::htagraph.errors.IncompleteTraceWarning")
def test_a_full_disk_is_no_failure(trace, tmp_path, full_disk):
    """The graph is made, no partial file is left, and a warning is issued."""
    with pytest.warns(IncompleteTraceWarning, match="nothing is kept: .* cannot be written"):
        graph = hg.load_graph(trace, cache=tmp_path / "kept")
    with pytest.warns(IncompleteTraceWarning, match="no graph of rank 0 can be saved"):
        job = hg.load_job(trace, cache=tmp_path / "kept")

    assert not list((tmp_path / "kept").iterdir())
    assert job.graphs.open(0).dur_ns == graph.window("trace").dur_ns > 0


@pytest.mark.filterwarnings("default::htagraph.errors.IncompleteTraceWarning")
def test_where_nothing_can_be_kept_the_answer_is_the_same(trace):
    """A missing folder is reported, and is no failure."""
    with pytest.warns(IncompleteTraceWarning, match="nothing is kept: .* cannot create"):
        graph = hg.load_graph(trace, cache=trace / "below a file")
    assert repr(graph) == repr(hg.load_graph(trace))


def test_commands_keep_what_a_variable_of_the_environment_asks_for(
    trace, tmp_path, monkeypatch, capsys
):
    """The second opens what the first one made, and prints the same."""
    monkeypatch.setenv("HTAGRAPH_GRAPH_CACHE", str(tmp_path / "kept"))
    printed = []
    for _ in range(2):
        with pytest.raises(SystemExit):
            main(["path", str(trace), "-q"])
        printed.append(capsys.readouterr().out)

    assert printed[0] == printed[1]
    assert printed[0].startswith("Critical path of this run: ")
    assert _n_reads(trace, tmp_path / "kept") == 0


def test_a_job_opens_what_was_kept_of_its_ranks(tmp_path):
    """Whoever made it: one home for a graph of a trace."""
    folder, kept = tmp_path / "job", tmp_path / "kept"
    simulate_job(training_job(ranks=2, steps=1, layers=1)).write(folder)
    first = hg.load_job(folder, cache=kept)
    files = sorted(kept.iterdir())
    states = [file.stat().st_mtime_ns for file in files]

    assert [_n_reads(path, kept) for path in sorted(folder.iterdir())] == [0, 0]
    assert repr(hg.load_job(folder, cache=kept).critical_path()) == repr(first.critical_path())
    assert [file.stat().st_mtime_ns for file in files] == states


def with_stacks(path: Path, *, op_us: int, n_bytes: int) -> Path:
    """A file of a given size: an operator, then 100 us of Python that a frame names."""
    end = 5 + op_us + 100
    events = [
        ("cpu_op", "aten::mm", 5, op_us),
        ("python_function", "train.py(9): save", 5 + op_us, 100),
        ("cpu_op", "aten::add", end, 5),
    ]
    keys = ("cat", "name", "ts", "dur")
    listed = [
        {"ph": "X", "pid": 1, "tid": 1, **dict(zip(keys, event, strict=True))} for event in events
    ]
    text = json.dumps({"traceEvents": listed, "padding": ""})
    path.write_text(text.replace('"padding": "', '"padding": "' + " " * (n_bytes - len(text))))
    assert path.stat().st_size == n_bytes
    return path


@pytest.mark.parametrize(
    ("n_bytes", "op_us", "reads"), [(4 << 20, 900, 1), ((4 << 20) + 1, 900, 0)]
)
def test_the_stacks_of_a_small_file_are_read(tmp_path, n_bytes, op_us, reads):
    """Up to 4 MiB, whatever bounds it: here an operator of 900 us."""
    file = with_stacks(tmp_path / "a.json", op_us=op_us, n_bytes=n_bytes)
    trace = LoadOptions(stacks=None).made(file).trace

    assert int((trace.events["kind"] == "python").sum()) == reads
    assert trace.has_unread_stacks is not bool(reads)


def test_the_stacks_of_a_large_file_are_read_where_code_between_operators_leads(tmp_path):
    """100 us of Python after an operator of 10 us are named by their frame; not if refused."""
    file = with_stacks(tmp_path / "a.json", op_us=10, n_bytes=5 << 20)
    labels = {
        stacks: LoadOptions(stacks=stacks).made(file).graph.verdict().findings[0].evidence[0].label
        for stacks in (None, False)
    }

    assert labels == {
        None: "train.py(9): save",
        False: "Python not read (--stacks) after aten::mm",
    }
