"""The error for a file or folder that is not there."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from htagraph.errors import TraceNotFoundError, did_you_mean
from htagraph.readers.storage import exists, is_remote, url_of

__all__ = ["not_found"]


def not_found(path: Path) -> TraceNotFoundError:
    """Error for a file or folder that is not there; its hint names one that is called alike."""
    if is_remote(path):
        return TraceNotFoundError(
            "no such file or folder.", path=url_of(path), hint="check the URL."
        )
    missing = path
    while missing.parent != missing and not exists(missing.parent):
        missing = missing.parent
    names: list[str] = []
    with suppress(OSError):
        names = sorted(entry.name for entry in missing.parent.iterdir())
    meant = did_you_mean(missing.name, names)
    return TraceNotFoundError("no such file or folder.", path=path, hint=meant + "check the path.")
