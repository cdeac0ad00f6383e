"""Settings of a project: the table ``[tool.htagraph]`` of the nearest pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from htagraph.errors import QueryError

_FILE = "pyproject.toml"


class ProjectSettings(NamedTuple):
    """The table, and the file that it is in."""

    file: Path
    table: dict[str, Any]


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
    names = found.table.get(DATA_LOADING, []) if found else []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        hint = f'write {DATA_LOADING} = ["fetch_*"].'
        raise QueryError(f"{found and found.file}: {DATA_LOADING} is no list of names.", hint=hint)
    return tuple(names)


def project_settings(folder: Path) -> ProjectSettings | None:
    """Settings in the nearest pyproject.toml of a folder and its parents; None without one."""
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
    return ProjectSettings(file, table)
