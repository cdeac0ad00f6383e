"""Conditions on rows, as `ask` takes them: compared, added, joined, and nothing is ever called.

What pandas evaluates may call functions and reach modules. These texts come from programs that read
names out of traces, so only the grammar below exists here.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from htagraph.errors import QueryError

__all__ = ["rows_where"]

_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_COMPUTED: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_NO_CONDITION = (
    SyntaxError,
    TypeError,
    ValueError,
    ArithmeticError,
    RecursionError,  # in Python's own parser as well
    MemoryError,
)
_HINT = "compare columns, as in \"dur_ns > 1_000 and 'gemm' in name\""


def rows_where(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    """Rows of a table for which a condition on its columns holds.

    Parameters
    ----------
    frame : DataFrame
    where : str
        Columns, numbers and texts, compared (``<``, ``==``, ...), added or multiplied, and joined
        by ``and``, ``or``, ``not``. ``'gemm' in name`` holds where the name contains the text,
        ``stream in [7, 20]`` where the value is one of these.

    Raises
    ------
    QueryError
        If it is no such condition; the hint lists the columns.

    Examples
    --------
    >>> frame = pd.DataFrame({"name": ["gemm", "add"], "dur_ns": [5, 7]})
    >>> rows_where(frame, "'gemm' in name and dur_ns > 4")["name"].tolist()
    ['gemm']
    >>> rows_where(frame, "name.to_csv('out')")
    Traceback (most recent call last):
    htagraph.errors.QueryError: "name.to_csv('out')" is no condition: Call is not allowed. ...
    """
    try:
        with np.errstate(all="ignore"):  # what is no number is neither more nor less
            mask = _truth(ast.parse(where.strip(), mode="eval").body, frame)
    except _NO_CONDITION as exc:
        said = str(exc) if isinstance(exc, _WrongError) else "it cannot be read"
        columns = ", ".join(map(str, frame.columns))
        raise QueryError(
            f"{where!r} is no condition: {said}.", hint=f"{_HINT}; columns are {columns}."
        ) from None
    holds: pd.DataFrame = frame[mask]
    return holds


class _WrongError(ValueError):
    """What is wrong with a condition."""


def _value(node: ast.expr, frame: pd.DataFrame) -> Any:  # noqa: ANN401, PLR0911  a column, or one value
    """Value of an expression for every row."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return value
        case ast.Name(id=name):
            if name not in frame.columns:
                raise _WrongError(f"there is no column {name!r}")
            return frame[name].astype(object).to_numpy()
        case ast.UnaryOp(op=ast.Not()):
            return ~_truth(node.operand, frame)
        case ast.UnaryOp(op=ast.USub()):
            return -_number(node.operand, frame)
        case ast.BinOp(op=op) if type(op) in _COMPUTED:
            return _COMPUTED[type(op)](_number(node.left, frame), _number(node.right, frame))
        case ast.BoolOp(op=op):
            join = np.logical_and if isinstance(op, ast.And) else np.logical_or
            return join.reduce([_truth(one, frame) for one in node.values])  # noqa: PD011  of ast
        case ast.Compare():
            return _compared(node, frame)
        case _:
            raise _WrongError(f"{type(node).__name__} is not allowed")


def _number(node: ast.expr, frame: pd.DataFrame) -> Any:  # noqa: ANN401  a column, or one value
    """Value of an expression that is a number for every row."""
    value = _value(node, frame)
    if not all(isinstance(one, int | float) for one in np.atleast_1d(value).tolist()):
        raise _WrongError("only numbers are added and multiplied")
    return value


def _truth(node: ast.expr, frame: pd.DataFrame) -> Any:  # noqa: ANN401  an array of bool
    """Whether an expression holds, for every row."""
    values = np.broadcast_to(np.asarray(_value(node, frame)), len(frame))
    if not all(isinstance(one, bool | np.bool_) for one in values):
        raise _WrongError("it is neither true nor false")
    return values.astype(bool)


def _compared(node: ast.Compare, frame: pd.DataFrame) -> Any:  # noqa: ANN401  an array of bool
    """Whether a chain of comparisons holds, for every row."""
    holds = np.ones(len(frame), dtype=bool)
    left = node.left
    for op, right in zip(node.ops, node.comparators, strict=True):
        if isinstance(op, ast.In | ast.NotIn):
            found = _contained(left, right, frame)
            holds &= found if isinstance(op, ast.In) else ~found
        elif type(op) in _COMPARED:
            compare = _COMPARED[type(op)]
            holds &= np.asarray(compare(_value(left, frame), _value(right, frame)), dtype=bool)
        else:
            raise _WrongError(f"{type(op).__name__} is not allowed")
        left = right
    return holds


def _contained(left: ast.expr, right: ast.expr, frame: pd.DataFrame) -> Any:  # noqa: ANN401
    """Whether a text is part of a column, or a column one of several values, for every row."""
    if isinstance(right, ast.List | ast.Tuple):
        wanted = [_value(one, frame) for one in right.elts]
        if not all(isinstance(one, int | float | str) for one in wanted):
            raise _WrongError("a list has numbers and texts")
        return pd.Series(_value(left, frame), dtype=object).isin(wanted).to_numpy()
    part, column = _value(left, frame), _value(right, frame)
    if not isinstance(part, str) or isinstance(column, str):
        raise _WrongError("`in` looks for a text in a column, or for a column in a list")
    return np.fromiter((part in str(one) for one in column), dtype=bool, count=len(frame))
