"""A prediction in words and as a document; where too little is known, it is withheld."""

from __future__ import annotations

import json

import htagraph as hg
from htagraph.replay.changes import Change
from htagraph.report.prediction import prediction_document, prediction_in_words
from htagraph.synth import timeline

WAITED_FOR = """
    cpu 1    |[launch >a]   [sync @*           ]
    stream 7 |      [gemm <a               ]
"""
UNEXPLAINED = """
    cpu 1    |[launch >a][launch >b]
    stream 7 |           [first <a ]                                        [second <b]
"""


def scenario(drawing: str, *changes: Change) -> hg.Scenario:
    graph = hg.Trace.from_events(timeline(drawing)).compile()
    return hg.what_if(graph, *changes)


def test_a_saving_that_all_readings_share_has_no_interval():
    """A kernel of 24 us, a quarter of it less, in a window of 34 us."""
    said = prediction_in_words(scenario(WAITED_FOR, hg.scale("gemm", by=0.75)))

    assert said == "34.0 us -> 28.0 us: saves 6.00 us, 17.6%"


def test_a_change_that_costs_says_so():
    said = prediction_in_words(scenario(WAITED_FOR, hg.insert(after="gemm", dur_ns=3_400)))

    assert said == "34.0 us -> 37.4 us: costs 3.40 us, 10.0%"


def test_nothing_is_predicted_of_what_is_not_explained():
    """A kernel starts long after all that is known of it."""
    found = scenario(UNEXPLAINED, hg.scale("first", by=0.5))
    document = prediction_document(found)

    assert prediction_in_words(found).startswith("No prediction: ")
    assert (document["saves_ns"], document["readings"], document["bounds"]) == (None, [], [])
    assert json.loads(json.dumps(document)) == document
