"""What a schema is: the columns of a table, each with dtype, unit and meaning.

A schema is a contract: same columns, same dtypes, same order, also when there is nothing to tell.
The schema of the question `idle_time` is `htagraph.model.answers.IDLE_TIME`, that of the job's
question `stragglers` is `htagraph.model.job_answers.STRAGGLERS`, and those of the tables of objects
(events, edges, segments) are in `htagraph.model.frames`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.errors import GraphError

__all__ = [
    "Column",
    "Schema",
    "categorical",
    "count",
    "flag",
    "labelled",
    "name",
    "nanoseconds",
    "share",
]


def categorical(codes: npt.ArrayLike, labels: Sequence[str]) -> pd.Categorical[str]:
    """Column of labels, given by their positions.

    Examples
    --------
    >>> list(categorical([1, 0, 1], ["span", "thread"]))
    ['thread', 'span', 'thread']
    """
    return pd.Categorical.from_codes(np.asarray(codes), categories=pd.Index(list(labels)))


def labelled(values: Sequence[str] | pd.Series[str], labels: Sequence[str]) -> pd.Categorical[str]:
    """Column of labels, given as texts.

    Examples
    --------
    >>> labelled(["thread", "span"], ["span", "thread"]).codes.tolist()
    [1, 0]
    """
    return categorical(pd.Index(list(labels)).get_indexer(pd.Index(values)), labels)


@dataclass(frozen=True)
class Column:
    """One column of a schema.

    Parameters
    ----------
    dtype : str
        ``int64``, ``float64``, ``bool``, ``category``, or ``object`` for text and ids of mixed
        type.
    unit : str
        ``ns``, ``share`` (of 1), ``count``, ``event``, ``edge``, ``name`` …
    meaning : str
        One sentence.
    """

    dtype: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class Schema:
    """Columns of a frame, in order.

    Parameters
    ----------
    name : str
        Name of the constant that the schema is.
    """

    name: str
    columns: Mapping[str, Column]

    def frame(self, data: Mapping[str, object], *, copy: bool = True) -> pd.DataFrame:
        """DataFrame of this schema; every column must be given.

        Without a copy, columns of the right type become the frame's own.

        Raises
        ------
        GraphError
            If `data` has other columns than the schema.
        """
        if set(data) != set(self.columns):
            raise GraphError(
                f"{self.name}: columns {sorted(set(data) ^ set(self.columns))} differ from the "
                "schema."
            )
        # Typed column by column: what pandas infers from text would be converted twice. Columns are
        # not stacked by type, which would copy them again.
        return pd.DataFrame(
            {
                name: pd.Series(data[name], dtype=column.dtype, copy=None if copy else False)
                for name, column in self.columns.items()
            },
            copy=False,
        )

    def empty(self) -> pd.DataFrame:
        """DataFrame of this schema without rows."""
        return pd.DataFrame(
            {name: pd.Series([], dtype=column.dtype) for name, column in self.columns.items()}
        )


def nanoseconds(meaning: str) -> Column:
    """Column of times or durations."""
    return Column("int64", "ns", meaning)


def count(meaning: str) -> Column:
    """Column of numbers of things, or of positions."""
    return Column("int64", "count", meaning)


def share(meaning: str) -> Column:
    """Column of parts of 1."""
    return Column("float64", "share", meaning)


def name(meaning: str) -> Column:
    """Column of names."""
    return Column("object", "name", meaning)


def flag(meaning: str) -> Column:
    """Column of yes or no."""
    return Column("bool", "flag", meaning)
