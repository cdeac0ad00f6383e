"""The catalogue of questions: their options and meanings."""

from __future__ import annotations

import inspect

import pandas as pd

from htagraph.job.job import JOB_QUESTIONS, Job
from htagraph.model.frames import CATALOGUE
from htagraph.questions import QUESTIONS, Questions


def all_questions() -> pd.DataFrame:
    """Names of the questions, their options with defaults, and their meanings.

    Returns
    -------
    DataFrame, schema `frames.CATALOGUE`

    Examples
    --------
    >>> all_questions().set_index("name").loc["idle_time", "options"]
    'per=device'
    """
    rows = [_described(name, getattr(Questions, name)) for name in QUESTIONS]
    rows += [_described(name, getattr(Job, name), "Of a job: ") for name in JOB_QUESTIONS]
    columns = zip(*sorted(rows), strict=True)
    return CATALOGUE.frame(dict(zip(CATALOGUE.columns, columns, strict=True)))


def _described(name: str, asked: object, prefix: str = "") -> tuple[str, str, str]:
    """Name of a question, its options with their defaults, and the first lines of its docstring."""
    parameters = inspect.signature(asked).parameters.values() if callable(asked) else ()
    options = [f"{p.name}={p.default}" for p in parameters if p.kind is p.KEYWORD_ONLY]
    meaning = (inspect.getdoc(asked) or "").split("\n\n")[0].replace("\n", " ")
    return name, ", ".join(options), prefix + meaning
