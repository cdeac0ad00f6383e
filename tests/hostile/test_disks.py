"""A full or read-only disk costs one line of error, and leaves the old file whole."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import htagraph as hg
from htagraph.errors import OutputError
from htagraph.writers.output_file import output_file
from tests.hostile.confined import PACKAGE, confined, needs_mounts, read_only
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank

CLI = ("-m", "htagraph.cli.main")
_TEMPORARY = ("/tmp", "/var/tmp", "/usr/tmp")  # noqa: S108

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX"),
]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small trace."""
    file = tmp_path_factory.mktemp("trace") / "rank0.json"
    return simulate(training_rank(steps=2, layers=2)).write(file)


def said(run: subprocess.CompletedProcess[str]) -> str:
    """The error of a command: one line, no traceback."""
    lines = [line for line in run.stderr.splitlines() if line]
    assert (run.returncode, len(lines), "Traceback" in run.stderr) == (1, 1, False), run.stderr
    return lines[0]


@needs_mounts
def test_a_read_only_folder_for_a_report_is_named(trace: Path, tmp_path: Path) -> None:
    """The folder cannot be made, and nothing is left."""
    command = (*CLI, "report", str(trace), "--out", f"{tmp_path}/new", "-q")
    run = confined(f"mount -t tmpfs -o ro tmpfs {tmp_path}", *command, cwd=trace.parent)

    assert said(run) == (
        f"error: {tmp_path}/new: cannot create this folder: Read-only file system. "
        "Hint: choose another folder (--out)."
    )


@needs_mounts
def test_an_old_report_in_a_read_only_folder_stays(trace: Path, tmp_path: Path) -> None:
    """The error names the first file that cannot be written; the old report stays."""
    (tmp_path / "critical.pftrace").write_text("old")
    frozen = read_only(tmp_path)
    run = confined(
        frozen, *CLI, "report", str(trace), "--out", str(tmp_path), "-q", cwd=trace.parent
    )

    assert f"error: {tmp_path}/critical.dot: cannot be written: Read-only file" in said(run)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [
        ("critical.pftrace", "old")
    ]


@needs_mounts
def test_a_full_disk_leaves_the_old_file_and_nothing_else(trace: Path, tmp_path: Path) -> None:
    """12 kB are less than its files: the answer, a line, the old file, and whole ones only."""
    small = f"mount -t tmpfs -o size=12k tmpfs {tmp_path}; printf old > {tmp_path}/critical.pftrace"
    look = f'"$@" || code=$?; ls -A {tmp_path}; cat {tmp_path}/critical.pftrace; exit $code'
    run = confined(
        f"{small}\n{look}",
        *CLI,
        "report",
        str(trace),
        "--out",
        str(tmp_path),
        "-q",
        cwd=trace.parent,
    )

    assert said(run) == (
        f"error: {tmp_path}/summary.md: cannot be written: No space left on device. "
        "Hint: check the free space and the permissions of the folder."
    )
    assert "1. GPU compute " in run.stdout
    assert run.stdout.splitlines()[-3:] == ["critical.dot", "critical.pftrace", "old"]


@needs_mounts
def test_an_answer_that_a_full_disk_cannot_take_leaves_the_old_one(
    trace: Path, tmp_path: Path
) -> None:
    """``ask --out`` of a few kB onto a disk of four."""
    small = f"mount -t tmpfs -o size=4k tmpfs {tmp_path}; printf old > {tmp_path}/answer.csv"
    look = f'"$@" || code=$?; ls -A {tmp_path}; cat {tmp_path}/answer.csv; exit $code'
    command = (*CLI, "ask", "operator_breakdown", str(trace), "--out", f"{tmp_path}/answer.csv")
    run = confined(f"{small}\n{look}", *command, "-q", cwd=trace.parent)

    assert "answer.csv: cannot be written: No space left on device." in said(run)
    assert run.stdout.splitlines()[-2:] == ["answer.csv", "old"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", [["ask", "list"], ["info"], ["path", "--format", "csv"]])
def test_output_that_goes_to_a_full_disk_is_said_to(trace: Path, command: list[str]) -> None:
    """``htagraph info FILE > /full/disk``."""
    files = [] if command[-1] == "list" else [str(trace)]
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            [sys.executable, *CLI, *command, *files],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=120,
        )

    assert said(run) == (
        "error: the output: No space left on device. "
        "Hint: check the free space and the permissions."
    )


