"""Puts the bitcode of all compiled functions into a wheel, so that users need not wait for numba.

If the dependencies of the package are not installed, as in an isolated build, the wheel has none,
and its first trace takes longer. LLVM reads the bitcode of earlier versions only, so `.ci/package`
builds the published wheel with bitcode of the lowest that is allowed, and checks.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
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
        lowest, here = self._lowest("llvmlite"), metadata.version("llvmlite")
        if "HTAGRAPH_BITCODE" not in os.environ and not here.startswith(lowest):
            self.app.display_warning(
                f"bitcode of llvmlite {here}: with {lowest} or what lies between, the first call "
                "takes a minute. `.ci/package` builds a wheel for all."
            )
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
            build_data["force_include"][str(file)] = f"htagraph/arrays/bitcode/{file.name}"

    def _lowest(self, name: str) -> str:
        """The lowest version of a dependency that is allowed."""
        needed = self.metadata.core.dependencies
        return next(one.removeprefix(f"{name}>=") for one in needed if one.startswith(name))
