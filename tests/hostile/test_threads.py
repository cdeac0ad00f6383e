"""`ulimit -u`: without threads and processes a command works, or says so in a line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_AS_NOBODY = [
    *("setpriv", "--reuid=65534", "--clear-groups", "--bounding-set=-sys_resource,-sys_admin"),
    *("--inh-caps=-all,+dac_override", "--ambient-caps=+dac_override"),
]
"""Root has no limit on processes; nobody has one, and may read and write here."""


def _is_limited() -> bool:
    """Whether a command can be run as a user with a limit on processes."""
    if not all(map(shutil.which, ("setpriv", "prlimit"))):
        return False
    return subprocess.run([*_AS_NOBODY, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not _is_limited(), reason="needs root, setpriv and prlimit")
@pytest.mark.parametrize(
    ("source", "says"), [("job", "error: no more threads"), ("dataloader.pt.trace.json.gz", "")]
)
def test_without_threads_it_works_or_says_so_in_a_line(
    source: str, says: str, tmp_path: Path
) -> None:
    """`ulimit -u`, as on the login nodes of clusters; numpy began threads that it never used."""
    package = Path(__file__).parents[2]
    trace = package / "htagraph" / "demo_traces" / source
    command = [sys.executable, "-m", "htagraph.cli.start", "path", str(trace), "-q"]
    run = subprocess.run(
        [*_AS_NOBODY, "prlimit", "--nproc=1", *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": str(package), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )

    assert run.stderr.startswith(says)
    assert (run.returncode, len(run.stderr.splitlines())) == ((1, 1) if says else (0, 0))