def test_a_file_beyond_the_users_limit_leaves_the_old_one(tmp_path: Path) -> None:
    """`ulimit -f`: the write fails halfway."""
    out = tmp_path / "x.dot"
    out.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    quiet = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))
        too_large = pytest.raises(OutputError, match="cannot be written: File too large")
        with too_large, output_file(out) as file:
            file.write(b"x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, quiet)

    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x.dot", "old")]


_WRITES = """
import sys
import tempfile
from htagraph.writers.output_file import output_file

for _ in range(300):
    with output_file(sys.argv[1]) as file:
        for _ in range(20):
            file.write(sys.argv[2].encode() * 1_000)
"""


def test_of_two_writers_of_one_output_each_writes_a_whole_file(tmp_path: Path) -> None:
    """A reader sees the one or the other, never some of both; nothing else is left."""
    out, seen, done = tmp_path / "x.dot", set(), threading.Event()
    out.write_bytes(b"a" * 20_000)

    def read() -> None:
        while not done.is_set():
            seen.add(out.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITES, str(out), letter]) for letter in "ab"
    ]
    codes = [writer.wait(timeout=120) for writer in writers]
    done.set()
    reader.join()

    assert codes == [0, 0]
    assert seen <= {b"a" * 20_000, b"b" * 20_000}
    assert list(tmp_path.iterdir()) == [out]


def test_a_pipe_or_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """``--out /dev/null`` of root would make a file of it."""
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    with output_file(pipe) as file:
        file.write(b"content")
    reader.join(timeout=10)

    assert (read, pipe.is_fifo(), list(tmp_path.iterdir())) == ([b"content"], True, [pipe])


def test_a_link_is_written_through(tmp_path: Path) -> None:
    """Also where what it leads to is not there yet."""
    link, end = tmp_path / "link", tmp_path / "end"
    link.symlink_to(end)
    for content in (b"new", b"newer"):
        with output_file(link) as file:
            file.write(content)

        assert (link.is_symlink(), end.read_bytes()) == (True, content)


_SLOW = "compiling, once on this machine …\n"
"""The note printed on a slow machine."""

_COMPILED_CODE = """
import numpy as np
from htagraph.arrays.matching import running_latest
from htagraph.readers.kineto.compiled.machine import entry

starts = np.array([True, False, False])
print(running_latest(np.array([5, 3, 9]), starts).tolist())
def double(number) -> 'int':
    return 2 * number
print(entry(double)(21))
"""


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """The package as freshly installed: nothing is compiled yet."""
    code = tmp_path / "site" / "fresh.py"
    for source in PACKAGE.rglob("*.*"):
        if source.suffix in {".py", ".css", ".html", ".js"}:
            copy = tmp_path / "site" / source.relative_to(PACKAGE.parent)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
    code.write_text(_COMPILED_CODE)
    (tmp_path / "home").mkdir()
    return tmp_path


def _environment(folder: Path) -> dict[str, str]:
    """Home, caches and packages are in a folder."""
    return {
        "HOME": str(folder / "home"),
        "XDG_CACHE_HOME": str(folder / "home"),
        "PYTHONPATH": str(folder / "site"),
        "HTAGRAPH_CACHE_DIR": "",
        "NUMBA_CACHE_DIR": "",
        "TMPDIR": str(folder / "home"),
    }


@needs_mounts
def test_where_nothing_can_be_written_code_is_compiled_in_memory(fresh: Path) -> None:
    """Home and site-packages are read-only, as in many containers; so are temporary folders."""
    run = confined(
        read_only(fresh, *_TEMPORARY),
        str(fresh / "site" / "fresh.py"),
        cwd=fresh,
        env=_environment(fresh),
    )

    assert (run.stdout, run.stderr.replace(_SLOW, "")) == ("[0, 0, 2]\n42\n", "")


@needs_mounts
def test_where_the_disk_is_full_code_is_compiled_in_memory(fresh: Path) -> None:
    """There is room for the name of a file, and for none of its bytes."""
    full = (
        f"mount -t tmpfs -o size=12m tmpfs {fresh}/home; cp -r {fresh}/site {fresh}/home/site; "
        f"cat /dev/zero > {fresh}/home/filler 2>/dev/null || true"
    )
    environment = _environment(fresh) | {"PYTHONPATH": str(fresh / "home" / "site")}
    run = confined(full, str(fresh / "home/site/fresh.py"), cwd=fresh, env=environment)

    assert (run.stdout, run.stderr.replace(_SLOW, "")) == ("[0, 0, 2]\n42\n", "")


def test_a_cache_that_was_cut_off_is_made_again(fresh: Path) -> None:
    """A crash of the machine left files of no bytes."""
    command = [sys.executable, str(fresh / "site" / "fresh.py")]
    for _ in range(2):
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env=_environment(fresh),
        )
        assert (run.stdout, run.stderr.replace(_SLOW, "")) == ("[0, 0, 2]\n42\n", "")
        cached = [*fresh.rglob("*.bc"), *fresh.rglob("*.o")]
        assert cached
        for file in cached:
            file.write_bytes(b"")


