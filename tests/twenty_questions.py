"""The questions of `docs/twenty-questions.md`, asked again: ``python -m tests.twenty_questions``.

With ``--write``, the answers in the document become those of today.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
import warnings
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import htagraph as hg
from tests.real_traces import located

DOCUMENT = Path(__file__).parents[1] / "docs" / "twenty-questions.md"
_QUESTION = re.compile(
    r"^## (?P<number>\d+)\. (?P<title>[^\n]+)\n\n"
    r"(?P<source>[^`]*`(?P<trace>[^`]+)`.*?)\n\n"
    r"<!-- no-run: [^\n]+ -->\n```python\n(?P<call>.*?)\n```\n"
    r"(?:\n```text\n(?P<answer>.*?)\n```\n)?",
    re.MULTILINE | re.DOTALL,
)
_WIDTH = 98


class Question(NamedTuple):
    """A question of the document, and its answer there."""

    number: int
    trace: str
    call: str
    answer: str

    @property
    def asked(self) -> str:
        """The answer of today, as the document prints it."""
        return printed(self.value)

    @property
    def value(self) -> Any:
        """What the call returns."""
        name = "job" if self.call.startswith("job.") else "graph"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return eval(self.call, {"hg": hg, name: opened(self.trace, name)})  # noqa: S307


@cache
def opened(trace: str, name: str) -> Any:
    """The graph of a trace, or the job in a folder."""
    return hg.load_job(located(trace)) if name == "job" else hg.load(located(trace)).compile()


def printed(answer: object) -> str:
    """Sentences, or a table, in lines of the document's width."""
    if isinstance(answer, tuple):
        return "\n".join(
            textwrap.fill(said, _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
            for said in answer
        )
    with mock.patch.dict(os.environ, {"COLUMNS": str(_WIDTH)}):
        lines = str(answer).splitlines()
    return "\n".join(line.rstrip() for line in lines if "not shown" not in line)


def questions(text: str | None = None) -> list[Question]:
    """The questions of the document."""
    found = _QUESTION.finditer(DOCUMENT.read_text() if text is None else text)
    return [
        Question(int(one["number"]), one["trace"], one["call"], one["answer"] or "")
        for one in found
    ]


def _rewritten(found: re.Match[str]) -> str:
    one = Question(int(found["number"]), found["trace"], found["call"], "")
    head = found[0].partition("```python")[0]
    return f"{head}```python\n{one.call}\n```\n\n```text\n{one.asked}\n```\n"


if __name__ == "__main__":
    if "--write" in sys.argv:
        DOCUMENT.write_text(_QUESTION.sub(_rewritten, DOCUMENT.read_text()))
    for question in questions():
        print(f"{question.number}. {question.call}\n{question.asked}\n")
