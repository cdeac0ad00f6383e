"""The numbers that a module names, and where to move them: to a half and to double."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tests.mutation.edits import Edit

Number = int | float


@dataclass(frozen=True)
class Constant:
    """A number of a module: its name, its value, and the expression in the source."""

    name: str
    value: Number
    expression: ast.expr

    def moves(self) -> Iterator[tuple[Number, Edit]]:
        """A half and double; integers move by at least 1."""
        if isinstance(self.value, int):
            to: tuple[Number, ...] = self.value // 2, max(self.value * 2, self.value + 1)
        else:
            to = self.value / 2, self.value * 2
        for value in to:
            if value != self.value:
                yield value, Edit(self.expression, repr(value))


def constants(source: str) -> Iterator[Constant]:
    """The numbers that a module assigns to names in capitals, also in tuples, lists and dicts."""
    known: dict[str, Number] = {}
    for name, value in _assigned(ast.parse(source)):
        if name.isupper():
            for constant in _numbers(name, value, known):
                known[constant.name] = constant.value
                yield constant


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Names of a module and their expressions."""
    for statement in tree.body:
        match statement:
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), value=value):
                if value is not None:
                    yield name, value
            case ast.Assign([ast.Tuple(names)], ast.Tuple(values)):
                for target, value in zip(names, values, strict=True):
                    yield ast.unparse(target), value


def _numbers(name: str, value: ast.expr, known: dict[str, Number]) -> Iterator[Constant]:
    """The numbers in an expression: computed of others of the module, or in a display."""
    match value:
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Dict(values=items):
            for place, item in enumerate(items):
                yield from _numbers(f"{name}[{place}]", item, known)
        case ast.Constant() | ast.BinOp() | ast.UnaryOp():
            try:
                number = eval(ast.unparse(value), {"__builtins__": {}}, known)  # noqa: S307
            except (NameError, TypeError):
                return
            if type(number) in (int, float):
                yield Constant(name, number, value)
