"""Vocabularies: codes are dense, labels are distinct, and every label leads back to its member."""

from __future__ import annotations

import pytest

from docs.drawings import EDGES
from docs.vocabulary import PAGE, meanings, page
from htagraph.compiler.passes import compile_events
from htagraph.explain.edge_bounds import BoundRules
from htagraph.model.colors import COLORS
from htagraph.model.kinds import Bound, EdgeKind, EventKind, Vocabulary, in_words
from htagraph.model.rules import Evidence, Rule
from htagraph.synth import timeline

VOCABULARIES = tuple(Vocabulary.__subclasses__())


@pytest.mark.parametrize("codes", [(0, 0), (0, 2), (1, 0)])
def test_a_vocabulary_whose_codes_are_not_dense_is_refused(codes: tuple[int, int]):
    """A code given twice would make one member another name of the other."""
    with pytest.raises(TypeError, match=r"codes of Drawn are not 0, 1, 2"):
        Vocabulary("Drawn", dict(zip(("FIRST", "SECOND"), codes, strict=True)))


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_labels_are_distinct(vocabulary: type[Vocabulary]):
    assert len(set(vocabulary.labels())) == len(vocabulary)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_labels_lead_back_to_their_members(vocabulary: type[Vocabulary]):
    assert [vocabulary.parse(label) for label in vocabulary.labels()] == list(vocabulary)


def test_every_kind_of_edge_but_the_sink_has_a_rule():
    assert {rule.kind for rule in Rule} == set(EdgeKind) - {EdgeKind.SINK}


def test_every_kind_of_edge_says_what_its_time_went_to():
    """A span is named by its work; ranks that meet and windows that end are no edges of a graph."""
    own = {EdgeKind.SPAN, EdgeKind.COLLECTIVE, EdgeKind.SINK}
    of_edge = BoundRules.of(compile_events(timeline("cpu 1 |[op]"))).of_edge
    missing = [kind.name for kind in EdgeKind if of_edge[kind] == Bound.UNKNOWN_WAITS]

    assert set(missing) == {kind.name for kind in own}, (
        "kinds of edges without a bound in _KIND_BOUND of htagraph/explain/edge_bounds.py"
    )


def test_rules_are_on_one_sort_of_evidence():
    by_evidence = [code for evidence in Evidence for code in Rule.on(evidence).tolist()]
    assert sorted(by_evidence) == list(range(len(Rule)))


def test_every_bound_has_a_label_and_colors():
    assert list(COLORS) == list(Bound)
    assert all(in_words(bound.label).replace(" ", "").isalpha() for bound in Bound)


def test_every_kind_of_edge_is_drawn():
    assert list(EDGES) == list(EdgeKind)


@pytest.mark.parametrize("vocabulary", [EdgeKind, EventKind, Rule])
def test_the_source_says_what_each_member_means(vocabulary: type[Vocabulary]):
    """Where the page of the vocabulary has it from."""
    said = meanings(vocabulary)
    assert list(said) == list(vocabulary.labels())
    assert all(said.values())


def test_the_page_of_the_vocabulary_has_all_kinds_and_rules():
    """``python -m docs.vocabulary`` writes it."""
    assert PAGE.read_text() == page()
    for kind in (*EdgeKind, *EventKind):
        assert f"\n| `{kind.name}` |" in page()
    for rule in Rule:
        assert f"\n| {rule.label} | `{rule.kind.name}` | {rule.evidence} |" in page()
