"""Settings of `htagraph check` in the nearest pyproject.toml, as ``[tool.htagraph]``."""

from __future__ import annotations

from pathlib import Path

import typer

from htagraph.errors import one_of
from htagraph.model.settings import DATA_LOADING, project_settings

KEYS = ("max-step", "max-exposed", "max-idle", "max-unknown", "baseline", "fail-above",
        "accept-damage")  # fmt: skip
"""Keys of the table: the options of `htagraph check` by their names."""

OF_ALL_VERBS = ("peaks", DATA_LOADING)
"""Keys for all verbs: see `htagraph.operators.peaks` and `htagraph.model.settings`."""


def settings_near(folder: Path) -> dict[str, str]:
    """Settings in the nearest pyproject.toml of a folder and its parents, as texts.

    Empty if there is no such file or table. The path of a baseline is relative to that file.
    """
    try:
        found = project_settings(folder)
    except ValueError as exc:
        raise typer.BadParameter(str(exc)) from exc
    if found is None:
        return {}
    file, table = found
    return {key: _text(file, key, value) for key, value in table.items() if key not in OF_ALL_VERBS}


def _text(file: Path, key: str, value: object) -> str:
    """The value of a key as an option would have it."""
    if key not in KEYS:
        meant = one_of(key.replace("_", "-"), (*KEYS, *OF_ALL_VERBS))
        raise typer.BadParameter(f"{file}: unknown key {key!r} in [tool.htagraph]: {meant}")
    if key == "accept-damage":
        if not isinstance(value, bool):
            raise typer.BadParameter(f"{file}: {key} must be true or false.")
        return "true" if value else ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise typer.BadParameter(f'{file}: {key} must be a text such as "10%".')
    return str(file.parent / str(value)) if key == "baseline" else str(value)
