"""Every call of htagraph in `docs/coming-from-hta.md` runs, and answers something."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import htagraph as hg
from htagraph.cli.main import main
from tests.queries.test_counters import counted_rank
from tests.queries.test_memory_and_steps import recorded_memory
from tests.real_traces import CAPTURES

PAGE = Path(__file__).parents[2] / "docs" / "coming-from-hta.md"
ROW = re.compile(
    r"^\| (?!HTA |---|\*\*)(.*?) ?(?<!\\)\| ?(.*?) ?(?<!\\)\| ?(.*?) ?\|$", re.MULTILINE
)
CODE = re.compile(r"`([^`]+)`")

WITHOUT_A_CALL = {
    "`TraceSymbolTable`": "names are text",
    "`update_trace_rank()`": "the rank is in the file",
}
NOT_RUN = {"htagraph view FILE": "serves until it is stopped: tests/cli/test_view.py runs it"}
MAY_BE_EMPTY = {"trace.repairs": "of a file without defects"}


def rows() -> list[Any]:
    """The HTA and htagraph cells of the page's rows."""
    found = ROW.findall(PAGE.read_text())
    assert len(found) > 50, "the table is not read any more"
    return [
        pytest.param((theirs, CODE.findall(calls)), id=theirs or calls)
        for theirs, calls, _ in found
    ]


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the page's names stand for."""
    job = hg.load_job(hg.demo_trace("job"))
    before, after = (hg.load(hg.demo_trace(name)).compile() for name in ("sync_in_loop", "none"))
    file = CAPTURES / "features" / "et.pt.trace.json.gz"
    trace = hg.load(hg.demo_trace("exposed_allreduce"))
    graph = trace.compile()
    return {
        "hg": hg,
        "job": job,
        "job_before": job,
        "job_after": hg.load_job(hg.demo_trace("job")),
        "rank": 2,
        "folder": hg.demo_trace("job"),
        "files": sorted(hg.demo_trace("job").glob("*.gz")),
        "file": file,
        "et": file.with_name("et.et.json.gz"),
        "trace": trace,
        "graph": graph,
        "path": graph.critical_path(),
        "events": [0, 1],
        "selection": graph.select(kind="kernel") | graph.select(name="aten::*"),
        "step": "ProfilerStep#1",
        "start_ns": graph.interval.start_ns,
        "end_ns": graph.interval.start_ns + 1_000_000,
        "before": before,
        "after": after,
    }


@pytest.fixture(scope="module")
def of_row(tmp_path_factory) -> Mapping[str, Mapping[str, Any]]:
    """Other traces, for rows about records that the demos do not have."""
    folder = tmp_path_factory.mktemp("counted")
    for rank in (0, 1):
        (folder / f"rank-{rank}.json").write_text(counted_rank(rank))
    return {
        "`MemoryAnalysis(path)`": {"graph": hg.TraceGraph(recorded_memory())},
        "`get_cupti_counter_data_with_operators()`": {"job": hg.load_job(folder)},
        "`ParserConfig`, `ParserBackend`": {"file": hg.demo_trace("none")},
    }


def run_command(command: str, files: Mapping[str, str]) -> None:
    """Run a command of the page; it must succeed."""
    words = [files.get(word, word) for word in shlex.split(command)]
    with pytest.raises(SystemExit) as ended:
        main([*words[1:], "-q"])
    assert not ended.value.code


def says_something(value: object) -> bool:
    """Whether an answer has any content: rows, bars, events, bytes, a length."""
    match value:
        case Path():
            return value.stat().st_size > 0
        case hg.TraceGraph() | hg.CriticalPath() | hg.JobPath():
            return value.dur_ns > 0
        case hg.GraphDiff() | hg.RunDiff():
            return bool(value.verdict())
    of_figure = getattr(value, "data", value)
    return bool(len(of_figure) if hasattr(of_figure, "__len__") else of_figure)


@pytest.mark.some(5)
@pytest.mark.parametrize("row", rows())
def test_every_call_runs(row, names, of_row, tmp_path, monkeypatch) -> None:
    """And answers; a word in backticks after a table is one of its columns."""
    theirs, calls = row
    monkeypatch.chdir(tmp_path)
    here = {**names, **of_row.get(theirs, {}), "out": tmp_path / "out"}
    files = {"FILE": str(hg.demo_trace("small_kernels")), "IN": str(names["file"]), "OUT": "out.gz"}
    assert bool(calls) != (theirs in WITHOUT_A_CALL), "say in WITHOUT_A_CALL why there is none"
    answer: object = None
    for call in calls:
        if call in NOT_RUN:
            continue
        if call.startswith("htagraph "):
            run_command(call, files)
        elif call.isidentifier():
            assert isinstance(answer, pd.DataFrame), f"{call} is a column of nothing"
            assert call in answer.columns
        else:
            answer = eval(call, dict(here))  # noqa: S307  a document of our own
            assert says_something(answer) or call in MAY_BE_EMPTY, f"{call} has no answer"


def test_rows_that_are_excused_are_there() -> None:
    """An excuse that nothing needs any more is taken back."""
    text = PAGE.read_text()

    assert [one for one in (*WITHOUT_A_CALL, *NOT_RUN, *MAY_BE_EMPTY) if one not in text] == []
