"""Settings of a project: the table ``[tool.htagraph]`` of the nearest pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from htagraph.errors import QueryError

_FILE = "pyproject.toml"

DATA_LOADING = "data-loading"
"""Key of the globs of host ranges that load data."""


def here() -> Path:
    """The working directory, or the root if it is gone."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/")


def data_loading_names(given: Iterable[str] | None = None) -> tuple[str, ...]:
    """Globs of host ranges that load data: those given, else of the working directory's project."""
    if given is None:
        return _data_loading(here())
    return (given,) if isinstance(given, str) else tuple(given)


@cache
def _data_loading(folder: Path) -> tuple[str, ...]:
    try:
        found = project_settings(folder)
    except ValueError:
        return ()
    names = found[1].get(DATA_LOADING, []) if found else []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        hint = f'write {DATA_LOADING} = ["fetch_*"].'
        raise QueryError(f"{found and found[0]}: {DATA_LOADING} is no list of names.", hint=hint)
    return tuple(names)


def project_settings(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The nearest pyproject.toml of a folder and its parents, with its settings; None for none."""
    folder = folder.resolve()
    file = next(
        (place / _FILE for place in (folder, *folder.parents) if (place / _FILE).is_file()), None
    )
    if file is None:
        return None
    try:
        tool = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError, RecursionError) as exc:
        raise ValueError(f"{file}: {exc}") from exc
    table = tool.get("htagraph", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise ValueError(f"{file}: tool.htagraph must be a table.")  # noqa: TRY004  as any wrong file
    return file, table
