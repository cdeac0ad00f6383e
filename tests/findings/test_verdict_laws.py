"""What holds for the verdict on every demo trace and capture, and what none of them says."""

from __future__ import annotations

import re

import pytest

from htagraph.findings.verdict import LATE, Card, Finding, percent
from htagraph.model.kinds import EventKind
from htagraph.reports.summary import Summary
from tests.screens import SCREENS, screen_of

_PERCENT = re.compile(r"\d+%|<1%")


def percents(text: str) -> set[str]:
    return set(_PERCENT.findall(text))


def own_percents(card: Card) -> set[str]:
    """Those that a card may show: its causes' costs, times and savings, and what advice quotes."""
    found: set[str] = percents(card.said)
    for one in card.findings:
        times_ns = (one.weight_ns, one.path_ns, one.fix.saves_ns or 0)
        found |= {percent(time_ns, one.window_ns) for time_ns in times_ns}
        found |= percents(f"{one.title} {one.fix.do} {one.detail} {one.contributors}")
    return found


@pytest.mark.some(9)
@SCREENS
def test_findings_and_what_is_apart_add_up_to_the_window(name: str) -> None:
    verdict = screen_of(name).verdict
    apart_ns = sum(dur_ns for _, dur_ns in verdict.apart)

    assert sum(one.path_ns for one in verdict.findings) + apart_ns == verdict.dur_ns


@SCREENS
def test_a_cause_costs_no_more_than_its_time_on_the_path(name: str) -> None:
    """But for a rank, stage or group of experts, for which others wait."""
    verdict = screen_of(name).verdict

    for one in verdict.findings:
        assert one.cost_ns is not None
        assert 0 <= one.cost_ns <= (verdict.dur_ns if one.cause in LATE else one.path_ns)


@SCREENS
def test_causes_are_in_the_order_of_their_costs(name: str) -> None:
    """But for the first, which may be a rank that the others wait for."""
    costs = [one.weight_ns for one in screen_of(name).verdict.findings]

    assert costs[1:] == sorted(costs[1:], reverse=True)
    assert costs[0] >= max(costs) / 2


@pytest.mark.some(3)
@SCREENS
def test_a_card_shows_no_percentage_of_another_finding(name: str) -> None:
    blocks: list[str] = []
    verdict = screen_of(name).verdict
    for paragraph in verdict.paragraphs:
        if paragraph.role == "card":
            blocks.append(paragraph.cost)
        if paragraph.role in ("evidence", "fix"):
            blocks[-1] += f" {paragraph.text}"

    assert len(blocks) == len(verdict.cards)
    for card, block in zip(verdict.cards, blocks, strict=True):
        assert percents(block) <= own_percents(card)


@pytest.mark.some(3)
@SCREENS
def test_a_cause_has_one_cost_and_at_most_one_saving(name: str) -> None:
    """The saving is that of the fix that is printed, and less than the cost."""
    findings: list[Finding] = list(screen_of(name).verdict.top_findings)

    assert len({one.label for one in findings}) == len(findings)
    for one in findings:
        assert one.advice.count("saves") <= 1
        if "saves" in one.advice:
            assert one.fix.change is not None
            assert 0 < (one.fix.saves_ns or 0) < one.weight_ns


@SCREENS
def test_a_card_costs_five_percent_or_more(name: str) -> None:
    """Also that of a late rank."""
    assert all(card.share >= 0.05 for card in screen_of(name).verdict.cards)


@SCREENS
def test_a_graph_saves_launches_only_if_there_are_some(name: str) -> None:
    """And the advice names what is replayed."""
    summary = screen_of(name).summary
    launches = isinstance(summary, Summary) and any(
        call.startswith(("cudaLaunch", "hipLaunch", "cuLaunch", "hipModuleLaunch"))
        for call in summary.graph.dag.events.names()[
            summary.graph.dag.events.kind == EventKind.RUNTIME
        ]
    )
    for one in screen_of(name).verdict.findings:
        if one.fix.change is not None and one.fix.change.name == "graphed":
            assert "graph" in one.fix.do
            assert launches or not isinstance(summary, Summary)
        if isinstance(summary, Summary) and not launches:
            assert "CUDA graph" not in one.fix.do


@SCREENS
def test_no_sentence_is_cut(name: str) -> None:
    """All end as sentences do; names may lose their middle."""
    for one in screen_of(name).verdict.paragraphs:
        if one.role in ("headline", "fix", "also", "damage", "note"):
            assert one.text.endswith((".", "htagraph info says how.")) or "htagraph " in one.text
        assert not one.text.endswith(("…", "..."))


@SCREENS
def test_nothing_is_said_that_says_nothing(name: str) -> None:
    said = repr(screen_of(name).verdict)

    assert not re.search(r"at most 0%|costs? 0%|No one cause|saves about (0%|<1%)", said)


@pytest.mark.parametrize("name", ["single/sleep_stack", "jobs/ddp_sleep_4"])
def test_advice_that_misses_the_recording_comes_once(name: str) -> None:
    """With what records it, and only if it was missing."""
    verdict = screen_of(name).verdict

    assert all("htagraph.profile" not in one.fix.do for one in verdict.findings)
    assert repr(verdict).count("htagraph.profile") == (name == "jobs/ddp_sleep_4")
