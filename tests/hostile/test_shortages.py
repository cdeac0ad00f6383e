"""Too little memory, too few files or processes: the command ends in a line that says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import htagraph as hg
from tests.hostile.confined import PACKAGE
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux"),
]

_HINTS = {
    "v": "there is not enough memory: the limit is {:,} kB. Hint: raise the limit (ulimit -v), or "
    "a machine with more.",
    "n": "too many files are open: the limit is {:,} open files. Hint: raise the limit: ulimit -n "
    "4096.",
    "u": "no more threads or processes can be started: the limit is {:,} of this user. Hint: raise "
    "the limit (ulimit -u, or that of the container).",
}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many ranks as are read by several processes."""
    folder = tmp_path_factory.mktemp("job")
    simulate_job(training_job(ranks=40, steps=2, layers=1)).write(folder)
    return folder


def run(limit: str, most: int, *arguments: str, as_user: bool = False) -> tuple[int, str]:
    """Exit code and error output of the command under a limit of the shell."""
    command = [sys.executable, "-m", "htagraph.cli.start", *arguments]
    if as_user and os.geteuid() == 0:
        may = "+dac_override,+dac_read_search"
        number = str(20_000 + os.getpid() % 10_000)  # of whom nothing else runs
        user = ["--reuid", number, "--regid", number, "--clear-groups"]
        command = ["setpriv", *user, f"--inh-caps={may}", f"--ambient-caps={may}", *command]
    done = subprocess.run(
        ["bash", "-c", f'ulimit -{limit} {most}; exec "$@"', "bash", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)},
    )
    lines = [line for line in done.stderr.splitlines(keepends=True) if "jemalloc" not in line]
    return done.returncode, "".join(lines)


@pytest.mark.parametrize("most", [50_000, 250_000, 300_000, 400_000])
def test_too_little_memory_is_not_called_a_full_disk(most: int) -> None:
    """With 400 MB, a library was not found in "the output"; with 200 MB it was "interrupted"."""
    found = run("v", most, "report", str(hg.demo_trace("none")), "--no-files")

    assert found == (1, f"error: {_HINTS['v'].format(most)}\n")


@pytest.mark.parametrize("most", [8, 20, 40])
def test_too_few_files_are_said_once(most: int, job: Path) -> None:
    """Of 64 ranks, each said so. Four workers, however many cores there are."""
    found = run("n", most, "report", str(job), "--no-files", "--workers", "4")

    assert found == (1, f"error: {_HINTS['n'].format(most)}\n")


@pytest.mark.skipif(
    os.geteuid() == 0 and shutil.which("setpriv") is None, reason="needs a user with a limit"
)
@pytest.mark.parametrize("most", [3, 10, 14])
def test_too_few_processes_end_the_command(most: int, job: Path) -> None:
    """It waited for ever for a thread that could not be started."""
    command = ("report", str(job), "--no-files", "--workers", "4")
    found = run("u", most, *command, as_user=True)

    assert found == (1, f"error: {_HINTS['u'].format(most)}\n")


def test_what_is_not_a_file_is_left_out(tmp_path: Path) -> None:
    """A pipe, a device and a broken link, all named like traces."""
    shutil.copyfile(hg.demo_trace("none"), tmp_path / "rank0.json.gz")
    os.mkfifo(tmp_path / "a.json")
    (tmp_path / "b.json").symlink_to("/dev/zero")
    (tmp_path / "c.json").symlink_to("nowhere")
    for where in (tmp_path, f"{tmp_path}/*.json*"):
        code, said = run("n", 1024, "info", str(where))

        assert code == 0
        assert said == (
            "left out, because they are not files: a.json (a pipe), b.json (a device), c.json "
            "(a broken link).\n1 of 8 ranks is here: rank0.json.gz.\n"
        )
