"""Verdicts: how much of the findings is printed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from htagraph.findings.verdict import Finding, Verdict


def found(share: float = 0.2, saves: float = 0.1, ranks: tuple[int, ...] = ()) -> Finding:
    """A finding with a share of 1 ms, equal on some ranks, and what its repair saves."""
    dur_ns = round(share * 1_000_000)
    return Finding(
        cause="compute",
        title="Compute",
        dur_ns=dur_ns,
        share=share,
        n_segments=1,
        cost_ns=dur_ns,
        then_bound="",
        potential_saving_ns=round(saves * 1_000_000),
        longest_ns=dur_ns,
        longest_start_ns=0,
        n_steps=0,
        first_step="",
        last_step="",
        parts=(("compute", dur_ns),),
        evidence=(),
        to_try="",
        ranks=tuple((rank, dur_ns // len(ranks)) for rank in ranks),
        saving_low_ns=round(saves * 1_000_000),
        saving_high_ns=round(saves * 1_000_000),
        repaired_by="graphed()",
    )


def test_three_findings_are_printed() -> None:
    """Of seven."""
    verdict = Verdict((found(),) * 7)

    assert len(verdict.top_findings) == 3
    assert repr(verdict).count("Compute: ") == 3


@pytest.mark.parametrize(("share", "is_printed"), [(0.004, False), (0.006, True)])
def test_a_finding_is_printed_from_half_a_percent_on(share: float, is_printed: bool) -> None:
    assert bool(Verdict((found(share),)).top_findings) is is_printed


@pytest.mark.parametrize(("saves", "percent"), [(0.002, "<1%"), (0.004, "<1%"), (0.006, "1%")])
def test_a_saving_is_never_nothing(saves: float, percent: str) -> None:
    """One that is nothing is not said."""
    assert found(saves=0.0).prediction == ""
    assert found(saves=saves).prediction == f"saves {percent} if captured as a CUDA graph"


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.0, 0.10, "at most 10%"),
        (0.004, 0.15, "10%, at most 15%,"),
        (0.02, 0.15, "10% (2% to 15%)"),
        (0.10, 0.10, "10%"),
    ],
)
def test_a_saving_that_may_be_nothing_is_called_at_most(low: float, high: float, said: str) -> None:
    """An interval that begins at nothing says only where it ends."""
    ends = {"saving_low_ns": round(low * 1e6), "saving_high_ns": round(high * 1e6)}
    finding = replace(found(saves=0.1), **ends)
    assert finding.prediction == f"saves {said} if captured as a CUDA graph"


@pytest.mark.parametrize(
    ("share", "rest"), [(0.1, "compute 10.0%"), (0.01, "1 smaller cause 1.0%")]
)
def test_a_large_cause_is_named_although_others_cost_more(share: float, rest: str) -> None:
    """Fourth by what the window loses to it."""
    verdict = Verdict((*(found(),) * 3, found(share)), dur_ns=1_000_000)

    assert verdict.rest == f"The rest of the path: {rest}."


def test_three_ranks_are_named() -> None:
    """Of eight."""
    assert found(ranks=tuple(range(8))).where == (
        "12% on rank 0, 12% on rank 1, 12% on rank 2, the rest on 5 others"
    )


def test_lines_have_a_hundred_columns() -> None:
    verdict = Verdict((), withheld="no " * 99)

    assert max(map(len, repr(verdict).splitlines())) in {98, 99, 100}


def test_unexplained_time_of_a_late_rank_is_not_counted_again() -> None:
    """The page has all unknown waits as a figure of its own."""
    late = replace(found(0.9), parts=(("host", 890_000), ("unknown_waits", 10_000)))
    verdict = Verdict((late,), dur_ns=1_000_000, apart=(("unknown_waits", 100_000),))

    assert verdict.rest == "The rest of the path: unexplained elsewhere 10.0%."


def test_three_sentences_on_damage_are_printed() -> None:
    """Of five, right under the title; how to get the rest is said."""
    verdict = Verdict((found(),), damage=tuple(f"Damage {n}." for n in range(5)))

    assert [text for _, text, _ in verdict.paragraphs[1:6]] == [
        "Damage 0.",
        "Damage 1.",
        "Damage 2.",
        "And 2 more sentences: htagraph ask damage.",
        "1. Compute: 20.0% of the path (200 us)",
    ]


def test_damage_is_told_of_a_verdict_that_is_withheld() -> None:
    """It may be why."""
    assert repr(Verdict((), "too little.", damage=("It is cut off.",))).splitlines()[1:] == [
        "  It is cut off.",
        "  No verdict: too little.",
    ]
