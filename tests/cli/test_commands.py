"""The command line as a user meets it: output, files, exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import htagraph as hg
from htagraph.cli.inputs import readable
from htagraph.cli.main import main
from htagraph.synth.demo_traces import demo_trace
from tests.synth.simulator import simulate
from tests.synth.training import training_rank


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    """Write a training run whose data loader stalls."""
    return simulate(training_rank(fault="dataloader")).write(
        tmp_path_factory.mktemp("run") / "rank0.pt.trace.json.gz"
    )


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run a command in an empty folder: exit code, output and notices."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")

    def ran(*args: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(arg) for arg in args])
        streams = capsys.readouterr()
        return int(ended.value.code or 0), streams.out, streams.err

    return ran


def test_report_says_what_bounds_the_run(run, trace):
    """The verdict comes right after what the trace is."""
    code, out, _ = run("report", trace)
    lines = out.splitlines()

    assert code == 0
    assert lines[:3] == [
        "rank0 · simulated rank 0 of 8 · 516 events · 117 kernels · 3 steps · 24.0 ms",
        "",
        "Data loading costs 72% of this run: 7.92 ms a step would be 2.22 ms without it.",
    ]


def test_report_leaves_its_files_in_a_folder_of_the_traces_name(run, trace, tmp_path):
    """And of its parent's, as every job has a rank0; beside the trace nothing is touched."""
    run("report", trace)

    folder = tmp_path / "htagraph-report" / trace.parent.name / "rank0"
    written = sorted(path.name for path in folder.iterdir())
    assert {"critical.dot", "critical.pftrace", "summary.md"} <= set(written)


def test_json_on_the_output_is_all_that_is_on_the_output(run, trace, tmp_path):
    """A script pipes it into another program."""
    code, out, _ = run("report", trace, "--json", "-", "--out", tmp_path / "here")
    document = json.loads(out)

    assert (code, document["schema"], document["verdict"]["items"][0]["causes"]) == (
        0,
        "htagraph.report",
        ["data loading"],
    )


def test_report_on_a_step_is_about_the_step(run, trace):
    """A window is named like the step."""
    _, out, _ = run("report", trace, "--window", "ProfilerStep#1", "--json", "-")

    assert json.loads(out)["window"]["name"] == "ProfilerStep#1"


def test_a_range_counts_from_the_start_of_the_trace(run, trace):
    """Nobody types epoch nanoseconds."""
    _, out, _ = run("report", trace, "--window", "1_000_000:3_000_000", "--json", "-")
    document = json.loads(out)

    assert document["window"]["dur_ns"] == 2_000_000
    assert document["window"]["start_ns"] == document["trace"]["start_ns"] + 1_000_000


def test_path_as_csv_adds_up_to_the_window(run, trace):
    """CSV has the exact numbers."""
    _, out, _ = run("path", trace, "-w", "trace", "--format", "csv", "--quiet")
    rows = list(csv.DictReader(io.StringIO(out)))

    assert rows[0]["bound"] == "data_loading"
    assert sum(int(row["dur_ns"]) for row in rows) == 23_968_985


def test_path_writes_the_format_that_the_name_asks_for(run, trace, tmp_path):
    """The name of the file says what it is."""
    codes = [
        run("path", trace, "--out", tmp_path / name, "-q")[0]
        for name in ("p.pftrace", "p.json.gz", "p.dot")
    ]

    assert codes == [0, 0, 0]
    assert (tmp_path / "p.dot").read_text().startswith("digraph")


def test_a_format_that_nobody_knows_is_refused(run, trace, tmp_path):
    """One line says what would be accepted."""
    code, _, err = run("path", trace, "--out", tmp_path / "p.xyz", "-q")

    assert (code, ".pftrace, .json or .dot" in err) == (1, True)


def test_a_flame_graph_of_a_job_is_of_the_rank_with_most_of_its_path(run, tmp_path):
    """Stacks of several ranks have nothing in common."""
    job, out = hg.demo_trace("job"), tmp_path / "flame.collapsed"

    code, _, err = run("path", job, "--out", out, "-q")
    rank = err.partition("--rank ")[2][:1]

    assert (code, "A flame graph is of one rank" in err, out.exists()) == (1, True, False)
    assert run("path", job, "--rank", rank, "--out", out, "-q")[0] == 0
    assert out.exists()


