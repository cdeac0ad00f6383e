"""Makes an `Answer` of a frame; without loading pandas, which few commands need."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

from htagraph.model.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

    from htagraph.writers.answer import Answer

P = ParamSpec("P")


def answer_of(frame: pd.DataFrame, schema: Schema, by: object = None) -> Answer:
    """Frame of a schema as an `Answer`; ``by`` is the option that decides which rows it has."""
    from htagraph.writers.answer import Answer  # noqa: PLC0415  deferred: it loads pandas

    return Answer.of(frame, schema, by)


def answers(schema: Schema) -> Callable[[Callable[P, pd.DataFrame]], Callable[P, pd.DataFrame]]:
    """Decorate what returns a frame of a schema: it returns an `Answer`."""

    def mark(function: Callable[P, pd.DataFrame]) -> Callable[P, pd.DataFrame]:
        @wraps(function)
        def answer(*args: P.args, **options: P.kwargs) -> pd.DataFrame:
            return answer_of(function(*args, **options), schema, options.get("by"))

        return answer

    return mark
