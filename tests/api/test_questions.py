"""Each question is complete: a file, a method, a schema, laws, a test, and a line of `ask list`."""

from __future__ import annotations

import contextlib
import csv
import inspect
import io
import re
from pathlib import Path
from types import ModuleType

import pytest

from htagraph import Job, TraceGraph, load_job
from htagraph.cli.main import main
from htagraph.job.job import JOB_QUESTIONS
from htagraph.model import answers, job_answers
from htagraph.model.schema import Schema
from htagraph.queries.questions import ARGS_READERS, QUESTIONS, Questions, question_of
from tests.laws import test_query_laws as laws
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

_ROOT = Path(__file__).resolve().parents[2]
_FILES = {path.stem for path in (_ROOT / "htagraph" / "queries").glob("[!_]*.py")}

every_question = pytest.mark.parametrize("name", QUESTIONS)
every_job_question = pytest.mark.parametrize("name", JOB_QUESTIONS)


_ALIKE = ("opportunities",)
"""Questions that a job answers with the table of one rank."""


def _job_schema(name: str) -> str:
    """Name of the schema of a job's question: its own, or for what ranks answer too, matched."""
    matched = name in QUESTIONS and name not in _ALIKE
    return f"MATCHED_{name.upper()}" if matched else name.upper()


def _schema_of_job(name: str) -> Schema | None:
    """Schema of a job's question, None if it is missing."""
    home = answers if name in _ALIKE else job_answers
    return getattr(home, _job_schema(name), None)


def _options(function: object) -> dict[str, object]:
    """Options of a question by name, with their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "args"}


@pytest.fixture(scope="module")
def listed() -> dict[tuple[str, bool], dict[str, str]]:
    """Rows of `htagraph ask list`, by name and whether they are of a job."""
    if missing := [name for name in QUESTIONS if not hasattr(Questions, name)]:
        pytest.skip(f"no list without the methods {missing}")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit):
        main(["ask", "list", "--format", "csv"])
    rows = csv.DictReader(io.StringIO(printed.getvalue()))
    return {(row["name"], row["meaning"].startswith("Of a job: ")): row for row in rows}


def test_files_in_queries_are_those_of_the_questions():
    """What questions share goes to lookup/ or explain/."""
    assert {*QUESTIONS.values(), "questions", "synonyms"} == _FILES


@every_question
def test_a_question_is_defined_in_its_file(name):
    """The table says which."""
    assert question_of(name).__module__ == f"htagraph.queries.{QUESTIONS[name]}"


@every_question
def test_a_question_is_a_method_with_the_same_options(name):
    """`graph.idle_time(per="stream")` is the function of that name with that option."""
    for asked in (Questions, TraceGraph):
        assert hasattr(asked, name), (
            f"{asked.__name__}.{name} is missing: add the method to Questions in "
            "htagraph/queries/questions.py"
        )
        assert _options(getattr(asked, name)) == _options(question_of(name)), (
            f"options of {asked.__name__}.{name} differ from those in htagraph/queries"
        )


@every_question
def test_who_needs_args_is_given_them(name):
    """The args of events are in the file only: whoever reads them says so."""
    reads = "args" in inspect.signature(question_of(name)).parameters

    assert reads == (name in ARGS_READERS), (
        f"{name} {'needs args: add it to' if reads else 'needs no args: take it from'} "
        "ARGS_READERS in htagraph/queries/questions.py"
    )


def _schemas(module: ModuleType) -> set[str]:
    """Names of the schemas that a module defines."""
    return {name for name, one in vars(module).items() if isinstance(one, Schema)}


@every_question
def test_a_question_has_a_schema_of_its_name(name):
    """The schema of `idle_time` is `answers.IDLE_TIME`."""
    assert isinstance(getattr(answers, name.upper(), None), Schema), (
        f"{name.upper()} is missing in htagraph/model/answers.py"
    )


def test_schemas_of_answers_are_those_of_questions():
    """Nothing else is there."""
    assert {name.lower() for name in _schemas(answers)} - set(QUESTIONS) == set(), (
        "schemas in htagraph/model/answers.py without a question: tables of objects: frames.py"
    )
    own = set(JOB_QUESTIONS) - set(_ALIKE)
    assert _schemas(job_answers) == set(map(_job_schema, own)), (
        "schemas in htagraph/model/job_answers.py and JOB_QUESTIONS of htagraph/job/job.py differ"
    )


@every_question
def test_a_question_obeys_the_laws(name):
    """Any events, any window, shifted, scaled and shuffled."""
    assert name in laws.QUESTIONS, (
        f"{name!r} is missing in QUESTIONS of tests/laws/test_query_laws.py"
    )
    assert laws.QUESTIONS[name].schema is getattr(answers, name.upper(), None), (
        f"the laws test {name} against another schema than answers.{name.upper()}"
    )


@every_question
def test_a_question_has_tests_of_its_own(name):
    """Drawn traces, answers worked out by hand."""
    asks = re.compile(rf"^(?!from|import).*\b{name}\b", re.MULTILINE)
    files = (_ROOT / "tests" / "queries").glob("test_*.py")
    assert any(asks.search(file.read_text()) for file in files), f"no tests/queries ask {name}"


@every_question
def test_a_question_is_listed_with_its_options_and_meaning(name, listed):
    """`htagraph ask list` is how people find it."""
    row = listed.get((name, False))

    assert row, f"{name} is missing in `htagraph ask list`: htagraph/cli/rows.py"
    assert row["meaning"], f"Questions.{name} has no docstring, so `htagraph ask list` says nothing"
    assert row["options"] == ", ".join(
        f"{option}={default}" for option, default in _options(getattr(Questions, name)).items()
    )


@every_job_question
def test_a_job_question_is_listed_has_a_schema_and_is_there(name, listed):
    """What only a job can be asked."""
    assert hasattr(Job, name), f"Job.{name} is missing: htagraph/job/job.py"
    assert isinstance(_schema_of_job(name), Schema), (
        f"{_job_schema(name)} is missing in htagraph/model/job_answers.py"
    )
    assert (name, True) in listed, f"{name} of a job is missing in `htagraph ask list`"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job of two ranks."""
    folder = tmp_path_factory.mktemp("job")
    simulate_job(training_job(ranks=2, steps=1, layers=1, straggler=1)).write(folder)
    return load_job(folder)


@every_job_question
def test_a_job_question_answers_with_its_schema(name, job):
    """By name as by member: same columns, same types."""
    frame, schema = job.ask(name), _schema_of_job(name)

    assert {key: str(dtype) for key, dtype in frame.dtypes.items()} == {
        key: column.dtype for key, column in schema.columns.items()
    }
