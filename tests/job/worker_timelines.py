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

Turn = tuple[str, int, int]
"""Direction, stage and micro-batch of a compute."""

KINDS = ("compute", "pp-comm", "tp-comm", "dp-comm", "misc")


def usual(direction: str, stage: int, dp: int, mb: int, step: int) -> float:
    """Forward 20 ms, backward 40 ms."""
    return 20 if direction == "forward" else 40


@dataclass(frozen=True)
class Job:
    """A pipeline whose workers hold every so many-th stage; times are milliseconds."""

    stages: int = 4
    chunks: int = 1
    replicas: int = 2
    batches: int = 6
    steps: int = 3
    cost: Cost = usual
    transfer: float = 1
    gather: float = 5
    reduce: float = 8
    optimizer: float = 10
    events: list[dict[str, Any]] = field(default_factory=list, compare=False)

    def order(self, worker: int) -> list[Turn]:
        """Compute of a worker in order: 1F1B; with several chunks, first all forwards."""
        if self.chunks > 1:
            mine = range(worker, self.stages, self.stages // self.chunks)
            batches = range(self.batches)
            forward = [("forward", stage, mb) for stage in mine for mb in batches]
            return forward + [("backward", stage, mb) for stage in reversed(mine) for mb in batches]
        ahead = min(self.stages - worker - 1, self.batches)
        turns = [("forward", worker, mb) for mb in range(ahead)]
        for mb in range(self.batches - ahead):
            turns += [("forward", worker, ahead + mb), ("backward", worker, mb)]
        last = range(self.batches - ahead, self.batches)
        return turns + [("backward", worker, mb) for mb in last]

    def step(self, number: int, offset: float) -> float:
        """Record a step, which takes as long as returned."""
        n_workers = self.stages // self.chunks
        turns = [self.order(worker) for worker in range(n_workers)]

        def earlier(turn: Turn, *, to: int = 0) -> Turn | None:
            """The compute before this one, of its direction, on the worker; of those passed on."""
            same = [
                one
                for one in turns[turn[1] % n_workers]
                if one[0] == turn[0] and (not to or 0 <= one[1] + to < self.stages)
            ]
            at = same.index(turn)
            return same[at - 1] if at else None

        @cache
        def end(dp: int, turn: Turn) -> float:
            direction, stage, mb = turn
            return begin(dp, turn) + self.cost(direction, stage, dp, mb, number)

        def peer(stage: int, direction: str) -> int:
            return stage + (-1 if direction == "forward" else 1)

        @cache
        def arrived(dp: int, turn: Turn) -> float:
            """When the transfer of the input begins: it is there, and the receive is posted."""
            direction, stage, mb = turn
            source = direction, peer(stage, direction), mb
            before, to = earlier(turn), stage - source[1]
            posted = end(dp, before) if before else 0.0
            last = earlier(source, to=to)
            sent = arrived(dp, (direction, last[1] + to, last[2])) + self.transfer if last else 0.0
            return max(posted, sent, end(dp, source))

        @cache
        def begin(dp: int, turn: Turn) -> float:
            direction, stage, _ = turn
            mine = turns[stage % n_workers]
            at = mine.index(turn)
            ready = end(dp, mine[at - 1]) if at else self.gather
            if 0 <= peer(stage, direction) < self.stages:
                ready = max(ready, arrived(dp, turn) + self.transfer)
            return ready

        every = [(dp, worker) for dp in range(self.replicas) for worker in range(n_workers)]
        done = {(dp, worker): end(dp, turns[worker][-1]) for dp, worker in every}
        reduced = [
            max(done[dp, worker] for dp in range(self.replicas)) for worker in range(n_workers)
        ]
        clip = max(reduced) + self.reduce
        last = clip + 1 + self.optimizer
        for dp, worker in every:
            add = Slices(self.events, dp, worker, number, offset, self.replicas)
            add("params-all-gather", 3, 0, self.gather, 0)
            seen = {"forward": 0, "backward": 0}
            for turn in turns[worker]:
                direction, stage, mb = turn
                cost, seq = self.cost(direction, stage, dp, mb, number), seen[direction]
                chunk = stage // n_workers
                add(f"{direction}-compute", 0, begin(dp, turn), cost, seq, mb, chunk)
                seen[direction] += 1
                if 0 <= peer(stage, direction) < self.stages:
                    add(f"{direction}-recv", 1, arrived(dp, turn), self.transfer, seq)
                other = 2 * stage - peer(stage, direction)
                if 0 <= other < self.stages:
                    start = arrived(dp, (direction, other, mb))
                    add(f"{direction}-send", 1, start, self.transfer, seq)
            add("grads-reduce-scatter", 3, reduced[worker], self.reduce, 0)
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
    worker: int
    step: int
    offset: float
    replicas: int

    def __call__(  # noqa: PLR0917  a row
        self,
        name: str,
        kind: int,
        start: float,
        dur: float,
        seq: int,
        mb: int = -1,
        chunk: int = -1,
    ) -> None:
        """Write a slice."""
        args = {"step": self.step, "model_chunk": chunk, "mb_id": mb, "seq_id": seq}
        event = {"name": name, "cat": name, "pid": self.dp, "ph": "X", "args": args}
        tid = len(KINDS) * (self.worker * self.replicas + self.dp) + kind
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
            "tid": len(KINDS) * (worker * job.replicas + dp) + kind,
            "args": {"name": f"PP rank {worker}, TP rank 0, {named}"},
        }
        for worker in range(job.stages // job.chunks)
        for dp in range(job.replicas)
        for kind, named in enumerate(KINDS)
    ]
    return gzip.compress(json.dumps([*job.events, *names]).encode()), mean
