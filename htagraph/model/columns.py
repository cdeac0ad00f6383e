"""What is known of a column by its name, for tables that are cut, joined or derived."""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import Any

import numpy.typing as npt
import pandas as pd

from htagraph.model import answers, frames, job_answers
from htagraph.model.kinds import in_words
from htagraph.model.schema import Column, Quantity, Schema

SCHEMAS = {
    name: schema
    for room in (frames, answers, job_answers)
    for name, schema in vars(room).items()
    if isinstance(schema, Schema)
}
"""Every schema by its name."""

_ENDINGS = {"_ts_ns": Quantity.INSTANT, "_ns": Quantity.DURATION, "_share": Quantity.SHARE}
_DTYPES = {"O": Quantity.NAME, "U": Quantity.NAME, "b": Quantity.FLAG}
"""What a column is that no schema has: by the end of its name, else by the kind of its dtype."""
_ACRONYMS = {"gpu": "GPU", "sm": "SM"}


def schema_of(question: str, *, of_job: bool = False) -> Schema:
    """Schema of the answer to a question; that of a job may lack the column ``rank``."""
    name = question.upper()
    return SCHEMAS.get(f"MATCHED_{name}" if of_job else name, SCHEMAS[name])


@cache
def _known() -> dict[tuple[str, bool], Column]:
    """Columns by name and by whether they are words: a step is a position here, a name there."""
    columns = chain.from_iterable(schema.columns.items() for schema in SCHEMAS.values())
    return {
        (name, column.dtype == "object"): column
        for name, column in columns
        if column.dtype != "category"
    }


def quantity(name: str, values: pd.Series[Any] | npt.NDArray[Any]) -> Quantity:
    """What the values of a column are, whether or not a schema has it."""
    if str(values.dtype) == "category":
        return Quantity.LABEL
    kind = values.dtype.kind
    if known := _known().get((name, kind in "OU")):
        return known.quantity
    by_name = next((one for end, one in _ENDINGS.items() if name.endswith(end)), None)
    return by_name or _DTYPES.get(kind, Quantity.NUMBER)


def heading(name: str) -> str:
    """Heading of a column: what its schema says, else its name in words, without the unit."""
    columns = _known()
    known = columns.get((name, False)) or columns.get((name, True))
    if known and known.heading:
        return known.heading
    words = in_words(name.removesuffix("_ns").removeprefix("n_")).split(" ")
    return " ".join(_ACRONYMS.get(word, word) for word in words)
