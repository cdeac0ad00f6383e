"""Fuzzes everything for some minutes: ``python -m tests.fuzzing --minutes 30``.

Exit code 1 if something ended as nothing may.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from htagraph.cli.demo import warm
from tests.fuzzing.kinds import KINDS
from tests.fuzzing.running import DEFECT, run


def outcomes(kind: str, seconds: float, seed: int) -> Counter[str]:
    """How the inputs of one kind went, in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        running = alone.submit(run, kind, KINDS[kind], seconds=seconds, seed=seed, keep_going=True)
        try:
            return running.result()
        except BrokenProcessPool:
            return Counter({f"{DEFECT} crash: see /tmp/htagraph-{kind}-{seed}-*": 1})


def lines(kind: str, found: Counter[str]) -> Iterator[str]:
    """The line printed for one kind."""
    yield f"{kind}: {found.total():,} inputs"
    for outcome, n in found.most_common():
        yield f"{n:8,} {outcome}"


def main() -> None:
    """Share the time among the kinds, on all processors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="all by default")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    kinds = asked.kinds or list(KINDS)
    processes = min(os.cpu_count() or 1, len(kinds))
    seconds = 60 * asked.minutes * processes / len(kinds)
    warm(quiet=True)  # nobody compiles within the time for an input
    started, n_defects = time.monotonic(), 0
    with ThreadPoolExecutor(processes) as together:
        runs = together.map(lambda kind: outcomes(kind, seconds, asked.seed), kinds)
        for kind, found in zip(kinds, runs, strict=True):
            print(*lines(kind, found), sep="\n", flush=True)
            n_defects += sum(n for outcome, n in found.items() if outcome.startswith(DEFECT))
    print(f"{n_defects} defects, {time.monotonic() - started:.0f} s, {processes} processes")
    sys.exit(1 if n_defects else 0)


if __name__ == "__main__":
    main()
