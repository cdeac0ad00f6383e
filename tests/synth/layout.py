"""The arrangement of the ranks of a job: tensor parallel first, then data parallel, then stages."""

from __future__ import annotations

from dataclasses import dataclass

from tests.synth.program import Group


@dataclass(frozen=True)
class Layout:
    """Where a rank stands among the others, and the groups it belongs to."""

    rank: int = 0
    n_ranks: int = 1
    tensor: int = 1
    pipeline: int = 1

    @property
    def per_stage(self) -> int:
        """Ranks of one pipeline stage."""
        return self.n_ranks // self.pipeline

    @property
    def stage(self) -> int:
        """Pipeline stage of the rank."""
        return self.rank // self.per_stage

    @property
    def world(self) -> Group:
        """All ranks."""
        return Group("0", tuple(range(self.n_ranks)), "default_pg")

    @property
    def tensor_group(self) -> Group:
        """Ranks that share each layer."""
        first = self.rank - self.rank % self.tensor
        return Group(
            f"{1 + first // self.tensor}", tuple(range(first, first + self.tensor)), "mesh_tp"
        )

    @property
    def data_group(self) -> Group:
        """Ranks that hold the same parameters."""
        begin = self.stage * self.per_stage
        members = tuple(range(begin + self.rank % self.tensor, begin + self.per_stage, self.tensor))
        return Group(f"{1_000 + members[0]}", members, "mesh_dp")

    def pair(self, sender: int, receiver: int) -> Group:
        """The group of a sender and a receiver; each direction has its own."""
        name = 10_000 + sender * 2 + (receiver < sender)
        return Group(f"{name}", (min(sender, receiver), max(sender, receiver)), "mesh_pp")

    @property
    def groups(self) -> tuple[Group, ...]:
        """All groups of the rank."""
        up, down = self.rank + self.per_stage, self.rank - self.per_stage
        pairs = [self.pair(self.rank, up), self.pair(up, self.rank)] * (up < self.n_ranks)
        pairs += [self.pair(down, self.rank), self.pair(self.rank, down)] * (down >= 0)
        shared = [group for group in (self.tensor_group, self.data_group) if len(group.ranks) > 1]
        return (self.world, *shared, *pairs)