def test_dot_prints_a_graph(run, trace):
    """For a pipe into Graphviz."""
    code, out, _ = run("dot", trace, "--window", "ProfilerStep#1")

    assert (code, out.startswith("digraph"), out.rstrip().endswith("}")) == (0, True, True)


def test_dot_draws_what_is_linked_with_an_event(run, trace):
    """The second launch of several, which is marked; more boxes than asked for are refused."""
    around = ("dot", trace, "--around", "cudaLaunchKernel", "--instance", "1", "-q")
    code, out, _ = run(*around)
    assert (code, out.count("penwidth=3")) == (0, 1)

    code, _, err = run(*around, "--hops", "9", "--max-nodes", "3")
    assert (code, "fewer hops" in err) == (1, True)


def test_dot_draws_the_matches_of_a_pattern(run, trace):
    """A box per event."""
    code, out, _ = run("dot", trace, "--query", "launch -LAUNCH> kernel", "-w", "1", "-q")
    assert (code, "launch" in out, "lane1" in out) == (0, True, True)


def test_all_edges_are_arrows_for_perfetto(run, trace, tmp_path):
    """Of one rank, in a file for it; how many is printed."""
    all_edges = ("path", trace, "-w", "1", "--all-edges")
    code, _, err = run(*all_edges, "--out", tmp_path / "x.pftrace")
    assert (code, "pairs of events have an arrow" in err) == (0, True)
    assert run(*all_edges, "--out", tmp_path / "x.dot")[0] == 1
    assert run(*all_edges)[0] == 1


def test_dot_draws_the_path_of_a_job(run):
    """On lanes with ranks."""
    code, out, _ = run("dot", demo_trace("job"), "-q")
    assert (code, 'label="rank 2 · stream 7"' in out) == (0, True)


def test_info_says_what_is_missing_and_how_to_record_it(run, trace):
    """The simulated profiler records no stacks."""
    code, out, _ = run("info", trace)

    assert code == 0
    assert "with_stack=True" in out
    assert "Cost of the capture" in out
    assert "The file needed no repair." in out


def test_info_shows_repairs(run, tmp_path):
    """What was wrong in a file is said, not hidden."""
    broken = tmp_path / "broken.json"
    broken.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, '
        '"ts": 5, "dur": 2}'
    )

    _, out, _ = run("info", broken)

    assert "Repairs of the file" in out


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "empty"), (b"hello", "not a json trace"), (None, "no such file")],
    ids=["empty", "text", "absent"],
)
def test_bad_input_is_one_line_and_exit_code_1(run, tmp_path, content, says):
    """No traceback: file, what is wrong, what to do."""
    file = tmp_path / "bad.json"
    if content is not None:
        file.write_bytes(content)

    code, out, err = run("report", file)

    assert (code, out) == (1, "")
    assert len(err.strip().splitlines()) == 1
    assert err.startswith(f"error: {file}")
    assert says in err.lower()


def test_a_window_that_is_not_there_names_those_that_are(run, trace):
    """The hint lists the steps."""
    code, _, err = run("report", trace, "--window", "ProfilerStep#99")

    assert (code, "ProfilerStep#0, ProfilerStep#1, ProfilerStep#2" in err) == (1, True)


def test_a_folder_with_one_trace_is_that_trace(run, trace):
    """Nobody has to type the name of its only file."""
    code, found, said = run("path", trace.parent, "-f", "csv")

    assert (code, found) == run("path", trace, "-f", "csv")[:2]
    assert said == f"1 of 8 ranks is here: {trace.name}.\n"


def test_a_folder_that_cannot_be_written_is_one_line(run, trace, tmp_path):
    """A file stands where the folder should be."""
    (tmp_path / "taken").write_text("")

    code, _, err = run("report", trace, "--out", tmp_path / "taken")

    assert (code, len(err.strip().splitlines())) == (1, 1)


def test_wrong_usage_is_exit_code_2(run):
    """As all commands of the shell do."""
    assert run("reort")[0] == 2


def test_quiet_leaves_only_what_was_asked_for(run, trace):
    """Notices go to the error stream, and are gone with --quiet."""
    assert run("report", trace, "--quiet")[2] == ""


