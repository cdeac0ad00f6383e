"""A prediction in words and as a document; where too little is known, it is withheld."""

from __future__ import annotations

import json

import pytest

import htagraph as hg
from htagraph.replay.assumptions import Assumption
from htagraph.replay.changes import Change
from htagraph.replay.rehearsal import Saving
from htagraph.reports.prediction import (
    _within,
    caveats_of,
    prediction_document,
    prediction_in_words,
    ranks_of,
)
from tests.drawn import drawn_graph
from tests.job.simulated import loaded, meet, three
from tests.synth.program import Op, Spend, Synchronize

WAITED_FOR = """
    cpu 1    |[launch >a]   [sync @*           ]
    stream 7 |      [gemm <a               ]
"""
UNKNOWN_WAITS = """
    cpu 1    |[launch >a][launch >b]
    stream 7 |           [first <a ]                                        [second <b]
"""


def scenario(drawing: str, *changes: Change) -> hg.Scenario:
    graph = drawn_graph(drawing)
    return hg.what_if(graph, *changes)


def test_a_saving_that_all_readings_share_has_no_interval():
    """A kernel of 24 us, a quarter of it less, in a window of 34 us."""
    said = prediction_in_words(scenario(WAITED_FOR, hg.scale("gemm", by=0.75)))

    assert said == "34.0 us would be 28.0 us: saves 18%."


@pytest.mark.parametrize(
    ("low_ns", "high_ns", "said"),
    [
        (20, 60, " (20% to 60%)"),
        (19, 50, ", at most 50%"),
        (30, 61, ", at most 61%"),
        (-40, 130, ", at most 100%"),
        (40, 40, ""),
    ],
)
def test_an_interval_is_given_if_it_is_near_the_saving(low_ns: int, high_ns: int, said: str):
    """Of 40 ns of 100; ranks that are not there do not count, nor more than there is."""
    readings = ((Assumption.AS_BOUND, 40), (Assumption.LOOSE, low_ns), (Assumption.RIGID, high_ns))
    saves = Saving(min(low_ns, 0), 40, high_ns, (*readings, (Assumption.OTHERS_LATE, 0)))

    assert _within(saves, 100) == said


def test_a_change_that_costs_says_so():
    said = prediction_in_words(scenario(WAITED_FOR, hg.insert(after="gemm", dur_ns=3_400)))

    assert said == "34.0 us would be 37.4 us: 10% longer."


def test_other_ranks_are_one_caveat():
    """A rank of eight: what it saves by itself is a line of its own, not an interval."""
    graph = hg.load(hg.demo_trace("dataloader")).compile()
    said, trust = caveats_of(hg.what_if(graph, hg.prefetch()))

    assert said == "If the other ranks stay as they are, it saves nothing: they arrive no earlier."
    assert trust.startswith("Steps predict each other within 0.0% (worst ")


def test_nothing_is_predicted_of_what_is_not_explained():
    """A kernel starts long after all that is known of it."""
    found = scenario(UNKNOWN_WAITS, hg.scale("first", by=0.5))
    document = prediction_document(found)

    assert prediction_in_words(found).startswith("No prediction: ")
    assert (document["saves_ns"], document["readings"], document["bounds"]) == (None, [], [])
    assert json.loads(json.dumps(document)) == document


def test_the_path_of_a_job_moves_to_the_rank_that_is_last_then():
    """Rank 1 comes at 36 us, rank 2 at 16 us; after that, rank 0 stands for all."""
    late, less = (
        (Op(name, (Spend(spent_ns),)), meet(), Synchronize())
        for name, spent_ns in (("aten::late", 30_000), ("aten::less", 10_000))
    )
    job = loaded(three((meet(), Synchronize()), late, less))
    found = hg.what_if(job, hg.scale("aten::late", by=0))

    assert prediction_in_words(found) == "48.0 us would be 28.0 us: saves 42%."
    assert ranks_of(found)[["rank", "before_ns", "after_ns"]].to_numpy().tolist() == [
        [1, 36_000, 0],
        [2, 0, 16_000],
        [0, 12_000, 12_000],
    ]


@pytest.mark.filterwarnings("ignore::htagraph.errors.HTAGraphWarning")
def test_nothing_is_predicted_of_ranks_that_cannot_have_met():
    """No collective says who would wait for whom."""
    job = loaded(three(*[(Op("aten::own", (Spend(10_000),)),)] * 3))
    found = hg.what_if(job, hg.scale("aten::own", by=0))
    document = prediction_document(found)

    assert prediction_in_words(found).startswith("No prediction: no collectives were matched")
    assert (document["saves_ns"], document["bounds"], document["ranks"]) == (None, [], [])
    assert repr(found).startswith("JobScenario(scale('aten::own', by=0): withheld, as no coll")
