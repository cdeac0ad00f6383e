"""First use of a wheel, as in a container: two programs at once, of four spawned workers each.

Nothing is compiled twice, numba is not imported, and there is no warning. `.ci/package` runs it
with the Python of a read-only environment, without a home.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import htagraph as hg
from htagraph.arrays import code_cache, objects

_WORKERS = 4
_PROGRAMS = 2


def length_and_compiled(trace: str) -> tuple[int, int]:
    """Length of a trace's critical path, and how much this process compiled for it."""
    warnings.simplefilter("error")
    compiled, object_code = [], objects.object_code
    objects.object_code = lambda bitcode: compiled.append(bitcode) or object_code(bitcode)
    segments = hg.load(trace).compile().critical_path().segments
    objects.object_code = object_code
    assert "numba" not in sys.modules, "numba compiled what the wheel should bring along"
    return int(segments["dur_ns"].sum()), len(compiled)


def program(trace: str) -> None:
    """Run all workers, and print their answers."""
    with ProcessPoolExecutor(_WORKERS, mp_context=get_context("spawn")) as pool:
        print(json.dumps(list(pool.map(length_and_compiled, [trace] * _WORKERS))))


def main() -> None:
    """Run the programs; check their answers and what they left on disk."""
    command = [sys.executable, __file__, str(hg.demo_trace("none"))]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(_PROGRAMS)
    ]
    said = [one.communicate() for one in both]
    assert [error for _, error in said] == ["", ""], said
    answers = [answer for out, _ in said for answer in json.loads(out)]
    place = code_cache.home()
    assert place is not None
    n_kept, n_compiled = len(list(place.glob("*.o"))), sum(n for _, n in answers)
    assert len({dur_ns for dur_ns, _ in answers}) == 1, answers
    assert 0 < n_compiled == n_kept, f"{n_compiled} compiled, {n_kept} kept in {place}"
    print(f"{len(answers)} workers compiled {n_compiled} functions, each once, kept in {place}")


if __name__ == "__main__":
    program(sys.argv[1]) if len(sys.argv) > 1 else main()
