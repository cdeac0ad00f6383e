"""Output where few characters have a code, as with ``LC_ALL=C``: plain ones stand for them."""

from __future__ import annotations

import codecs
import sys
from io import TextIOWrapper

__all__ = ["speaks_plainly"]

_PLAIN = str.maketrans("·…–—→µ×▏▎▍▌▋▊▉█", "-~--" + ">ux" + "   " + "#####")
"""Of one width, so that tables stay in line."""


def speaks_plainly() -> None:
    """Let output and notices say in plain characters what their encoding lacks."""
    codecs.register_error("plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    """What stands for a text that cannot be encoded: a name is escaped, so that none is lost."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return text.encode("ascii", "backslashreplace").decode(), error.end
