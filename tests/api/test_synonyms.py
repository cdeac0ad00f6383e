"""Words of people lead to the questions that answer them, everywhere the same."""

from __future__ import annotations

from threading import Event

import pytest

from htagraph import demo_trace, load
from htagraph.agents.server import Desk
from htagraph.agents.target import Root
from htagraph.agents.tools import TOOLS
from htagraph.cli.main import VERBS, main
from htagraph.errors import QueryError
from htagraph.job.job import JOB_QUESTIONS, Job
from htagraph.queries.questions import QUESTIONS, check_options
from htagraph.queries.synonyms import SYNONYMS, VERBS_OF_ANSWERS, Target, targets_of
from htagraph.run.graph import TraceGraph

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
