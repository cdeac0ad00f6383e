"""Puts the bitcode of all compiled functions into a wheel, so that users need not wait for numba.

If the dependencies of the package are not installed, as in an isolated build, the wheel has none,
and its first trace takes longer. `.ci/package` builds the published wheel, and checks.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_NEEDED = ("numba", "pandas", "rustworkx", "typer")


class BitcodeHook(BuildHookInterface):  # type: ignore[misc]
    """Compiles for a generic CPU, in a process of its own."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the bitcode to the wheel."""
        if version == "editable" or not all(find_spec(name) for name in _NEEDED):
            return
        kept = Path(os.environ.get("HTAGRAPH_BITCODE") or mkdtemp())
        kept.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {
            "HTAGRAPH_CACHE_DIR": str(kept),
            "NUMBA_CPU_NAME": "generic",
            "PYTHONPATH": self.root,
        }
        command = [sys.executable, "-m", "htagraph", "warm", "--quiet"]
        subprocess.run(command, check=True, env=environment, cwd=kept)  # noqa: S603
        for file in sorted(kept.glob("*.bc")):
            build_data["force_include"][str(file)] = f"htagraph/native/bitcode/{file.name}"
