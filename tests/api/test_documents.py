"""Documents say what is there: links resolve, code parses, and the names they use exist."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import htagraph as hg
from htagraph.cli.main import app_of
from htagraph.job.job import JOB_QUESTIONS
from htagraph.queries.questions import QUESTIONS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "htagraph"
DOCUMENTS = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if path.parent.name != "reference"  # made when the site is built
)
OF_TODAY = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]
"""Documents that describe the package as it is; a changelog also names what was."""

CLASSES = {
    "trace": hg.Trace,
    "graph": hg.TraceGraph,
    "step": hg.TraceGraph,
    "selection": hg.Selection,
    "path": hg.CriticalPath,
    "job": hg.Job,
    "summary": hg.Summary,
    "hg": hg,
}
"""What a name stands for where a document asks something of it."""

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"(?<!`)\[(?:[^\]]*)\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
ASKED = re.compile(rf"(?<![\w.])({'|'.join(CLASSES)})\.(?!(?:json|pftrace|py)\b)([A-Za-z]\w*)(\(?)")
VERB = re.compile(r"(?<!import )\bhtagraph ([a-z][a-z-]*)(?: ([a-z]\w*))?")
TEST = re.compile(r"\btest_\w+")
FILE = re.compile(r"[\w.]+/|(?:[\w.]+/)*\w+\.(?:py|md)|\w+/\w+")
WIDTH = 100

every_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix()
)
every_document_of_today = pytest.mark.parametrize(
    "document", OF_TODAY, ids=lambda path: path.relative_to(ROOT).as_posix()
)


def prose(document: Path) -> str:
    """Text of a document without its blocks of code."""
    return FENCE.sub("", document.read_text())


def blocks(document: Path, *languages: str) -> list[str]:
    """Blocks of code in some languages, in order."""
    return [body for language, body in FENCE.findall(document.read_text()) if language in languages]


def code(document: Path) -> str:
    """All code of a document: blocks of Python and of the shell, and text in backticks."""
    return "\n".join(
        [*blocks(document, "python", "bash", "console"), *CODE.findall(prose(document))]
    )


def anchors(document: Path) -> set[str]:
    """Anchors of a document's headings, as GitHub makes them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in HEADING.findall(prose(document))
    }


def unresolved(document: Path) -> Iterator[str]:
    """Links of a document to files or headings that are not there."""
    for target in LINK.findall(prose(document)):
        file, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", file):
            continue
        path = (document.parent / file).resolve() if file else document
        if not path.exists() or (anchor and anchor not in anchors(path)):
            yield target


def attributes(owner: object) -> set[str]:
    """Names that can be asked of a class or a module."""
    fields = dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ()
    return {*dir(owner), *(field.name for field in fields)}


@every_document
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    """To a file of the repository, and to a heading in it where it names one."""
    assert list(unresolved(document)) == []


@every_document
def test_every_block_of_python_parses(document: Path) -> None:
    """So that it can be copied."""
    for block in blocks(document, "python"):
        ast.parse(block)


@every_document
def test_prose_fits_the_width_of_the_code(document: Path) -> None:
    """Rows of tables and pictures cannot be broken."""
    long = [line for line in prose(document).splitlines() if len(line) > WIDTH]

    assert [line for line in long if not line.lstrip().startswith(("|", "!["))] == []


@every_document_of_today
def test_every_verb_that_is_named_exists(document: Path) -> None:
    """And every question that `htagraph ask` is asked."""
    verbs = {command.name for command in app_of().registered_commands}
    of_jobs = {name for name in dir(hg.Job) if name[0] != "_"}
    named = VERB.findall(code(document))

    assert {verb for verb, _ in named} - verbs == set()
    assert {question for verb, question in named if verb == "ask" and question} <= {
        "list",
        *QUESTIONS,
        *of_jobs,
    }


@every_document_of_today
def test_every_public_name_that_is_named_exists(document: Path) -> None:
    """And what is called can be called: a method, not a property."""
    asked = {
        (f"{noun}.{name}", CLASSES[noun], name, call)
        for noun, name, call in ASKED.findall(code(document))
    }

    assert {shown for shown, owner, name, _ in asked if name not in attributes(owner)} == set()
    assert {
        shown for shown, owner, name, call in asked if call and not callable(getattr(owner, name))
    } == set()


def _rows(text: str) -> set[str]:
    """Rows of tables, with links as `docs/` writes them."""
    lines = text.replace("](docs/", "](").splitlines()
    return {line for line in lines if line.startswith("| ")}


def test_the_readme_repeats_questions_word_for_word() -> None:
    """A question is described in `docs/questions.md`; README shows the first ones to ask."""
    shown = _rows((ROOT / "README.md").read_text().split("\n## Questions\n")[1].split("\n## ")[0])

    assert len(shown) > 5
    assert shown - _rows((ROOT / "docs" / "questions.md").read_text()) == set()


def test_every_question_is_described() -> None:
    """Of a graph and of a job, in `docs/questions.md`."""
    text = (ROOT / "docs" / "questions.md").read_text()

    missing = [name for name in (*QUESTIONS, *JOB_QUESTIONS) if f".{name}" not in text]
    assert missing == [], "questions without a row in docs/questions.md"


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_file_that_is_named_exists(document: str) -> None:
    """In the repository, in the package, or in a room of it."""
    homes = (ROOT, PACKAGE, *(home for home in PACKAGE.iterdir() if home.is_dir()))
    named = {name for name in CODE.findall(prose(ROOT / document)) if FILE.fullmatch(name)}

    assert {name for name in named if not any((home / name).exists() for home in homes)} == set()


def test_every_test_that_the_package_names_exists() -> None:
    """A constant says which test fails if it moves."""
    tests = "\n".join(path.read_text() for path in ROOT.glob("tests/**/*.py"))
    there = {path.stem for path in ROOT.glob("tests/**/*.py")} | {
        *re.findall(r"def (test_\w+)", tests)
    }
    named = {name for file in PACKAGE.rglob("*.py") for name in TEST.findall(file.read_text())}

    assert named - there == set()
