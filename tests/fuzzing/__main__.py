"""Fuzzes everything for as long as one says: ``python -m tests.fuzzing --minutes 30``.

Exit code 1 if something ended as nothing may.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from tests.fuzzing.kinds import KINDS
from tests.fuzzing.running import run


def outcomes_of(kind: str, seconds: float, seed: int) -> Counter[str]:
    """How the inputs of one kind went."""
    return run(kind, KINDS[kind], seconds=seconds, seed=seed, keep_going=True)


def main() -> None:
    """Share the time among the kinds, on all processors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=list(KINDS), help=", ".join(KINDS))
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    processes = min(os.cpu_count() or 1, len(asked.kinds))
    seconds = 60 * asked.minutes * processes / len(asked.kinds)
    started, n_defects = time.monotonic(), 0
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        runs = {pool.submit(outcomes_of, kind, seconds, asked.seed): kind for kind in asked.kinds}
        for ended in as_completed(runs):
            outcomes = ended.result()
            print(f"{runs[ended]}: {outcomes.total():,} inputs in {seconds:.0f} s", flush=True)
            for outcome, n in outcomes.most_common():
                print(f"{n:8,} {outcome}", flush=True)
                n_defects += n if outcome.startswith("DEFECT") else 0
    print(f"{n_defects} defects, {time.monotonic() - started:.0f} s with {processes} processes")
    sys.exit(1 if n_defects else 0)


if __name__ == "__main__":
    main()
