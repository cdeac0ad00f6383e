"""Words: synonyms, vocabularies, and the plain English of documents."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from docs.drawings import EDGES
from docs.vocabulary import PAGE, meanings, page
from htagraph import demo_trace, load
from htagraph.agents.server import Desk
from htagraph.agents.target import Root
from htagraph.agents.tools import TOOLS
from htagraph.cli.main import VERBS, main
from htagraph.errors import QueryError
from htagraph.explain.edge_bounds import BoundRules
from htagraph.job.job import JOB_QUESTIONS, Job
from htagraph.model.colors import COLORS
from htagraph.model.kinds import Bound, EdgeKind, EventKind, Vocabulary, in_words
from htagraph.model.rules import Evidence, Rule
from htagraph.queries.questions import QUESTIONS, check_options
from htagraph.queries.synonyms import SYNONYMS, VERBS_OF_ANSWERS, Target, targets_of
from htagraph.run.graph import TraceGraph
from tests.drawn import drawn_dag

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| ((?:`[^`]+`(?:, )?)+) \| ", re.MULTILINE)


def _listed() -> list[str]:
    """The words that the table of `CONTRIBUTING.md` advises against."""
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Words")[2].partition("\n## ")[0]
    return [word for row in _ROW.findall(table) for word in re.findall(r"`([^`]+)`", row)]


_OF_THE_LITERATURE = [
    ("docs/concepts/slack-and-cost.md", "drag"),
    ("docs/glossary.md", "drag"),
]
"""Words that a page says once, so that a reader of papers finds what htagraph calls it."""

# Not where a word is code: an option, a parameter, a value in backticks.
_WORDS = re.compile(rf"(?<![-`\w.])(?:{'|'.join(_listed())})\b(?![`=]| :)", re.IGNORECASE)


def _sentences(file: Path) -> Iterator[tuple[int, str]]:
    """Texts of a file that somebody reads, with their lines."""
    if file.suffix == ".md":
        yield from enumerate(file.read_text().splitlines(), start=1)
        return
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            # A phrase may be broken over two lines.
            yield node.lineno, " ".join(node.value.split())


ALL = (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("htagraph/**/*.py"))
FILES = [
    file
    for file in (each.relative_to(ROOT) for each in ALL)
    if "reference" not in file.parts and file.name != "CONTRIBUTING.md"  # has the table
]


def test_the_table_is_read() -> None:
    assert {"hand-over", "goes on", "nobody", "drag", "alike", "host wait"} <= set(_listed())


@pytest.mark.parametrize("file", FILES, ids=str)
def test_plain_words_are_used(file: Path) -> None:
    found = [
        (match[0], f"line {line}: {text[max(match.start() - 40, 0) : match.end() + 40]}")
        for line, text in _sentences(ROOT / file)
        for match in _WORDS.finditer(text)
    ]

    said_once = [word for page, word in _OF_THE_LITERATURE if page == file.as_posix()]
    assert [word for word, _ in found] == said_once, found


TARGETS = sorted({text for row in SYNONYMS.values() for text in row.split(", ")})
WORDS = sorted(word for words in SYNONYMS for word in words.split(", "))


@pytest.mark.parametrize("text", TARGETS)
def test_every_target_exists_and_takes_its_options(text) -> None:
    target = Target.of(text)
    options = dict(target.options)

    assert target.is_verb or target.name in {*QUESTIONS, *JOB_QUESTIONS}
    if not target.is_verb:
        of_job = target.name in JOB_QUESTIONS and target.name not in QUESTIONS
        check_options(Job if of_job else TraceGraph, target.name, options)


def test_every_verb_is_one_and_has_its_tool() -> None:
    assert set(VERBS_OF_ANSWERS) <= set(VERBS)
    assert set(VERBS_OF_ANSWERS.values()) <= set(TOOLS)


def test_no_word_has_two_homes() -> None:
    assert [word for word in set(WORDS) if WORDS.count(word) > 1] == []


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        ("bubbles", "pipeline_bubbles"),
        ("bandwidth", "bandwidths"),
        ("memory", "memory_timeline"),
        ("OOM", "memory_timeline"),
        ("modules", "kernel_breakdown"),
        ("dataloader", "cost"),
        ("flops", "roofline"),
        ("straggler", "stragglers"),
        ("idle", "idle_time"),
        ("gpu utilization", "utilization"),
        ("gpu-util", "utilization"),
        ("nccl", "collectives"),
        ("nccl bandwidth", "collectives"),
        ("top kernels", "kernel_breakdown"),
        ("which rank is late and why", "stragglers"),
        ("what changed since last week", "diff"),
        ("what if .item() went", "what-if"),
        ("out of memory", "memory_timeline"),
        ("process groups", "layout"),
        ("idle_tme", "idle_time"),
        ("temporal_brekdown", "temporal_breakdown"),
    ],
)
def test_a_word_leads_to_the_nearest_question(asked, nearest) -> None:
    assert targets_of(asked, QUESTIONS)[0].name == nearest


def test_what_is_near_to_nothing_has_no_target() -> None:
    assert targets_of("zzz", QUESTIONS) == []


def test_the_command_line_gives_the_command(capsys) -> None:
    """With the file that was named, to be copied."""
    trace = demo_trace("none")
    with pytest.raises(SystemExit):
        main(["ask", "modules", str(trace)])

    assert f"htagraph ask kernel_breakdown {trace} -o by=module" in capsys.readouterr().err


def test_an_agent_gets_the_call() -> None:
    trace = demo_trace("none")
    arguments = {"path": trace.name, "question": "modules"}
    text, is_error = Desk(Root.of(trace.parent)).answer("ask", arguments, lambda _: None, Event())

    assert is_error
    assert "ask question='kernel_breakdown' options={'by': 'module'}" in text


def test_python_gets_the_question() -> None:
    graph = load(demo_trace("none")).compile()
    with pytest.raises(QueryError, match="kernel_breakdown"):
        graph.ask("modules")


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
    of_edge = BoundRules.of(drawn_dag("cpu 1 |[op]")).of_edge
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
