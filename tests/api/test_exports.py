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


def test_public_names_are_sorted_and_each_has_a_home():
    """Those exported, those that `dir` lists, and those that can be asked for."""
    homes = {**htagraph._HOMES, **htagraph._ROOMS}

    assert htagraph.__all__ == sorted(htagraph.__all__) == dir(htagraph)
    assert sorted(homes) == htagraph.__all__


@pytest.mark.parametrize("name", htagraph.__all__)
def test_a_public_name_is_there_when_it_is_asked_for(name):
    """What it stands for says that it is public."""
    value = getattr(htagraph, name)
    home = value if isinstance(value, ModuleType) else importlib.import_module(value.__module__)

    assert isinstance(value, ModuleType) or getattr(home, name) is value


def test_a_name_that_is_not_there_is_an_error_like_any_other():
    """As of any module."""
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        htagraph.nonsense  # noqa: B018


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_module_says_what_it_owns(module):
    """The first line of its docstring."""
    assert (module.__doc__ or "").strip() or not inspect.getsource(module).strip()


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
