"""Words of translated prose stay out: `CONTRIBUTING.md` lists them, with what to write instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

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
