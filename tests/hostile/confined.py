"""A file system of its own for a command: read-only, or full."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "htagraph"

_UNSHARE = ["unshare", "--mount", *([] if os.name == "nt" or os.geteuid() == 0 else ["-r"])]


@cache
def _can_mount() -> bool:
    """Whether a file system can be mounted that only one command sees."""
    if shutil.which("unshare") is None:
        return False
    command = [*_UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


needs_mounts = pytest.mark.skipif(not _can_mount(), reason="nothing can be mounted here")
"""A real read-only or full file system: permissions do not stop root, who runs many tests."""


def read_only(*folders: str | Path) -> str:
    """Mounts after which nothing in some folders can be written."""
    return "\n".join(
        f"mount --bind {folder} {folder}; mount -o remount,ro,bind {folder}"
        for folder in folders
        if Path(folder).is_dir()
    )


def confined(
    mounts: str,
    *arguments: str,
    python: str | Path = sys.executable,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Run Python in a shell that mounts first, for itself alone."""
    shell = [*_UNSHARE, "sh", "-ec", f'{mounts}\nexec "$@"', "sh"] if mounts else []
    return subprocess.run(
        [*shell, python, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)} | dict(env or {}),
    )
