"""What the command asks of the C library."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_FREE_A_BLOCK = """
from pathlib import Path
from htagraph.arrays.memory import keeps_memory

keeps_memory()
block = b"x" * (64 << 20)
del block
print(int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc")
def test_memory_that_is_freed_is_kept():
    """By default a block of 64 MiB is given back; here the next one takes its place."""
    found = subprocess.run(
        [sys.executable, "-c", _FREE_A_BLOCK], capture_output=True, text=True, check=True
    )

    assert int(found.stdout) >= 64
