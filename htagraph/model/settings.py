"""Settings of a project: the table ``[tool.htagraph]`` of the nearest pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

_FILE = "pyproject.toml"


class ProjectSettings(NamedTuple):
    """The table, and the file that it is in."""

    file: Path
    table: dict[str, Any]


def project_settings(folder: Path) -> ProjectSettings | None:
    """Settings in the nearest pyproject.toml of a folder and its parents; None if there is no file.

    Raises
    ------
    ValueError
        If the file cannot be read, or its ``tool.htagraph`` is no table.
    """
    folder = folder.resolve()
    file = next(
        (place / _FILE for place in (folder, *folder.parents) if (place / _FILE).is_file()), None
    )
    if file is None:
        return None
    try:
        tool = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError) as exc:
        raise ValueError(f"{file}: {exc}") from exc
    table = tool.get("htagraph", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise ValueError(f"{file}: tool.htagraph must be a table.")  # noqa: TRY004  as any wrong file
    return ProjectSettings(file, table)
