"""The public names, and that they are all."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest

import htagraph

MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(htagraph.__path__, "htagraph.")
]


DEFERRED = ("plots", "synth", "write_page")
"""Names that are imported when they are asked for."""


def test_public_names_are_those_exported_and_sorted():
    """No accidental export, no forgotten one."""
    public = {
        name
        for name, value in vars(htagraph).items()
        if name[0] != "_" and not isinstance(value, ModuleType)
    }
    of_imports = {"annotations", "import_module", "TYPE_CHECKING"}

    assert htagraph.__all__ == sorted(htagraph.__all__) == dir(htagraph)
    assert (public - of_imports) | {"errors", *DEFERRED} == set(htagraph.__all__)


@pytest.mark.parametrize("name", DEFERRED)
def test_names_that_few_need_are_there_when_asked_for(name):
    """As attributes; a name that is not there is an error like any other."""
    assert getattr(htagraph, name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        htagraph.nonsense  # noqa: B018


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_module_says_what_it_owns(module):
    """The first line of its docstring, and what it exports exists."""
    missing = [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)]

    assert (module.__doc__ or "").strip() or not inspect.getsource(module).strip()
    assert missing == []


def test_errors_inherit_what_a_stranger_would_catch():
    """Every error is one of ours and a builtin one."""
    kinds = [
        getattr(htagraph.errors, name) for name in htagraph.errors.__all__ if name.endswith("Error")
    ]
    ours = htagraph.errors.HTAGraphError
    builtin = (ValueError, KeyError, RuntimeError, OSError)

    assert all(issubclass(kind, ours) for kind in kinds)
    assert [
        kind.__name__ for kind in kinds if kind is not ours and not issubclass(kind, builtin)
    ] == []
