"""Timelines of workers of a simulated 1F1B pipeline, in the format of StragglerAnalysis."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

__all__ = ["Job", "file_of"]

Cost = Callable[[str, int, int, int, int], float]
"""Milliseconds of a compute: direction, stage, DP rank, micro-batch, step."""

KINDS = ("compute", "pp-comm", "tp-comm", "dp-comm", "misc")


def usual(direction: str, stage: int, dp: int, mb: int, step: int) -> float:
    """Forward 20 ms, backward 40 ms."""
    return 20 if direction == "forward" else 40


@dataclass(frozen=True)
class Job:
    """A pipeline; times are milliseconds."""

    stages: int = 4
    replicas: int = 2
    batches: int = 6
    steps: int = 3
    cost: Cost = usual
    transfer: float = 1
    gather: float = 5
    reduce: float = 8
    optimizer: float = 10
    events: list[dict[str, Any]] = field(default_factory=list, compare=False)

    def order(self, stage: int) -> list[tuple[str, int]]:
        """Compute of a stage in order: 1F1B."""
        ahead = min(self.stages - stage - 1, self.batches)
        turns = [("forward", mb) for mb in range(ahead)]
        for mb in range(self.batches - ahead):
            turns += [("forward", ahead + mb), ("backward", mb)]
        return turns + [("backward", mb) for mb in range(self.batches - ahead, self.batches)]

    def step(self, number: int, offset: float) -> float:
        """Record a step, which takes as long as returned."""
        turns = {stage: self.order(stage) for stage in range(self.stages)}

        @cache
        def end(dp: int, stage: int, direction: str, mb: int) -> float:
            return begin(dp, stage, direction, mb) + self.cost(direction, stage, dp, mb, number)

        def peer(stage: int, direction: str) -> int:
            return stage + (-1 if direction == "forward" else 1)

        @cache
        def arrived(dp: int, stage: int, direction: str, mb: int) -> float:
            """When the transfer of the input begins: it is there, and the receive is posted."""
            posted = end(dp, stage, direction, mb - 1) if mb else 0.0
            sent = arrived(dp, stage, direction, mb - 1) + self.transfer if mb else 0.0
            return max(posted, sent, end(dp, peer(stage, direction), direction, mb))

        @cache
        def begin(dp: int, stage: int, direction: str, mb: int) -> float:
            at = turns[stage].index((direction, mb))
            ready = end(dp, stage, *turns[stage][at - 1]) if at else self.gather
            if 0 <= peer(stage, direction) < self.stages:
                ready = max(ready, arrived(dp, stage, direction, mb) + self.transfer)
            return ready

        every = [(dp, stage) for dp in range(self.replicas) for stage in range(self.stages)]
        done = {(dp, stage): end(dp, stage, *turns[stage][-1]) for dp, stage in every}
        reduced = [
            max(done[dp, stage] for dp in range(self.replicas)) for stage in range(self.stages)
        ]
        clip = max(reduced) + self.reduce
        last = clip + 1 + self.optimizer
        for dp, stage in every:
            add = Slices(self.events, dp, stage, number, offset, self.replicas)
            add("params-all-gather", 3, 0, self.gather, 0)
            seen = {"forward": 0, "backward": 0}
            for direction, mb in turns[stage]:
                cost = self.cost(direction, stage, dp, mb, number)
                start = begin(dp, stage, direction, mb)
                add(f"{direction}-compute", 0, start, cost, seen[direction], mb)
                seen[direction] += 1
                if 0 <= peer(stage, direction) < self.stages:
                    start = arrived(dp, stage, direction, mb)
                    add(f"{direction}-recv", 1, start, self.transfer, mb)
                other = 2 * stage - peer(stage, direction)
                if 0 <= other < self.stages:
                    start = arrived(dp, other, direction, mb)
                    add(f"{direction}-send", 1, start, self.transfer, mb)
            add("grads-reduce-scatter", 3, reduced[stage], self.reduce, 0)
            add("optimizer-clip-main-grad", 3, clip, 1, 0)
            add("optimizer", 0, clip + 1, self.optimizer, 0)
        return last

    def run(self) -> float:
        """Record all steps, with pauses between them; the mean length of a step."""
        offset, total = 0.0, 0.0
        for number in range(10, 10 + self.steps):
            dur = self.step(number, offset)
            offset, total = offset + 1.1 * dur, total + dur
        return total / self.steps


@dataclass(frozen=True)
class Slices:
    """Where slices of a worker in a step are written."""

    events: list[dict[str, Any]]
    dp: int
    stage: int
    step: int
    offset: float
    replicas: int

    def __call__(  # noqa: PLR0917  a row
        self, name: str, kind: int, start: float, dur: float, seq: int, mb: int = -1
    ) -> None:
        """Write a slice."""
        args = {"step": self.step, "model_chunk": 0 if mb >= 0 else -1, "mb_id": mb, "seq_id": seq}
        event = {"name": name, "cat": name, "pid": self.dp, "ph": "X", "args": args}
        tid = len(KINDS) * (self.stage * self.replicas + self.dp) + kind
        self.events.append(
            event | {"tid": tid, "ts": (self.offset + start) * 1000, "dur": dur * 1000}
        )


def file_of(job: Job) -> tuple[bytes, float]:
    """The timeline of a job, and the mean length of its steps in milliseconds."""
    mean = job.run()
    names = [
        {
            "name": "thread_name",
            "ph": "M",
            "pid": dp,
            "tid": len(KINDS) * (stage * job.replicas + dp) + kind,
            "args": {"name": f"PP rank {stage}, TP rank 0, {named}"},
        }
        for stage in range(job.stages)
        for dp in range(job.replicas)
        for kind, named in enumerate(KINDS)
    ]
    return gzip.compress(json.dumps([*job.events, *names]).encode()), mean
