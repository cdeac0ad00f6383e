"""Fuzzing: inputs are made of a seed, answered and counted; one that ends as none may is kept."""

from __future__ import annotations

import random
import resource
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

DEFECT = "DEFECT"
"""What an outcome begins with that no input may have."""

_MAX_GROWTH = 1_000_000_000
"""Bytes by which the memory of the process may grow over one small input."""


class UnsoundError(AssertionError):
    """An input ended as none may: it is in the file that is named."""


@dataclass(frozen=True)
class Fuzzer:
    """Broken inputs of one kind, and the function that answers them."""

    made: Callable[[random.Random], bytes]
    answered: Callable[[bytes], str]
    ending: str = ".json"
    limit_s: int = 60


def run(
    kind: str,
    fuzzer: Fuzzer,
    *,
    seconds: float = float("inf"),
    inputs: int | None = None,
    seed: int = 1,
    folder: Path = Path("/tmp"),  # noqa: S108  for a person to look at
    keep_going: bool = False,
) -> Counter[str]:
    """Answer inputs for some time, or some number of them; return how they went.

    An input is in `folder` while it is answered, so that a crash leaves it there.
    """

    def too_long(*_: object) -> NoReturn:
        message = f"takes over {fuzzer.limit_s} s"
        raise TimeoutError(message)

    outcomes: Counter[str] = Counter()
    before = signal.signal(signal.SIGALRM, too_long)
    end, number = time.monotonic() + seconds, 0
    try:
        while time.monotonic() < end and (inputs is None or number < inputs):
            data = fuzzer.made(random.Random(f"{seed} {number}"))  # noqa: S311  reproducible
            kept = folder / f"htagraph-{kind}-{seed}-{number}{fuzzer.ending}"
            kept.write_bytes(data)
            number += 1
            try:
                outcome = _answered(fuzzer, data)
            except Exception as error:
                outcome = _in_words(error)
                if not keep_going:
                    message = f"seed {seed}, input {number - 1}, kept in {kept}: {outcome}"
                    raise UnsoundError(message) from error
                if outcome[:60] in {each[:60] for each in outcomes}:
                    kept.unlink()
            else:
                kept.unlink()
            outcomes[outcome] += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    return outcomes


def _answered(fuzzer: Fuzzer, data: bytes) -> str:
    """How it went, within limits of time and memory and without a sum that overflows."""
    before = _peak_bytes()
    signal.alarm(fuzzer.limit_s)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            outcome = fuzzer.answered(data)
    finally:
        signal.alarm(0)
    growth = _peak_bytes() - before
    assert growth < _MAX_GROWTH, f"{growth:,} bytes for an input of {len(data):,}"
    return outcome


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _in_words(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{DEFECT} {type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {error}"
