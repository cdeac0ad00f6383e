"""Small faults that a person could have made: what else each piece of a module could be."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.mutation.edits import Edit

_COMPARISONS: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", ">"),
    ast.LtE: ("<", ">"),
    ast.Gt: (">=", "<"),
    ast.GtE: (">", "<"),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
}
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "//",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "//",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.BitXor: "|",
    ast.LShift: ">>",
    ast.RShift: "<<",
}
_NAMES = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "argmin": "argmax",
    "argmax": "argmin",
    "any": "all",
    "all": "any",
}
_SIDES = {"left": "'right'", "right": "'left'"}
_NO_FAULT = frozenset({"strict", "copy", "maxsize", "stacklevel"})
"""Arguments whose value changes no answer."""


def faults(source: str) -> list[Edit]:
    """All faults of a module."""
    return [Edit(node, text) for node in _code(ast.parse(source)) for text in _texts(node)]


def _code(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """What computes something: no annotation, decorator, message, import, nor assertion."""
    if isinstance(node, ast.expr | ast.stmt):
        yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            is_option = isinstance(child, ast.keyword) and child.arg in _NO_FAULT
            if isinstance(child, ast.AST) and not is_option and not isinstance(child, _SKIPPED):
                yield from _code(child)


_SKIPPED = ast.Import | ast.ImportFrom | ast.Assert | ast.Raise | ast.JoinedStr


def _texts(node: ast.expr | ast.stmt) -> Iterator[str]:
    """What a node could be instead."""
    match node:
        case ast.Compare(left, [operator], [right]):
            for other in _COMPARISONS[type(operator)]:
                yield f"({ast.unparse(left)} {other} {ast.unparse(right)})"
        case ast.BinOp(left, operator, right) if type(operator) in _OPERATORS:
            yield f"(({ast.unparse(left)}) {_OPERATORS[type(operator)]} ({ast.unparse(right)}))"
        case ast.BoolOp(operator, values):
            other = " or " if isinstance(operator, ast.And) else " and "
            yield f"({other.join(f'({ast.unparse(value)})' for value in values)})"
        case ast.UnaryOp(ast.Not() | ast.Invert() | ast.USub(), operand):
            yield f"({ast.unparse(operand)})"
        case ast.Constant(value):
            yield from _other_constant(value)
        case ast.IfExp(test, body, orelse):
            yield f"({ast.unparse(orelse)} if {ast.unparse(test)} else {ast.unparse(body)})"
        case ast.Name(name) if name in _NAMES:
            yield _NAMES[name]
        case ast.Attribute(value, name) if name in _NAMES:
            yield f"{ast.unparse(value)}.{_NAMES[name]}"
        case ast.stmt():
            yield from _other_statement(node)


def _other_statement(statement: ast.stmt) -> Iterator[str]:
    """What a statement could be instead."""
    match statement:
        case ast.AugAssign(target, operator, value) if type(operator) in _OPERATORS:
            yield f"{ast.unparse(target)} {_OPERATORS[type(operator)]}= {ast.unparse(value)}"
        case ast.Assign([ast.Subscript()]) | ast.Expr(ast.Call()):
            yield "pass"
        case ast.Continue():
            yield "break"
        case ast.Break():
            yield "continue"


def _other_constant(value: object) -> Iterator[str]:
    """What a constant could be instead."""
    if isinstance(value, bool):
        yield str(not value)
    elif isinstance(value, int):
        yield str(value + 1)
    elif isinstance(value, float):
        yield str(2 * value or 1.0)
    elif isinstance(value, str) and value in _SIDES:
        yield _SIDES[value]
