"""`htagraph report` ends on one screen: the answer is what stays on the terminal."""

from __future__ import annotations

import pytest

from htagraph.cli.main import main
from htagraph.demo_traces import demo_trace
from htagraph.findings.device_rules import DEVICE_RULES
from htagraph.findings.host_rules import HOST_RULES
from htagraph.reports.brief import shortened
from tests.real_traces import located

_SCREEN = 40
"""Lines at 80 columns: a terminal of 50 also has the prompt, and what came before."""

RUNS = {
    **{name: demo_trace(name) for name in ("none", "dataloader", "captured", "job")},
    "a job with a slow stage": located("captures/pipelines/pp4_1f1b_slow"),
    "a job with a late rank": located("captures/jobs/ddp_sleep_4"),
    "a pair of captures": located("captures/features/repeat2_tb"),
}


@pytest.fixture
def printed(capsys, monkeypatch, tmp_path):
    """What a command prints at 80 columns, answer and notices, in lines of the terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def ran(*args: object) -> tuple[list[str], list[str]]:
        with pytest.raises(SystemExit):
            main([str(arg) for arg in args])
        streams = capsys.readouterr()
        return streams.out.splitlines(), streams.err.splitlines()

    return ran


def _rows(lines: list[str]) -> int:
    """Rows of a terminal of 80 columns that the lines take; long paths wrap."""
    return sum(max(1, -(-len(line.rstrip()) // 80)) for line in lines)


@pytest.mark.parametrize("run", RUNS)
def test_a_report_is_one_screen_at_80_columns(printed, run) -> None:
    out, err = printed("report", RUNS[run])

    assert _rows(out) + _rows(err) <= _SCREEN
    assert max(len(line.rstrip()) for line in out) <= 80


@pytest.mark.parametrize("run", RUNS)
def test_a_finding_is_three_lines(printed, run) -> None:
    """Title, what it rests on with what it would save, what to try."""
    out, _ = printed("report", RUNS[run], "--no-files")
    findings = [at for at, line in enumerate(out) if line.startswith(("  1.", "  2.", "  3."))]

    assert findings
    for at in findings:
        below = [line for line in out[at + 1 : at + 4] if line.startswith("     ")]
        assert len(below) == 2
        assert (below[0].split(":")[0].strip(), below[1].split(":")[0].strip()) == (
            "largest",
            "try",
        )


def test_a_finding_names_what_fits_and_keeps_what_it_saves(printed) -> None:
    """At 80 columns, what the saving depends on goes first, then names lose their middle."""
    out, _ = printed("report", demo_trace("dataloader"), "--no-files")

    assert [line.strip() for line in out if line.strip().startswith("largest: ")] == [
        "largest: enumerate(DataLoader)#_…er.__next__ 19.7 ms; saves 7%, at most 11%",
        "largest: untraced code in ProfilerStep 342 us; saves 4%, at most 8%",
        "largest: ampere_sgemm_128x64_nn 1.66 ms; saves at most 4% if twice as fast",
    ]


def test_the_last_lines_are_the_next_commands(printed) -> None:
    """They can be copied: what would help, and all tables."""
    trace = demo_trace("dataloader")
    _, err = printed("report", trace)

    assert err[-2:] == [
        f"Next: htagraph what-if {trace}",
        f"All of it: htagraph report --tables {trace}",
    ]


def test_the_next_commands_are_of_the_rank_and_window_that_were_asked_for(printed) -> None:
    job, step = demo_trace("job"), "ProfilerStep#1"
    _, err = printed("report", job, "--rank", 1, "-w", step, "--no-files")

    assert err[-2:] == [
        f"Next: htagraph what-if {job} --rank 1 -w '{step}'",
        f"All of it: htagraph report --tables {job} --rank 1 -w '{step}'",
    ]


def test_a_late_rank_leads_to_the_question_about_late_ranks(printed) -> None:
    _, err = printed("report", demo_trace("job"), "--no-files")

    assert err[0] == f"Next: htagraph ask stragglers {demo_trace('job')}"


def test_tables_print_what_is_behind_the_verdict(printed) -> None:
    """And the whole text of each finding."""
    brief, _ = printed("report", demo_trace("dataloader"), "--no-files")
    out, err = printed("report", demo_trace("dataloader"), "--no-files", "--tables")
    cost = "without it, the window would be at most"

    assert [line for line in brief if line.startswith(("By step", "Operators on"))] == []
    assert [line for line in out if line.startswith(("By step", "Operators on"))] == [
        "By step",
        "Operators on the path",
    ]
    assert (any(cost in line for line in out), any(cost in line for line in brief)) == (True, False)
    assert len(err) == 1


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (
            99,
            "results are copied: do it less often (every n steps, or never), or later. Then wait.",
        ),
        (70, "results are copied: do it less often (every n steps, or never) …"),
        (60, "results are copied: do it less often (every n steps, …)"),
        (45, "results are copied: do it less often …"),
        (30, "do it less often …"),
        (5, "do it less often …"),
    ],
)
def test_advice_is_cut_after_a_clause(width, said) -> None:
    """Its reason goes before what to do; a second sentence goes first; no clause is cut."""
    advice = "results are copied: do it less often (every n steps, or never), or later. Then wait."

    assert shortened(advice, width) == said


@pytest.mark.parametrize(
    ("begins", "said"),
    [
        ("balance the router", "balance the router (auxiliary loss, bias of busy experts, …)"),
        ("check the group", "check the group it waits in first …"),
        ("compare its Python", "compare its Python code there with that of the other ranks."),
        ("find which kernels", "find which kernels fill this rank's device …"),
        ("most of the work is compiled", "find graph breaks and recompilations with TORCH_LOGS="),
        ("most of the work is captured", "use larger or fewer graphs, larger batches …"),
        ("ranks exchange rows", "ranks exchange rows of embeddings: start this one batch ahead …"),
        ("gradients are reduced", "tune bucket_cap_mb of DistributedDataParallel …"),
    ],
)
def test_advice_is_cut_to_what_to_do(begins, said) -> None:
    """At 80 columns; some begins with a verb, some with its reason."""
    rules = (*HOST_RULES.values(), *DEVICE_RULES.values())
    (advice,) = {rule.says for row in rules for rule in row if rule.says.startswith(begins)}

    assert shortened(advice, 65).startswith(said)
