"""Names and terminals of other encodings than UTF-8: an answer, and no stack of calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.synth.simulator import simulate
from tests.synth.training import training_rank

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="names are bytes there"),
]

_ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small trace, whose folder has a name that is Latin-1."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path_factory.mktemp("trace")) + b"/l\xe4uft"))
    folder.mkdir()
    return simulate(training_rank(steps=1, layers=1)).write(folder / "rank0.json")


def run(*arguments: str | Path, **environment: str) -> tuple[int, str, bytes]:
    """Exit code, what a command said aside, and its answer."""
    command = [sys.executable, "-m", "htagraph", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, check=False, env=os.environ | environment, timeout=120
    )
    return done.returncode, done.stderr.decode(), done.stdout


def test_a_file_whose_name_is_not_utf_8_has_a_report(trace: Path, tmp_path: Path) -> None:
    """What UTF-8 cannot hold is a question mark, in each of its files."""
    code, notices, _ = run("report", trace, "--out", tmp_path / os.fsdecode(b"\xfc"), "--json", "-")

    assert (code, "Traceback" in notices) == (0, False)
    files = {file.name for file in (tmp_path / os.fsdecode(b"\xfc")).iterdir()}
    assert files == {"summary.md", "report.html", "critical.dot", "critical.pftrace"}


@pytest.mark.parametrize("asked", [("report", "--no-files"), ("info",)])
def test_a_terminal_that_knows_ascii_gets_plain_characters(
    trace: Path, asked: tuple[str, ...]
) -> None:
    """The lines are as long as elsewhere: tables stay in line."""
    here = run(*asked, trace, PYTHONIOENCODING="utf-8:strict", PYTHONUTF8="1")
    code, notices, answer = run(*asked, trace, **_ASCII)

    assert (code, "Traceback" in notices, answer.isascii()) == (0, False, True)
    assert [len(line) for line in answer.decode().splitlines()] == [
        len(line) for line in here[2].decode().splitlines()
    ]


def test_a_name_that_a_terminal_cannot_show_is_escaped(tmp_path: Path) -> None:
    """None is lost."""
    op = {"ph": "X", "cat": "cpu_op", "name": "größe → 尺寸", "ts": 1, "dur": 5, "pid": 1, "tid": 1}
    (tmp_path / "rank0.json").write_text(json.dumps([op]))
    code, _, answer = run("ask", "operator_breakdown", tmp_path / "rank0.json", **_ASCII)

    assert (code, r"gr\xf6\xdfe > \u5c3a\u5bf8" in answer.decode()) == (0, True)