def test_demo_reports_on_every_planted_fault(run, tmp_path):
    """Nothing is downloaded; every trace has its report, and so has the real one."""
    code, out, err = run("demo", "--out", tmp_path / "demo")

    assert code == 0
    assert "Data loading costs 80% of this run: 51.6 ms a step would be 10.3 ms without it." in out
    assert re.search(r"sync_in_loop +\.item\(\) in every layer +GPU synchronization +60%", out)
    assert re.search(r"none +nothing is wrong +GPU compute +72%", out)
    assert "Rank 2 is late: it costs " in out
    assert "critical.pftrace" in err
    assert sorted(path.parent.name for path in (tmp_path / "demo").glob("*/summary.md")) == [
        "captured",
        "dataloader",
        "exposed_allreduce",
        "job-report",
        "none",
        "small_kernels",
        "sync_in_loop",
        "synchronous_copy",
    ]


def test_piped_output_has_no_colors(trace, tmp_path):
    """A pipe gets text only, and one that closes early is no error of ours."""
    command = [
        sys.executable,
        "-m",
        "htagraph.cli.main",
        "report",
        str(trace),
        "--out",
        str(tmp_path),
    ]
    piped = subprocess.run(command, capture_output=True, check=True)

    assert b"\x1b" not in piped.stdout
    assert b"\x1b" not in piped.stderr


def test_inference_can_be_switched_off(run, trace):
    """No verb then has an inferred edge: here that the step waits for the autograd thread."""
    _, inferred, _ = run("path", trace, "--by", "rule", "--format", "json")
    _, recorded, _ = run("path", trace, "--by", "rule", "--format", "json", "--no-infer")
    _, none, _ = run("ask", "inferences", trace, "--no-infer", "--format", "json")
    codes = [
        run(*args, "--no-infer", "-q")[0]
        for args in (("dot", trace), ("info", trace), ("diff", trace, trace))
    ]

    assert "wait for another thread" in {row["rule"] for row in json.loads(inferred)}
    assert "wait for another thread" not in {row["rule"] for row in json.loads(recorded)}
    assert json.loads(none) == []
    assert codes == [0, 0, 0]


def test_a_report_without_inference_says_so_in_one_line(run, trace):
    """Below the facts; with inference, it says how much of the path is inferred instead."""
    _, off, _ = run("report", trace, "--no-infer", "-q", "--tables")
    _, on, _ = run("report", trace, "-q", "--tables")

    assert "Nothing was inferred (--no-infer): waits without a record" in " ".join(off.split())
    assert "of the path is inferred" not in off
    assert "Nothing was inferred" not in on
    assert "of the path is inferred: wait for another thread 0.6%." in on


def test_the_whole_trace_can_be_asked_for(run, trace):
    """`-w trace` is all of it, with what is before the first step."""
    whole, default = (
        sum(int(row["dur_ns"]) for row in csv.DictReader(io.StringIO(run("path", *args)[1])))
        for args in ((trace, "-w", "trace", "-f", "csv"), (trace, "-f", "csv"))
    )

    assert (whole, default) == (23_968_985, 23_756_800)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"a format that is not public")
    return path


def test_a_report_is_read_through_the_export_beside_it(report):
    export = report.with_name("run.sqlite")
    export.write_bytes(b"SQLite format 3\x00")

    assert readable(report) == export


def test_an_export_older_than_its_report_is_not_taken_for_it(report):
    export = report.with_name("run.sqlite")
    export.write_bytes(b"SQLite format 3\x00")
    os.utime(export, (0, 0))

    assert readable(report) == report


def test_nobody_in_front_of_the_terminal_is_not_asked(report):
    assert readable(report) == report


@pytest.fixture(scope="module")
def row_limits_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fourteen steps."""
    rank = simulate(training_rank(steps=14, layers=3))
    return rank.write(tmp_path_factory.mktemp("rows") / "rank0.json")


@pytest.fixture
def printed(capsys, monkeypatch, row_limits_trace):
    """Output and notices of a command on the trace."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(verb: str, *arguments: str) -> tuple[list[str], str]:
        with pytest.raises(SystemExit):
            main([verb, *arguments, str(row_limits_trace)])
        streams = capsys.readouterr()
        return streams.out.splitlines(), streams.err

    return run


