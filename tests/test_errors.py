"""Errors travel between processes as they are."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from htagraph import errors

ONE_OF_EACH = [
    errors.HTAGraphError("message", hint="hint"),
    errors.TraceError("message", path="rank0.json", rank=3, hint="hint"),
    errors.TraceFormatError("message", path=Path("rank0.json"), offset=7, hint="hint"),
    errors.TraceLimitError("message", offset=7),
    errors.TraceNotFoundError("message", path="rank0.json"),
    errors.MissingEventsError("message", missing="kernels", rank=1),
    errors.GraphError("message", events=[1, 2]),
    errors.QueryError("message", hint="hint"),
    errors.WindowNotFoundError("ProfilerStep#9", ["ProfilerStep#1"]),
    errors.RankNotFoundError(9, [0, 1]),
    errors.CaptureNotChosenError("message", listing="1 a\n2 b", hint="hint"),
    errors.OutputError("message", path="out.json"),
    errors.RankFailedError("message", rank=3),
    errors.ShortageError("message", hint="hint"),
]


def test_there_is_one_of_each() -> None:
    every = {
        found
        for found in vars(errors).values()
        if isinstance(found, type) and issubclass(found, errors.HTAGraphError)
    }

    assert {type(error) for error in ONE_OF_EACH} == every


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda error: type(error).__name__)
def test_an_error_comes_from_another_process_as_it_was(error: errors.HTAGraphError) -> None:
    """Those that did not made their process look dead: "killed, out of memory"."""
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301  our own
        assert type(again) is type(error)
        assert (str(again), vars(again)) == (str(error), vars(error))


@pytest.mark.parametrize("message", ["no file", "no file.", "which file?"])
def test_a_hint_follows_the_end_of_a_sentence(message: str) -> None:
    """Messages may end with a name or a path."""
    said = str(errors.QueryError(message, hint="give one."))
    assert said == f"{message.removesuffix('.')}{'' if message[-1] == '?' else '.'} Hint: give one."