_WORKERS = """
import json, os, sys, warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
import numpy as np

def answer(_):
    from htagraph.arrays.matching import running_latest
    latest = running_latest(np.array([5, 3, 9]), np.array([True, False, False]))
    return latest.tolist(), os.getpid() if "numba" in sys.modules else 0

if __name__ == "__main__":
    warnings.simplefilter("error")
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        print(json.dumps(list(pool.map(answer, range(4)))))
"""


@needs_mounts
@pytest.mark.slow
def test_of_many_processes_without_a_home_one_compiles(fresh: Path) -> None:
    """Two programs of four spawned workers each; only temporary files can be written."""
    program = fresh / "site" / "workers.py"
    program.write_text(_WORKERS)
    mounts = read_only(fresh)
    temporary = Path(tempfile.mkdtemp())
    environment = _environment(fresh) | {"HOME": "/nowhere", "XDG_CACHE_HOME": "/proc/none"}
    environment |= {"TMPDIR": str(temporary)}

    def run(_: int) -> subprocess.CompletedProcess[str]:
        return confined(mounts, str(program), cwd=fresh, env=environment, timeout_s=300)

    with ThreadPoolExecutor(2) as both:
        runs = list(both.map(run, range(2)))
    shutil.rmtree(temporary)
    answers = [answer for run in runs for answer in json.loads(run.stdout)]

    assert [latest for latest, _ in answers] == [[0, 0, 2]] * 8
    assert len({process for _, process in answers if process}) == 1
    assert {run.stderr.replace(_SLOW, "") for run in runs} == {""}


@needs_mounts
def test_the_main_job_runs_where_only_its_output_can_be_written(fresh: Path, trace: Path) -> None:
    """The whole of a fresh installation is read-only; the report is what it always is."""
    out = fresh / "out"
    out.mkdir()
    mounts = read_only(fresh)
    mounts += f"; mount -t tmpfs tmpfs {out}"
    command = (*CLI, "report", str(trace), "--out", f"{out}/report", "--json", "-", "-q")
    run = confined(mounts, *command, cwd=fresh, env=_environment(fresh), timeout_s=400)
    here = subprocess.run(
        [sys.executable, *command[:4], "--out", f"{fresh}/here", "--json", "-", "-q"],
        capture_output=True,
        text=True,
        check=True,
        timeout=400,
    )

    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == here.stdout.replace(f"{fresh}/here", f"{out}/report")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of a small job."""
    folder = tmp_path_factory.mktemp("job")
    simulate_job(training_job(ranks=2, steps=1, layers=1)).write(folder)
    return folder


def test_a_cache_for_a_job_that_cannot_be_made_is_named(job: Path, tmp_path: Path) -> None:
    """The path leads through a file."""
    (tmp_path / "file").write_text("")

    with pytest.raises(OutputError, match="file/cache: cannot create this folder: Not a dir"):
        hg.load_job(job, cache=tmp_path / "file" / "cache")


@needs_mounts
def test_without_any_temporary_folder_a_job_says_so(job: Path, tmp_path: Path) -> None:
    """Everything that could hold the compiled graphs is read-only."""
    frozen = read_only(*_TEMPORARY, tmp_path)
    run = confined(frozen, *CLI, "report", str(job), "-q", cwd=tmp_path)

    assert "cannot create a temporary folder" in said(run)


@needs_mounts
def test_a_job_whose_cache_is_full_says_so(job: Path, tmp_path: Path) -> None:
    """Compiled graphs go to a disk with 64 kB: the job works, and reads them again."""
    script = f"import htagraph as hg; hg.load_job({str(job)!r}, cache={str(tmp_path)!r})"
    run = confined(f"mount -t tmpfs -o size=64k tmpfs {tmp_path}", "-c", script, cwd=job)

    assert run.returncode == 0
    last = run.stderr.splitlines()[-1]
    assert "IncompleteTraceWarning: no graph of rank" in last
    assert "which may be full: each question reads the trace again." in last


def test_a_saved_graph_replaces_the_old_one_whole_or_not_at_all(tmp_path: Path) -> None:
    """Killed while it writes a second graph, the first is still there and opens."""
    graph = hg.Trace.from_events(simulate(training_rank(steps=1, layers=1)).events).compile()
    graph.save(tmp_path / "graph.npz")
    script = (
        "import sys, htagraph as hg\n"
        "graph = hg.TraceGraph.open(sys.argv[1])\n"
        "print('opened', flush=True)\n"
        "while True:\n    graph.save(sys.argv[1])\n"
    )
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "graph.npz")], stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"opened\n"
            writer.kill()
            writer.wait(timeout=60)
        again = hg.TraceGraph.open(tmp_path / "graph.npz")
        assert np.array_equal(again.dag.events.ts_ns, graph.dag.events.ts_ns)
