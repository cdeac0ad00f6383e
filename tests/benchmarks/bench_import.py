"""The time of `import htagraph` after `import pandas`: python -m tests.benchmarks.bench_import."""

from __future__ import annotations

import statistics
import subprocess
import sys

_REPEATS = 7
_TIMED = "import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"


def seconds(module: str, *, after: str = "sys") -> float:
    """The median time of an import in a fresh interpreter, after another one."""
    code = f"import {after}; {_TIMED.format(module=module)}"
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        for _ in range(_REPEATS)
    ]
    return statistics.median(float(run.stdout) for run in runs)


if __name__ == "__main__":
    print(f"import pandas              {seconds('pandas'):.3f} s")
    print(f"import htagraph, after it  {seconds('htagraph', after='pandas'):.3f} s")
    print(f"the command line, after it {seconds('htagraph.cli.main', after='pandas'):.3f} s")
