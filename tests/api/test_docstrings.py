"""Docstrings of what is public say what the signature says."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass

import pytest

import htagraph

_HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
_ENTRY = re.compile(r"^(\*{0,2}\w[\w*, ]*?)(?: ?:.*)?$")

_BARE = re.compile(r"^\w[\w, ]* : ")
_SAYS_MORE = re.compile(r"shape|unit|dtype|_ns|bytes|[{\"]")


def documented(text: str, section: str) -> list[str]:
    """The names of a numpydoc section, in order."""
    parts = _HEADING.split(inspect.cleandoc(text))
    bodies = dict(zip(parts[1::2], parts[2::2], strict=True))
    lines = (
        line for line in bodies.get(section, "").splitlines() if line and not line.startswith(" ")
    )
    found = (_ENTRY.match(line) for line in lines)
    return [name.strip(" *") for entry in found if entry for name in entry[1].split(",")]


def bare_entries(text: str) -> list[str]:
    """Entries of a section of parameters that are a name and a type without a shape or unit."""
    parts = _HEADING.split(inspect.cleandoc(text))
    body = dict(zip(parts[1::2], parts[2::2], strict=True)).get("Parameters", "").splitlines()
    following = [*body[1:], ""][: len(body)]
    return [
        line
        for line, after in zip(body, following, strict=True)
        if _BARE.match(line) and not after.startswith(" ") and not _SAYS_MORE.search(line)
    ]


def public() -> Iterator[tuple[str, Callable[..., object]]]:
    """What modules define without an underscore, and the public methods of such classes."""
    for found in pkgutil.walk_packages(htagraph.__path__, "htagraph."):
        if ".cli" in found.name or ".compiled" in found.name:
            continue
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            if name[0] == "_" or getattr(value, "__module__", None) != module.__name__:
                continue
            if inspect.isfunction(value) or inspect.isclass(value):
                yield f"{module.__name__}.{name}", value
            if inspect.isclass(value):
                for method, member in vars(value).items():
                    function = (
                        member.__func__
                        if isinstance(member, classmethod | staticmethod)
                        else member
                    )
                    is_own = str(getattr(function, "__module__", "")).startswith("htagraph")
                    if method[0] != "_" and inspect.isfunction(function) and is_own:
                        yield f"{module.__name__}.{name}.{method}", function


PUBLIC = dict(public())
WITH_PARAMETERS = {
    name: value
    for name, value in PUBLIC.items()
    if "Parameters\n" in inspect.cleandoc(value.__doc__ or "")
    and (inspect.isfunction(value) or is_dataclass(value))
}


def test_everything_public_has_a_first_line_that_is_a_sentence():
    """It ends in a full stop, fits a line, and names the object, not the act of returning it."""
    wrong = []
    for name, value in PUBLIC.items():
        first, *rest = inspect.cleandoc(value.__doc__ or "").split("\n")
        if not first.endswith((".", ":")) or any(rest[:1]) or first.startswith("Return"):
            wrong.append((name, first))

    assert wrong == []


def test_documented_parameters_are_those_of_the_signature():
    """Same names, same order; what a name and its type say need not be said again."""
    wrong = []
    for name, value in WITH_PARAMETERS.items():
        signature = [
            parameter.name
            for parameter in inspect.signature(value).parameters.values()
            if parameter.name not in ("self", "cls") and not parameter.name.startswith("_")
        ]
        found = documented(value.__doc__ or "", "Parameters")
        if found != [name for name in signature if name in found]:
            wrong.append((name, signature))

    assert wrong == []


def test_only_what_users_call_repeats_names_and_types():
    """An entry elsewhere says a shape, a unit, or what the name does not say."""
    exported = {getattr(value, "__qualname__", "") for value in map(_exported, htagraph.__all__)}
    of_users = ("htagraph.errors.", "htagraph.synth.", "htagraph.reports.plots.")
    echoes = [
        (name, entry)
        for name, value in PUBLIC.items()
        if value.__qualname__.partition(".")[0] not in exported and not name.startswith(of_users)
        for entry in bare_entries(value.__doc__ or "")
    ]

    assert echoes == []


def _exported(name: str) -> object:
    return getattr(htagraph, name)


def _parameters(name: str) -> list[str]:
    return [
        p for p in inspect.signature(getattr(htagraph, name)).parameters if p not in ("self", "cls")
    ]


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in htagraph.__all__
        if inspect.isfunction(getattr(htagraph, name)) and _parameters(name)
    ],
)
def test_exported_functions_document_parameters_and_returns(name):
    """Or name the function that has the same ones."""
    text = getattr(htagraph, name).__doc__ or ""
    if twin := re.search(r"parameters are those of `(\w+)`", text):
        assert _parameters(name) == _parameters(twin[1])
        return

    assert documented(text, "Parameters") == _parameters(name)
    assert "Returns\n-------" in inspect.cleandoc(text)
