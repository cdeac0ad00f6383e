"""The random numbers of one program: durations by magnitude, jitter, device work."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.synth.program import Collective, Launch, Spend, Work

_US = 1_000
_FITS = 600
"""Blocks of 256 threads that fit at once on the smallest device."""


@dataclass(frozen=True)
class Draw:
    """Random numbers of one program, with a spread of durations of its own.

    Durations are multiples of `grid_ns`: of 20 ns, each twentieth is exact.
    """

    random: random.Random
    spread: float
    grid_ns: int = 1

    @classmethod
    def of(cls, text: str, *, grid_ns: int = 1) -> Draw:
        """The numbers that belong to a text."""
        numbers = random.Random(text)  # noqa: S311 - no secret
        return cls(numbers, numbers.uniform(0.01, 0.1), grid_ns)

    def _on_grid(self, ns: float) -> int:
        """A time on the grid, and not after another."""
        return int(ns) // self.grid_ns * self.grid_ns

    def ns(self, low_us: float, high_us: float) -> int:
        """A time between two, by its magnitude."""
        return self._on_grid(low_us * _US * (high_us / low_us) ** self.random.random())

    def about(self, ns: int) -> int:
        """A time about as long as another: usual jitter."""
        return self._on_grid(ns * (1 + self.random.uniform(-self.spread, self.spread)))

    def chance(self, share: float) -> bool:
        """Whether something happens."""
        return self.random.random() < share

    def work(self, name: str, dur_ns: int, n_blocks: int = 0) -> Work:
        """Work about as long; a kernel of few blocks unless told, which fill no device."""
        n_blocks = n_blocks or self.random.randint(20, _FITS)
        if name.startswith("Mem"):
            return Work(name, self.about(dur_ns), n_bytes=1 << 20)
        return Work(name, self.about(dur_ns), n_blocks=n_blocks, n_threads=256)

    def launch(self, name: str, dur_ns: int, stream: int = 7, n_blocks: int = 0) -> Launch:
        """A launch of such work."""
        return Launch(self.work(name, dur_ns, n_blocks), stream, cost_ns=self.about(4_500))

    def meeting(self, name: str, dur_ns: int, stream: int) -> Launch:
        """A launch of a collective about as long."""
        return Launch(Collective(name, self.about(dur_ns)), stream, cost_ns=self.about(5_500))

    def spend(self, ns: int) -> Spend:
        """About as much host time."""
        return Spend(self.about(ns))
