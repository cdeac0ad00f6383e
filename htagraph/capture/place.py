"""The place of a process in its job, and its messages to the user."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """Rank and world size of a process."""

    world_size: int = 1
    rank: int = 0

    @classmethod
    def now(cls) -> Place:
        """The place according to torch.distributed, else to the environment that torchrun sets."""
        distributed = sys.modules.get(
            "torch.distributed"
        )  # imported already by any job that uses it
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return cls(distributed.get_world_size(), distributed.get_rank())
        try:
            size, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
        except (KeyError, ValueError):
            return cls()
        return cls(size, rank) if 0 <= rank < size else cls()

    def notice(self, message: object) -> None:
        """Write a message of one line to stderr."""
        of_rank = f" (rank {self.rank})" if self.world_size > 1 else ""
        with suppress(Exception):  # stderr may be closed, or belong to a notebook that is gone
            sys.stderr.write(f"htagraph{of_rank}: {' '.join(str(message).split())}\n")
            sys.stderr.flush()
