"""The time of imports: python -m tests.benchmarks.bench_import.

`import htagraph` loads names when they are asked for, so its cost is that of the first one.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

_REPEATS = 7
_PATH = (
    "from htagraph.cli.start import defer; defer('pandas'); "
    "import htagraph.cli.main, htagraph.cli.path, htagraph.arrays.objects"
)
"""As the command begins: without pandas."""
_TIMED = "import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"


def seconds(statement: str, *, after: str = "sys") -> float:
    """The median time of an import statement in a fresh interpreter, after another one."""
    code = f"import {after}; {_TIMED.format(statement=statement)}"
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        for _ in range(_REPEATS)
    ]
    return statistics.median(float(run.stdout) for run in runs)


if __name__ == "__main__":
    for name, statement, after in (
        ("import pandas", "import pandas", "sys"),
        ("import htagraph", "import htagraph", "sys"),
        ("its load, after pandas", "from htagraph import load", "pandas"),
        ("the command line, after pandas", "import htagraph.cli.main", "pandas"),
        ("`htagraph path`, all of it", _PATH, "sys"),
    ):
        print(f"{name:31}{seconds(statement, after=after):.3f} s")
