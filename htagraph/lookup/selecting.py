"""Events of a kind, with a name, in a window, under others, or for which a condition holds.

Conditions are a small language of their own. `DataFrame.query` can call functions, write files and
reach modules, and a condition may come from an agent that read names out of a trace.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from htagraph.arrays.ancestors import nearest
from htagraph.errors import QueryError, did_you_mean, one_of
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.events import CAPTURED_LAUNCH
from htagraph.model.kinds import EventKind, KernelClass
from htagraph.model.symbols import Names
from htagraph.model.window import Window

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
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_JOINED: Mapping[type[ast.operator], Callable[[Bools, Bools], Bools]] = {
    ast.BitAnd: np.logical_and,
    ast.BitOr: np.logical_or,
}
_OF_TEXTS: Mapping[str, Callable[[str, str], bool]] = {
    "contains": lambda text, part: part in text,
    "startswith": str.startswith,
    "endswith": str.endswith,
}
_PATTERN = re.compile(r"\.[*+?]|\\|^\^|\$$|\|")
_QUOTED = re.compile(r"`([^`]*)`")
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

    `where`: columns, numbers and texts, compared (``<``, ``==``, ...), added or multiplied, and
    joined by ``and``, ``or``, ``not``. ``'gemm' in name`` holds where the name contains the text,
    like ``name.str.contains('gemm')`` (also ``startswith``, ``endswith``); ``stream in [7, 20]``
    where the value is in the list. Column names with spaces are put in backticks.
    """
    quoted = list(dict.fromkeys(_QUOTED.findall(where)))
    words = {f"_quoted_{number}": name for number, name in enumerate(quoted)}
    text = where.strip()
    for word, name in words.items():
        text = text.replace(f"`{name}`", word)
    try:
        with np.errstate(all="ignore"):  # NaN compares as False
            mask = _Rows(frame, words).truth(ast.parse(text, mode="eval").body)
    except _NO_CONDITION as exc:
        said = str(exc) if isinstance(exc, _WrongError) else "it cannot be read"
        meant = did_you_mean(exc.word, map(str, frame.columns)) if hasattr(exc, "word") else ""
        columns = ", ".join(map(str, frame.columns))
        raise QueryError(
            f"{where!r} is not a condition: {said}.", hint=f"{meant}{_HINT}; columns are {columns}."
        ) from None
    holds: pd.DataFrame = frame[mask]
    return holds


class _WrongError(ValueError):
    """What is wrong with a condition, and the word that is not a column."""

    def __init__(self, message: str, word: str = "") -> None:
        self.word = word
        super().__init__(message)


class _Rows:
    """Values of expressions for every row of a table: a column, or one value for all."""

    def __init__(self, frame: pd.DataFrame, quoted: Mapping[str, str]) -> None:
        self.frame = frame
        self.quoted = quoted

    def truth(self, node: ast.expr) -> Bools:
        """Whether an expression holds, for every row."""
        value = self._typed(node)
        if isinstance(value, bool):
            return np.full(len(self.frame), value)
        if not hasattr(value, "dtype") or not pd.api.types.is_bool_dtype(value.dtype):
            raise _WrongError("it is not true or false")
        return _known(value)

    def number(self, node: ast.expr) -> Any:  # noqa: ANN401  a column, or one value
        """Value of an expression that is a number for every row."""
        value = self._typed(node)
        dtype = getattr(value, "dtype", np.dtype(type(value)))
        if not pd.api.types.is_numeric_dtype(dtype):
            raise _WrongError("only numbers are added and multiplied")
        return value

    def _typed(self, node: ast.expr) -> Any:  # noqa: ANN401  a column, or one value
        """Value of an expression; a column of objects of one type is of that type."""
        value = self.value(node)
        is_mixed = isinstance(value, pd.Series) and value.dtype == object
        return value.infer_objects() if is_mixed else value

    def value(self, node: ast.expr) -> Any:  # noqa: ANN401, C901, PLR0911  a column, or one value
        """Value of an expression for every row."""
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as value):
                return value
            case ast.Name(id=word):
                return self._column(word)
            case ast.UnaryOp(op=ast.Not() | ast.Invert()):
                return ~self.truth(node.operand)
            case ast.UnaryOp(op=ast.USub()):
                return -self.number(node.operand)
            case ast.BinOp(op=op) if type(op) in _COMPUTED:
                return _COMPUTED[type(op)](self.number(node.left), self.number(node.right))
            case ast.BinOp(op=op) if type(op) in _JOINED:
                return _JOINED[type(op)](self.truth(node.left), self.truth(node.right))
            case ast.BoolOp(op=op):
                join = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return join.reduce([self.truth(one) for one in node.values])  # noqa: PD011  of ast
            case ast.Compare():
                return self._compared(node)
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Attribute(value=ast.Name() as column, attr="str"), attr=method
                ),
                args=[ast.Constant(value=str() as text)],
                keywords=[],
            ) if method in _OF_TEXTS:  # no other calls are allowed
                if _PATTERN.search(text):
                    raise _WrongError(f"{text!r} looks like a regex: text is matched literally")
                return self._of_texts(column, method, text)
            case _:
                raise _WrongError(f"{type(node).__name__} is not allowed")

    def _column(self, word: str) -> pd.Series[Any]:
        name = self.quoted.get(word, word)
        if name not in self.frame.columns:
            raise _WrongError(f"there is no column {name!r}", name)
        column: pd.Series[Any] = self.frame[name]
        return column

    def _compared(self, node: ast.Compare) -> Bools:
        """Whether a chain of comparisons holds, for every row."""
        holds = np.ones(len(self.frame), dtype=bool)
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(op, ast.In | ast.NotIn):
                found = self._contained(left, right)
                holds &= found if isinstance(op, ast.In) else ~found
            elif type(op) in _COMPARED:
                holds &= _known(_COMPARED[type(op)](self.value(left), self.value(right)))
            else:
                raise _WrongError(f"{type(op).__name__} is not allowed")
            left = right
        return holds

    def _contained(self, left: ast.expr, right: ast.expr) -> Bools:
        """Whether a text is part of a column, or a column one of several values."""
        value = self.value(left)
        if isinstance(right, ast.List | ast.Tuple):
            wanted = [self.value(one) for one in right.elts]
            if not all(isinstance(one, int | float | str) for one in wanted):
                raise _WrongError("a list holds numbers and texts")
            return _known(pd.Series(value).isin(wanted))
        if not isinstance(value, str) or not isinstance(right, ast.Name):
            raise _WrongError("`in` takes a text and a column, or a column and a list")
        return self._of_texts(right, "contains", value)

    def _of_texts(self, column: ast.Name, method: str, text: str) -> Bools:
        """Whether the texts of a column have a part; each distinct text is tested once."""
        codes, texts = pd.factorize(self._column(column.id))
        has = np.array([_OF_TEXTS[method](str(one), text) for one in texts] + [False], dtype=bool)
        return has[codes]


