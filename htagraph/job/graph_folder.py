"""GraphFolder: where compiled graphs lie that nobody asked to be kept."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

from htagraph.errors import OutputError

__all__ = ["GraphFolder"]


class GraphFolder:
    """A temporary folder that is removed with the last job that needs it.

    Raises
    ------
    OutputError
        If none can be made.
    """

    def __init__(self) -> None:
        try:
            self.path = Path(tempfile.mkdtemp(prefix="htagraph-"))
        except OSError as exc:
            raise OutputError(
                f"no temporary folder can be made: {exc.strerror}.",
                path=Path(exc.filename or "."),
                hint="set TMPDIR to a folder that can be written.",
            ) from exc
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
