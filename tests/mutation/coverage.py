"""Which tests cover a module: those of its room, and those of what imports it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.mutation.edits import CHECKOUT

_LAWS = ("path_laws", "replay_laws")
"""Those of the path; the laws of questions take a minute, and see nothing more."""

_NOT_OF_THIS_PROCESS = ("tests/cli", "tests/browser", "tests/perfetto", "tests/hostile")
"""They start processes or a browser, which takes long."""

_LIMITS = "tests/hostile/test_damage.py::test_the_limits_that_are_stated_are_those_there_are"
"""Compares limits with the document that lists them."""


def files(target: str) -> list[str]:
    """A file, or the modules of a folder, by their paths in the checkout."""
    path = CHECKOUT / target
    found = [path] if path.is_file() else sorted(path.rglob("*.py"))
    return [str(file.relative_to(CHECKOUT)) for file in found]


def tests_of(path: str) -> list[str]:
    """What pytest runs when a module changes; a module's test is named like it."""
    room = Path(path).parts[1]
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    tests = _test_files()
    named = [test for by in _importers().get(name, ()) for test in tests.get(by, ())]
    laws = [f"tests/laws/test_{law}.py" for law in _LAWS]
    own = [f"tests/{room}", f"htagraph/{room}"]
    if room.endswith(".py"):
        own = [f"tests/test_{room}", path]
    return [
        *(test for test in own if (CHECKOUT / test).exists()),
        *(test for test in sorted({*named}) if not test.startswith(own[0])),
        *laws,
        _LIMITS,
    ]


@cache
def _importers() -> dict[str, set[str]]:
    """By module: the last names of the modules that import it."""
    found: dict[str, set[str]] = {}
    for file in (CHECKOUT / "htagraph").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                for module in [node.module, *(f"{node.module}.{name.name}" for name in node.names)]:
                    found.setdefault(module, set()).add(file.stem)
    return found


@cache
def _test_files() -> dict[str, list[str]]:
    """By name: the test files that are called so."""
    found: dict[str, list[str]] = {}
    for file in files("tests"):
        if not file.startswith((*_NOT_OF_THIS_PROCESS, "tests/laws")):
            found.setdefault(Path(file).stem.removeprefix("test_"), []).append(file)
    return {name: paths for name, paths in found.items() if Path(paths[0]).stem != name}