def _known(value: Any) -> Bools:  # noqa: ANN401  a column, an array or one value
    """Whether a comparison holds; absent values never do."""
    if isinstance(value, pd.Series):
        return value.to_numpy(dtype=bool, na_value=False)
    return np.asarray(value, dtype=bool)


Kinds = str | EventKind | Iterable[str | EventKind]

_GROUPS: Mapping[str, Callable[[Dag], Bools]] = {
    "launch": lambda dag: np.bincount(dag.launch[dag.launch >= 0], minlength=len(dag.events)) > 0,
    "collective": lambda dag: (
        (dag.classification.kernel_class == KernelClass.COMMUNICATION)
        & (dag.events.kind == EventKind.KERNEL)
    ),
    "device": lambda dag: dag.events.is_device,
    "host": lambda dag: dag.events.is_host,
}
KIND_GROUPS = tuple(_GROUPS)
"""Kinds beyond `EventKind`: calls that launched device work, communication kernels, all events of
the device, all of the host."""


def events_in(dag: Dag, window: Window) -> I64:
    """Events that overlap a window, ascending; all of them for the whole trace."""
    events = dag.events
    if window == dag.span:
        return np.arange(len(events), dtype=np.int64)
    inside = (events.ts_ns < window.end_ns) & (events.end_ns > window.start_ns)
    inside |= (
        (events.dur_ns == 0) & (events.ts_ns >= window.start_ns) & (events.ts_ns < window.end_ns)
    )
    return np.flatnonzero(inside)


def kind_mask(dag: Dag, kinds: Kinds) -> Bools:
    """Whether each event is of some kinds: of `EventKind` or its labels, or of `KIND_GROUPS`."""
    mask = np.zeros(len(dag.events), dtype=bool)
    for kind in [kinds] if isinstance(kinds, str | EventKind) else kinds:
        if isinstance(kind, EventKind):
            mask |= dag.events.kind == kind
        elif kind.lower() in KIND_GROUPS:
            mask |= _GROUPS[kind.lower()](dag)
        elif kind.lower() in EventKind.labels():
            mask |= dag.events.kind == EventKind.parse(kind)
        else:
            raise QueryError(
                f"there is no event kind {kind!r}.",
                hint=one_of(kind, (*EventKind.labels(), *KIND_GROUPS)),
            )
    return mask


def name_mask(dag: Dag, name: Names) -> Bools:
    """Whether the name of each event matches a glob or regex (see `compile_pattern`)."""
    return dag.events.named(dag.events.symbols.named(name))


def tree_parent(dag: Dag) -> I64:
    """Event above each in the call tree, which encloses or launched it; -1 at the top."""
    return np.where(dag.events.is_device, dag.launch, dag.parent).astype(np.int64)


def under_mask(dag: Dag, tops: Bools) -> Bools:
    """Whether each event is below some events in the call tree."""
    parent = tree_parent(dag)
    return nearest(parent, parent, tops) >= 0


def named_under(dag: Dag, name: Names) -> Bools:
    """Whether each event is below those of a name, or was captured there."""
    return under_mask(dag, name_mask(dag, name)) | replayed_in(dag, name)


def replayed_in(dag: Dag, name: Names) -> Bools:
    """Whether each event is work of a replayed graph that an operator of this name captured."""
    calls, found = dag.unrolled, np.zeros(len(dag.events), dtype=bool)
    if calls is not dag:
        rows = dag.events.columns[CAPTURED_LAUNCH].event
        is_top = name_mask(calls, name) & (np.arange(len(calls.events)) >= len(found))
        found[rows] = nearest(calls.parent, calls.launch[rows].astype(np.int64), is_top) >= 0
    return found


def where_rows(dag: Dag, rows: I64, where: str) -> I64:
    """Events for which a condition on the columns of `frames.EVENTS` holds; see `rows_where`."""
    return rows_where(dag.events.frame(rows), where)["event"].to_numpy(np.int64)
