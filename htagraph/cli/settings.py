"""Settings of `htagraph check` in the nearest pyproject.toml, as ``[tool.htagraph]``."""

from __future__ import annotations

import tomllib
from pathlib import Path

import typer

from htagraph.errors import one_of

__all__ = ["KEYS", "settings_near"]

KEYS = ("max-step", "max-exposed", "max-idle", "max-unexplained", "baseline", "fail-above",
        "accept-damage")  # fmt: skip
"""Keys of the table: the options of `htagraph check` by their names."""

_FILE = "pyproject.toml"


def settings_near(folder: Path) -> dict[str, str]:
    """Settings in the nearest pyproject.toml of a folder and its parents, as texts.

    Empty if there is no such file or table. The path of a baseline is relative to that file.
    """
    folder = folder.resolve()
    file = next(
        (place / _FILE for place in (folder, *folder.parents) if (place / _FILE).is_file()), None
    )
    if file is None:
        return {}
    try:
        tool = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError) as exc:
        raise typer.BadParameter(f"{file}: {exc}") from exc
    table = tool.get("htagraph", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise typer.BadParameter(f"{file}: tool.htagraph must be a table.")
    return {key: _text(file, key, value) for key, value in table.items()}


def _text(file: Path, key: str, value: object) -> str:
    """The value of a key as an option would have it."""
    if key not in KEYS:
        meant = one_of(key.replace("_", "-"), KEYS)
        raise typer.BadParameter(f"{file}: unknown key {key!r} in [tool.htagraph]: {meant}")
    if key == "accept-damage":
        if not isinstance(value, bool):
            raise typer.BadParameter(f"{file}: {key} must be true or false.")
        return "true" if value else ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise typer.BadParameter(f'{file}: {key} must be a text such as "10%".')
    return str(file.parent / str(value)) if key == "baseline" else str(value)