def table(lines: list[str], title: str) -> list[str]:
    """Rows of the table under a title, without its header."""
    first = next(row for row, line in enumerate(lines) if line.startswith(title))
    rows = lines[first + 2 :]
    return rows[: rows.index("")] if "" in rows else rows


def test_segments_and_rows_of_an_answer(printed) -> None:
    lines, aside = printed("path", "--by", "segment")
    assert len(lines) == 1 + 1 + 40
    assert "more rows: --format csv prints all" in aside

    lines, aside = printed("ask", "kernel_durations")
    assert len(lines) == 1 + 1 + 40
    assert "40 of" in aside


def test_steps_and_operators_of_a_report(printed) -> None:
    lines, _ = printed("report", "--no-files", "--tables")

    assert len(table(lines, "By step, first 12 of")) == 12
    assert len(table(lines, "Operators on the path")) == 6


def test_output_into_a_pipe_is_140_characters_wide(printed) -> None:
    lines, _ = printed("ask", "list")

    assert 120 < max(map(len, lines)) <= 140


TRACE = str(hg.demo_trace("none"))
CHAIN = "op aten::linear -LAUNCH> kernel -STREAM> kernel"


@pytest.fixture
def query_run(capsys, monkeypatch):
    """Exit code, output and error output of a query."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def queried(*args: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["query", TRACE, *map(str, args)])
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return queried


def test_matches_are_a_table_with_units(query_run):
    """Names first, then how long each took and waited."""
    _, out, _ = query_run(CHAIN, "-q")

    title, head, row, *_ = out.splitlines()
    assert title == f"18 matches of {CHAIN} in this run."
    assert head.split()[:4] == ["op", "kernel", "kernel", "2"]
    assert row.split()[:3] == [
        "aten::linear",
        "ampere_sgemm_128x64_nn",
        "vectorized_elementwise_kernel",
    ]
    assert "us" in row


def test_scripts_get_all_rows_and_columns(query_run):
    """The same as in Python, to the nanosecond."""
    rows = json.loads(query_run(CHAIN, "-f", "json", "-q")[1])
    frame = hg.load(TRACE).compile().match(CHAIN).frame

    assert pd.DataFrame(rows)["kernel_wait_ns"].tolist() == frame["kernel_wait_ns"].tolist()
    assert list(rows[0]) == list(frame)


def test_groups_by_names_or_by_columns(query_run):
    """As `Matches.group` does."""
    (row,) = json.loads(query_run(CHAIN, "--by", "name", "-f", "json", "-q")[1])
    by_kind = json.loads(query_run(CHAIN, "--by", "op, kernel_edge_kind", "-f", "json", "-q")[1])

    assert (row["op"], row["n_matches"]) == ("aten::linear", 18)
    assert by_kind[0]["kernel_edge_kind"] == "launch"


def test_windows_limits_columns_and_files(query_run, tmp_path):
    """As of the other verbs."""
    code, out, err = query_run(CHAIN, "-w", "0:8ms", "--limit", 2, "--columns", "op,kernel_ts_ns")

    assert code == 0
    assert out.startswith(f"12 matches of {CHAIN} in 0:8ms.")
    assert len(out.splitlines()) == 4
    assert "+" in out.splitlines()[3]  # an instant, counted from the first
    assert "2 of 12 rows" in err
    query_run(CHAIN, "--out", tmp_path / "found.csv", "-q")
    assert len(pd.read_csv(tmp_path / "found.csv")) == 18


def test_a_wrong_pattern_is_shown_with_a_mark(query_run):
    """Before a file is read."""
    code, out, err = query_run("op -LANCH> kernel")

    assert (code, out) == (1, "")
    sentence, text, mark = err.splitlines()
    assert sentence.startswith("error: character 5 of the pattern: expected a kind of edge")
    assert (text, mark) == ("    op -LANCH> kernel", "        ^")


def test_a_job_needs_a_rank(capsys):
    """A pattern is about one rank."""
    with pytest.raises(SystemExit):
        main(["query", str(hg.demo_trace("job")), "kernel", "-q"])
    assert "--rank" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["query", str(hg.demo_trace("job")), "--rank", "1", "kernel ncc*", "-q"])
    assert "matches of kernel ncc*" in capsys.readouterr().out
