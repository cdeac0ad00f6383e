"""An empty answer says what was not recorded, and how to record it."""

from __future__ import annotations

import json
from threading import Event

import pytest

import htagraph as hg
from htagraph import synth
from htagraph.agents.server import Desk
from htagraph.agents.target import Root
from htagraph.cli.main import main
from htagraph.job.job import JOB_QUESTIONS
from htagraph.queries.questions import QUESTIONS
from htagraph.reports.answers import EMPTY_ANSWERS, not_recorded
from htagraph.run.trace import Trace


def test_each_question_says_what_an_empty_answer_means() -> None:
    assert set(EMPTY_ANSWERS) == {*QUESTIONS, *JOB_QUESTIONS}


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_with_rows_needs_no_explanation(question) -> None:
    graph = hg.load(hg.demo_trace("none")).compile()
    answer = graph.ask(question)

    assert not_recorded(question, answer) == ("" if len(answer) else EMPTY_ANSWERS[question])


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("module", "with_modules=True"),
        ("shape", "record_shapes=True"),
        ("annotation", "record_function"),
        ("step", "profiler.step()"),
        ("name", ""),
        ("stream", ""),
    ],
)
def test_groups_without_names_say_what_names_them(by, said) -> None:
    """A kernel and its launch, and nothing else."""
    drawn = """
    cpu 1    | [aten::mm [cudaLaunchKernel >1] ]
    stream 7 |                                   [gemm <1    ]
    """
    answer = Trace.from_events(synth.timeline(drawn)).compile().kernel_breakdown(by=by)
    lacks = not_recorded("kernel_breakdown", answer, by)

    assert len(answer) == 1
    assert (said in lacks) if said else lacks == ""


def test_the_command_line_says_how_to_record_it(capsys) -> None:
    """Next to the table, on the error stream; in every format."""
    with pytest.raises(SystemExit):
        main(["ask", "memory_timeline", str(hg.demo_trace("none")), "-q"])
    quiet = capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["ask", "memory_timeline", str(hg.demo_trace("none")), "-f", "csv"])
    told = capsys.readouterr()

    assert quiet.err == ""
    assert "profile_memory=True" in told.err
    assert told.out.count("\n") == 1


def test_a_condition_that_nothing_fits_is_told_from_nothing_recorded(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["ask", "step_times", str(hg.demo_trace("none")), "--where", "dur_ns < 0"])

    assert "None of 3 rows fits --where.\n" in capsys.readouterr().err


def test_an_agent_is_told_the_same() -> None:
    trace = hg.demo_trace("none")
    arguments = {"path": trace.name, "question": "memory_timeline"}
    text, is_error = Desk(Root.of(trace.parent)).answer("ask", arguments, lambda _: None, Event())

    assert not is_error
    assert json.loads(text)["notes"][0] == EMPTY_ANSWERS["memory_timeline"]
