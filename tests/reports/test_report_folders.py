"""Folders of reports: one per input, window and capture; nobody's report is lost to another."""

from __future__ import annotations

from pathlib import Path

import pytest

from htagraph.cli.main import main
from htagraph.reports.report_folder import ReportOrigin
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank

pytestmark = pytest.mark.slow


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run a command in an empty folder: exit code and notices."""
    monkeypatch.chdir(tmp_path)

    def ran(*args: object) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main([*(str(arg) for arg in args), "-q"])
        return int(ended.value.code or 0), capsys.readouterr().err

    return ran


def recorded(folder: Path, **of: object) -> Path:
    """A trace of one rank with two steps."""
    return simulate(training_rank(steps=2, layers=1, **of)).write(folder / "rank0.json.gz")


def reports(where: Path) -> list[str]:
    """Folders with a summary, below one."""
    return sorted(str(file.parent.relative_to(where)) for file in where.rglob("summary.md"))


def test_traces_of_one_name_in_two_folders_have_two_reports(run, tmp_path):
    """`before/rank0` and `after/rank0`."""
    for folder in ("before", "after"):
        run("report", recorded(tmp_path / folder))

    assert reports(tmp_path / "htagraph-report") == ["after/rank0", "before/rank0"]


def test_a_step_has_a_report_of_its_own(run, tmp_path):
    """The report on the whole trace stays; what no file name can hold becomes a dash."""
    trace = recorded(tmp_path / "run")
    for window in ("", "ProfilerStep#1", "0:1_000_000"):
        run("report", trace, *(("-w", window) if window else ()))

    assert reports(tmp_path / "htagraph-report") == [
        "run/rank0",
        "run/rank0-0-1_000_000",
        "run/rank0-ProfilerStep-1",
    ]
    whole = (tmp_path / "htagraph-report" / "run" / "rank0" / "summary.md").read_text()
    assert '"window": ""' in whole
    assert " a step would be " in whole


def test_jobs_in_folders_of_one_name_have_two_reports(run, tmp_path):
    """`before/traces` and `after/traces`; and each capture that is asked by number has its own."""
    for parent in ("before", "after"):
        simulate_job(training_job(ranks=2, steps=1, layers=1)).write(tmp_path / parent / "traces")
        run("report", tmp_path / parent / "traces")
    run("report", tmp_path / "after" / "traces", "--capture", "1")

    assert reports(tmp_path / "htagraph-report") == [
        "after/traces",
        "after/traces-capture-1",
        "before/traces",
    ]


def test_an_older_report_is_replaced_only_by_its_own_input(run, tmp_path):
    """Parents of one name: the second report goes beside the first, each to its own again."""
    first, second = recorded(tmp_path / "a" / "run"), recorded(tmp_path / "b" / "run", seed=1)
    for trace in (first, second, first, second):
        run("report", trace)
    folder = tmp_path / "htagraph-report"

    assert reports(folder) == ["run/rank0", "run/rank0-2"]
    assert str(first) in (folder / "run" / "rank0" / "summary.md").read_text()
    assert str(second) in (folder / "run" / "rank0-2" / "summary.md").read_text()


def test_a_folder_with_a_report_on_another_input_is_refused(run, tmp_path):
    """Before that input is read: it is no trace. The same input may come again."""
    first, second, out = recorded(tmp_path / "a"), tmp_path / "other.json", tmp_path / "out"
    second.write_text("no trace")
    assert run("report", first, "--out", out)[0] == 0
    before = {file.name: file.read_bytes() for file in out.iterdir()}

    code, err = run("report", second, "--out", out)

    assert (code, len(err.strip().splitlines())) == (1, 1)
    assert f"holds the report on {first}" in err
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before
    assert run("report", first, "-w", "ProfilerStep#1", "--out", out)[0] == 0


def test_a_summary_of_the_users_own_is_not_replaced(run, tmp_path):
    """Who says `--out .` in a folder with a summary.md keeps it."""
    trace = recorded(tmp_path / "run")
    (tmp_path / "summary.md").write_text("mine")

    code, err = run("report", trace, "--out", tmp_path)

    assert (code, "another summary.md" in err) == (1, True)
    assert (tmp_path / "summary.md").read_text() == "mine"


def test_stale_files_do_not_stay_beside_new_ones(run, tmp_path):
    """What an older report left and the new one lacks is removed; foreign files stay."""
    trace, out = recorded(tmp_path / "run"), tmp_path / "out"
    run("report", trace, "--out", out)
    (out / "job.pftrace").write_bytes(b"of an older report")
    (out / "notes.txt").write_text("mine")

    run("report", trace, "--out", out)

    assert {file.name for file in out.iterdir()} - {"report.html"} == {
        "critical.dot",
        "critical.pftrace",
        "notes.txt",
        "summary.md",
    }


@pytest.mark.parametrize("source", ["/a/-->/x", "/a/{}/ü", '/a/"quoted"'])
def test_any_path_can_be_recorded(tmp_path, source):
    """What would end a comment does not."""
    origin = ReportOrigin(source, "a-->b")
    (tmp_path / "summary.md").write_text("# x\n" + origin.record, encoding="utf-8")

    origin.check(tmp_path)

    assert origin.record.count("-->") == 1
