"""Every command that a verb, a hint or an error prints runs as it is printed."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import htagraph as hg
from htagraph.cli.main import VERBS, main
from tests.real_traces import CAPTURES

_VERBS = "|".join(VERBS)
_COMMAND = re.compile(rf"`htagraph ((?:{_VERBS})[^`]*)`|: htagraph ([^\n`]+)$", re.MULTILINE)
_ARGUMENTS = "htagraph() { printf '%s\\0' \"$@\"; }; "
"""What a shell passes to the command, each argument with a zero at its end."""

PRINTING = {
    "what would help": ("what-if", "my run.json.gz"),
    "a change": ("what-if", "my run.json.gz", "--prefetch", "2", "--out", "both.pftrace"),
    "several files": ("what-if", "job/a-0.json.gz", "job/a-1.json.gz"),
    "a folder": ("what-if", "job", "--capture", "latest", "--equalise"),
    "a report": ("report", "my run.json.gz", "--no-files"),
    "a report on a rank": ("report", "job", "--rank", "1", "--no-files"),
    "a report on nothing": ("report", "my run.json.gz", "-w", "0:10", "--no-files"),
    "an unknown question": ("ask", "kernels", "job/a-0.json.gz", "job/a-1.json.gz"),
    "a repaired file": ("info", "cut.json"),
    "a dump": ("info", "dumps/nccl_trace_rank_0"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Demo traces under names that a shell would split, a cut one, and dumps."""
    into = tmp_path_factory.mktemp("printed")
    demo = hg.demo_trace("dataloader")
    shutil.copy(demo, into / "my run.json.gz")
    whole = gzip.decompress(Path(demo).read_bytes())
    (into / "cut.json").write_bytes(whole[: len(whole) * 9 // 10])
    (into / "job").mkdir()
    for rank, file in enumerate(sorted(Path(hg.demo_trace("job")).iterdir())):
        shutil.copy(file, into / "job" / f"{'a' if rank < 2 else 'b'}-{rank}.json.gz")
    shutil.copytree(CAPTURES / "flight_recorder" / "hangs" / "crashed", into / "dumps")
    return into


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    streams = capsys.readouterr()
    return int(end.value.code or 0), streams.out + streams.err


def _passed_by_a_shell(command: str) -> list[str]:
    shell = ["sh", "-c", f"{_ARGUMENTS}htagraph {command}"]
    done = subprocess.run(shell, capture_output=True, check=True, encoding="utf-8")
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize("words", PRINTING.values(), ids=PRINTING)
def test_printed_commands_run(folder, words, capsys, monkeypatch):
    """In a shell, with the exit code 0; a page that would be served is there."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "1000")
    _, said = _run(capsys, *words)
    commands = ["".join(found) for found in _COMMAND.findall(said)]

    assert commands, said
    for command in commands:
        verb, *rest = _passed_by_a_shell(command)
        if verb == "view":
            assert Path(rest[0]).is_file()
        else:
            assert (command, *_run(capsys, verb, *rest))[:2] == (command, 0)
