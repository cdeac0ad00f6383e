"""Which freed memory the process keeps, with glibc; nothing elsewhere."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt``."""


def keeps_memory() -> None:
    """Let glibc keep large freed blocks, or the kernel zeroes each new one again."""
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):  # another C library
            mallopt = ctypes.CDLL(None).mallopt
            # Before glibc 2.35, 32 MiB are the most.
            mallopt(_MMAP_THRESHOLD, 1 << 30) or mallopt(_MMAP_THRESHOLD, 1 << 25)
            mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)


def returns_memory() -> None:
    """Give freed memory back, before work that needs blocks of other sizes."""
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
