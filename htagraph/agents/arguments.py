"""Tools as clients see them: the schema of each, and arguments checked against it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Literal, Self, get_args, get_origin, get_type_hints

from htagraph.agents.budget import LEAST_TOKENS, MOST_TOKENS
from htagraph.errors import QueryError

__all__ = ["Signature"]

_BOUNDS: Mapping[str, Mapping[str, int]] = {
    "max_tokens": {"minimum": LEAST_TOKENS, "maximum": MOST_TOKENS},
    "limit": {"minimum": 0},
    "offset": {"minimum": 0},
    "capture": {"minimum": 0},
}


@dataclass(frozen=True)
class _Parameter:
    """One parameter of a tool."""

    name: str
    kind: Any
    meaning: str
    default: Any

    @property
    def is_required(self) -> bool:
        """Whether there is no default."""
        return self.default is inspect.Parameter.empty

    @property
    def schema(self) -> dict[str, Any]:
        """The parameter in JSON schema."""
        default = (
            {} if self.is_required or self.default in (None, ()) else {"default": self.default}
        )
        return {
            **_typed(self.kind),
            **_BOUNDS.get(self.name, {}),
            "description": self.meaning,
        } | default

    def read(self, value: Any) -> Any:  # noqa: ANN401  as JSON has it
        """The value that a client gives, as the tool takes it.

        Raises
        ------
        QueryError
            If it is none of this type.
        """
        wanted = _typed(self.kind)
        given = _unquoted(value, wanted["type"])
        bounds = _BOUNDS.get(self.name, {})
        if "enum" in wanted and given not in wanted["enum"]:
            near = get_close_matches(str(given), wanted["enum"], 1)
            hint = f"one of {', '.join(wanted['enum'])}."
            said = f" Did you mean {near[0]!r}?" if near else ""
            raise QueryError(f"there is no {self.name} {given!r}.{said}", hint=hint)
        if not _fits(given, wanted["type"]):
            raise QueryError(f"{self.name} is {_WORDS[wanted['type']]}, not {given!r}.")
        if not bounds.get("minimum", -(2**62)) <= _size(given) <= bounds.get("maximum", 2**62):
            least = f"from {bounds.get('minimum', '-2**62')}"
            raise QueryError(
                f"{self.name} is {given!r}.", hint=f"{least} to {bounds.get('maximum', '2**62')}."
            )
        return tuple(given) if wanted["type"] == "array" else given


_WORDS = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list of texts",
    "object": "an object",
}


def _typed(kind: Any) -> dict[str, Any]:  # noqa: ANN401  any annotation
    """The type of an annotation, in JSON schema."""
    if get_origin(kind) is UnionType:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return {"type": "string", "enum": list(get_args(kind))}
    if get_origin(kind) is tuple:
        return {"type": "array", "items": {"type": "string"}}
    if get_origin(kind) is dict:
        return {"type": "object"}
    return {"type": {str: "string", bool: "boolean", int: "integer", float: "number"}[kind]}


def _unquoted(value: Any, kind: str) -> Any:  # noqa: ANN401  as JSON has it
    """A value that some clients put into quotes, without them; one text as a list of one."""
    if not isinstance(value, str) or kind == "string":
        return value
    try:
        read = json.loads(value)
    except (ValueError, RecursionError):
        read = value
    return [value] if kind == "array" and not isinstance(read, list) else read


def _fits(value: Any, kind: str) -> bool:  # noqa: ANN401  as JSON has it
    """Whether a value is of a type of JSON schema."""
    match kind:
        case "array":
            return isinstance(value, list) and all(isinstance(one, str) for one in value)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            return isinstance(value, {"string": str, "boolean": bool, "object": dict}[kind])


def _size(value: Any) -> float:  # noqa: ANN401  as JSON has it
    """A number itself, and 0 for what is none."""
    return value if isinstance(value, int | float) else 0


@dataclass(frozen=True)
class Signature:
    """What a tool takes.

    Parameters
    ----------
    meaning : str
        What it does, for whoever chooses among tools.
    """

    tool: str
    meaning: str
    parameters: Mapping[str, _Parameter]

    @classmethod
    def of(cls, method: Callable[..., Any]) -> Self:
        """The signature of a method, by its annotations and its docstring.

        Examples
        --------
        >>> def find(*, name: Annotated[str, "What is looked for."], limit: Annotated[int, ""] = 5):
        ...     "Find what has a name."
        >>> Signature.of(find).schema["properties"]["name"]
        {'type': 'string', 'description': 'What is looked for.'}
        """
        hints = get_type_hints(method, include_extras=True)
        found = inspect.signature(method).parameters.values()
        parameters = {
            one.name: _Parameter(one.name, *_annotated(hints[one.name]), one.default)
            for one in found
            if one.kind is one.KEYWORD_ONLY
        }
        meaning = " ".join((inspect.getdoc(method) or "").split())
        return cls(method.__name__, meaning, parameters)

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of the arguments."""
        return {
            "type": "object",
            "properties": {name: one.schema for name, one in self.parameters.items()},
            "required": [name for name, one in self.parameters.items() if one.is_required],
            "additionalProperties": False,
        }

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a client, as the tool takes them.

        Raises
        ------
        QueryError
            If one is missing, unknown, or of another type.
        """
        known = ", ".join(self.parameters)
        for name in arguments:
            if name not in self.parameters:
                near = get_close_matches(name, self.parameters, 1)
                said = f" Did you mean {near[0]!r}?" if near else ""
                raise QueryError(f"{self.tool} takes no {name!r}.{said}", hint=f"it takes {known}.")
        for name, one in self.parameters.items():
            if one.is_required and name not in arguments:
                raise QueryError(f"{self.tool} needs {name!r}.", hint=one.meaning)
        return {
            name: self.parameters[name].read(value)
            for name, value in arguments.items()
            if value is not None
        }


def _annotated(hint: Any) -> tuple[Any, str]:  # noqa: ANN401  any annotation
    """Type and meaning of an annotation."""
    kind, meaning = get_args(hint) if get_origin(hint) is Annotated else (hint, "")
    return kind, meaning
