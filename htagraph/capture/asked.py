"""What `htagraph try` asks of a recording: variables of the environment, for the script's profiler.

The script stays as it is: its `profile` or `handler` takes from them where to write, which steps to
record and how often to sample.
"""

from __future__ import annotations

import os
from typing import Any

from htagraph.errors import QueryError

_VARIABLE = "HTAGRAPH_TRY_{}"


def asking(**settings: object) -> dict[str, str]:
    """The variables that ask for settings.

    Examples
    --------
    >>> asking(folder="runs/after", skip=5, steps=2)
    {'HTAGRAPH_TRY_FOLDER': 'runs/after', 'HTAGRAPH_TRY_SKIP': '5', 'HTAGRAPH_TRY_STEPS': '2'}
    """
    return {_VARIABLE.format(name.upper()): str(value) for name, value in settings.items()}


def asked(name: str, own: Any) -> Any:  # noqa: ANN401  of the type of the script's own
    """A setting as the environment asks for it, else the script's own."""
    variable = _VARIABLE.format(name.upper())
    text = os.environ.get(variable, "")
    try:
        return type(own)(text) if text else own
    except ValueError:
        raise QueryError(f"{variable}={text} is no {type(own).__name__}.") from None


def is_asked() -> bool:
    """Whether another program asks for this recording, and reports on it."""
    return bool(os.environ.get(_VARIABLE.format("FOLDER")))
