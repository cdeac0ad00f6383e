"""A signal ends whatever runs, in one line: no traceback, no half file, no orphan."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = str(Path(__file__).parents[2])

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")]


def started(code: str, *args: object, cwd: Path) -> subprocess.Popen[bytes]:
    """Process of a group of its own, that has begun to run some code."""
    begun = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    process = subprocess.Popen(
        [sys.executable, "-c", begun + code, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join([ROOT, *filter(None, sys.path)]), "TMPDIR": str(cwd)},
        cwd=cwd,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    """Exit code and error output of a group of processes that is interrupted now."""
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)
    return process.returncode, error


COMMAND = "from htagraph.cli import start; print('up', flush=True); start.start()"

INSTEAD = """
import contextlib, os, time
from htagraph.cli import main, start

def up():
    print("up", flush=True)
    time.sleep(60)

def work():
    {work}

main.main = work
start.start()
"""
"""The command line with other work in place of a verb."""


@pytest.mark.parametrize("after_s", [0.05, 0.4])
def test_an_interrupt_while_the_code_is_loaded_is_one_line(after_s: float, tmp_path: Path) -> None:
    process = started(COMMAND, "demo", "-q", cwd=tmp_path)
    time.sleep(after_s)

    assert ended(process) == (130, b"interrupted.\n")


JOB = INSTEAD.format(
    work="""
    from htagraph.job.executors import Workers
    from htagraph.writers.output_file import OwnFolder
    folder, workers = OwnFolder(), Workers(n_tasks=2, n_bytes=2**40)
    workers.run({0: (os.write, (1, b"up\\n")), 1: (time.sleep, (60,))})
""".strip()
)


def test_workers_of_a_job_end_in_silence(tmp_path: Path) -> None:
    """They never get the signal, nobody waits for what they do, and their folder is removed."""
    process = started(JOB, cwd=tmp_path)

    assert ended(process) == (130, b"interrupted.\n")
    assert _is_gone(process.pid)
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_is_stopped_does_not_hold_the_end(tmp_path: Path) -> None:
    """SIGSTOP, as of a debugger or a scheduler: it cannot hear that it is to end."""
    stopped = JOB.replace("(time.sleep, (60,))", "(signal.raise_signal, (signal.SIGSTOP,))")
    process = started("import signal; " + stopped, cwd=tmp_path)
    time.sleep(0.5)

    assert ended(process) == (130, b"interrupted.\n")
    assert _is_gone(process.pid)
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_is_told_to_end_takes_all_along(tmp_path: Path) -> None:
    """SIGTERM, as of a scheduler, goes to the command alone."""
    process = started(JOB, cwd=tmp_path)
    process.terminate()
    _, error = process.communicate(timeout=60)

    assert (process.returncode, error) == (143, b"terminated.\n")
    assert _is_gone(process.pid)
    assert list(tmp_path.iterdir()) == []


def test_workers_of_a_job_that_is_killed_end_with_it(tmp_path: Path) -> None:
    """SIGKILL tells nobody. The next one removes the folder that is left, but none in use."""
    process, other = started(JOB, cwd=tmp_path), started(JOB, cwd=tmp_path)
    process.kill()
    process.communicate(timeout=60)

    assert _is_gone(process.pid)
    assert len(list(tmp_path.iterdir())) == 2
    third = started(JOB, cwd=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert [ended(each)[0] for each in (other, third)] == [130, 130]
    assert list(tmp_path.iterdir()) == []


def _is_gone(group: int) -> bool:
    """Whether no process of a group runs, after some time at most; the dead do not count."""
    for _ in range(50):
        states = subprocess.run(
            ["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True, check=True
        ).stdout.split("\n")
        found = [line.split() for line in states if line.strip()]
        if not any(int(pgid) == group and "Z" not in state for pgid, state in found):
            return True
        time.sleep(0.1)
    return False


def test_no_half_file_is_left(tmp_path: Path) -> None:
    """What was being written is removed."""
    work = """
    from htagraph.writers.output_file import output_file
    with output_file("half.json"):
        up()
    """
    process = started(INSTEAD.format(work=work.strip()), cwd=tmp_path)

    assert any("half" in file.name for file in tmp_path.iterdir())
    assert ended(process) == (130, b"interrupted.\n")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_that_gets_lost_still_ends_the_process(tmp_path: Path) -> None:
    """As where machine code calls back into Python, which drops it; files are removed even then."""
    work = """
    from htagraph.writers.output_file import output_file
    with output_file("half.json"):
        with contextlib.suppress(KeyboardInterrupt):
            up()
        time.sleep(60)
    """
    process = started(INSTEAD.format(work=work.strip()), cwd=tmp_path)

    assert ended(process) == (130, b"interrupted.\n")
    assert list(tmp_path.iterdir()) == []
