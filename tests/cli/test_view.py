"""`htagraph view`: what is served for which file, and what is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import Request, urlopen

import pytest

import htagraph as hg
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank

pytestmark = pytest.mark.slow

QUIET = ["--once", "--no-browser", "--quiet"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    command = [sys.executable, "-m", "htagraph", "view", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def fetched(*arguments: str) -> tuple[dict[str, str], bytes, int]:
    """Run the command and fetch the trace as the UI would: parameters, trace and exit code."""
    command = [sys.executable, "-m", "htagraph", "view", *arguments, *QUIET, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().strip())
        asked = {
            name: values[0]
            for name, values in parse_qs(address.fragment.removeprefix("!/?")).items()
        }
        request = Request(asked["url"], headers={"Origin": "https://ui.perfetto.dev"})  # noqa: S310
        with urlopen(request) as answer:  # noqa: S310
            content = answer.read()
        return asked, content, process.wait(timeout=20)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate(training_rank(steps=2)).write(tmp_path_factory.mktemp("view") / "rank0.json")


def slice_at(graph_or_job: Any) -> tuple[str, str]:
    """Start and length of the longest stretch of the first finding, in the time of the file."""
    path, findings = graph_or_job.critical_path(), graph_or_job.verdict().by_cause
    opens = path.drawn(findings).opening(path.origin_ns)
    return str(opens["start_ns"]), str(opens["end_ns"] - opens["start_ns"])


def is_shown(asked: dict[str, str]) -> bool:
    """Whether the selected slice takes at least 40% of the timeline."""
    first, last, start, dur = (int(asked[name]) for name in ("visStart", "visEnd", "ts", "dur"))
    return first <= start and start + dur <= last and last - first <= int(2.5 * dur)


def test_a_json_trace_is_opened_at_its_first_finding(file: Path) -> None:
    """With its critical path; the longest stretch of the finding is selected."""
    asked, content, code = fetched(str(file))
    assert (b"Critical path" in content, unquote(asked["url"]).rpartition("/")[2], code) == (
        True,
        "rank0.pftrace",
        0,
    )
    assert (asked["ts"], asked["dur"]) == slice_at(hg.load(file).compile())
    assert is_shown(asked)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("view") / "job"
    simulate_job(training_job(ranks=2, steps=1, layers=1)).write(folder)
    return folder


@pytest.mark.parametrize("what", ["folder", "glob and file"])
def test_ranks_are_served_as_one_trace(ranks: Path, what: str) -> None:
    """On one clock, with the job's path on top, opened at the first finding on the job."""
    first, *_ = sorted(ranks.iterdir())
    rest = ranks / first.name.replace("0", "[1-9]")
    asked, content, _ = fetched(*map(str, [ranks] if what == "folder" else [rest, first]))
    assert (b"Critical path" in content, unquote(asked["url"]).rpartition("/")[2]) == (
        True,
        "job.pftrace",
    )
    assert (asked["ts"], asked["dur"]) == slice_at(hg.load_job(ranks))


def test_the_file_of_a_report_opens_as_the_original_does(file: Path, ranks: Path) -> None:
    """Same slice, same part of the timeline; of a job, the tracks of the same rank."""
    shown = ("ts", "dur", "visStart", "visEnd", "startupCommands")
    for original, name in ((file, "critical.pftrace"), (ranks, "job.pftrace")):
        folder = original.parent / f"report on {original.name}"
        command = [sys.executable, "-m", "htagraph", "report", str(original), "--out", str(folder)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        there, here = fetched(str(original))[0], fetched(str(folder / name))[0]
        assert [there[name] for name in shown] == [here[name] for name in shown]


def test_a_job_expands_the_rank_of_its_first_finding_alone(ranks: Path) -> None:
    """All others are a row each."""
    asked, *_ = fetched(str(ranks))
    path, findings = hg.load_job(ranks).critical_path(), hg.load_job(ranks).verdict().by_cause
    there = path.drawn(findings).opening(path.origin_ns)["rank"]
    tracks = re.compile(json.loads(asked["startupCommands"])[1]["args"][0])
    assert [
        rank
        for rank in (0, 1)
        for name in (f"GPU {rank}, rank {rank}", f"python, rank {rank} {4200 + rank}")
        if tracks.search(name)
    ] == [there, there]


def test_it_opens_where_it_is_told_to(file: Path) -> None:
    """A step by its name is shown as a whole; the path is that of the trace."""
    asked, _, _ = fetched(str(file), "--at", "ProfilerStep#1")
    step = hg.load(file).compile().window("ProfilerStep#1").critical_path()
    start_ns = step.start_ns - step.origin_ns
    assert (int(asked["visStart"]), int(asked["visEnd"])) == (start_ns, start_ns + step.dur_ns)
    assert "ts" not in asked


def test_plain_serves_a_json_trace_as_it_is(file: Path) -> None:
    """Byte for byte, under its own name, and then the command ends."""
    asked, content, code = fetched(str(file), "--plain")
    assert (content == file.read_bytes(), unquote(asked["url"]).rpartition("/")[2], code) == (
        True,
        "rank0.json",
        0,
    )
    assert "visStart" not in asked


def test_a_window_puts_its_critical_path_on_top_and_zooms_to_it(file: Path) -> None:
    """A Perfetto trace with the path is served; the view is the step, in the time of that file."""
    asked, content, _ = fetched(str(file), "--window", "ProfilerStep#1")
    trace = hg.load(file)
    step = trace.steps.iloc[1]
    begin = step["start_ns"] - int(trace.recording.events.ts_ns.min())
    assert (int(asked["visStart"]), int(asked["visEnd"])) == (begin, begin + step["dur_ns"])
    assert b"Critical path" in content
    pinned, expanded, listed = (one["args"][0] for one in json.loads(asked["startupCommands"]))
    assert pinned == "^(Findings|Critical path)(,|$)"
    assert re.search(expanded, "Findings: who waits for whom")
    assert listed.startswith("select column1 as finding, column2 as fix, column3 as evidence from")


def test_a_perfetto_trace_is_opened_at_times(file: Path, tmp_path: Path) -> None:
    """START:END in ns, as the file has them: the slice that is there is selected."""
    out = hg.load(file).compile().critical_path().to_perfetto(tmp_path / "critical.pftrace")
    asked, content, _ = fetched(str(out), "--at", "1_000:2_500")
    assert (asked["ts"], asked["dur"], content == out.read_bytes()) == ("1000", "1500", True)
    assert (int(asked["visStart"]), int(asked["visEnd"])) == (250, 4000)


def test_a_name_cannot_be_looked_up_in_a_perfetto_trace(tmp_path: Path) -> None:
    """One line says why and what to do; exit code 1."""
    out = tmp_path / "critical.pftrace"
    out.write_bytes(b"")
    done = run(str(out), "--window", "ProfilerStep#1", *QUIET)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        (
            "error: 'ProfilerStep#1' cannot be looked up in a file that is served unchanged. "
            "Hint: give START:END in ns, or a .json trace without --plain."
        )
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_a_terminated_server_leaves_no_files(file: Path, tmp_path: Path) -> None:
    """SIGTERM, as at the end of a session, ends it like Ctrl-C."""
    command = [sys.executable, "-m", "htagraph", "view", str(file), "--port", "0"]
    with subprocess.Popen(
        [*command, "--no-browser", "--quiet"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        assert any(tmp_path.glob("htagraph-*/*.pftrace"))
        process.terminate()
        code = process.wait(timeout=20)
        said = process.stderr.read()
    assert (code, said, list(tmp_path.iterdir())) == (0, "", [])
