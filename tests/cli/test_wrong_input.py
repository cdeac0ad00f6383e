"""What is typed wrong, or cannot be answered, ends in one line that says so: never a traceback."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import htagraph as hg
from htagraph.cli.main import main
from htagraph.errors import QueryError
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    """Write a simulated rank of six steps."""
    return simulate(training_rank(steps=6, layers=1)).write(
        tmp_path_factory.mktemp("wrong") / "rank0.json"
    )


@pytest.fixture(scope="module")
def graph(trace: Path) -> hg.TraceGraph:
    return hg.load(trace).compile()


def said(capsys, *args: object) -> tuple[int, str]:
    """Exit code and error output of a command."""
    with pytest.raises(SystemExit) as ended:
        main([str(arg) for arg in args])
    return int(ended.value.code or 0), " ".join(capsys.readouterr().err.split())


WRONG_OPTIONS = [
    (("idle_time", "foo=1"), "idle_time has no option 'foo'. Hint: its options are per."),
    (("overlap", "foo=1"), "overlap has no option 'foo'. Hint: it has none."),
    (("idle_time", "per=rank"), "idle_time has no per 'rank'. Hint: one of device, stream."),
    (
        ("kernel_patterns", "top=x"),
        "top of kernel_patterns must be a whole number >= 0, not 'x'.",
    ),
    (("kernel_patterns", "top=²"), "top of kernel_patterns must be a whole number >= 0, not '²'."),
    (("kernel_durations", "name=5"), "name of kernel_durations must be a name, not 5."),
]


@pytest.mark.parametrize(("asked", "error"), WRONG_OPTIONS, ids=[a[1] for a, _ in WRONG_OPTIONS])
def test_a_wrong_option_is_named_before_anything_is_read(capsys, asked, error) -> None:
    """No trace is needed to see it."""
    question, option = asked
    assert said(capsys, "ask", question, "no-such-file.json", "-o", option) == (
        1,
        f"error: {error}",
    )


@pytest.mark.dask
@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("nonsense://x:1", "unknown address scheme 'nonsense'"),
        ("tcp://127.0.0.1:1", "Timed out trying to connect"),
    ],
)
def test_an_address_at_which_no_dask_answers_is_named(
    capsys, trace: Path, tmp_path: Path, address: str, error: str
) -> None:
    pytest.importorskip("distributed", reason="its configuration")
    with pytest.importorskip("dask").config.set({"distributed.comm.timeouts.connect": "200ms"}):
        code, line = said(capsys, "report", trace, trace, "--dask", address, "--out", tmp_path)

    assert (code, line.startswith(f"error: --dask {address}: {error}")) == (1, True), line


def test_options_are_checked_from_python_too(graph: hg.TraceGraph) -> None:
    """`ask` takes what the method takes."""
    with pytest.raises(QueryError, match="no option 'foo'"):
        graph.ask("quality", foo=1)


@pytest.mark.parametrize(
    "window", [5, None, (1, 2, 3), ("a", "b"), (0, float("nan")), re.compile(b"x"), (0, 2**70)]
)
def test_what_is_no_window_is_said_to_be_none(graph: hg.TraceGraph, window: object) -> None:
    """A name, a regex, or two times."""
    with pytest.raises(QueryError, match=r"give the name of a step or range, a regex, or \(start"):
        graph.window(window)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"on": "gpu"}, {"instance": "first"}])
def test_other_arguments_of_a_window_are_checked(graph: hg.TraceGraph, options) -> None:
    """What they can be is in the hint."""
    with pytest.raises(QueryError, match=r"host, device|instance=0 is the first"):
        graph.window("ProfilerStep#1", **options)


def test_a_window_that_ends_before_it_starts_is_shown_as_it_was_typed(capsys, trace) -> None:
    """Not in the nanoseconds of the file."""
    assert said(capsys, "path", trace, "-w", "5:1") == (
        1,
        "error: the window '5:1' ends before it starts. Hint: give START:END.",
    )


def test_a_glob_says_which_of_six_steps_it_took(capsys, trace) -> None:
    """The first; `-q` takes it in silence, and so does the name itself."""
    code, error = said(capsys, "path", trace, "-w", "ProfilerStep*")
    assert code == 0
    assert "6 ranges match 'ProfilerStep*'; this is the first, ProfilerStep#0." in error
    assert said(capsys, "path", trace, "-w", "ProfilerStep*", "-q") == (0, "")
    assert said(capsys, "path", trace, "-w", "ProfilerStep#2") == (0, "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write two ranks and a file that is no trace."""
    simulate_job(training_job(ranks=2, steps=2, layers=1)).write(tmp_path)
    (tmp_path / "rank7.json").write_text("no trace")
    return tmp_path


def test_a_warning_is_a_sentence_and_quiet_silences_it(capsys, folder: Path) -> None:
    """No file and line of the package, no source."""
    _, error = said(capsys, "ask", "clocks", folder)
    assert "1 file of 3 could not be used: see job.failures." in error
    assert "Warning" not in error
    assert ".py" not in error
    assert said(capsys, "ask", "clocks", folder, "-q") == (0, "")


def test_a_glob_of_a_job_says_which_step_it_took(capsys, folder: Path) -> None:
    """The first of each rank."""
    _, error = said(capsys, "ask", "overlap", folder, "-w", "ProfilerStep*")
    assert "2 ranges match 'ProfilerStep*'; this is the first, ProfilerStep#0 of rank 0" in error
