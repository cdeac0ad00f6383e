"""`htagraph what-if`: what would help, what one change would do, and what is typed wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from htagraph.cli.main import main
from htagraph.synth import simulate, training_rank


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    """Write a training run of which each step waits 6 ms for its data."""
    return simulate(training_rank(steps=2, layers=1, fault="dataloader")).write(
        tmp_path_factory.mktemp("run") / "rank0.pt.trace.json.gz"
    )


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


def test_without_changes_it_says_what_would_help(run, trace):
    """The largest saving first, in the words of a person."""
    code, out, _ = run(trace)
    lines = out.splitlines()
    table = lines.index(next(line for line in lines if line.startswith("row")))

    assert code == 0
    assert lines[table - 1].startswith("What would help the whole trace (")
    assert lines[table + 1].split()[:4] == ["1", "without", "data", "loading"]


def test_the_rows_of_opportunities_are_there_for_scripts(run, trace):
    """All of them, with the change as Python writes it."""
    _, out, _ = run(trace, "--format", "json")

    assert json.loads(out)[0]["change"] == "scale(data loading, by=0)"


def test_a_change_has_a_saving_by_every_reading_and_bounds_that_add_up(run, trace):
    """As one document; what bounds the run adds up before and after."""
    _, out, _ = run(trace, "--prefetch", "--json", "-")
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
    code, out, err = run(trace, "--prefetch", "--out", "both.pftrace")

    assert code == 0
    assert out.splitlines()[3] == "What if: prefetch(); the whole trace"
    assert (tmp_path / "both.pftrace").stat().st_size > 0
    assert "Wrote both.pftrace" in err
    assert "htagraph view both.pftrace" in err


WRONG = [
    (("--scale", "gemm*"), "'gemm*' is no NAME=VALUE."),
    (("--scale", "gemm*=fast"), "'fast' is no factor."),
    (("--scale", "gemm*=-1"), "nothing takes -1.0 times as long."),
    (("--scale", "gemm*=inf"), "nothing takes inf times as long."),
    (("--insert", "aten::mm=5"), "'5' is no time."),
    (("--fuse", "kernel<a, b>"), "'kernel<a, b>' is not two names or more."),
    (("--bandwidth", "0"), "there is no bandwidth of 0.0 times."),
    (("--out", "x.pftrace"), "--out writes the run under changes, and there are none."),
    (("--out", "x.json", "--graphed"), "x.json: the run is written as a Perfetto trace."),
]


@pytest.mark.parametrize(("options", "error"), WRONG, ids=[error for _, error in WRONG])
def test_what_is_no_change_is_named_before_anything_is_read(run, options, error):
    """In one line, with an example."""
    code, _, err = run("no-such-file.json", *options)

    assert (code, err.partition(" Hint: ")[0]) == (1, f"error: {error}")


def test_a_name_that_nothing_has_is_named(run, trace):
    code, _, err = run(trace, "--remove", "no such kernel", "--quiet")

    assert (code, err.partition(" Hint: ")[0]) == (
        1,
        "error: no event of the graph is 'no such kernel'.",
    )
