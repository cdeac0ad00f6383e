"""`htagraph what-if`: what would help, what one change would do, and what is typed wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import htagraph as hg
from htagraph.cli.main import main
from htagraph.job import rehearsal
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank

SCREEN = """\
rank0 · simulated rank 0 of 8 · 98 events · 19 kernels · 2 steps · 3.47 ms
Left out: 210 us before the first step (-w trace: all).

What would help this run:
change                                                                                 saves
DataLoader.__next__ twice as fast                                                        34%
Launch less: torch.compile(mode="reduce-overhead") captures each step as a CUDA graph   7.3%
ampere_sgemm_128x64_nn twice as fast                                                    4.3%
Memcpy HtoD (Pinned -> Device) twice as fast                                              4%
  Each change alone: savings do not add up.
  Steps predict each other within 0.0% (worst 0.0%, of 1); typical steps differ by 1.9%.
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    """Write a training run of which each step waits 6 ms for its data."""
    return simulate(training_rank(steps=2, layers=1, fault="dataloader")).write(
        tmp_path_factory.mktemp("run") / "rank0.pt.trace.json.gz"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Write a job of two ranks, of which the second is 5 ms late in each of two steps."""
    into = tmp_path_factory.mktemp("late")
    job = training_job(ranks=2, steps=2, layers=1, straggler=1, delay_ns=5_000_000)
    simulate_job(job).write(into)
    return into


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run `what-if` in an empty folder: exit code, output and notices."""
    monkeypatch.chdir(tmp_path)

    def ran(*args: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["what-if", *map(str, args)])
        streams = capsys.readouterr()
        return int(ended.value.code or 0), streams.out, " ".join(streams.err.split())

    return ran


def test_without_changes_it_says_what_would_help(run, trace, monkeypatch):
    """The largest saving first, in the words of a person: the fixes of the report, and parts."""
    monkeypatch.delenv("COLUMNS", raising=False)
    code, out, err = run(trace)

    assert code == 0
    assert out == SCREEN
    assert f"All of it: htagraph what-if {trace} -f csv" in err


@pytest.mark.parametrize(
    ("window", "said"), [("trace", "the whole run"), ("ProfilerStep#1", "ProfilerStep#1")]
)
def test_the_window_is_the_subject_of_the_sentence(run, trace, window, said):
    """As it was asked for, in English."""
    _, helps, _ = run(trace, "-w", window)
    _, changed, _ = run(trace, "-w", window, "--prefetch", 1)

    assert f"What would help {said}:" in helps.splitlines()
    assert f"{said[0].upper()}{said[1:]} with prefetch():" in changed.splitlines()


def test_a_change_has_a_saving_by_every_reading_and_bounds_that_add_up(run, trace):
    """As one document; what limits the run adds up before and after."""
    _, out, _ = run(trace, "--prefetch", 1, "--json", "-")
    found = json.loads(out)

    assert found["changes"] == ["prefetch()"]
    assert found["after_ns"] == found["before_ns"] - found["saves_ns"]
    assert found["readings"][0]["saves_ns"] == found["saves_ns"] > 0
    assert sum(bound["before_ns"] for bound in found["bounds"]) == found["before_ns"]
    assert sum(bound["after_ns"] for bound in found["bounds"]) == found["after_ns"]


def test_changes_are_made_together_and_written_as_python_writes_them(run, trace):
    """In the order of the options' help."""
    _, out, _ = run(
        trace,
        *("--no-wait", "cudaDeviceSync*", "--scale", "*gemm*=0.5", "--scale", "nccl*=2"),
        *("--insert", "aten::addmm=1.5us", "--fuse", "*gemm*,*gemm*", "--bandwidth", "2"),
        *("--json", "-"),
    )

    assert json.loads(out)["changes"] == [
        "scale('*gemm*', by=0.5)",
        "scale('nccl*', by=2)",
        "no_wait('cudaDeviceSync*')",
        "insert(after='aten::addmm', dur_ns=1500)",
        "fuse('*gemm*', '*gemm*')",
        "bandwidth(2)",
    ]


def test_the_changed_run_is_written_beside_the_other(run, trace, tmp_path):
    """And one is told how to open it."""
    code, out, err = run(trace, "--prefetch", 1, "--out", "both.pftrace")

    assert code == 0
    assert out.splitlines()[3] == "This run with prefetch():"
    assert len(out.splitlines()) <= 20
    assert (tmp_path / "both.pftrace").stat().st_size > 0
    assert "Wrote both.pftrace" in err
    assert "htagraph view both.pftrace" in err


def test_without_changes_a_folder_says_what_would_help_the_job(run, folder):
    """The late rank by its number, and how well its clock is known."""
    code, out, _ = run(folder)
    lines = out.splitlines()
    first = lines.index("What would help this job:") + 2

    assert code == 0
    assert re.fullmatch("Rank 1 is late: if it kept up +76%", lines[first])
    assert sum("is late" in line for line in lines) == 1
    assert "Rank clocks may be off by" in " ".join(lines)


def test_the_opportunities_of_a_job_name_the_late_rank(run, folder):
    """In the document of a trace."""
    _, out, _ = run(folder, "--json", "-")
    found = json.loads(out)
    late = [row for row in found["opportunities"] if row["late_rank"] >= 0]

    assert (found["schema"], found["window"]) == ("htagraph.opportunities", "2 steps")
    assert [(row["late_rank"], row["change"]) for row in late] == [(1, "equalise().on_rank(1)")]
    assert late[0]["saves_ns"] > 8_000_000


def test_an_equalised_job_has_paths_by_bound_and_by_rank_that_add_up(run, folder):
    """Rank 1 keeps nobody waiting: 5 ms in each of two steps."""
    _, out, _ = run(folder, "--equalise", "--json", "-")
    found = json.loads(out)

    assert found["changes"] == ["equalise()"]
    assert found["low_ns"] <= found["saves_ns"] <= found["high_ns"]
    assert found["saves_ns"] == pytest.approx(10_000_000, rel=0.1)
    for groups in (found["bounds"], found["ranks"]):
        assert sum(group["before_ns"] for group in groups) == found["before_ns"]
        assert sum(group["after_ns"] for group in groups) == found["after_ns"]


def test_a_change_is_made_on_one_rank_only(run, folder, tmp_path):
    """Rank 0 is never late, so nothing changes; the changed run is written."""
    code, out, err = run(folder, "--equalise", "--on-rank", 0, "--out", "changed.pftrace")

    assert code == 0
    assert "This job with equalise().on_rank(0):" in out
    assert "saves nothing." in out
    assert (tmp_path / "changed.pftrace").stat().st_size > 0
    assert "Next: htagraph view changed.pftrace" in err


def test_a_rank_that_the_job_has_not_is_named_with_those_it_has(run, folder):
    code, _, err = run(folder, "--on-rank", 7, "--equalise")

    assert (code, err) == (1, "error: there is no rank 7 to change. Hint: the job has 0, 1.")


def test_a_job_that_is_too_large_is_refused_in_one_line(run, folder, monkeypatch):
    """Larger than a report replays, and than can be replayed at all."""
    monkeypatch.setattr(rehearsal, "_MOST_EVENTS", 10)
    monkeypatch.setattr("htagraph.job.job._REPLAYED_EVENTS", 10)
    code, out, err = run(folder)

    assert (code, out) == (1, "")
    assert re.fullmatch(r"error: the ranks have .* 10 can be replayed together\. Hint: .*", err)


def test_a_run_without_a_cause_saves_what_it_costs(run, trace):
    """The cause by its name in the verdict, with dashes."""
    graph = hg.load(trace).compile()
    (cost_ns,) = [one.cost_ns for one in graph.verdict().findings if one.cause == "data loading"]
    _, out, _ = run(trace, "--without", "data-loading", "--json", "-")
    found = json.loads(out)

    assert found["changes"] == ["without('data-loading')"]
    assert (found["low_ns"], found["saves_ns"], found["high_ns"]) == (cost_ns,) * 3


def test_a_cause_that_the_run_has_not_is_named_with_those_it_has(run, trace, folder):
    """Of a job, a late rank by its number."""
    code, _, err = run(trace, "--without", "late-rank")
    _, _, of_job = run(folder, "--without", "late-rank")
    _, saved, _ = run(folder, "--without", "late-rank-1", "--json", "-")

    assert code == 1
    assert err.startswith("error: the run loses no time to 'late-rank'. Hint: it does to: ")
    assert "data-loading" in err
    assert "late-rank-1" in of_job
    assert json.loads(saved)["saves_ns"] > 8_000_000


WRONG = [
    (("--prefetch", "0"), "prefetch: workers must be 1 or more, not 0."),
    (("--on-rank", "3"), "--on-rank needs a change to make on that rank."),
    (("--scale", "gemm*"), "'gemm*' is not NAME=VALUE."),
    (("--scale", "gemm*=fast"), "'fast' is not a number."),
    (("--scale", "gemm*=-1"), "scale: by must be between 0 and 1,000,000, not -1."),
    (("--scale", "gemm*=inf"), "scale: by must be between 0 and 1,000,000, not inf."),
    (("--insert", "aten::mm=5"), "'5' is not a duration."),
    (("--fuse", "kernel<a, b>"), "--fuse needs two names or more, not 'kernel<a, b>'."),
    (("--bandwidth", "0"), "bandwidth: by must be above 0, not 0."),
    (("--out", "x.pftrace"), "--out writes the changed run, and no change is given."),
    (("--out", "x.json", "--graphed"), "x.json: the run is written as a Perfetto trace."),
]


@pytest.mark.parametrize(("options", "error"), WRONG, ids=[error for _, error in WRONG])
def test_what_is_no_change_is_named_before_anything_is_read(run, options, error):
    """In one line, with an example."""
    code, _, err = run("no-such-file.json", *options)

    assert (code, err.partition(" Hint: ")[0]) == (1, f"error: {error}")


@pytest.mark.parametrize("options", [("--equalise",), ("--on-rank", "3", "--graphed")])
def test_what_is_about_the_ranks_of_a_job_is_not_asked_of_a_trace(run, trace, options):
    code, _, err = run(trace, *options)

    assert (code, err.partition(" Hint: ")[0]) == (
        1,
        "error: --equalise and --on-rank need the ranks of a job.",
    )


def test_a_name_that_nothing_has_is_named(run, trace):
    code, _, err = run(trace, "--remove", "no such kernel", "--quiet")

    assert (code, err.partition(" Hint: ")[0]) == (
        1,
        "error: no event matches 'no such kernel'.",
    )
