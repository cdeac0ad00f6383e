"""`htagraph report` ends on one screen: the answer is what stays on the terminal."""

from __future__ import annotations

import re

import pytest

from htagraph.cli.main import main
from htagraph.cli.tables import bar
from htagraph.synth.demo_traces import demo_trace
from tests.screens import SCREENS, screen_of

_NEXT = 2
"""Lines below a verdict: an empty one, and the command to continue with."""


@pytest.fixture
def printed(capsys, monkeypatch, tmp_path):
    """What a command prints at 88 columns, answer and notices, in lines of the terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "88")

    def ran(*args: object) -> tuple[list[str], list[str]]:
        with pytest.raises(SystemExit):
            main([str(arg) for arg in args])
        streams = capsys.readouterr()
        return [line.rstrip() for line in streams.out.splitlines()], streams.err.splitlines()

    return ran


@pytest.mark.some(3)
@SCREENS
def test_a_report_has_at_most_22_lines_of_88_columns(name: str) -> None:
    """Also on a wider terminal; on one of 80 columns the same in more lines."""
    lines = screen_of(name).lines(88)

    assert len(lines) + _NEXT <= 22
    assert max(map(len, lines)) <= 88
    assert screen_of(name).lines(120) == lines
    assert max(map(len, screen_of(name).lines(80))) <= 80


@pytest.mark.some(9)
@SCREENS
def test_nothing_of_a_report_is_cut(name: str) -> None:
    """All words are there, whatever the width."""
    screen = screen_of(name)
    for width in (40, 80, 88):
        shown = "\n".join(screen.lines(width)).split()
        for one in screen.verdict.paragraphs:
            assert {*one.text.split(), *one.cost.split()} <= set(shown)


@SCREENS
def test_each_card_has_a_bar_as_long_as_its_cost(name: str) -> None:
    """In the color of what most of its first cause is spent on; without colors, the same bar."""
    screen = screen_of(name)
    plain, colored = screen.lines(88), screen.lines(88, colors=True)
    for number, card in enumerate(screen.verdict.cards, start=1):
        (line,) = (one for one in plain if one.startswith(f"{number}. "))
        (shown,) = (one for one in colored if f"{number}. {card.title[:20]}" in one)
        assert line.endswith(card.said)
        if len(card.title) < 40:
            assert bar(card.share) in line
            assert re.search(rf"\x1b\[[\d;]*38;2;[\d;]+m{bar(card.share)}", shown)


def test_a_screen_reads_from_the_headline_to_the_fix(printed) -> None:
    """The demo of README."""
    out, _ = printed("report", demo_trace("dataloader"), "--no-files")

    assert out == [
        "dataloader · simulated rank 0 of 8 · 516 events · 117 kernels · 3 steps · 24.0 ms",
        "",
        "Data loading costs 72% of this run: 7.92 ms a step would be 2.22 ms without it.",
        "",
        "1. Data loading                                      █████████████████▎        costs 72%",
        "   DataLoader.__next__ 19.7 ms",
        "   -> Load batches in workers: DataLoader(num_workers=3, persistent_workers=True).",
        "2. CPU work                                           █▉                        costs 8%",
        "   untraced code in ProfilerStep 371 us, cudaLaunchKernel 288 us",
        '   -> Launch less: torch.compile(mode="reduce-overhead") captures each step as a CUDA',
        "      graph (saves about 4%).",
        "3. GPU compute                                        █▍                        costs 6%",
        "   ampere_sgemm_128x64_nn 1.66 ms; on 8% of the critical path, partly hidden",
        "   -> Use bf16/fp16 (torch.autocast) or torch.compile; start with the largest kernel.",
        "Record Python code to name it: with htagraph.profile or htagraph.handler, or",
        "torch.profiler.record_function around its parts.",
    ]


def test_the_last_lines_are_the_next_commands(printed) -> None:
    """They can be copied: what would help, and all tables."""
    trace = demo_trace("dataloader")
    _, err = printed("report", trace, "--no-files")

    assert err[-2:] == [
        f"Next: htagraph what-if {trace} --without data-loading",
        f"All of it: htagraph report --tables {trace}",
    ]


def test_the_next_commands_are_of_the_rank_and_window_that_were_asked_for(printed) -> None:
    job, step = demo_trace("job"), "ProfilerStep#1"
    _, err = printed("report", job, "--rank", 1, "-w", step, "--no-files")

    assert re.fullmatch(
        rf"Next: htagraph [\w -]+ {re.escape(str(job))} --rank 1 -w '{step}'( --without \S+)?",
        err[-2],
    )
    assert err[-1] == f"All of it: htagraph report --tables {job} --rank 1 -w '{step}'"


def test_a_late_rank_leads_to_the_question_about_late_ranks(printed) -> None:
    _, err = printed("report", demo_trace("job"), "--no-files")

    assert f"Next: htagraph ask stragglers {demo_trace('job')}" in err


def test_tables_print_what_is_behind_the_verdict(printed) -> None:
    """Below the same screen."""
    brief, _ = printed("report", demo_trace("dataloader"), "--no-files")
    out, err = printed("report", demo_trace("dataloader"), "--no-files", "--tables")

    assert out[: len(brief)] == brief
    assert [line for line in out if line.startswith(("By step", "Operators on"))] == [
        "By step",
        "Operators on the path",
    ]
    assert [line for line in err if line.startswith("All of it")] == []
