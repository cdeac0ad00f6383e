"""What a handler sees of `torch.profiler.profile`: a simulation of its states, without torch.

`test_with_torch.py` asks the same of the real one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from pathlib import Path

from tests.synth.simulated import SimulatedRank
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

Action = Enum("Action", ["NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE"])
Schedule = Callable[[int], Action]


def schedule(*, wait: int, active: int, repeat: int = 0) -> Schedule:
    """Cycles of a wait and some recorded steps; without end if `repeat` is 0."""

    def action(step: int) -> Action:
        cycle, at = divmod(step, wait + active)
        if at < wait or (repeat and cycle >= repeat):
            return Action.NONE
        return Action.RECORD_AND_SAVE if at == wait + active - 1 else Action.RECORD

    return action


_SECOND = 1_000_000_000
_WORLD_SIZE = 2


@cache
def recorded(cycle: int, began_ns: int) -> tuple[SimulatedRank, ...]:
    """What a job of two ranks did in a cycle: a minute ago, and 10 s after the cycle before."""
    job = training_job(ranks=_WORLD_SIZE, steps=2, layers=1, straggler=1)
    start_ns = began_ns + (10 * cycle - 60) * _SECOND
    ranks = tuple(replace(rank, start_ns=start_ns) for rank in job.ranks)
    return simulate_job(replace(job, ranks=ranks)).ranks


@dataclass(eq=False)
class Profiler:
    """A profiler that records a rank of a simulated job, the same run in each cycle."""

    ready: Callable[[Profiler], None]
    rank: int = 0
    schedule: Schedule = field(default=lambda _step: Action.RECORD)
    record_steps: bool = True
    with_stack: bool = False
    activities: frozenset[Enum] = frozenset()
    began_ns: int = field(default_factory=time.time_ns)
    step_num: int = 0
    n_cycles: int = 0

    @property
    def current_action(self) -> Action:
        """What is done in the current step."""
        return self.schedule(self.step_num)

    def step(self) -> None:
        """Go on to the next step."""
        ended = self.current_action
        self.step_num += 1
        if ended is Action.RECORD_AND_SAVE:
            self.ready(self)

    def stop(self) -> None:
        """Stop, in any step."""
        if self.current_action in (Action.RECORD, Action.RECORD_AND_SAVE):
            self.ready(self)

    def export_chrome_trace(self, path: str) -> None:
        """Write what was recorded."""
        recorded(self.n_cycles, self.began_ns)[self.rank].write(Path(path))
        self.n_cycles += 1

    def run(self, n_steps: int) -> None:
        """Go through some steps, and stop."""
        for _ in range(n_steps):
            self.step()
        self.stop()


def settled() -> None:
    """Wait for all that handlers do in the background."""
    for thread in threading.enumerate():
        if thread.name == "htagraph-capture":
            thread.join()
