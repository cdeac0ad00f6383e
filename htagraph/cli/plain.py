"""Output in encodings with few characters, as with ``LC_ALL=C``."""

from __future__ import annotations

import codecs
import sys
from io import TextIOWrapper

_PLAIN = str.maketrans("·…–—→µ×▏▎▍▌▋▊▉█", "-~--" + ">ux" + "   " + "#####")
"""Replacements, each of one character, so that tables stay aligned."""


def speaks_plainly() -> None:
    """Replace characters that the encoding of output and notices lacks."""
    codecs.register_error("plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Replacement for text that cannot be encoded; letters of names are escaped."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return text.encode("ascii", "backslashreplace").decode(), error.end
